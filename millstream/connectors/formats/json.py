"""Rows as JSON objects (Flink's `JsonRowDeserializationSchema` and `JsonRowSerializationSchema`).

A field's type says how its JSON value is read. Dates and times are ISO 8601, as in Flink; bytes are Base64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time
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
_TIMES: dict[TypeInformation, Callable[[str], Any]] = {
    Types.SQL_DATE(): date.fromisoformat,
    Types.SQL_TIME(): lambda text: time.fromisoformat(text).replace(tzinfo=None),
    Types.SQL_TIMESTAMP(): lambda text: datetime.fromisoformat(text).replace(tzinfo=None),
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
        return base64.b64decode
    if isinstance(kind, MapTypeInfo):
        value = _reader(kind.value_type, strict)
        return lambda found: {key: _read(value, one) for key, one in found.items()}
    if isinstance(kind, TupleTypeInfo):
        readers = [_reader(one, strict) for one in kind.get_field_types()]
        return lambda found: tuple(map(_read, readers, found))
    if isinstance(
        kind, ListTypeInfo | BasicArrayTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo
    ):
        element = _reader(kind.elem_type, strict)
        return lambda found: [_read(element, one) for one in found]
    if kind == Types.STRING():
        return _text
    if kind == Types.BIG_DEC():
        return lambda found: Decimal(str(found))
    return kind.convert


def _read(reader: Reader, value: Any) -> Any:
    return None if value is None else reader(value)


def _text(value: Any) -> str:
    """Text, and of a number or an object its JSON, as in Flink."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _RowReader:
    """Makes a named row of an object."""

    def __init__(self, kind: RowTypeInfo, strict: bool) -> None:
        self.names = list(kind.get_field_names())
        self.readers = [_reader(one, strict) for one in kind.get_field_types()]
        self.strict = strict

    def __call__(self, found: Any) -> Row:
        if not isinstance(found, dict):
            raise TypeMismatchError("a row is read from a JSON object", got=repr(found)[:200])
        for name in self.names:
            if self.strict and name not in found:
                hint = "leave fail_on_missing_field() out, and the field is None"
                raise TypeMismatchError(f"the field {name!r} is missing", hint=hint)
        values = [
            _read(reader, found.get(name))
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}

    def deserialize(self, message: bytes) -> Row | None:
        """The row; None for what is no JSON object, if that is to be ignored."""
        if self._read is None:
            self._read = _reader(self._kind, self._strict)
        try:
            row: Row = self._read(json.loads(message))
        except (ValueError, TypeError, AttributeError, TypeMismatchError) as error:
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
        """A builder."""
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
            """The schema."""
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

    def serialize(self, element: Row) -> bytes:
        """The object, without spaces."""
        plain = _plain(element, self._kind)
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """A builder."""
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
            """The schema."""
            if self._type is None:
                raise InvalidArgument("a JSON schema needs with_type_info(..)")
            return JsonRowSerializationSchema(self._type)


def _plain(value: Any, kind: Any) -> Any:
    """A value as what `json` can write."""
    if isinstance(value, Row) and isinstance(kind, RowTypeInfo):
        fields = zip(kind.get_field_names(), value, kind.get_field_types(), strict=True)
        return {name: _plain(one, declared) for name, one, declared in fields}
    if isinstance(value, dict):
        return {
            str(key): _plain(one, getattr(kind, "value_type", None)) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(one, getattr(kind, "elem_type", None)) for one in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | time):
        # Flink writes both in UTC.
        return f"{value.isoformat()}Z"
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
