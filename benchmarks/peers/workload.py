"""The keyed-count workload, shared by every peer so that all run the same Python functions.

Event number ``n`` -> ``(key, 1)`` -> running sum per key -> a sink that tallies what it saw.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

KEYS = 1_000
CHECKPOINT_MS = 2_000
WARM_UP = (0.2, 0.5)  # the clock starts when this share of the records has reached the sink
_FOLD_EVERY = 2_000

Pair = tuple[str, int]


def to_pair(n: int) -> Pair:
    """The map function: event number to (key, 1). Keys are strings: Bytewax takes nothing else."""
    return (str(n % KEYS), 1)


def digest(last: dict[str, int], emitted: int, total: int) -> str:
    """Order-independent hash: final count per key, records emitted, sum of all running sums."""
    lines = [f"{key}={count}" for key, count in sorted(last.items())]
    text = "\n".join([*lines, f"emitted={emitted}", f"total={total}"])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def expected_digest(records: int, *, batch: bool = False) -> str:
    """The right hash for events 0..records-1, by arithmetic instead of by running anything. A batch job emits each
    key's last sum alone."""
    counts = {str(k): (records - k + KEYS - 1) // KEYS for k in range(min(KEYS, records))}
    if batch:
        return digest(counts, len(counts), sum(counts.values()))
    return digest(counts, records, sum(c * (c + 1) // 2 for c in counts.values()))


class Tally:
    """What a sink subtask keeps: last sum per key, how many records, their sum, and a time line.

    ``add`` is one append per record; every 2,000 records are folded in at C speed.
    """

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.emitted = 0
        self.total = 0
        self.samples: list[tuple[float, int]] = []  # (monotonic time, records since last sample)
        self.starts: list[float] = []
        self._pending: list[Pair] = []

    def add(self, pair: Pair) -> None:
        self._pending.append(pair)
        if len(self._pending) >= _FOLD_EVERY:
            self._fold()

    def extend(self, pairs: Iterable[Pair]) -> None:
        self._pending.extend(pairs)
        if len(self._pending) >= _FOLD_EVERY:
            self._fold()

    def _fold(self) -> None:
        self.last.update(self._pending)
        self.total += sum([value for _, value in self._pending])
        self.emitted += len(self._pending)
        self.samples.append((time.monotonic(), len(self._pending)))
        self._pending.clear()

    def digest(self) -> str:
        return digest(self.last, self.emitted, self.total)

    def encode(self) -> bytes | None:
        """This tally as JSON; None if it saw nothing."""
        if self._pending:
            self._fold()
        if not self.emitted:
            return None
        names = ("last", "emitted", "total", "samples")
        return json.dumps({name: getattr(self, name) for name in names}).encode()

    def save(self, directory: str) -> None:
        """Write this subtask's tally as one file; subtasks that saw nothing write nothing."""
        body = self.encode()
        if body is not None:
            (Path(directory) / f"{uuid.uuid4().hex}.json").write_bytes(body)


def mark_start(directory: str) -> None:
    """Called where a subtask of the source or map opens: the earliest one starts the whole run."""
    (Path(directory) / f"{uuid.uuid4().hex}.start").write_text(repr(time.monotonic()))


def merge(directory: str, kind: type[Tally] = Tally) -> Tally:
    """Add up the files of all subtasks (a running sum only grows, so the last one is the max)."""
    merged = kind()
    merged.starts = [float(path.read_text()) for path in Path(directory).glob("*.start")]
    for path in Path(directory).glob("*.json"):
        part: dict[str, Any] = json.loads(path.read_text())
        for key, count in part["last"].items():
            merged.last[key] = max(count, merged.last.get(key, 0))
        merged.emitted += part["emitted"]
        merged.total += part["total"]
        merged.samples += [(at, count) for at, count in part["samples"]]
    return merged


def steady_start(
    samples: list[tuple[float, int]], emitted: int, share: tuple[float, float]
) -> tuple[float, int]:
    """When the clock starts, and how many records the sinks had seen by then.

    Sinks see bursts (bundles, batches, epochs). A clock started inside a burst would count records
    whose work was done before, so it starts where the longest pause begins within the given
    shares of the records: the work for the next burst is all inside.
    """
    low, high = share[0] * emitted, share[1] * emitted
    best, pause, seen = (samples[0][0], samples[0][1]), -1.0, 0
    for (at, count), (following, _) in pairwise(samples):
        seen += count
        inside = low <= seen <= high or (pause < 0 and seen > high)
        if inside and following - at > pause:
            best, pause = (at, seen), following - at
    return best


def report(
    system: str,
    records: int,
    tally: Tally,
    share: tuple[float, float] | None = WARM_UP,
    **more: Any,
) -> None:
    """Print what `timed` says as the JSON line."""
    print(json.dumps({"system": system, **timed(records, tally, share), **more}), flush=True)


def timed(
    records: int, tally: Tally, share: tuple[float, float] | None = WARM_UP
) -> dict[str, Any]:
    """The result of a run: ``records`` timed in ``seconds`` at steady state, and ``whole_seconds``
    from the opening of the map (or source) to the last record, warm-up included.

    If a system hands the sink everything in one burst at the end, the sink's clock says nothing,
    and the whole run is reported, with ``clock`` saying so: when the caller knows (no ``share``),
    and when the sink's clock claims more than twice the rate of the whole run.
    """
    samples = sorted(tally.samples)
    end = samples[-1][0]
    whole = end - min(tally.starts, default=samples[0][0])
    counted, seconds, clock = tally.emitted, whole, "whole"
    if share:
        start, before = steady_start(samples, tally.emitted, share)
        after = tally.emitted - before
        if 0 < after * whole <= 2 * tally.emitted * (end - start):
            counted, seconds, clock = after, end - start, "steady"
    return {
        # In records read: a function may emit more or fewer.
        "records": counted * records // tally.emitted,
        "seconds": round(seconds, 4),
        "hash": tally.digest(),
        "total_records": records,
        "whole_seconds": round(whole, 4),
        "clock": clock,
    }
