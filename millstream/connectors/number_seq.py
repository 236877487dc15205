"""A sequence of whole numbers (Flink's `NumberSequenceSource`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.errors import InvalidArgument

__all__ = ["NumberSequenceSource"]


class NumberSequenceSource(Source):
    """The numbers from `start` to `end`, both of them included, in order within each subtask.

    >>> source = NumberSequenceSource(1, 10)
    >>> splits = source.create_enumerator(parallelism=3).discover()
    >>> splits
    ['1..4', '5..7', '8..10']
    >>> list(source.create_reader().read("5..7", 0, 2))
    [5, 6]
    """

    def __init__(self, start: int, end: int) -> None:
        number: Any
        for name, number in (("start", start), ("end", end)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise InvalidArgument(f"{name} must be a whole number", got=repr(number))
        if end < start:
            raise InvalidArgument(
                "the sequence must not end before it starts",
                start=start,
                end=end,
                hint="both numbers belong to the sequence: (5, 5) is the number 5 alone",
            )
        self._start = start
        self._end = end

    def boundedness(self) -> Boundedness:
        """Bounded, as every range is."""
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """As many ranges of nearly the same length as there are subtasks."""
        return _Ranges(self._start, self._end, parallelism)

    def keeps_records(self) -> bool:
        """Numbers cannot be changed."""
        return False

    def create_reader(self) -> SourceReader:
        """A reader that gives `range` objects."""
        return _RangeReader()


class _Ranges(SplitEnumerator):
    def __init__(self, start: int, end: int, parallelism: int) -> None:
        count = end - start + 1
        parts = max(1, min(parallelism, count))
        size, longer = divmod(count, parts)
        self._splits: list[str] = []
        for part in range(parts):
            last = start + size + (part < longer) - 1
            self._splits.append(f"{start}..{last}")
            start = last + 1

    def restored(self, positions: dict[str, int]) -> None:
        # The parallelism may have changed since; the ranges that were read so far stay as they are.
        if positions:
            self._splits = list(positions)

    def discover(self) -> Sequence[str]:
        return self._splits

    def available(self, split: str, position: int) -> int:
        return _length(split)

    def finished(self, split: str, position: int) -> bool:
        return position == _length(split)


class _RangeReader(SourceReader):
    def read(self, split: str, start: int, end: int) -> range:
        first, _ = _bounds(split)
        return range(first + start, first + end)


def _bounds(split: str) -> tuple[int, int]:
    first, _, last = split.partition("..")
    return int(first), int(last)


def _length(split: str) -> int:
    first, last = _bounds(split)
    return last - first + 1
