"""How long a run took, by marks that the makers of events leave in a folder of this machine.

Every process that makes events writes down when it has made how many. Systems that work in batches or epochs make
events, then stop making them while the rest of the work on them is done. So the clock starts where the longest pause
ends that begins when 20% to 50% of the events have been made, and it ends with the last result. What was made before
has been worked on then; what is made after is all inside.
"""

from __future__ import annotations

import os
import time
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

from millstream.bench.nexmark.generator import BLOCK, Generator
from millstream.bench.nexmark.model import Event

__all__ = ["MarkedBlocks", "mark_end", "timed"]

_EVERY = 100  # blocks
_WARM_UP = (0.2, 0.5)


class MarkedBlocks:
    """Makes blocks of events and leaves marks; each process has a file of its own."""

    def __init__(self, generator: Generator, folder: str) -> None:
        self.generator, self.folder = generator, folder
        self._begin()

    def _begin(self) -> None:
        self._made = 0
        self._file: Path | None = None
        self._process = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return MarkedBlocks, (self.generator, self.folder)

    def __call__(self, number: int) -> list[Event]:
        """The block of a number."""
        made = self._made
        if made % _EVERY == 0:
            self._mark()
        self._made = made + 1
        return self.generator.block(number)

    def rest(self) -> None:
        """Mark what was made since the last mark: for who knows that a batch ends here."""
        if self._file is not None:
            self._mark()

    def _mark(self) -> None:
        if self._file is None or self._process != os.getpid():
            self._begin()
            self._process = os.getpid()
            self._file = Path(self.folder, f"{uuid.uuid4().hex}.marks")
        with self._file.open("a") as file:
            file.write(f"{time.monotonic()} {self._made * BLOCK}\n")


def mark_end(folder: str) -> None:
    """Called when results are complete as far as somebody knows; the last call counts."""
    Path(folder, f"{uuid.uuid4().hex}.end").write_text(repr(time.monotonic()))


def _marks(folder: str) -> list[tuple[float, int]]:
    """(when, events made since the mark before) of all processes, in the order of time."""
    found = []
    for path in Path(folder).glob("*.marks"):
        before = 0
        for line in path.read_text().splitlines():
            at, made = line.split()
            found.append((float(at), int(made) - before))
            before = int(made)
    return sorted(found)


def timed(folder: str, events: int, passes: int = 1) -> dict[str, Any]:
    """`records` that were made and worked on in `seconds`; `whole_seconds` counts from the first event.

    A system that makes every event more than once says so by `passes`. Where there is no pause to start from, the whole
    run counts, and `clock` says so.
    """
    marks = _marks(folder)
    end = max(float(path.read_text()) for path in Path(folder).glob("*.end"))
    whole = end - marks[0][0]
    low, high = (share * events * passes for share in _WARM_UP)
    best, pause, made = (marks[0][0], 0), 0.0, 0
    for (at, count), (following, _) in pairwise(marks):
        made += count
        if low <= made <= high and following - at > pause:
            best, pause = (following, made), following - at
    start, before = best
    return {
        "records": events - before // passes,
        "seconds": round(end - start, 4),
        "total_records": events,
        "whole_seconds": round(whole, 4),
        "clock": "steady" if before else "whole",
    }
