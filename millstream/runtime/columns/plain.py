"""Which columns can stand for Python's values, and the one type that each kind of them has.

A function that is given columns must calculate as with columns made from records: a Python int has no 32 bits to
overflow, and a float is a double. So columns are widened before anybody sees them. A type is *plain* if its values
become Python's and come back as they were; all others (structs, maps, lists, decimals, durations, nanoseconds) are for
who makes records of them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["array_of", "plain_array", "plain_batch"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Moments that Python has, a day from either end so that a time zone does not matter.
_FIRST_DAY = (date(1, 1, 2) - date(1970, 1, 1)).days
_LAST_DAY = (date(9999, 12, 30) - date(1970, 1, 1)).days
_DAY = 86_400_000_000


@lru_cache(maxsize=256)
def plain_type(kind: pa.DataType, *, nanoseconds: bool = False) -> pa.DataType | None:
    """The type that a column of plain values has here; None if it is not plain. With `nanoseconds`, those are cut to
    microseconds, which is what becomes of them in results of functions.

    >>> plain_type(pa.int8()), plain_type(pa.dictionary(pa.int32(), pa.large_string()))
    (DataType(int64), DataType(string))
    >>> plain_type(pa.list_(pa.int64())) is None
    True
    """
    is_ = pa.types
    if is_.is_dictionary(kind):
        return plain_type(kind.value_type, nanoseconds=nanoseconds)
    if is_.is_integer(kind):
        return pa.int64()
    if is_.is_float32(kind) or is_.is_float64(kind):
        return pa.float64()
    if is_.is_boolean(kind) or is_.is_null(kind) or is_.is_date32(kind):
        return kind
    if is_.is_string(kind) or is_.is_large_string(kind):
        return pa.string()
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return pa.binary()
    if is_.is_timestamp(kind) and _has_zone(kind):
        return pa.timestamp("us", kind.tz) if nanoseconds or kind.unit != "ns" else None
    if is_.is_time32(kind) or (is_.is_time64(kind) and kind.unit == "us"):
        return pa.time64("us")
    return None


def _has_zone(kind: pa.DataType) -> bool:
    """True of moments whose zone Python knows, if they have one."""
    try:
        made: datetime | None = pa.scalar(0, pa.timestamp("us", kind.tz)).as_py()
    except Exception:  # of any class that a library for zones has
        return False
    return made is not None and (kind.tz is None or abs(made - _EPOCH) < timedelta(days=2))


def array_of(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def plain_array(column: pa.Array, *, nanoseconds: bool = False) -> pa.Array | None:
    """The column with the type that its kind of values has here; None if one of them has no place there."""
    wanted = plain_type(column.type, nanoseconds=nanoseconds)
    if wanted is None:
        return None
    if column.type != wanted:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        # Nanoseconds are cut, as they are when they become Python's; all else must fit.
        cut = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
        try:
            column = column.cast(wanted, safe=not cut)
        except pa.ArrowInvalid:
            return None
    return column if _is_pythons(column) else None


def _is_pythons(column: pa.Array) -> bool:
    """True if Python has all values of a column."""
    kind = column.type
    if pa.types.is_string(kind):
        return _is_text(column)
    if pa.types.is_date32(kind):
        low, high = _FIRST_DAY, _LAST_DAY
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        low, high = _FIRST_DAY * _DAY, _LAST_DAY * _DAY
        column = column.view(pa.int64())
    else:
        return True
    ends: Any = pc.min_max(column).as_py()
    return ends["min"] is None or (low <= ends["min"] and ends["max"] <= high)


def _is_text(column: pa.Array) -> bool:
    """True if all texts are UTF-8: neither readers of files nor Spark look after that."""
    _, places, data = column.buffers()
    if data is None or not len(column):
        return True
    ends = np.frombuffer(places, np.int32, len(column) + 1, 4 * column.offset)
    # Most texts are ASCII, and of those it is seen at a glance.
    if bytes(data[ends[0] : ends[-1]]).isascii():
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """The batch with columns of plain types; None if one is not plain, or they cannot be told apart by their names.

    >>> plain_batch(pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int8())})).schema
    n: int64
    """
    names = batch.schema.names
    if not names or len(set(names)) < len(names):
        return None
    columns = []
    for column in batch.columns:
        plain = plain_array(column)
        if plain is None:
            return None
        columns.append(plain)
    return pa.RecordBatch.from_arrays(columns, names=names)
