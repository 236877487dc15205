"""Records as columns and back: what a function over batches is given of records, and what records its results are.

Which columns there are says the shape of the records ([`shapes.py`](../columns/shapes.py)). NumPy and pandas have no
integer that can be missing, and Arrow has no column of several types. Here nothing is guessed: a column of ints is one
of ints, None stays None in a column of objects, and NaN stays NaN. What a format would change, it does not get.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.types import Row
from millstream.errors import UserFunctionError
from millstream.runtime.base.text import shorten
from millstream.runtime.columns.given import as_array
from millstream.runtime.columns.plain import array_of
from millstream.runtime.columns.shapes import BatchShape, numbered

__all__ = ["FORMATS", "mask_array", "mask_of", "records_of"]

# As microseconds in 64 bits.
_MOST_DAYS = 106_751_990
_ALONE = (str, bytes, bytearray, Row)


# -- what a function is given ------------------------------------------------------------------------------


def _as_numpy(records: list[Any], shape: BatchShape) -> Any:
    if not shape.names:
        return as_array(records, stack=True)
    return {name: as_array(column, stack=True) for name, column in shape.columns(records).items()}


def _as_pandas(records: list[Any], shape: BatchShape) -> Any:
    import pandas as pd

    columns = shape.columns(records)
    return pd.DataFrame({name: as_array(column, stack=False) for name, column in columns.items()})


def _as_arrow(records: list[Any], shape: BatchShape) -> Any:
    columns = {}
    for name, values in shape.columns(records).items():
        try:
            _check_alike(values)
            columns[name] = pa.array(values)
        # Arrow's own errors, and whatever a value raises when Arrow asks it for what it holds.
        except Exception as error:
            raise UserFunctionError(
                f"the column '{name}' of a batch cannot be one of Arrow: {error}",
                values=shorten(list(values)),
                hint='let its values be of one type, or take the records with batch_format="list"',
            ) from error
    return pa.table(columns)


# What Arrow would make one of, though something is lost on the way: a datetime becomes a date, a text bytes.
_APART: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("bool", bool),
    ("number", (int, float, Decimal)),
    ("str", str),
    ("bytes", (bytes, bytearray)),
    ("datetime", datetime),
    ("date", date),
    ("time", time),
)


def _check_alike(values: Sequence[Any]) -> None:
    """Raise `ValueError` if Arrow would take the values and give others back."""
    kinds = set(map(type, values))
    found = {next((name for name, types in _APART if issubclass(k, types)), None) for k in kinds}
    found.discard(None)
    if len(found) > 1:
        raise ValueError("its values are of several types: " + ", ".join(sorted(map(str, found))))
    if found <= {"datetime", "time"}:
        zones = {value.tzinfo is not None for value in values if value is not None}
        if len(zones) > 1:
            raise ValueError("some of its moments have a zone, others have none")
        if found == {"time"} and True in zones:
            raise ValueError("its times of day have a zone, and Arrow's have none")


FORMATS: dict[str, Callable[[list[Any], BatchShape], Any]] = {
    "numpy": _as_numpy,
    "pandas": _as_pandas,
    "arrow": _as_arrow,
}
"""By name, what makes columns of records that are alike."""


# -- what becomes of results -------------------------------------------------------------------------------


def records_of(result: Any, shape: BatchShape, what: str) -> list[Any]:
    """The records that a function over a batch has given: a list as it is, arrays and columns as Python values.

    >>> from millstream.runtime.columns.shapes import VALUES
    >>> records_of(np.array([1.5, 2.5]), VALUES, "the function")
    [1.5, 2.5]
    >>> records_of({"word": ["a", "b"], "n": np.array([1, 2])}, VALUES, "the function")
    [Row(word='a', n=1), Row(word='b', n=2)]
    """
    if type(result) is list:
        return result
    pandas = sys.modules.get("pandas")
    if isinstance(result, dict):
        return _of_columns(result.items(), shape, what, bare=False)
    if pandas is not None and isinstance(result, pandas.DataFrame):
        labels = result.columns
        names = numbered(len(labels)) if list(labels) == list(range(len(labels))) else labels
        columns = [(name, result.iloc[:, place]) for place, name in enumerate(names)]
        return _of_columns(columns, shape, what, bare=True)
    if isinstance(result, pa.Table | pa.RecordBatch):
        columns = list(zip(result.schema.names, result.columns, strict=True))
        return _of_columns(columns, shape, what, bare=True)
    return _values(result, what)


def _of_columns(
    columns: Iterable[tuple[Any, Any]], shape: BatchShape, what: str, *, bare: bool
) -> list[Any]:
    columns = list(columns)
    names = tuple(name for name, _ in columns)
    made = [_values(column, f"{what}, column {name!r},") for name, column in columns]
    sizes = dict(zip(names, map(len, made), strict=True)) if len(set(names)) == len(names) else None
    if not sizes or len(set(sizes.values())) > 1 or not all(type(name) is str for name in names):
        raise UserFunctionError(
            f"{what} gave columns that make no records",
            columns=shorten(list(names) if sizes is None else sizes),
            hint="give columns of one length, each with a name of its own that is a text",
        )
    return shape.of_result(names, bare=bare).records(made)


def _values(column: Any, what: str, hint: str = "give a list, an array, or columns") -> list[Any]:
    """The values of a column, or of a sequence of any kind, as Python has them."""
    if type(column) is list:
        return column
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(
        column, pandas.Series | pandas.Index | pandas.api.extensions.ExtensionArray
    ):
        return _of_series(column, what)
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return _of_arrow(column, what)
    if hasattr(column, "__array__"):
        # Also what other libraries have of their own, a tensor for instance.
        array = column if isinstance(column, np.ndarray) else np.asarray(column)
        if array.ndim:
            return _of_array(array, what)
    elif isinstance(column, set | frozenset):
        raise UserFunctionError(
            f"{what} gave a {type(column).__name__}, which has no order",
            returned=shorten(column),
            hint="give a list: what comes first belongs to the first record",
        )
    elif isinstance(column, Iterable) and not isinstance(column, _ALONE):
        return list(column)
    if column is None:
        raise UserFunctionError(
            f"{what} gave None",
            hint="does it end without a return? It gives what is for the whole batch",
        )
    raise UserFunctionError(
        f"{what} gave one {type(column).__name__}, and results for many records are wanted",
        returned=shorten(column),
        hint=hint,
    )


def _of_array(array: Any, what: str) -> list[Any]:
    if array.dtype.kind in "mM":
        # As nanoseconds they would become plain numbers, and so would what is beyond Python's years. Asked for years
        # or days no moment is too large.
        spans = array.dtype.kind == "m"
        unit, low, high = ("m8[D]", -_MOST_DAYS, _MOST_DAYS) if spans else ("M8[Y]", -1969, 8029)
        counts = array.astype(unit).astype(np.int64)
        if not (np.isnat(array) | ((counts >= low) & (counts <= high))).all():
            raise _not_pythons(what, array.dtype)
        array = array.astype("m8[us]" if spans else "M8[us]")
    values: list[Any] = array.tolist()
    if array.dtype != object:
        return values if array.ndim == 1 else list(map(tuple, values))
    return _plain(values, what) if array.ndim == 1 else [tuple(_plain(r, what)) for r in values]


def _of_series(series: Any, what: str) -> list[Any]:
    import pandas as pd

    if isinstance(series.dtype, np.dtype):
        return _of_array(series.to_numpy(), what)
    if isinstance(series.dtype, pd.ArrowDtype):
        return _of_arrow(pa.array(series), what)
    # A type of pandas' own: what is missing there is None.
    values, missing = np.asarray(series.astype(object)), series.isna()
    return _plain([None if gone else v for v, gone in zip(values, missing, strict=True)], what)


def _of_arrow(column: Any, what: str) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_duration(kind) and kind.unit == "ns":
        column = column.cast(pa.duration("us"), safe=False)
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise _not_pythons(what, kind) from error
    return values


def _not_pythons(what: str, kind: Any) -> UserFunctionError:
    return UserFunctionError(
        f"{what} gave a value of type {kind} that Python cannot hold",
        hint="Python's moments are of the years 1 to 9999; give others as numbers or texts",
    )


def _plain(values: list[Any], what: str) -> list[Any]:
    """Python's own in the place of what is NumPy's or pandas'."""
    pandas = sys.modules.get("pandas")
    odd: tuple[type, ...] = (np.generic,)
    if pandas is not None:
        odd += (pandas.Timestamp, pandas.Timedelta, type(pandas.NaT), type(pandas.NA))
    if not any(issubclass(kind, odd) for kind in set(map(type, values))):
        return values
    return [_python(value, what) if isinstance(value, odd) else value for value in values]


def _python(value: Any, what: str) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _of_array(np.array([value]), what)[0]
    if isinstance(value, np.generic):
        return value.item()
    if value is sys.modules["pandas"].NA or value != value:
        return None
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    return value.to_pytimedelta()


def mask_of(result: Any, what: str) -> list[bool]:
    """Which records go on.

    >>> mask_of(np.array([True, False]), "the function")
    [True, False]
    """
    if isinstance(result, dict) or hasattr(result, "columns"):
        raise UserFunctionError(
            f"{what} gave columns, and a mask is wanted",
            returned=type(result).__name__,
            hint='give one boolean for each record, for instance frame["price"] > 10',
        )
    mask = _values(result, what, "give one boolean for each record, in their order")
    kinds = set(map(type, mask))
    if kinds <= {bool}:
        return mask
    if kinds <= {bool, np.bool_}:
        return list(map(bool, mask))
    other = next(value for value in mask if type(value) is not bool)
    raise UserFunctionError(
        f"{what} gave a mask with something in it that is neither True nor False",
        value=shorten(other),
        hint="give one boolean for each record; fill in what is missing",
    )


def mask_array(result: Any, what: str) -> npt.NDArray[np.bool_]:
    """Which rows go on, as an array; without a loop where the function has given one.

    >>> mask_array(pa.array([True, False]), "the function")
    array([ True, False])
    """
    pandas = sys.modules.get("pandas")
    if isinstance(result, pa.Array | pa.ChunkedArray) and pa.types.is_boolean(result.type):
        if not result.null_count:
            return np.asarray(array_of(result).to_numpy(zero_copy_only=False))
    elif pandas is not None and type(result) is pandas.Series and result.dtype == np.bool_:
        return np.asarray(result.to_numpy())
    elif type(result) is np.ndarray and result.dtype == np.bool_ and result.ndim == 1:
        return result
    return np.array(mask_of(result, what), np.bool_)
