"""`ColumnBatch`: some rows on their way through a chain as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.constants import NO_TIME
from millstream.runtime.columns.plain import plain_batch
from millstream.runtime.columns.shapes import BatchShape, rows_named

__all__ = ["ColumnBatch", "Stamps", "joined"]

Stamps = npt.NDArray[np.int64]


class ColumnBatch:
    """Rows as columns of plain types, what records they stand for, and their timestamps.

    >>> batch = ColumnBatch.of_rows(pa.RecordBatch.from_pydict({"word": ["a", "b"], "n": [1, 2]}))
    >>> batch.slice(1, 2).records()
    [Row(word='b', n=2)]
    """

    __slots__ = ("data", "shape", "stamps")

    def __init__(self, data: pa.RecordBatch, shape: BatchShape, stamps: Stamps | None) -> None:
        self.data = data
        """The columns, in the order of the shape's names; of values one column."""
        self.shape = shape
        self.stamps = stamps
        """A timestamp for each row; None if they have none."""

    @staticmethod
    def of_rows(batch: pa.RecordBatch) -> ColumnBatch | None:
        """A source's batch, whose records are named rows; None if it has columns that are not plain."""
        plain = plain_batch(batch)
        return None if plain is None else ColumnBatch(plain, rows_named(plain.schema.names), None)

    def __len__(self) -> int:
        rows: int = self.data.num_rows
        return rows

    def slice(self, start: int, stop: int) -> ColumnBatch:
        """Some of the rows."""
        stamps = None if self.stamps is None else self.stamps[start:stop]
        return ColumnBatch(self.data.slice(start, stop - start), self.shape, stamps)

    def stamped(self, stamps: Stamps | None) -> ColumnBatch:
        """The same rows with other timestamps."""
        return ColumnBatch(self.data, self.shape, stamps)

    def records(self) -> list[Any]:
        """The rows as records, made anew for whoever asks."""
        return self.shape.records([column.to_pylist() for column in self.data.columns])

    def timestamps(self) -> list[int]:
        """The timestamps as Python's ints, one for each row whether they have some or not."""
        return [NO_TIME] * len(self) if self.stamps is None else self.stamps.tolist()

    def alike(self, other: ColumnBatch) -> bool:
        """True if both are rows of one kind, with columns of the same types."""
        return (
            self.shape == other.shape
            and self.data.schema == other.data.schema
            and (self.stamps is None) == (other.stamps is None)
        )


def joined(batches: Sequence[ColumnBatch]) -> ColumnBatch:
    """Batches that are alike as one."""
    first = batches[0]
    if len(batches) == 1:
        return first
    stamps = None
    if first.stamps is not None:
        stamps = np.concatenate([batch.stamps for batch in batches if batch.stamps is not None])
    return ColumnBatch(pa.concat_batches([batch.data for batch in batches]), first.shape, stamps)
