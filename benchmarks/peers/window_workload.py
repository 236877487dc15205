"""The window workloads, shared by every peer so that all run the same Python functions.

Event number ``n`` -> ``(key, time)`` -> count per key and window -> ``(key, end, count)`` -> a sink
that tallies. Event time advances by one second per 10,000 events, and never goes back.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from workload import KEYS, Tally, report, steady_start

PER_SECOND = 10_000  # events in a second of event time
PER_MS = PER_SECOND // 1_000
BASE = 1_700_000_040_000  # when event 0 happens; a full minute, so that windows begin with it

# Sessions: 100 keys are active at a time, each with 20 events in 0.2 s; then the next 100. A key is
# silent for 1.8 s between two of its sessions.
ACTIVE = 100
BURST = 2_000
GAP_MS = 1_000

_FOLD_EVERY = 2_000

Event = tuple[str, int]
Result = tuple[str, int, int]


@dataclass(frozen=True)
class Case:
    """One kind of window; ``size`` is the gap for sessions.

    ``events`` and ``pyflink_events``: which share of a run's events it gets, as records of some
    cases cost more than of others. PyFlink's are few already, and fewer would be unfair: windows
    that are open at the beginning and the end of the input are most of the results of a short run.
    """

    name: str
    title: str
    size: int
    slide: int
    events: float
    pyflink_events: float


CASES = {
    case.name: case
    for case in [
        Case("tumbling", "tumbling windows, 10 s", 10_000, 10_000, 1, 1),
        Case("sliding10", "sliding windows, 10 s by 1 s", 10_000, 1_000, 0.5, 1),
        Case("sliding60", "sliding windows, 60 s by 1 s", 60_000, 1_000, 0.25, 1),
        Case("session", "session windows, gap 1 s", GAP_MS, 0, 1, 0.5),
    ]
}


def to_event(n: int) -> Event:
    """The map function for tumbling and sliding windows: every key has an event each 100 ms."""
    return (str(n % KEYS), BASE + n // PER_MS)


def to_session_event(n: int) -> Event:
    """The map function for sessions: bursts of the keys 0, 10, 20, .., then 1, 11, 21, .."""
    return (str(n % ACTIVE * 10 + n // BURST % 10), BASE + n // PER_MS)


def event_function(case: str) -> Any:
    return to_session_event if case == "session" else to_event


class Counting:
    """The aggregate function's methods; peers add their own base class."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Event, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


# ---------------------------------------------------------------- the right results


def _count(key: int, low: int, high: int) -> int:
    """How many of the numbers ``low`` to ``high - 1`` are ``key`` modulo the number of keys."""
    return (high - key + KEYS - 1) // KEYS - (low - key + KEYS - 1) // KEYS


def _aligned(case: Case, records: int) -> Iterator[tuple[int, int, int]]:
    last = BASE + (records - 1) // PER_MS
    start = BASE - case.size + case.slide
    while start <= last:
        low = max(0, (start - BASE) * PER_MS)
        high = min(records, (start + case.size - BASE) * PER_MS)
        for key in range(KEYS):
            count = _count(key, low, high)
            if count:
                yield key, start + case.size, count
        start += case.slide


def _sessions(records: int) -> Iterator[tuple[int, int, int]]:
    for low in range(0, records, BURST):
        high = min(low + BURST, records)
        for place in range(min(ACTIVE, high - low)):
            last = low + place + (high - low - place - 1) // ACTIVE * ACTIVE
            key = place * 10 + low // BURST % 10
            yield key, BASE + last // PER_MS + GAP_MS, (last - low) // ACTIVE + 1


def expected(case: str, records: int) -> tuple[int, int, int]:
    """Results, the sum of their counts, and their weight, by arithmetic alone."""
    kind = CASES[case]
    results = total = weight = 0
    for key, end, count in _sessions(records) if case == "session" else _aligned(kind, records):
        results += 1
        total += count
        weight += weigh(key, end, count)
    return results, total, weight


def weigh(key: int, end: int, count: int) -> int:
    """A number that a result under another key, in another window, or a lost one would change."""
    return (key + 1) * (end % 10_007) * count


def digest(results: int, total: int, weight: int) -> str:
    """Independent of order."""
    text = f"{results} results, counts {total}, weight {weight}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def expected_digest(case: str, records: int) -> str:
    return digest(*expected(case, records))


# ---------------------------------------------------------------- the sink's tally


class WindowTally(Tally):
    """What a sink subtask keeps: results, their counts and weight, and how far windows had come."""

    def __init__(self) -> None:
        super().__init__()
        self.results = self.counts = self.weight = 0
        self.ends: list[tuple[float, int]] = []  # (monotonic time, end of the last window so far)
        self._waiting: list[Result] = []

    def add(self, result: Result) -> None:  # type: ignore[override]
        self._waiting.append(result)
        if len(self._waiting) >= _FOLD_EVERY:
            self._fold()

    def _fold(self) -> None:
        keys, ends, counts = zip(*self._waiting, strict=True)
        self.results += len(counts)
        self.counts += sum(counts)
        self.weight += sum(map(weigh, map(int, keys), ends, counts))
        self.ends.append((time.monotonic(), max(ends)))
        self._waiting.clear()

    def encode(self) -> bytes | None:
        if self._waiting:
            self._fold()
        if not self.results:
            return None
        names = ("results", "counts", "weight", "ends")
        return json.dumps({name: getattr(self, name) for name in names}).encode()

    def digest(self) -> str:
        return digest(self.results, self.counts, self.weight)

    def in_records(self, case: str, records: int) -> None:
        """The time line as records read: a window that fires has all records up to its end behind it.

        Counting results would be wrong: at the end of the input all open windows fire at once.
        """
        lead = GAP_MS if case == "session" else 0
        points, reached = [], 0
        for at, end in sorted(self.ends):
            reached = max(reached, min(records, (end - lead - BASE) * PER_MS))
            points.append((at, reached))
        points[-1] = (points[-1][0], records)
        self.samples = [points[0], *((at, new - old) for (_, old), (at, new) in pairwise(points))]
        self.emitted = records


def merge_windows(directory: str) -> WindowTally:
    """Add up the files of all subtasks."""
    merged = WindowTally()
    merged.starts = [float(path.read_text()) for path in Path(directory).glob("*.start")]
    for path in Path(directory).glob("*.json"):
        part: dict[str, Any] = json.loads(path.read_text())
        merged.results += part["results"]
        merged.counts += part["counts"]
        merged.weight += part["weight"]
        merged.ends += [(at, end) for at, end in part["ends"]]
    return merged


def report_windows(
    system: str,
    case: str,
    records: int,
    tally: WindowTally,
    share: tuple[float, float] | None,
    **more: Any,
) -> None:
    """The JSON line, from the tally of all subtasks; ``samples`` may be in records already.

    Where the steady part would be less than a quarter of the records, the whole run is reported.
    """
    if not tally.samples:
        tally.in_records(case, records)
    if share and steady_start(sorted(tally.samples), records, share)[1] > 0.75 * records:
        share = None
    report(system, records, tally, share, case=case, results=tally.results, **more)
