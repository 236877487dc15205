"""Timestamps of rows that are columns: which assigners only take a field, and the times in its column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import TimestampAssigner, TimestampColumn
from millstream.runtime.base.recognize import timestamp_field_of
from millstream.runtime.columns.batch import ColumnBatch, Stamps
from millstream.runtime.columns.shapes import BatchShape

__all__ = ["reads_field", "times_of"]


def reads_field(assigner: TimestampAssigner) -> tuple[str, int | str] | None:
    """How an assigner takes a record's timestamp, if it is a field of it and nothing else.

    >>> reads_field(TimestampColumn("at"))
    ('column', 'at')
    """
    if type(assigner) is TimestampColumn:
        return "column", assigner.field
    return timestamp_field_of(assigner.extract_timestamp)


def times_of(batch: ColumnBatch, assigner: TimestampAssigner) -> Stamps | None:
    """The timestamps of rows; None if not all of them have one that needs no further look."""
    reads = reads_field(assigner)
    place = None if reads is None else _place(batch.shape, *reads)
    if place is None:
        return None
    column = batch.data.column(place)
    if column.null_count:
        return None
    if pa.types.is_int64(column.type):
        times: Stamps = column.to_numpy()
        return times
    if type(assigner) is TimestampColumn and pa.types.is_timestamp(column.type):
        # To the millisecond before, also before 1970.
        return np.asarray(column.view(pa.int64()).to_numpy() // 1000)
    return None


def _place(shape: BatchShape, how: str, field: Any) -> int | None:
    match how:
        case "item":
            return shape.at(field)
        case "attribute":
            return shape.attribute(field)
        case _:
            return shape.named(field) if isinstance(field, str) else shape.at(field)
