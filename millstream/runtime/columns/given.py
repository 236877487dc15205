"""What a function over batches is given of columns: arrays, a frame, or the table itself.

NumPy and pandas have no integer that can be missing. Here nothing is guessed: a column of ints is one of ints, None
stays None in a column of objects, and NaN stays NaN. What a format would change, it does not get. Arrays are the
function's own, to be changed as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.runtime.columns.shapes import BatchShape

__all__ = ["COLUMNS_AS", "as_array"]

# The largest whole number up to which all are floats too.
_EXACT = 2**53


def as_array(values: Sequence[Any], *, stack: bool) -> Any:
    """Values as an array that holds what they are, or else the objects themselves.

    >>> as_array([1, 2], stack=True), as_array([1, None], stack=True)
    (array([1, 2]), array([1, None], dtype=object))
    """
    kinds = set(map(type, values))
    if kinds == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    elif kinds == {float}:
        return np.array(values, np.float64)
    elif kinds == {bool}:
        return np.array(values, np.bool_)
    elif kinds == {int, float}:
        if all(-_EXACT <= value <= _EXACT for value in values if type(value) is int):
            return np.array(values, np.float64)
    elif len(kinds) == 1:
        (kind,) = kinds
        if issubclass(kind, np.number | np.bool_):
            return np.array(values)
        if kind is np.ndarray and stack and len({(v.shape, v.dtype) for v in values}) == 1:
            return np.stack(values)
    return np.fromiter(values, dtype=object, count=len(values))


def _column(column: pa.ChunkedArray) -> Any:
    """A column as `as_array` would make it of its values."""
    kind = column.type
    if column.null_count == 0 and (
        pa.types.is_int64(kind) or pa.types.is_float64(kind) or pa.types.is_boolean(kind)
    ):
        return np.array(column.to_numpy())
    if pa.types.is_string(kind) and column.null_count == 0:
        return np.array(column.to_numpy(), dtype=object)
    return as_array(column.to_pylist(), stack=True)


def _as_numpy(table: pa.Table, shape: BatchShape) -> Any:
    if not shape.names:
        return _column(table.column(0))
    return {name: _column(table.column(place)) for place, name in enumerate(shape.names)}


def _as_pandas(table: pa.Table, shape: BatchShape) -> Any:
    import pandas as pd

    names = table.schema.names
    return pd.DataFrame({name: _column(table.column(place)) for place, name in enumerate(names)})


def _as_arrow(table: pa.Table, shape: BatchShape) -> Any:
    # In one piece, as a table that is made of records: a function may look at the first chunk alone.
    return table.combine_chunks()


COLUMNS_AS: dict[str, Callable[[pa.Table, BatchShape], Any]] = {
    "numpy": _as_numpy,
    "pandas": _as_pandas,
    "arrow": _as_arrow,
}
"""By the name of a format, what makes it of columns."""
