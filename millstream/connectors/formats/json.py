"""Rows as JSON objects (Flink's `JsonRowDeserializationSchema` and `JsonRowSerializationSchema`).

A field's type says how its JSON value is read and written: as it is, or not at all. Rows and dicts go by name. Dates
and times are ISO 8601, as in Flink, those with a time zone in UTC; bytes are Base64; decimal numbers keep all their
digits.
"""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_basic import SqlTimeTypeInfo
from millstream.common.typeinfo_composite import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from millstream.common.types import Row
from millstream.errors import InvalidArgument, NotSupportedYet, TypeMismatchError

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema", "row_type"]

Reader = Callable[[Any], Any]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_WHOLE = (Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG())


class _Exact(float):
    """A number with a point that knows how it was written."""

    def __init__(self, text: str) -> None:
        self.text = text


def _in_utc(moment: datetime) -> datetime:
    """What the clocks show in UTC."""
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _time_in_utc(moment: time) -> time:
    if moment.utcoffset():
        raise ValueError(f"{moment.isoformat()} is not in UTC")
    return moment.replace(tzinfo=None)


_TIMES: dict[TypeInformation, Callable[[str], Any]] = {
    Types.SQL_DATE(): date.fromisoformat,
    Types.SQL_TIME(): lambda text: _time_in_utc(time.fromisoformat(text)),
    Types.SQL_TIMESTAMP(): lambda text: _in_utc(datetime.fromisoformat(text)),
}


def row_type(type_info: Any) -> RowTypeInfo:
    """The type if it is a row's; an error else."""
    if not isinstance(type_info, RowTypeInfo):
        hint = "Types.ROW_NAMED(['name'], [Types.STRING()])"
        raise InvalidArgument("this schema needs the type of a row", got=repr(type_info), hint=hint)
    return type_info


def _reader(kind: TypeInformation, strict: bool) -> Reader:
    """The function that makes a value of this type from a JSON value."""
    if isinstance(kind, RowTypeInfo):
        return _RowReader(kind, strict)
    if isinstance(kind, SqlTimeTypeInfo):
        return _TIMES[kind]
    if kind == _BYTES:
        return functools.partial(base64.b64decode, validate=True)
    if isinstance(kind, MapTypeInfo):
        value = _reader(kind.value_type, strict)
        return lambda parsed: {key: _read(value, item) for key, item in parsed.items()}
    if isinstance(kind, TupleTypeInfo):
        readers = [_reader(field_type, strict) for field_type in kind.get_field_types()]
        return lambda parsed: tuple(map(_read, readers, _array(parsed, len(readers))))
    if isinstance(
        kind, ListTypeInfo | BasicArrayTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo
    ):
        element = _reader(kind.elem_type, strict)
        return lambda parsed: [_read(element, item) for item in _array(parsed)]
    if kind == Types.STRING():
        return _text
    if kind == Types.BIG_DEC():
        return _decimal
    return functools.partial(whole, kind) if kind in _WHOLE else kind.convert


def whole(kind: TypeInformation, value: Any) -> Any:
    """A whole number of a type, if it can hold it: what comes from outside does not wrap.

    >>> whole(Types.INT(), 2**31 - 1)
    2147483647
    """
    found = kind.convert(value)
    if found != value:
        raise ValueError(f"{value} is too large for {kind!r}")
    return found


def _decimal(parsed: Any) -> Decimal:
    try:
        return Decimal(parsed.text if isinstance(parsed, _Exact) else str(parsed))
    except ArithmeticError:
        raise ValueError(f"{parsed!r} is not a number") from None


def _array(parsed: Any, length: int | None = None) -> list[Any]:
    """The elements; a text, which has some too, is none."""
    if isinstance(parsed, list) and length in (None, len(parsed)):
        return parsed
    wanted = "an array" if length is None else f"an array of {length}"
    raise TypeError(f"{json.dumps(parsed)[:100]} is not {wanted}")


def _has_decimals(kind: Any) -> bool:
    """True if a value of the type can hold a decimal number, for which Python's float has too few digits."""
    if isinstance(kind, RowTypeInfo | TupleTypeInfo):
        return any(map(_has_decimals, kind.get_field_types()))
    inside = getattr(kind, "elem_type", None) or getattr(kind, "value_type", None)
    return kind == Types.BIG_DEC() or (inside is not None and _has_decimals(inside))


def _read(reader: Reader, value: Any) -> Any:
    return None if value is None else reader(value)


def _text(value: Any) -> str:
    """Text, and of a number or an object its JSON, as in Flink."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _RowReader:
    """Makes a named row of an object."""

    def __init__(self, kind: RowTypeInfo, strict: bool) -> None:
        self.names = list(kind.get_field_names())
        self.readers = [_reader(field_type, strict) for field_type in kind.get_field_types()]
        self.strict = strict

    def __call__(self, parsed: Any) -> Row:
        if not isinstance(parsed, dict):
            raise TypeMismatchError("a row is read from a JSON object", got=repr(parsed)[:200])
        for name in self.names:
            if self.strict and name not in parsed:
                hint = "leave fail_on_missing_field() out, and the field is None"
                raise TypeMismatchError(f"the field {name!r} is missing", hint=hint)
        values = [
            _read(reader, parsed.get(name))
            for name, reader in zip(self.names, self.readers, strict=True)
        ]
        return Row(**dict(zip(self.names, values, strict=True)))


class JsonRowDeserializationSchema(DeserializationSchema):
    """Reads a JSON object into a row.

    >>> kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    >>> schema = JsonRowDeserializationSchema.builder().type_info(kind).build()
    >>> schema.deserialize(b'{"n": 3, "name": "a", "more": true}')
    Row(name='a', n=3)
    """

    def __init__(self, kind: RowTypeInfo, *, strict: bool = False, lenient: bool = False) -> None:
        self._kind = kind
        self._strict = strict
        self._lenient = lenient
        self._read: Reader | None = None
        self._floats: type[_Exact] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}

    def deserialize(self, message: bytes) -> Row | None:
        """The row; None for what is no JSON object, if that is to be ignored."""
        if self._read is None:
            self._read = _reader(self._kind, self._strict)
            self._floats = _Exact if _has_decimals(self._kind) else None
        try:
            row: Row = self._read(json.loads(message, parse_float=self._floats))
        except (ValueError, TypeError, AttributeError, RecursionError, TypeMismatchError) as error:
            if self._lenient:
                return None
            evidence = bytes(message[:200]).decode("utf-8", "replace")
            raise TypeMismatchError(
                f"this message is not JSON of the schema's type: {error}", message=evidence
            ) from error
        return row

    def get_produced_type(self) -> TypeInformation:
        """The row's type."""
        return self._kind

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """A builder of the schema."""
        return JsonRowDeserializationSchema.Builder()

    class Builder:
        """Builds a `JsonRowDeserializationSchema`."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None
            self._strict = False
            self._lenient = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """The row's type; its field names are the object's."""
            self._type = row_type(type_info)
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """The type as a JSON schema."""
            msg = "json_schema is not available yet"
            raise NotSupportedYet(msg, hint="describe the type with type_info(Types.ROW_NAMED(..))")

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """A field that is not there is an error, and not None."""
            self._strict = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Leave out what cannot be read."""
            self._lenient = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """The schema that was built."""
            if self._type is None:
                raise InvalidArgument("a JSON schema needs type_info(..)")
            if self._strict and self._lenient:
                msg = "fail_on_missing_field and ignore_parse_errors exclude each other"
                raise InvalidArgument(msg)
            return JsonRowDeserializationSchema(
                self._type, strict=self._strict, lenient=self._lenient
            )


class JsonRowSerializationSchema(SerializationSchema):
    """Writes a row as a JSON object.

    >>> kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    >>> JsonRowSerializationSchema.builder().with_type_info(kind).build().serialize(Row("a", 3))
    b'{"name":"a","n":3}'
    """

    def __init__(self, kind: RowTypeInfo) -> None:
        self._kind = kind

    def serialize(self, element: Any) -> bytes:
        """The object, without spaces."""
        text = _written(self._kind.convert(element), self._kind)
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise TypeMismatchError(
                f"a text cannot be written as UTF-8: {error.reason}", record=repr(element)[:200]
            ) from None

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """A builder of the schema."""
        return JsonRowSerializationSchema.Builder()

    class Builder:
        """Builds a `JsonRowSerializationSchema`."""

        def __init__(self) -> None:
            self._type: RowTypeInfo | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """The row's type; its field names are the object's."""
            self._type = row_type(type_info)
            return self

        def build(self) -> JsonRowSerializationSchema:
            """The schema that was built."""
            if self._type is None:
                raise InvalidArgument("a JSON schema needs with_type_info(..)")
            return JsonRowSerializationSchema(self._type)


_quoted: Callable[[str], str] = json.encoder.encode_basestring


def _written(value: Any, kind: Any) -> str:
    """A value as JSON. Python's `json` would round decimal numbers, and write some that JSON has not."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise TypeMismatchError(
                f"JSON has no number for {value}", hint="replace it before the sink, by None say"
            )
        return float.__repr__(value) if isinstance(value, float) else str(value)
    if isinstance(value, Row):
        names, types = _fields(value, kind)
        fields = zip(names, value, types, strict=True)
        inside = [f"{_quoted(name)}:{_written(item, declared)}" for name, item, declared in fields]
        return f"{{{','.join(inside)}}}"
    if isinstance(value, dict):
        inner = getattr(kind, "value_type", None)
        inside = [f"{_quoted(str(key))}:{_written(item, inner)}" for key, item in value.items()]
        return f"{{{','.join(inside)}}}"
    if isinstance(value, list | tuple):
        inner = getattr(kind, "elem_type", None)
        types = kind.get_field_types() if isinstance(kind, TupleTypeInfo) else [inner] * len(value)
        return f"[{','.join(map(_written, value, types))}]"
    return _quoted(_as_text(value))


def _fields(row: Row, kind: Any) -> tuple[list[str], list[Any]]:
    if isinstance(kind, RowTypeInfo):
        return list(kind.get_field_names()), list(kind.get_field_types())
    names = row._fields or [f"f{n}" for n in range(len(row))]
    return list(names), [None] * len(names)


def _as_text(value: Any) -> str:
    """What JSON has no form of its own for."""
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    # Flink writes both in UTC.
    if isinstance(value, datetime):
        return f"{_in_utc(value).isoformat()}Z"
    if isinstance(value, time) and not value.utcoffset():
        return f"{value.replace(tzinfo=None).isoformat()}Z"
    if isinstance(value, date):
        return value.isoformat()
    raise TypeMismatchError("JSON has no form for this value", value=repr(value)[:200])
