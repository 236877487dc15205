"""Timers (Flink's `InternalTimerService`).

A timer is state: an entry of a table under (key, (timestamp, namespace)), which makes it one of a kind (rule 10) and
lets it survive and move like all keyed state. The *calendar* beside it only says where to look next. It is made anew
from the table whenever it may be wrong, and kept up to date with the files that other processes wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from millstream.api.functions import TimerService
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.errors import InvalidArgument
from millstream.runtime.base import clock
from millstream.runtime.base.failpoints import reached
from millstream.runtime.state.keyed_state import NO_KEY, KeyContext
from millstream.runtime.state.table import DELETED, MISSING, Table
from millstream.runtime.wire.keys import original_key

__all__ = ["Calendar", "InternalTimers", "KeyedTimerService"]

Fired = Callable[[int, Any], None]


class Calendar:
    """The entries of a table by time: one whose key is (canon, (timestamp, ..)) is found at its timestamp."""

    __slots__ = ("_at", "_heap", "valid")

    def __init__(self) -> None:
        self._at: dict[int, dict[Any, None]] = {}
        self._heap: list[int] = []
        self.valid = True

    def add(self, key: Any) -> None:
        """An entry is there."""
        at = key[1][0]
        bucket = self._at.get(at)
        if bucket is None:
            self._at[at] = {key: None}
            heappush(self._heap, at)
        else:
            bucket[key] = None

    def remove(self, key: Any) -> None:
        """An entry is gone."""
        bucket = self._at.get(key[1][0])
        if bucket is not None:
            bucket.pop(key, None)

    def put_back(self, key: Any, *, there: bool) -> None:
        """What was done to an entry has been undone."""
        if self.valid and there:
            self.add(key)
        elif self.valid:
            self.remove(key)

    def applied(self, kind: str, entries: list[Any]) -> None:
        """Entries of a file were put into the table."""
        if kind == "D":
            for key in entries:
                self.remove(key)
        else:
            for key, _ in entries:
                self.add(key)

    def clear(self) -> None:
        """The table is empty."""
        self._at.clear()
        self._heap.clear()

    def refresh(self, table: Table) -> None:
        """Look at the whole table again if it may have changed unseen."""
        if not self.valid:
            self.clear()
            for key in table.keys():  # noqa: SIM118 - a table is no dictionary
                self._at.setdefault(key[1][0], {})[key] = None
            self._heap = list(self._at)
            heapify(self._heap)
            self.valid = True

    @property
    def next(self) -> int | None:
        """The time of the first entry."""
        heap, at = self._heap, self._at
        while heap and not at[heap[0]]:
            del at[heappop(heap)]
        return heap[0] if heap else None

    def pop(self) -> Any:
        """The first entry, after `next` has said that there is one."""
        bucket = self._at[self._heap[0]]
        key = next(iter(bucket))
        del bucket[key]
        return key


class _Queue:
    """The timers of one domain."""

    __slots__ = ("_changes", "_read", "_table", "calendar")

    def __init__(self, table: Table) -> None:
        self._table = table
        self._changes = table.changes
        self._read = table.read
        self.calendar = Calendar()
        # The table may have been filled before anybody asked for it.
        self.calendar.valid = False
        table.index = self.calendar

    def _there(self, key: Any) -> bool:
        change = self._changes.get(key, MISSING)
        if change is MISSING:
            return self._read(key, MISSING) is not MISSING
        return change is not DELETED

    def add(self, key: Any) -> None:
        if not self._there(key):
            self._changes[key] = True
            if self.calendar.valid:
                self.calendar.add(key)

    def delete(self, key: Any) -> None:
        if self._there(key):
            self._forget(key)
            if self.calendar.valid:
                self.calendar.remove(key)

    def _forget(self, key: Any) -> None:
        # One that came and went within an epoch leaves no trace in the epoch's file.
        if self._read(key, MISSING) is MISSING:
            self._changes.pop(key, None)
        else:
            self._changes[key] = DELETED

    def forget(self, wanted: Callable[[Any], bool]) -> None:
        for key in [key for key in self._table.keys() if wanted(key[1][1])]:  # noqa: SIM118
            self._forget(key)
        self.calendar.valid = False

    def due(self) -> int | None:
        self.calendar.refresh(self._table)
        return self.calendar.next

    def count(self) -> int:
        alone, windows = 0, set()
        for canon, (_, namespace) in self._table.keys():  # noqa: SIM118 - a table is no dictionary
            if namespace is None:
                alone += 1
            else:
                windows.add((canon, namespace))
        return alone + len(windows)

    def fire(self, until: int, keys: KeyContext, fired: Fired) -> None:
        """Fire what is due, in order, with what is registered meanwhile (rules 11 to 13)."""
        at = self.due()
        while at is not None and at <= until:
            reached("timer firing")
            key = self.calendar.pop()
            self._forget(key)
            keys.canon = canon = key[0]
            keys.key = original_key(canon)
            fired(at, key[1][1])
            at = self.calendar.next
        keys.leave()

    def take_all(self) -> list[Any]:
        """Everything that is there now, in order."""
        timers = []
        while self.due() is not None:
            timers.append(self.calendar.pop())
        return timers

    def finish(self, timers: list[Any], keys: KeyContext, fired: Fired) -> None:
        """Fire those of the timers that have not been deleted since."""
        for key in timers:
            if self._there(key):
                self._forget(key)
                keys.canon = canon = key[0]
                keys.key = original_key(canon)
                fired(key[1][0], key[1][1])


class InternalTimers:
    """The timers of one operator, for its current key."""

    __slots__ = (
        "_event",
        "_keys",
        "_processing",
        "on_event_time",
        "on_processing_time",
        "watermark",
    )

    def __init__(self, keys: KeyContext, make_table: Callable[[str], Table]) -> None:
        self._keys = keys
        self._event = _Queue(make_table("#event-timers"))
        self._processing = _Queue(make_table("#processing-timers"))
        self.watermark = NO_TIME
        self.on_event_time: Fired = _nothing
        self.on_processing_time: Fired = _nothing

    def now(self) -> int:
        """The time of the clock, in milliseconds."""
        return clock.now()

    def register_event(self, namespace: Any, timestamp: int) -> None:
        """Fire once the watermark has reached the timestamp."""
        self._event.add((self._keys.canon, (timestamp, namespace)))

    def delete_event(self, namespace: Any, timestamp: int) -> None:
        """Take back `register_event`; nothing happens if there is no timer for the timestamp."""
        self._event.delete((self._keys.canon, (timestamp, namespace)))

    def register_processing(self, namespace: Any, timestamp: int) -> None:
        """Fire once the clock has reached the timestamp."""
        self._processing.add((self._keys.canon, (timestamp, namespace)))

    def delete_processing(self, namespace: Any, timestamp: int) -> None:
        """Take back `register_processing`; nothing happens if there is no timer for the timestamp."""
        self._processing.delete((self._keys.canon, (timestamp, namespace)))

    def forget(self, wanted: Callable[[Any], bool]) -> None:
        """Remove all timers of certain namespaces, of every key."""
        self._event.forget(wanted)
        self._processing.forget(wanted)

    def advance(self, watermark: int) -> None:
        """Fire the event timers that are due at `watermark`."""
        self.watermark = watermark
        self._event.fire(watermark, self._keys, self.on_event_time)

    def tick(self, time: int) -> None:
        """Fire the timers of the clock that are due at `time`."""
        self._processing.fire(time, self._keys, self.on_processing_time)

    def finish_key(self) -> None:
        """A key of a batch job has ended: event timers first, then those of the clock, and nothing that is registered
        meanwhile (rule 60)."""
        self.watermark = MAX_TIME
        event, processing = self._event.take_all(), self._processing.take_all()
        self._event.finish(event, self._keys, self.on_event_time)
        self._processing.finish(processing, self._keys, self.on_processing_time)
        self.watermark = NO_TIME

    def next_tick(self) -> int | None:
        """When the clock has to be looked at again."""
        return self._processing.due()

    def waiting(self) -> int:
        """How many timers wait for the clock, or windows: one may have several timers."""
        return self._processing.count()


def _nothing(timestamp: int, namespace: Any) -> None:
    return


class KeyedTimerService(TimerService):
    """What a keyed function sees of its timers."""

    __slots__ = ("_keys", "_timers", "watermark")

    def __init__(self, keys: KeyContext) -> None:
        self._keys = keys
        self._timers: InternalTimers | None = None
        self.watermark = NO_TIME

    def attach(self, timers: InternalTimers) -> None:
        """The function says what to do when a timer fires; one that does not needs none."""
        self._timers = timers

    def current_processing_time(self) -> int:
        return clock.now()

    def current_watermark(self) -> int:
        return self.watermark if self._timers is None else self._timers.watermark

    def register_event_time_timer(self, timestamp: int) -> None:
        at = self._checked(timestamp, "register_event_time_timer")
        if self._timers is not None:
            self._timers.register_event(None, at)

    def register_processing_time_timer(self, timestamp: int) -> None:
        at = self._checked(timestamp, "register_processing_time_timer")
        if self._timers is not None:
            self._timers.register_processing(None, at)

    def delete_event_time_timer(self, timestamp: int) -> None:
        at = self._checked(timestamp, "delete_event_time_timer")
        if self._timers is not None:
            self._timers.delete_event(None, at)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        at = self._checked(timestamp, "delete_processing_time_timer")
        if self._timers is not None:
            self._timers.delete_processing(None, at)

    def _checked(self, timestamp: Any, call: str) -> int:
        if self._keys.canon is NO_KEY:
            msg = f"{call} was called where there is no current key"
            hint = "timers belong to a key: register them in process_element or on_timer"
            raise InvalidArgument(msg, hint=hint)
        return checked_time(timestamp, call)


def checked_time(timestamp: Any, call: str) -> int:
    """A timestamp in milliseconds that fits into 64 bits."""
    try:
        at = timestamp.__index__()
    except (AttributeError, TypeError):
        msg = f"{call} needs a whole number of milliseconds"
        raise InvalidArgument(msg, got=f"{type(timestamp).__name__} {timestamp!r}"[:200]) from None
    if not NO_TIME <= at <= MAX_TIME:
        msg = f"{call}: the timestamp does not fit into 64 bits"
        raise InvalidArgument(
            msg, got=str(at)[:80], hint="timestamps are milliseconds since 1970, not nanoseconds"
        )
    return int(at)
