"""What a function over batches gives, as columns, where it is seen to be columns of plain values.

Whatever is not is left to `records_of`, which makes records of everything, and says what is wrong with the rest.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.plain import array_of, plain_array
from millstream.runtime.columns.shapes import VALUE, VALUES, BatchShape, numbered

__all__ = ["columns_of", "flat_columns_of"]


def columns_of(result: Any, shape: BatchShape) -> ColumnBatch | None:
    """The columns that a function has given for records of some shape; None if it is better looked at as records.

    >>> columns_of({"f0": np.array([1, 2]), "f1": ["a", None]}, VALUES).records()
    [(1, 'a'), (2, None)]
    """
    pandas = sys.modules.get("pandas")
    bare = True
    if isinstance(result, dict):
        names, columns, bare = tuple(result), list(result.values()), False
    elif isinstance(result, pa.Table | pa.RecordBatch):
        names, columns = tuple(result.schema.names), result.columns
    elif pandas is not None and isinstance(result, pandas.DataFrame):
        labels = list(result.columns)
        names = numbered(len(labels)) if labels == list(range(len(labels))) else tuple(labels)
        columns = [result.iloc[:, place] for place in range(len(labels))]
    else:
        # A list is records as they are.
        column = None if type(result) is list else _array(result)
        return None if column is None else _batch(VALUE, [column], VALUES)
    if not names or len(set(names)) < len(names) or any(type(name) is not str for name in names):
        return None
    made: list[pa.Array] = []
    for column in columns:
        array = _array(column)
        if array is None or (made and len(array) != len(made[0])):
            return None
        made.append(array)
    try:
        return _batch(names, made, shape.of_result(names, bare=bare))
    except UnicodeEncodeError:
        # Half of a character in a name.
        return None


def _batch(names: tuple[str, ...], columns: list[pa.Array], shape: BatchShape) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_arrays(columns, names=list(names)), shape, None)


def flat_columns_of(result: Any) -> tuple[ColumnBatch, Any] | None:
    """For `flat_map_batches`: the results of all records, if the function has given Arrow lists of plain values or
    structs of them, and how many each record has.

    >>> flat, counts = flat_columns_of(pa.array([[1, 2], [], [3]]))
    >>> flat.records(), counts.tolist()
    ([1, 2, 3], [2, 0, 1])
    """
    if not isinstance(result, pa.Array | pa.ChunkedArray):
        return None
    lists = array_of(result)
    kind = lists.type
    if lists.null_count or not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return None
    values = lists.flatten()
    if pa.types.is_struct(kind.value_type):
        # Arrow's structs are dictionaries in Python.
        names = tuple(kind.value_type.field(i).name for i in range(kind.value_type.num_fields))
        if values.null_count or not names or len(set(names)) < len(names):
            return None
        columns, shape = values.flatten(), BatchShape(names, dict)
    else:
        names, columns, shape = VALUE, [values], VALUES
    made = [plain_array(column) for column in columns]
    if any(column is None for column in made):
        return None
    counts = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return _batch(names, made, shape), counts


def _array(column: Any) -> pa.Array | None:
    """A column that a function has given; None if it is not seen to be plain values, or may be something else."""
    pandas = sys.modules.get("pandas")
    if isinstance(column, pa.Array | pa.ChunkedArray):
        made = plain_array(array_of(column), nanoseconds=True)
        # What Arrow made of an array of NumPy's without copying it changes when the function writes into that again.
        return None if made is None else pa.concat_arrays([made])
    if type(column) is list:
        return _of_objects(column)
    if pandas is not None and type(column) is pandas.Series and isinstance(column.dtype, np.dtype):
        column = column.to_numpy()
    return _of_numpy(column) if type(column) is np.ndarray and column.ndim == 1 else None


def _of_numpy(array: Any) -> pa.Array | None:
    kind, size = array.dtype.kind, array.dtype.itemsize
    # A copy in each case: the function may have kept the array, and change it later.
    if kind == "b":
        return pa.array(array)
    if kind == "i" or (kind == "u" and size < 8):
        return pa.array(array.astype(np.int64))
    if kind == "f" and size <= 8:
        return pa.array(array.astype(np.float64))
    if kind == "U" or kind == "O":
        return _of_objects(array.tolist())
    return None


# Not ints: a column that has ints in one batch and floats in the next is not one of ints, whose sums need no order.
_PLAIN = {str: pa.string(), float: pa.float64(), bool: pa.bool_()}


def _of_objects(values: list[Any]) -> pa.Array | None:
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    wanted = _PLAIN.get(kinds.pop())
    if wanted is None or kinds:
        return None
    try:
        return pa.array(values, wanted)
    except (pa.ArrowException, ValueError):
        # Half of a character.
        return None
