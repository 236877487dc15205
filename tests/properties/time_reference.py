"""A second implementation of event time: sequential, slow, obviously right. Written from the rules, sharing no code.

A stream is a list of events: `Rec(value, timestamp)` and `Mark(watermark)`; the last one is `Mark(MAX)`. An operator
is an object with `feed(event)`, which gives the events that come out. Values are tuples `(k, n, t, w)`: a key, a
number, a time, and the watermark that the record announces (None: no watermark).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

MIN, MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Rec:
    """A record with its timestamp."""

    value: tuple
    timestamp: int


@dataclass(frozen=True)
class Mark:
    """A watermark: nothing at or before this time is to come."""

    time: int


Event = Rec | Mark

# -- programs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """A window operator; each part is a name with its numbers, as in `("sliding", 10, 5, 0)`."""

    assigner: tuple
    trigger: tuple | None = None
    evictor: tuple | None = None
    lateness: int = 0
    function: str = "list"
    """`reduce` and `aggregate` keep one value, `list` keeps all."""
    shows_window: bool = True
    """If results say which window they are of; a `list` always does."""
    counts_firings: bool = False
    """If they also count the window's firings, in its state; not for windows that merge."""


@dataclass(frozen=True)
class Timers:
    """A keyed process function: where it sets timers, and which it takes back."""

    ahead: int
    delete: int | None = None
    again: int | None = None
    counts: bool = True
    """If results tell how many timers the key has seen, and the watermark."""


@dataclass(frozen=True)
class Program:
    """Sources, a chain of maps and filters, a keyed operator, and perhaps a window over its results."""

    sources: tuple[tuple[tuple, ...], ...]
    disorder: int | None = None
    """None: watermarks are where records announce them. Otherwise records are at most so much late."""
    steps: tuple[str, ...] = ()
    assign_again: bool = False
    stage: Window | Timers = field(default_factory=lambda: Timers(0))
    then: Window | None = None
    spread: bool = False
    """Each source has as many subtasks as the job and one split, and operators are not chained: event time has to come
    through forward edges that bring most subtasks nothing."""
    twice: bool = False
    """The stream is united with itself."""


# -- functions, which the program under test uses too ----------------------------------------------

MAPS: dict[str, Callable[[tuple], tuple]] = {
    "add": lambda v: (v[0], v[1] + 1, *v[2:]),
    "swap keys": lambda v: ("b" if v[0] == "a" else "a", *v[1:]),
}
FILTERS: dict[str, Callable[[tuple], bool]] = {
    "even": lambda v: v[1] % 2 == 0,
    "not c": lambda v: v[0] != "c",
}


def key_of(v: tuple) -> str:
    return v[0]


def gap_of(v: tuple) -> int:
    """The gap of a dynamic session."""
    return 1 + v[1] % 4


def distance(a: tuple, b: tuple) -> int:
    """How far two records are apart, for delta triggers and evictors."""
    return abs(b[1] - a[1])


def reduced(a: tuple, b: tuple) -> tuple:
    """Does not depend on the order of records: sessions merge in any order."""
    return a[0], a[1] + b[1], min(a[2], b[2]), None


def second_time(v: tuple) -> int:
    """The timestamps of a second assignment."""
    return v[2] + 3


def second_mark(v: tuple) -> int | None:
    """The watermarks of a second assignment."""
    return v[2] - 1 if v[1] % 4 == 0 else None


def windowed(key: str, bounds: tuple | None, values: list[tuple], firing: int | None) -> tuple:
    """The result of a window function; `firing` counts the window's firings."""
    numbers = tuple(v[1] for v in values)
    return key, sum(numbers), 0, (bounds, tuple(sorted(numbers)), firing)


def timer_set(v: tuple, timestamp: int, spec: Timers) -> tuple[int, int | None]:
    """What a record does: the timer it sets, the one it deletes."""
    gone = None if spec.delete is None or v[1] % 3 else timestamp + spec.delete
    return timestamp + spec.ahead, gone


def timer_again(time: int, spec: Timers) -> int | None:
    """What a timer does: the timer it sets, until some time, so that there is an end."""
    return None if spec.again is None or time + spec.again > 40 else time + spec.again


# -- windows: assigners, triggers, evictors --------------------------------------------------------

Bounds = tuple[int, int]
GLOBAL: Bounds = (MIN, 2**63)
"""The global window: its last moment is MAX."""


def last_of(window: Bounds) -> int:
    """The last moment of a window; time itself has one."""
    return min(window[1] - 1, MAX)


def assign(spec: tuple, v: tuple, timestamp: int) -> list[Bounds]:
    """The windows of a record (rules 18, 19, 23)."""
    kind, *numbers = spec
    match kind:
        case "tumbling":
            size, offset = numbers
            start = timestamp - (timestamp - offset) % size
            return [(start, start + size)]
        case "sliding":
            size, slide, offset = numbers
            start = timestamp - (timestamp - offset) % slide
            found = []
            while start > timestamp - size:
                found.append((start, start + size))
                start -= slide
            return found
        case "session":
            return [(timestamp, timestamp + numbers[0])]
        case "dynamic":
            return [(timestamp, timestamp + gap_of(v))]
        case "global":
            return [GLOBAL]
    raise AssertionError(spec)


def default_trigger(assigner: tuple) -> tuple:
    return ("never",) if assigner[0] == "global" else ("event",)


FIRE, PURGE = "fire", "purge"


class Trigger:
    """A trigger of one operator; `state` is by (key, window). Each method gives what is to be done."""

    def __init__(self, spec: tuple, timers: Timings) -> None:
        self.kind, self.numbers = spec[0], spec[1:]
        self.timers = timers
        self.state: dict[Any, Any] = {}
        self.inner = Trigger(spec[1], timers) if self.kind == "purging" else None

    def on_element(self, v: tuple, timestamp: int, key: str, window: Bounds) -> set[str]:
        last, at = last_of(window), (key, window)
        match self.kind:
            case "event":
                if last <= self.timers.watermark:
                    return {FIRE}
                self.timers.add(last, at)
            case "count":
                self.state[at] = self.state.get(at, 0) + 1
                if self.state[at] >= self.numbers[0]:
                    del self.state[at]
                    return {FIRE}
            case "continuous":
                if last <= self.timers.watermark:
                    return {FIRE}
                self.timers.add(last, at)
                if at not in self.state:
                    self._next(timestamp - timestamp % self.numbers[0], at)
            case "delta":
                if at not in self.state:
                    self.state[at] = v
                elif distance(self.state[at], v) > self.numbers[0]:
                    self.state[at] = v
                    return {FIRE}
            case "purging":
                return self._purging(self.inner.on_element(v, timestamp, key, window))
        return set()

    def on_time(self, time: int, key: str, window: Bounds) -> set[str]:
        last, at = last_of(window), (key, window)
        match self.kind:
            case "event":
                return {FIRE} if time == last else set()
            case "continuous":
                if time == last:
                    return {FIRE}
                if self.state.get(at) == time:
                    self._next(time, at)
                    return {FIRE}
            case "purging":
                return self._purging(self.inner.on_time(time, key, window))
        return set()

    def on_merge(self, key: str, window: Bounds, merged: list[Bounds]) -> None:
        at = (key, window)
        found = [self.state.pop((key, w)) for w in merged if (key, w) in self.state]
        match self.kind:
            case "event":
                if last_of(window) > self.timers.watermark:
                    self.timers.add(last_of(window), at)
            case "count":
                if found:
                    self.state[at] = sum(found)
            case "continuous":
                if found:
                    self.state[at] = min(found)
                    self.timers.add(min(found), at)
            case "purging":
                self.inner.on_merge(key, window, merged)

    def clear(self, key: str, window: Bounds) -> None:
        at = (key, window)
        state = self.state.pop(at, None)
        if self.kind == "event":
            self.timers.discard(last_of(window), at)
        if self.kind == "continuous" and state is not None:
            self.timers.discard(state, at)
        if self.inner is not None:
            self.inner.clear(key, window)

    def _next(self, time: int, at: Any) -> None:
        self.state[at] = min(time + self.numbers[0], last_of(at[1]))
        self.timers.add(self.state[at], at)

    @staticmethod
    def _purging(result: set[str]) -> set[str]:
        return {FIRE, PURGE} if FIRE in result else result


def evict(spec: tuple, contents: list[Rec]) -> list[Rec]:
    """What an evictor leaves (rule 34)."""
    if not contents:
        return contents
    match spec[0]:
        case "count":
            return contents[max(0, len(contents) - spec[1]) :]
        case "time":
            newest = max(r.timestamp for r in contents)
            return [r for r in contents if r.timestamp > newest - spec[1]]
        case "delta":
            newest_value = contents[-1].value
            return [r for r in contents if distance(r.value, newest_value) < spec[1]]
    raise AssertionError(spec)


class Timings:
    """The timers of an operator (rules 10 to 13): a set of (time, whose)."""

    def __init__(self) -> None:
        self.watermark = MIN
        self.waiting: dict[tuple[int, Any], None] = {}

    def add(self, time: int, whose: Any) -> None:
        self.waiting[time, whose] = None

    def discard(self, time: int, whose: Any) -> None:
        self.waiting.pop((time, whose), None)

    def advance(self, watermark: int) -> Iterator[tuple[int, Any]]:
        """The timers that are due, also those set meanwhile, the earliest first."""
        self.watermark = watermark
        while due := [timer for timer in self.waiting if timer[0] <= watermark]:
            first = min(due, key=lambda timer: timer[0])
            del self.waiting[first]
            yield first


# -- operators -------------------------------------------------------------------------------------


class Assign:
    """Timestamps and watermarks; what comes from upstream is swallowed but the end (rules 3, 5)."""

    def __init__(self, time: Callable[[tuple], int], mark: Callable[[tuple], int | None]) -> None:
        self.time, self.mark = time, mark
        self.watermark = MIN

    def feed(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Mark):
            if event.time == MAX:
                yield event
            return
        yield Rec(event.value, self.time(event.value))
        mark = self.mark(event.value)
        if mark is not None and mark > self.watermark:
            self.watermark = mark
            yield Mark(mark)


class Step:
    """A map or a filter."""

    def __init__(self, name: str) -> None:
        self.name = name

    def feed(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Mark):
            yield event
        elif self.name in MAPS:
            yield Rec(MAPS[self.name](event.value), event.timestamp)
        elif FILTERS[self.name](event.value):
            yield event


class KeyedTimers:
    """A keyed process function with timers and a count per key."""

    def __init__(self, spec: Timers) -> None:
        self.spec = spec
        self.timers = Timings()
        self.fired: dict[str, int] = {}

    def feed(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Rec):
            key = key_of(event.value)
            new, gone = timer_set(event.value, event.timestamp, self.spec)
            self.timers.add(new, key)
            if gone is not None:
                self.timers.discard(gone, key)
            return
        for time, key in self.timers.advance(event.time):
            again = timer_again(time, self.spec)
            if again is not None:
                self.timers.add(again, key)
            self.fired[key] = self.fired.get(key, 0) + 1
            details = (self.fired[key], event.time) if self.spec.counts else None
            yield Rec((key, time, 0, details), time)
        yield event


class Windows:
    """The window operator (rules 18 to 34)."""

    def __init__(self, spec: Window) -> None:
        self.spec = spec
        self.timers = Timings()
        self.trigger = Trigger(spec.trigger or default_trigger(spec.assigner), self.timers)
        self.contents: dict[tuple[str, Bounds], list[Rec]] = {}
        self.firings: dict[tuple[str, Bounds], int] = {}
        self.sessions: dict[str, set[Bounds]] = {}
        self.merging = spec.assigner[0] in ("session", "dynamic")
        self.event_time = spec.assigner[0] != "global"
        self.late: list[Rec] = []

    def feed(self, event: Event) -> Iterator[Event]:
        if isinstance(event, Rec):
            yield from self._element(event)
            return
        for time, (key, window) in self.timers.advance(event.time):
            yield from self._time(time, key, window)
        yield event

    def _element(self, event: Rec) -> Iterator[Event]:
        key = key_of(event.value)
        skipped = True
        for assigned in assign(self.spec.assigner, event.value, event.timestamp):
            window = self._merge(key, assigned) if self.merging else assigned
            if self._is_late(window):
                self.sessions.get(key, set()).discard(window)
                continue
            skipped = False
            self.contents.setdefault((key, window), []).append(event)
            result = self.trigger.on_element(event.value, event.timestamp, key, window)
            yield from self._act(result, key, window)
            if self._cleanup(window) != MAX:
                self.timers.add(self._cleanup(window), (key, window))
        behind = min(event.timestamp + self.spec.lateness, MAX) <= self.timers.watermark
        if skipped and self.event_time and behind:
            self.late.append(event)

    def _time(self, time: int, key: str, window: Bounds) -> Iterator[Event]:
        if self.merging and window not in self.sessions.get(key, set()):
            return  # it has become part of another window
        yield from self._act(self.trigger.on_time(time, key, window), key, window)
        if self.event_time and time == self._cleanup(window):
            self.contents.pop((key, window), None)
            self.firings.pop((key, window), None)
            self.trigger.clear(key, window)
            self.sessions.get(key, set()).discard(window)

    def _merge(self, key: str, window: Bounds) -> Bounds:
        """The window that a new one becomes a part of (rules 23, 24)."""
        known = self.sessions.setdefault(key, set())
        touching = [w for w in known if w[0] <= window[1] and w[1] >= window[0]]
        whole = (min(w[0] for w in [window, *touching]), max(w[1] for w in [window, *touching]))
        if touching and touching != [whole]:
            self.trigger.on_merge(key, whole, touching)
            for part in touching:
                self.trigger.clear(key, part)
                self.timers.discard(self._cleanup(part), (key, part))
            parts = [self.contents.pop((key, part), []) for part in touching]
            self.contents[key, whole] = [rec for part in parts for rec in part]
        known.difference_update(touching)
        known.add(whole)
        return whole

    def _act(self, result: Iterable[str], key: str, window: Bounds) -> Iterator[Event]:
        contents = self.contents.get((key, window))
        if FIRE in result and contents:
            evictor = self.spec.evictor
            if evictor is not None and not evictor[-1]:
                contents[:] = evict(evictor, contents)
            yield Rec(self._result(key, window, contents), last_of(window))
            if evictor is not None and evictor[-1]:
                contents[:] = evict(evictor, contents)
        if PURGE in result:
            self.contents.pop((key, window), None)

    def _result(self, key: str, window: Bounds, contents: list[Rec]) -> tuple:
        values = [rec.value for rec in contents]
        if self.spec.function != "list":
            total = values[0]
            for value in values[1:]:
                total = reduced(total, value)
            if self.spec.function == "aggregate":
                total = (total[0], total[1], len(values), None)
            values = [total]
            if not self.spec.shows_window:
                return total
        bounds = window if self.event_time else None
        if not self.spec.counts_firings:
            return windowed(key, bounds, values, None)
        self.firings[key, window] = self.firings.get((key, window), 0) + 1
        return windowed(key, bounds, values, self.firings[key, window])

    def _cleanup(self, window: Bounds) -> int:
        return min(last_of(window) + self.spec.lateness, MAX) if self.event_time else MAX

    def _is_late(self, window: Bounds) -> bool:
        return self.event_time and self._cleanup(window) <= self.timers.watermark


# -- whole programs --------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a program gives: its results and its late records, each with a timestamp."""

    results: list[tuple[tuple, int]]
    late: list[tuple[tuple, int]]


def run(program: Program) -> Outcome:
    """Feed everything through, one event after the other."""
    events: list[Event] = []
    punctuated = program.disorder is None
    for records in program.sources * (2 if program.twice else 1):
        # Where nothing is late it does not matter when watermarks come, so they come at the end.
        assigner = Assign(lambda v: v[2], lambda v: v[3] if punctuated else None)
        events += [out for v in records for out in assigner.feed(Rec(v, MIN))]
    events.append(Mark(MAX))
    operators: list[Any] = [Step(name) for name in program.steps]
    if program.assign_again:
        operators.append(Assign(second_time, second_mark))
    stage: Any = Windows(program.stage) if isinstance(program.stage, Window) else None
    operators.append(stage or KeyedTimers(program.stage))
    if program.then is not None:
        operators.append(Windows(program.then))
    for operator in operators:
        events = [out for event in events for out in operator.feed(event)]
    late = stage.late if stage is not None else []
    return Outcome(
        [(e.value, e.timestamp) for e in events if isinstance(e, Rec)],
        [(e.value, e.timestamp) for e in late],
    )
