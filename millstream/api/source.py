"""Sources as splits with positions (Flink's `Source`, `SplitEnumerator`, `SourceReader`).

A source is cut into *splits* (a topic partition, a file, a range of numbers). A split has *positions*,
whole numbers that only grow. For every epoch the enumerator, on the driver, says how far each split can be
read; the driver fixes the range `[start, end)` of each split before any record is read, and a reader, in a
worker, reads exactly that range. Reading a range again gives the same records: this is what makes a task that
is repeated equal to its first try. The ends of the ranges become part of the checkpoint that completes the
epoch; a driver that starts again plans its ranges from there, and may cut them elsewhere.

A source of your own is two small classes:

>>> class Countdown(Source):
...     def boundedness(self):
...         return Boundedness.BOUNDED
...
...     def create_enumerator(self, parallelism):
...         return CountdownSplits()
...
...     def create_reader(self):
...         return CountdownReader()
>>> class CountdownSplits(SplitEnumerator):
...     def discover(self):
...         return ["only"]
...
...     def available(self, split, position):
...         return 3
...
...     def finished(self, split, position):
...         return position == 3
>>> class CountdownReader(SourceReader):
...     def read(self, split, start, end):
...         return [3 - n for n in range(start, end)]
>>> Countdown().create_reader().read("only", 0, 3)
[3, 2, 1]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from millstream.v import keep, kept

__all__ = [
    "Boundedness",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "SplitPosition",
    "Timestamped",
    "Watermark",
]


class Timestamped(NamedTuple):
    """A record that brings its timestamp along.

    >>> Timestamped("a", 1000).timestamp
    1000
    """

    value: Any
    timestamp: int


class Watermark(NamedTuple):
    """Between a source's records: none at or before this time follows in its split.

    >>> Watermark(999)
    Watermark(timestamp=999)
    """

    timestamp: int


@kept
def _stamped(*parts: Any) -> Timestamped:
    return Timestamped(*parts)


@kept
def _mark(timestamp: int) -> Watermark:
    return Watermark(timestamp)


keep(Timestamped, tuple, _stamped)
keep(Watermark, tuple, _mark)


class SplitPosition(NamedTuple):
    """How far a split is read, and whether it has ended there. Checkpoints hold its `number`: the position, or if the
    split has ended the complement of the position, which is negative.

    >>> SplitPosition(5).number, SplitPosition(5, ended=True).number
    (5, -6)
    >>> SplitPosition.of(-6)
    SplitPosition(at=5, ended=True)
    """

    at: int
    ended: bool = False

    @property
    def number(self) -> int:
        """The position as one number."""
        return ~self.at if self.ended else self.at

    @staticmethod
    def of(number: int) -> SplitPosition:
        """The position that a number stands for."""
        return SplitPosition(~number, ended=True) if number < 0 else SplitPosition(number)


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = "BOUNDED"
    CONTINUOUS_UNBOUNDED = "CONTINUOUS_UNBOUNDED"


class SplitEnumerator(ABC):
    """Finds splits and how far each can be read. Lives on the driver, one per source and job."""

    @abstractmethod
    def discover(self) -> Sequence[str]:
        """Every split known by now, in a stable order; new ones are appended, none is taken away."""

    @abstractmethod
    def available(self, split: str, position: int) -> int:
        """The position up to which `split` can be read now; at least `position`."""

    def start(self, split: str) -> int:
        """The position where a new split begins."""
        return 0

    def finished(self, split: str, position: int) -> bool:
        """True if `split` ends at `position`: nothing will ever follow."""
        return False

    def exhausted(self) -> bool:
        """True if no further split will ever be discovered."""
        return True

    def fetch(self, split: str, start: int, end: int) -> list[Any] | None:
        """The records of a range, if only the driver has them; None lets the reader read them."""
        return None

    def flows(self) -> None:
        """Called once, before anything else, if records are to be read as they come: `available` is then asked every
        few milliseconds, and should not be older than that."""

    def at_once(self) -> None:
        """Called once, before anything else, in a job in BATCH mode: everything is read in one go, so that splits may
        be cut for the sake of speed alone."""

    def commit(self, split: str, position: int) -> None:
        """Everything before `position` is done and will not be asked for again."""

    def commit_all(self, positions: dict[str, int]) -> None:
        """A checkpoint is complete; where each split stands in it. By default `commit` is called for each."""
        for split, position in positions.items():
            self.commit(split, position)

    def waits_for_commit(self, split: str, position: int) -> bool:
        """True if nothing comes after `position` before a `commit`, for which a checkpoint is then made at once."""
        return False

    def restored(self, positions: dict[str, int]) -> None:
        """Called once, before anything else, with where each known split goes on.

        Positions are numbers that `SplitPosition.of` reads: that of a split that has ended is negative.
        """

    def rewound(self, positions: dict[str, int]) -> None:
        """Called when the same driver starts the job again after a failure, with where each known split goes on.

        Splits and records that the enumerator holds are still wanted; its clock, if it has one, begins anew.
        """

    def close(self) -> None:
        """The job is over."""


class SourceReader(ABC):
    """Reads ranges of splits, in a worker."""

    def open(self) -> None:
        """Called once in each worker, before the first range."""

    @abstractmethod
    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        """The records of `[start, end)`, the same ones each time."""

    def read_columns(self, split: str, start: int, end: int) -> Iterable[Any]:
        """The same records as Arrow's `RecordBatch`es of any length, if the source gives columns: each row is a
        named `Row`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called after the last range."""


class Source(ABC):
    """A user-written source; give it to `env.from_source`."""

    @abstractmethod
    def boundedness(self) -> Boundedness:
        """Whether the source ends by itself."""

    @abstractmethod
    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """The driver's half. `parallelism` is a hint for how many splits are useful."""

    @abstractmethod
    def create_reader(self) -> SourceReader:
        """The worker's half."""

    def paced(self) -> bool:
        """True if records become available over time although the source is bounded."""
        return False

    def stamped(self) -> bool:
        """True if the readers of the source give `Timestamped` records, and `Watermark`s between them, instead of
        plain ones."""
        return False

    def gives_columns(self) -> bool:
        """True if the readers of the source can give columns: `read_columns` is then called in the place of `read`
        where the operators behind the source take columns."""
        return False

    def keeps_records(self) -> bool:
        """False if the readers of the source forget a record that they have given. The records of all other sources
        are copied when they are read, if they can be changed, so that a reader may give one object again and again."""
        return True

    def reads_again(self) -> bool:
        """False if what the driver has read is lost with it, because nobody keeps it to be read again."""
        return True

    def max_parallelism(self) -> int | None:
        """The most subtasks that the source can use, or None."""
        return None
