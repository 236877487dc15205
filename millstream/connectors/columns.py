"""Records as columns, of a Spark frame, a Parquet file or a table, and columns as records.

A record goes in by the names of its fields if it has any (named Rows, dicts, named tuples, dataclasses), else by their
places. A value goes in if the column can hold it as it is, or not at all: nothing is cut off, rounded or taken for
something else. Structs come out as Rows, maps as dicts.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.common.time import Instant
from millstream.common.types import Row
from millstream.errors import TypeMismatchError
from millstream.runtime.base.text import shorten
from millstream.runtime.columns.records import as_records

__all__ = ["as_columns", "as_records", "fitted_columns"]

Convert = Callable[[Any], Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LARGEST_FLOAT = 3.4028234663852886e38
_UNITS = {"s": 1_000_000, "ms": 1_000}  # in microseconds; others are not coarser than Python's


class _Misfit(Exception):
    """A value, and why a column cannot hold it."""


# -- records to columns --------------------------------------------------------------------------------------


def as_columns(records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """The records as one batch.

    >>> schema = pa.schema([("a", pa.string()), ("b", pa.int32())])
    >>> as_columns([Row(b=1, a="x"), ("y", 2)], schema).to_pylist()
    [{'a': 'x', 'b': 1}, {'a': 'y', 'b': 2}]
    """
    names = schema.names
    take = _taking(names)
    rows = []
    for record in records:
        try:
            rows.append(take(record))
        except _Misfit as misfit:
            raise _error(f"a record does not fit the schema: {misfit}", record) from None
    columns = [_column([row[i] for row in rows], field, records) for i, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field, records: Sequence[Any]) -> pa.Array:
    kinds = set(map(type, values))
    if not field.nullable and type(None) in kinds:
        place = values.index(None)
        problem = f"column '{field.name}' takes no nulls"
        raise _error(problem, records[place], column=field.name)
    if not kinds <= _as_they_are(field.type):
        convert = _converter(field.type)
        for place, value in enumerate(values):
            try:
                values[place] = None if value is None else convert(value)
            except _Misfit as misfit:
                raise _unfit(field, value, misfit, records[place]) from None
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        for place, value in enumerate(values):
            try:
                pa.array([value], type=field.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as cause:
                raise _unfit(field, value, cause, records[place]) from error
        raise


def _unfit(field: pa.Field, value: Any, why: object, record: Any) -> TypeMismatchError:
    problem = f"a value does not fit column '{field.name}' of type {field.type}: {why}"
    return _error(problem, record, column=field.name, value=shorten(value))


def _error(problem: str, record: Any, **evidence: Any) -> TypeMismatchError:
    hint = "convert the record before, or declare a schema that fits it"
    return TypeMismatchError(problem, **evidence, record=shorten(record), hint=hint)


def fitted_columns(
    data: pa.RecordBatch, schema: pa.Schema, *, named: bool
) -> pa.RecordBatch | None:
    """Columns of plain values as those of a schema, if each of them is seen to hold what it should; None if that is
    better looked at record by record. `named` says whether they go by their names, or by places alone.

    >>> data = pa.RecordBatch.from_pydict({"n": [1], "word": ["a"]})
    >>> schema = pa.schema([("word", pa.string()), ("n", pa.int32())])
    >>> fitted_columns(data, schema, named=True).to_pylist()
    [{'word': 'a', 'n': 1}]
    >>> fitted_columns(data, schema, named=False) is None
    True
    """
    if len(data.columns) != len(schema) or (named and {*data.schema.names} != {*schema.names}):
        return None
    columns = []
    for place, field in enumerate(schema):
        column = data.column(field.name if named else place)
        if column.null_count and not field.nullable:
            return None
        if column.type != field.type:
            if not _holds(field.type, column.type):
                return None
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _holds(wanted: pa.DataType, kind: pa.DataType) -> bool:
    """True if Arrow looks itself whether a value of one type can be held by another."""
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(kind):
        return bool((wanted.tz is None) == (kind.tz is None))
    return bool(
        pa.types.is_null(kind)
        or (pa.types.is_integer(wanted) and pa.types.is_integer(kind))
        or (pa.types.is_large_string(wanted) and pa.types.is_string(kind))
        or (pa.types.is_large_binary(wanted) and pa.types.is_binary(kind))
    )


_NONE = type(None)


def _as_they_are(kind: pa.DataType) -> set[type]:
    """The types of values that Arrow itself takes as they are or refuses."""
    if pa.types.is_integer(kind):
        return {int, _NONE}
    if pa.types.is_float64(kind):
        return {float, _NONE}
    if pa.types.is_boolean(kind):
        return {bool, _NONE}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return {str, _NONE}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return {bytes, _NONE}
    if pa.types.is_date(kind):
        return {datetime.date, _NONE}
    if pa.types.is_decimal(kind):
        return {Decimal, _NONE}
    return {_NONE}


def _converter(kind: pa.DataType) -> Convert:
    """What makes a value fit for Arrow, or says why it does not."""
    if pa.types.is_integer(kind):
        return _whole
    if pa.types.is_floating(kind):
        return _single if kind.bit_width == 32 else _double
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _only(str)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _binary
    if pa.types.is_fixed_size_binary(kind):
        return _binary
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_timestamp(kind):
        return _of_unit(kind.unit, _instant if kind.tz is not None else _wall_clock)
    if pa.types.is_time(kind):
        return _of_unit(kind.unit, _time)
    if pa.types.is_duration(kind):
        return _of_unit(kind.unit, _only(datetime.timedelta))
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_of(kind.value_field)
    if pa.types.is_map(kind):
        return _map_of(kind.key_field, kind.item_field)
    if pa.types.is_struct(kind):
        return _struct_of([kind.field(i) for i in range(kind.num_fields)])
    return lambda value: value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _Misfit(f"{type(value).__name__} is not a whole number")
    return int(value.__index__())


def _double(value: Any) -> float:
    if _is_number(value):
        try:
            result = float(value)
        except OverflowError:
            raise _Misfit("it is too large") from None
        if isinstance(value, float) or result == value:
            return result
        raise _Misfit("it would be rounded")
    raise _Misfit(f"{type(value).__name__} is not a floating-point number")


def _single(value: Any) -> float:
    result = _double(value)
    if math.isfinite(result) and abs(result) > _LARGEST_FLOAT:
        raise _Misfit("it is too large")
    # A float is rounded to 32 bits by declaration; a whole number is not expected to be.
    if hasattr(value, "__index__") and struct.unpack("f", struct.pack("f", result))[0] != value:
        raise _Misfit("it would be rounded")
    return result


def _is_number(value: Any) -> bool:
    """True for floats and whole numbers, those of NumPy too."""
    if isinstance(value, bool | Decimal):
        return False
    return isinstance(value, float) or hasattr(value, "__index__") or _numpy_kind(value) == "f"


def _numpy_kind(value: Any) -> str:
    kind: str = getattr(getattr(value, "dtype", None), "kind", "") if not _shape(value) else ""
    return kind


def _shape(value: Any) -> Any:
    return getattr(value, "shape", ())


def _boolean(value: Any) -> bool:
    if isinstance(value, bool) or _numpy_kind(value) == "b":
        return bool(value)
    raise _Misfit(f"{type(value).__name__} is not a truth value")


def _only(wanted: type) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, wanted):
            return value
        raise _Misfit(f"{type(value).__name__} is not {wanted.__name__}")

    return convert


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _Misfit(f"{type(value).__name__} is not bytes")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _Misfit(f"{type(value).__name__} is not a decimal number")
    return Decimal(value.__index__())


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    raise _Misfit(f"{type(value).__name__} is not a date")


def _instant(value: Any) -> datetime.datetime:
    if isinstance(value, Instant):
        return _EPOCH + datetime.timedelta(milliseconds=value.to_epoch_milli())
    if not isinstance(value, datetime.datetime):
        raise _Misfit(f"{type(value).__name__} is not a datetime")
    if value.tzinfo is None:
        raise _Misfit("it has no time zone; give it one, or declare the column timestamp_ntz")
    return value.astimezone(datetime.UTC)


def _wall_clock(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise _Misfit(f"{type(value).__name__} is not a datetime")
    if value.tzinfo is not None:
        raise _Misfit("it has a time zone; declare the column timestamp")
    return value


def _time(value: Any) -> datetime.time:
    if not isinstance(value, datetime.time):
        raise _Misfit(f"{type(value).__name__} is not a time")
    if value.tzinfo is not None:
        raise _Misfit("it has a time zone, which the column would drop")
    return value


def _of_unit(unit: str, convert: Convert) -> Convert:
    """A converter that refuses what is finer than a unit; Arrow would cut it off."""
    step = _UNITS.get(unit)
    if step is None:
        return convert

    def fitted(value: Any) -> Any:
        found = convert(value)
        fine = found.microseconds if isinstance(found, datetime.timedelta) else found.microsecond
        if fine % step:
            raise _Misfit(f"it is finer than the column, which has {unit}")
        return found

    return fitted


def _inner(field: pa.Field, place: str) -> Convert:
    """The converter of a value inside another."""
    convert = _converter(field.type)

    def inner(value: Any) -> Any:
        if value is None:
            if field.nullable:
                return None
            raise _Misfit(f"{place}: no nulls are taken there")
        try:
            result = convert(value)
            pa.array([result], type=field.type)
        except (_Misfit, pa.ArrowException, OverflowError, TypeError, ValueError) as misfit:
            raise _Misfit(f"{place}: {misfit}") from None
        return result

    return inner


def _list_of(field: pa.Field) -> Convert:
    def convert(value: Any) -> list[Any]:
        if isinstance(value, Row) or not isinstance(value, list | tuple):
            raise _Misfit(f"{type(value).__name__} is not a list")
        return [_inner(field, f"element {place}")(item) for place, item in enumerate(value)]

    return convert


def _map_of(key_field: pa.Field, item_field: pa.Field) -> Convert:
    key, item = _inner(key_field, "a key"), _inner(item_field, "a value")

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise _Misfit(f"{type(value).__name__} is not a dict")
        return [(key(k), item(v)) for k, v in value.items()]

    return convert


def _struct_of(inside: list[pa.Field]) -> Convert:
    names = [field.name for field in inside]
    take = _taking(names, single=False)
    converters = [_inner(field, f"field '{field.name}'") for field in inside]

    def convert(value: Any) -> dict[str, Any]:
        values = take(value)
        return {n: c(v) for n, c, v in zip(names, converters, values, strict=True)}

    return convert


# -- fields of a record ----------------------------------------------------------------------------------------


def _taking(names: Sequence[str], *, single: bool = True) -> Callable[[Any], Sequence[Any]]:
    """Takes the values of some fields out of a record; with `single`, a plain value is a record of one field."""
    wanted = list(names)
    exact = tuple(names)
    known = set(names)

    def take(record: Any) -> Sequence[Any]:
        # What most records are: half of the time that this takes is spent on finding out what a record is.
        if type(record) is Row and record._fields == exact:
            return record._values
        own = _names_of(record)
        if own is not None:
            if own == wanted and not isinstance(record, Mapping):
                return _values_of(record)
            by_name = (
                record
                if isinstance(record, Mapping)
                else dict(zip(own, _values_of(record), strict=True))
            )
            missing = [name for name in wanted if name not in by_name]
            unknown = [name for name in by_name if name not in known]
            if missing or unknown:
                parts = [f"it has no {name!r}" for name in missing]
                parts += [f"there is no column {name!r}" for name in unknown]
                raise _Misfit(", ".join(parts))
            return [by_name[name] for name in wanted]
        if isinstance(record, Row):
            values: Sequence[Any] = record._values
        elif isinstance(record, tuple | list):
            values = record
        elif single and len(wanted) == 1:
            return [record]
        else:
            raise _Misfit(f"{type(record).__name__} has no fields")
        if len(values) != len(wanted):
            raise _Misfit(f"it has {len(values)} fields, and there are {len(wanted)} columns")
        return values

    return take


def _names_of(record: Any) -> list[Any] | None:
    if isinstance(record, Mapping):
        return list(record)
    if isinstance(record, Row):
        return None if record._fields is None else list(record._fields)
    if isinstance(record, tuple):
        own = getattr(record, "_fields", None)
        return None if own is None else list(own)
    if is_dataclass(record) and not isinstance(record, type):
        return [field.name for field in fields(record)]
    return None


def _values_of(record: Any) -> Sequence[Any]:
    if isinstance(record, Row):
        return record._values
    if isinstance(record, tuple):
        return record
    return [getattr(record, field.name) for field in fields(record)]
