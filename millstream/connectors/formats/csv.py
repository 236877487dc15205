"""Rows as lines of CSV (Flink's `CsvRowDeserializationSchema` and `CsvRowSerializationSchema`).

Fields go by their position. Quotes are written where a value needs them.
"""

from __future__ import annotations

import csv
import io
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_composite import RowTypeInfo
from millstream.common.types import Row
from millstream.connectors.formats.json import row_type
from millstream.errors import InvalidArgument, TypeMismatchError

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]

B = TypeVar("B", bound="_Builder")

_TRUE, _FALSE = ("true", "1"), ("false", "0")


class _Layout:
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
        self._type = row_type(type_info)
        self._layout = _Layout()

    def set_field_delimiter(self: B, delimiter: str) -> B:
        """What stands between fields."""
        self._layout.delimiter = _character(delimiter)
        return self

    def set_array_element_delimiter(self: B, delimiter: str) -> B:
        """What stands between the elements of an array."""
        self._layout.array = delimiter
        return self

    def set_quote_character(self: B, c: str) -> B:
        """What stands around a value that needs it."""
        self._layout.quote = _character(c)
        return self

    def set_escape_character(self: B, c: str) -> B:
        """What stands before a character that has another meaning."""
        self._layout.escape = _character(c)
        return self

    def set_null_literal(self: B, null_literal: str) -> B:
        """What None is written as."""
        self._layout.null = null_literal
        return self


class CsvRowDeserializationSchema(DeserializationSchema):
    """Reads a line into a row.

    >>> kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    >>> CsvRowDeserializationSchema.Builder(kind).build().deserialize(b'"a,b",3')
    Row(name='a,b', n=3)
    """

    def __init__(self, kind: RowTypeInfo, layout: _Layout) -> None:
        self._kind = kind
        self._layout = layout

    def deserialize(self, message: bytes) -> Row | None:
        """The row; None for a comment, and for what cannot be read if that is to be ignored."""
        text = bytes(message).decode("utf-8").rstrip("\r\n")
        if self._layout.comments and text.startswith("#"):
            return None
        try:
            return self._row(next(csv.reader([text], **self._layout.dialect()), []))
        except (ValueError, ArithmeticError, csv.Error, TypeMismatchError) as error:
            if self._layout.lenient:
                return None
            what = f"this line is not CSV of the schema's type: {error}"
            raise TypeMismatchError(what, line=text[:200]) from error

    def _row(self, texts: list[str]) -> Row:
        names, types = self._kind.get_field_names(), self._kind.get_field_types()
        if len(texts) != len(names):
            raise ValueError(f"{len(texts)} fields, and {len(names)} in the type")
        values = [self._value(text, kind) for text, kind in zip(texts, types, strict=True)]
        return Row(**dict(zip(names, values, strict=True)))

    def _value(self, text: str, kind: Any) -> Any:
        if text == self._layout.null:
            return None
        element = getattr(kind, "elem_type", None)
        if element is not None:
            parts = text.split(self._layout.array) if text else []
            return [self._value(part, element) for part in parts]
        if isinstance(kind, RowTypeInfo):
            raise InvalidArgument("CSV has no rows inside rows", got=repr(kind))
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
            """The schema."""
            return CsvRowDeserializationSchema(self._type, self._layout)


class CsvRowSerializationSchema(SerializationSchema):
    r"""Writes a row as a line.

    >>> kind = Types.ROW([Types.STRING(), Types.INT(), Types.BOOLEAN()])
    >>> CsvRowSerializationSchema.Builder(kind).build().serialize(Row("a,b", 3, True))
    b'"a,b",3,true\n'
    """

    def __init__(self, kind: RowTypeInfo, layout: _Layout) -> None:
        self._kind = kind
        self._layout = layout

    def serialize(self, element: Row) -> bytes:
        """The line, with its end."""
        stream = io.StringIO()
        csv.writer(stream, **self._layout.dialect()).writerow([self._text(one) for one in element])
        return stream.getvalue().encode()

    def _text(self, value: Any) -> str:
        if value is None:
            return self._layout.null or ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list | tuple):
            return self._layout.array.join(self._text(one) for one in value)
        if isinstance(value, datetime):
            return value.isoformat(" ")
        return str(value)

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
            """The schema."""
            return CsvRowSerializationSchema(self._type, self._layout)


def _character(text: str) -> str:
    if len(text) != 1:
        raise InvalidArgument("this must be one character", got=repr(text))
    return text


def _parse(text: str, kind: Any) -> Any:
    """A value of a simple type from its text."""
    if kind == Types.STRING():
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
    return kind.convert(int(text))
