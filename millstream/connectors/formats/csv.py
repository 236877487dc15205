"""Rows as lines of CSV (Flink's `CsvRowDeserializationSchema` and `CsvRowSerializationSchema`).

Lines are read by position; rows and dicts are written by name. Quotes are written where a value needs them. Bytes are
Base64, as in Flink.
"""

from __future__ import annotations

import base64
import csv
import io
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_composite import MapTypeInfo, RowTypeInfo, TupleTypeInfo
from millstream.common.types import Row
from millstream.connectors.formats.json import row_type, whole
from millstream.errors import InvalidArgument, TypeMismatchError

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

B = TypeVar("B", bound="_Builder")

_TRUE, _FALSE = ("true", "1"), ("false", "0")
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())

# Python refuses values of more than 128 KB unless it is told otherwise, for the whole process.
csv.field_size_limit(2**31 - 1)


class CsvLayout:
    """How values stand in a line."""

    def __init__(self) -> None:
        self.delimiter = ","
        self.quote: str | None = '"'
        self.escape: str | None = None
        self.null: str | None = None
        self.array = ";"
        self.line_end = "\n"
        self.comments = False
        self.lenient = False
        # Of whole files.
        self.header = False
        self.strict_header = False
        self.skip_first = False

    def dialect(self) -> dict[str, Any]:
        """The arguments of Python's `csv` functions."""
        quoting = csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL
        escape = self.escape or ("\\" if self.quote is None else None)
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "quoting": quoting,
            "escapechar": escape,
            "lineterminator": self.line_end,
        }


class _Builder:
    """What both builders share."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type = _flat(row_type(type_info))
        self._layout = CsvLayout()

    def set_field_delimiter(self: B, delimiter: str) -> B:
        """What stands between fields."""
        self._layout.delimiter = character(delimiter)
        return self

    def set_array_element_delimiter(self: B, delimiter: str) -> B:
        """What stands between the elements of an array."""
        self._layout.array = delimiter
        return self

    def set_quote_character(self: B, c: str) -> B:
        """What stands around a value that needs it."""
        self._layout.quote = character(c)
        return self

    def set_escape_character(self: B, c: str) -> B:
        """What stands before a character that has another meaning."""
        self._layout.escape = character(c)
        return self

    def set_null_literal(self: B, null_literal: str) -> B:
        """What None is written as."""
        self._layout.null = null_literal
        return self


def _flat(kind: RowTypeInfo) -> RowTypeInfo:
    """The type, if a line can hold its values."""
    for name, inner in zip(kind.get_field_names(), kind.get_field_types(), strict=True):
        if isinstance(inner, RowTypeInfo | MapTypeInfo | TupleTypeInfo):
            raise InvalidArgument(
                "CSV has no rows, tuples or maps inside rows",
                field=name,
                got=repr(inner),
                hint="make columns of its fields, or write it as text",
            )
    return kind


class CsvRowDeserializationSchema(DeserializationSchema):
    """Reads a line into a row.

    >>> kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    >>> CsvRowDeserializationSchema.Builder(kind).build().deserialize(b'"a,b",3')
    Row(name='a,b', n=3)
    """

    def __init__(self, kind: RowTypeInfo, layout: CsvLayout) -> None:
        self._kind = kind
        self._layout = layout

    def deserialize(self, message: bytes) -> Row | None:
        """The row; None for a comment, and for what cannot be read if that is to be ignored."""
        text = bytes(message).decode("utf-8", "backslashreplace").rstrip("\r\n")
        if self._layout.comments and text.startswith("#"):
            return None
        try:
            bytes(message).decode("utf-8")
            return self.row(next(csv.reader([text], **self._layout.dialect()), []))
        except (ValueError, ArithmeticError, csv.Error, TypeMismatchError) as error:
            if self._layout.lenient:
                return None
            problem = f"this line is not CSV of the schema's type: {error}"
            raise TypeMismatchError(problem, line=text[:200]) from error

    def row(self, texts: list[str]) -> Row:
        """The row of a line's texts."""
        names, types = self._kind.get_field_names(), self._kind.get_field_types()
        if len(texts) != len(names):
            raise ValueError(f"{len(texts)} fields, and {len(names)} in the type")
        values = [self._value(text, kind) for text, kind in zip(texts, types, strict=True)]
        return Row(**dict(zip(names, values, strict=True)))

    def _value(self, text: str, kind: Any) -> Any:
        if text == self._layout.null:
            return None
        if kind == _BYTES:
            return base64.b64decode(text, validate=True)
        element = getattr(kind, "elem_type", None)
        if element is not None:
            parts = text.split(self._layout.array) if text else []
            return [self._value(part, element) for part in parts]
        return _parse(text, kind)

    def get_produced_type(self) -> TypeInformation:
        """The row's type."""
        return self._kind

    class Builder(_Builder):
        """Builds a `CsvRowDeserializationSchema`."""

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Leave out lines that begin with #."""
            self._layout.comments = allow_comments
            return self

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> CsvRowDeserializationSchema.Builder:
            """Leave out what cannot be read."""
            self._layout.lenient = ignore_parse_errors
            return self

        def build(self) -> CsvRowDeserializationSchema:
            """The schema that was built."""
            return CsvRowDeserializationSchema(self._type, self._layout)


class CsvRowSerializationSchema(SerializationSchema):
    r"""Writes a row as a line.

    >>> kind = Types.ROW([Types.STRING(), Types.INT(), Types.BOOLEAN()])
    >>> CsvRowSerializationSchema.Builder(kind).build().serialize(Row("a,b", 3, True))
    b'"a,b",3,true\n'
    """

    def __init__(self, kind: RowTypeInfo, layout: CsvLayout) -> None:
        self._kind = kind
        self._layout = layout

    def serialize(self, element: Any) -> bytes:
        """The line, with its end."""
        return self.line([self._text(value) for value in self._kind.convert(element)])

    def line(self, texts: list[str]) -> bytes:
        """The line of some texts, with its end."""
        stream = io.StringIO()
        csv.writer(stream, **self._layout.dialect()).writerow(texts)
        try:
            return stream.getvalue().encode()
        except UnicodeEncodeError as error:
            raise TypeMismatchError(
                f"a text cannot be written as UTF-8: {error.reason}", line=repr(texts)[:200]
            ) from None

    def _text(self, value: Any) -> str:
        if value is None:
            return self._layout.null or ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list | tuple):
            return self._layout.array.join(self._text(item) for item in value)
        if isinstance(value, datetime):
            return value.isoformat(" ")
        return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

    class Builder(_Builder):
        """Builds a `CsvRowSerializationSchema`."""

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """What a line ends in; may be nothing."""
            self._layout.line_end = delimiter
            return self

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Never quote; what would need it is escaped."""
            self._layout.quote = None
            return self

        def build(self) -> CsvRowSerializationSchema:
            """The schema that was built."""
            return CsvRowSerializationSchema(self._type, self._layout)


def character(text: str) -> str:
    """The text, if it is one character."""
    if len(text) != 1:
        raise InvalidArgument("this must be one character", got=repr(text))
    return text


def _parse(text: str, kind: Any) -> Any:
    """A value of a simple type from its text."""
    if kind in (Types.STRING(), Types.CHAR()):
        return text
    if kind == Types.BOOLEAN():
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError(f"{text!r} is neither true nor false")
        return text.lower() in _TRUE
    if kind in (Types.FLOAT(), Types.DOUBLE()):
        return kind.convert(float(text))
    if kind == Types.BIG_DEC():
        return Decimal(text)
    for declared, parse in (
        (Types.SQL_DATE(), date.fromisoformat),
        (Types.SQL_TIME(), time.fromisoformat),
        (Types.SQL_TIMESTAMP(), datetime.fromisoformat),
    ):
        if kind == declared:
            return parse(text)
    return whole(kind, int(text))
