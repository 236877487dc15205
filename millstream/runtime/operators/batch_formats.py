"""Records as columns and back: what a function over batches is given, and what becomes of its results.

Which columns there are says the first record of a batch: a row's names, a named tuple's fields, a dictionary's keys,
or f0, f1, … of a tuple or a row without names. Anything else is one value per record: an array of its own for NumPy,
else the column "value".

NumPy and pandas have no integer that can be missing, and Arrow has no column of several types. Here nothing is guessed:
a column of ints is one of ints, None stays None in a column of objects, and NaN stays NaN.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from millstream.common.types import Row, make_row
from millstream.errors import UserFunctionError
from millstream.runtime.base.text import shorten

__all__ = ["FORMATS", "BatchShape", "mask_of", "records_of", "shape_of"]

# The largest whole number up to which all are floats too.
_EXACT = 2**53
_VALUE = ("value",)
_ALONE = (str, bytes, bytearray, Row)


class BatchShape(NamedTuple):
    """What the records of a batch are."""

    names: tuple[str, ...] = ()
    """Of the columns; none if a record is one value."""

    make: Callable[[tuple[Any, ...]], Any] | None = None
    """Makes a record like these of the values of its fields; None for a plain tuple."""

    kind: type | None = None

    def columns(self, records: list[Any]) -> dict[str, Sequence[Any]]:
        """The records by columns."""
        if not self.names:
            return {_VALUE[0]: records}
        rows: Iterable[Any] = records
        if self.kind is Row:
            rows = [record._values for record in records]
        elif self.kind is dict:
            rows = [record.values() for record in records]
        return dict(zip(self.names, zip(*rows, strict=True), strict=True))

    def records(self, names: tuple[str, ...], columns: list[list[Any]], *, bare: bool) -> list[Any]:
        """Records of columns: of the same kind if the names are the same; `bare` says that a column "value" holds
        records themselves."""
        rows = zip(*columns, strict=True)
        if names == self.names:
            return list(rows) if self.make is None else list(map(self.make, rows))
        if bare and names == _VALUE:
            return columns[0]
        if names == _numbered(len(names)):
            return [make_row(None, list(row)) for row in rows] if self.kind is Row else list(rows)
        if self.kind is dict:
            return [dict(zip(names, row, strict=True)) for row in rows]
        return [make_row(names, list(row)) for row in rows]


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"f{place}" for place in range(count))


def shape_of(records: list[Any]) -> BatchShape:
    """What the records are, if they are all alike.

    >>> shape_of([Row(name="a", n=1), Row(name="b", n=2)]).names
    ('name', 'n')
    >>> shape_of([("a", 1)]).names, shape_of([1, 2]).names
    (('f0', 'f1'), ())
    """
    first = records[0]
    kind = type(first)
    shape = BatchShape()
    alike = True
    if kind is Row:
        fields = first._fields
        alike = all(type(r) is Row and r._fields == fields for r in records)
        names = _numbered(len(first)) if fields is None else fields
        shape = BatchShape(names, lambda values: make_row(fields, list(values)), Row)
    elif isinstance(first, tuple):
        alike = set(map(type, records)) == {kind}
        named = getattr(kind, "_fields", None)
        shape = BatchShape(named or _numbered(len(first)), getattr(kind, "_make", None), kind)
    elif kind is dict and all(type(name) is str for name in first):
        names = tuple(first)
        alike = all(type(r) is dict and tuple(r) == names for r in records)
        shape = BatchShape(names, lambda values: dict(zip(names, values, strict=True)), dict)
    if shape.names and not (alike and set(map(len, records)) == {len(shape.names)}):
        other = next(r for r in records if type(r) is not kind or _fields(r) != _fields(first))
        raise UserFunctionError(
            "the records of a batch have different fields, and make no columns",
            first=shorten(first),
            other=shorten(other),
            hint='let the records be alike, or take them with batch_format="list"',
        )
    return shape if shape.names else BatchShape()


def _fields(record: Any) -> Any:
    if type(record) is Row:
        return record._fields, len(record)
    return tuple(record) if type(record) is dict else len(record)


# -- what a function is given ------------------------------------------------------------------------------


def _array(values: Sequence[Any], *, stack: bool) -> Any:
    """A column as an array that holds what the values are, or else the objects themselves."""
    import numpy as np

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


def _as_numpy(records: list[Any], shape: BatchShape) -> Any:
    if not shape.names:
        return _array(records, stack=True)
    return {name: _array(column, stack=True) for name, column in shape.columns(records).items()}


def _as_pandas(records: list[Any], shape: BatchShape) -> Any:
    import pandas as pd

    columns = shape.columns(records)
    return pd.DataFrame({name: _array(column, stack=False) for name, column in columns.items()})


def _as_arrow(records: list[Any], shape: BatchShape) -> Any:
    import pyarrow as pa

    columns = {}
    for name, values in shape.columns(records).items():
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowException, OverflowError) as error:
            raise UserFunctionError(
                f"the column '{name}' of a batch cannot be one of Arrow: {error}",
                values=shorten(list(values)),
                hint='let its values be of one type, or take the records with batch_format="list"',
            ) from error
    return pa.table(columns)


FORMATS: dict[str, Callable[[list[Any], BatchShape], Any]] = {
    "numpy": _as_numpy,
    "pandas": _as_pandas,
    "arrow": _as_arrow,
}
"""By name, what makes columns of records that are alike."""


# -- what becomes of results -------------------------------------------------------------------------------


def records_of(result: Any, shape: BatchShape, what: str) -> list[Any]:
    """The records that a function over a batch has given: a list as it is, arrays and columns as Python values.

    >>> import numpy as np
    >>> records_of(np.array([1.5, 2.5]), BatchShape(), "the function")
    [1.5, 2.5]
    >>> records_of({"word": ["a", "b"], "n": np.array([1, 2])}, BatchShape(), "the function")
    [Row(word='a', n=1), Row(word='b', n=2)]
    """
    if type(result) is list:
        return result
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if isinstance(result, dict):
        return _of_columns(result.items(), shape, what, bare=False)
    if pandas is not None and isinstance(result, pandas.DataFrame):
        labels = result.columns
        names = _numbered(len(labels)) if list(labels) == list(range(len(labels))) else labels
        columns = [(name, result.iloc[:, place]) for place, name in enumerate(names)]
        return _of_columns(columns, shape, what, bare=True)
    if arrow is not None and isinstance(result, arrow.Table | arrow.RecordBatch):
        columns = list(zip(result.schema.names, result.columns, strict=True))
        return _of_columns(columns, shape, what, bare=True)
    return _values(result, what)


def _of_columns(
    columns: Iterable[tuple[Any, Any]], shape: BatchShape, what: str, *, bare: bool
) -> list[Any]:
    made = {name: _values(column, f"{what}, column {name!r},") for name, column in columns}
    sizes = {name: len(values) for name, values in made.items()}
    if not made or len(set(sizes.values())) > 1 or not all(type(name) is str for name in made):
        raise UserFunctionError(
            f"{what} gave columns that make no records",
            columns=shorten(sizes),
            hint="give columns of one length, with names that are texts",
        )
    return shape.records(tuple(made), list(made.values()), bare=bare)


def _values(column: Any, what: str) -> list[Any]:
    """The values of a column, or of a sequence of any kind, as Python has them."""
    if type(column) is list:
        return column
    pandas, arrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(column, pandas.Series | pandas.Index):
        return _of_series(column)
    if arrow is not None and isinstance(column, arrow.Array | arrow.ChunkedArray):
        pylist: list[Any] = column.to_pylist()
        return pylist
    if hasattr(column, "__array__"):
        # Also what other libraries have of their own, a tensor for instance.
        import numpy as np

        array = column if isinstance(column, np.ndarray) else np.asarray(column)
        if array.ndim:
            return _of_array(array)
    elif isinstance(column, Iterable) and not isinstance(column, _ALONE):
        return list(column)
    raise UserFunctionError(
        f"{what} gave one {type(column).__name__}, and results for many records are wanted",
        returned=shorten(column),
        hint="give a list, an array, or columns",
    )


def _of_array(array: Any) -> list[Any]:
    if array.dtype.kind in "mM":
        # As nanoseconds they would become plain numbers.
        array = array.astype(f"{'timedelta64' if array.dtype.kind == 'm' else 'datetime64'}[us]")
    values: list[Any] = array.tolist()
    return values if array.ndim == 1 else list(map(tuple, values))


def _of_series(series: Any) -> list[Any]:
    import numpy as np

    if isinstance(series.dtype, np.dtype):
        return _of_array(series.to_numpy())
    # A type of pandas' own: what is missing there is None.
    values = series.astype(object)
    found: list[Any] = [
        None if gone else value for value, gone in zip(values, series.isna(), strict=True)
    ]
    return [v.to_pydatetime(warn=False) if hasattr(v, "to_pydatetime") else v for v in found]


def mask_of(result: Any, what: str) -> list[bool]:
    """Which records go on.

    >>> import numpy as np
    >>> mask_of(np.array([True, False]), "the function")
    [True, False]
    """
    if isinstance(result, dict) or hasattr(result, "columns"):
        raise UserFunctionError(
            f"{what} gave columns, and a mask is wanted",
            returned=type(result).__name__,
            hint='give one boolean for each record, for instance frame["price"] > 10',
        )
    mask = _values(result, what)
    kinds = set(map(type, mask))
    if kinds <= {bool}:
        return mask
    numpy = sys.modules.get("numpy")
    if numpy is not None and kinds <= {bool, numpy.bool_}:
        return list(map(bool, mask))
    other = next(value for value in mask if type(value) is not bool)
    raise UserFunctionError(
        f"{what} gave a mask with something in it that is neither True nor False",
        value=shorten(other),
        hint="give one boolean for each record; fill in what is missing",
    )
