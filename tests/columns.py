"""A source whose splits are Arrow batches, to be read as columns or as records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.runtime.columns.records import as_records


class ColumnSource(Source):
    """Reads splits, each a list of batches; a position is the number of a row."""

    def __init__(
        self, *splits: Sequence[pa.RecordBatch], upto: int | None = None, unbounded: bool = False
    ) -> None:
        self.upto = upto
        self.unbounded = unbounded
        self.splits = {f"split {number}": list(split) for number, split in enumerate(splits)}

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED if self.unbounded else Boundedness.BOUNDED

    def gives_columns(self) -> bool:
        return True

    def keeps_records(self) -> bool:
        return False

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        sizes = {name: sum(b.num_rows for b in split) for name, split in self.splits.items()}
        if self.upto is not None:
            sizes = {name: min(size, self.upto) for name, size in sizes.items()}
        return _Splits(sizes, self.unbounded)

    def create_reader(self) -> SourceReader:
        return _Reader(self.splits)


ALL_READ: set[str] = set()
"""The splits that have been read as far as they go, by sources that do not end."""


class _Splits(SplitEnumerator):
    def __init__(self, sizes: dict[str, int], unbounded: bool) -> None:
        self._sizes = sizes
        self._unbounded = unbounded

    def discover(self) -> list[str]:
        return list(self._sizes)

    def available(self, split: str, position: int) -> int:
        if position == self._sizes[split] and self._unbounded:
            ALL_READ.add(split)
        return self._sizes[split]

    def finished(self, split: str, position: int) -> bool:
        return not self._unbounded and position == self._sizes[split]


class _Reader(SourceReader):
    def __init__(self, splits: dict[str, list[pa.RecordBatch]]) -> None:
        self._splits = splits

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        for batch in self.read_columns(split, start, end):
            yield from as_records(batch, batch.num_columns)

    def read_columns(self, split: str, start: int, end: int) -> Iterable[pa.RecordBatch]:
        at = 0
        for batch in self._splits[split]:
            first, last = max(start - at, 0), min(end - at, batch.num_rows)
            if first < last:
                yield batch.slice(first, last - first)
            elif not batch.num_rows:
                # A batch without rows is one too.
                yield batch
            at += batch.num_rows
