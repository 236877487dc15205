"""Columns of any types as records, of a Spark frame or a Parquet file. Structs come out as Rows, maps as dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millstream.common.types import Row, make_row

__all__ = ["as_records"]

Convert = Callable[[Any], Any]


def as_records(batch: pa.RecordBatch, columns: int) -> list[Row]:
    """The rows of the first so many columns of a batch, as named Rows.

    >>> batch = pa.RecordBatch.from_pylist([{"n": 1, "s": {"x": 2}}])
    >>> as_records(batch, 2)
    [Row(n=1, s=Row(x=2))]
    """
    names = tuple(batch.schema.names[:columns])
    if not names:
        return [make_row((), []) for _ in range(batch.num_rows)]
    read = []
    for place in range(columns):
        values = batch.column(place).to_pylist()
        convert = _reader(batch.schema.field(place).type)
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        read.append(values)
    return [make_row(names, list(values)) for values in zip(*read, strict=True)]


def _reader(kind: pa.DataType) -> Convert | None:
    """What makes a value of Arrow's one of ours; None if it is one."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = _reader(kind.value_type)
        if element is None:
            return None
        return lambda value: [None if item is None else element(item) for item in value]
    if pa.types.is_map(kind):
        key, item = _or_as_is(_reader(kind.key_type)), _or_as_is(_reader(kind.item_type))
        return lambda value: {key(k): item(v) for k, v in value}
    if pa.types.is_struct(kind):
        inside = [kind.field(i) for i in range(kind.num_fields)]
        names = tuple(field.name for field in inside)
        converters = [_or_as_is(_reader(field.type)) for field in inside]
        return lambda value: make_row(
            names, [c(value[n]) for n, c in zip(names, converters, strict=True)]
        )
    return None


def _or_as_is(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)
