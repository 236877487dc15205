"""Files of CSV (Flink's `CsvSchema`, `CsvReaderFormat`, `CsvBulkWriters`).

A value in quotes may hold the end of a line, so a file cannot be cut: it is read from its beginning to its end,
record by record. Lines that are records by themselves are better read with `StreamFormat.text_line_format` and
`CsvRowDeserializationSchema`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_composite import RowTypeInfo
from millstream.common.types import Row, make_row
from millstream.connectors.file.format import StreamFormat
from millstream.connectors.formats.csv import (
    CsvLayout,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    character,
)
from millstream.errors import InvalidArgument, SourceError, TypeMismatchError
from millstream.redaction import get_logger
from millstream.runtime.base.text import shorten

__all__ = ["CsvBulkWriters", "CsvReaderFormat", "CsvSchema", "CsvSchemaBuilder"]

_LIST = 1_000
_log = get_logger(__name__)


class CsvSchema:
    """The columns of a file and how values stand in it; made by a builder.

    >>> schema = CsvSchema.builder().add_string_column("name").add_number_column("n").build()
    >>> schema.size(), schema.row_type.get_field_names()
    (2, ['name', 'n'])
    """

    def __init__(self, columns: Mapping[str, TypeInformation], layout: CsvLayout) -> None:
        self.layout = layout
        self.row_type = RowTypeInfo(list(columns.values()), list(columns))

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """A builder of a `CsvSchema`."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """How many columns there are."""
        return len(self.row_type.get_field_names())


class CsvSchemaBuilder:
    """Builds a `CsvSchema`.

    >>> builder = CsvSchemaBuilder().add_boolean_column("open").set_column_separator(";")
    >>> builder.set_use_header().build().layout.delimiter
    ';'
    """

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._layout = CsvLayout()

    def build(self) -> CsvSchema:
        """The schema, as it was described."""
        if not self._columns:
            raise InvalidArgument("a CSV schema needs columns", hint="add_string_column('name')")
        return CsvSchema(self._columns, self._layout)

    def _add(self, name: str, kind: TypeInformation) -> CsvSchemaBuilder:
        if name in self._columns:
            raise InvalidArgument("there is a column of this name already", got=name)
        self._columns[name] = kind
        return self

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """A column of text."""
        return self._add(name, Types.STRING())

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """A column of true and false."""
        return self._add(name, Types.BOOLEAN())

    def add_number_column(
        self, name: str, number_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """A column of numbers; of whole ones, if the type does not say otherwise (`Types.DOUBLE()`)."""
        return self._add(name, Types.LONG() if number_type is None else number_type)

    def add_array_column(
        self, name: str, separator: str = ";", element_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """A column of lists. All lists of a file have the same separator."""
        self._layout.array = separator
        return self._add(name, Types.LIST(element_type or Types.STRING()))

    def add_columns_from(self, schema: CsvSchema) -> CsvSchemaBuilder:
        """The columns of another schema."""
        names, types = schema.row_type.get_field_names(), schema.row_type.get_field_types()
        for name, kind in zip(names, types, strict=True):
            self._add(name, kind)
        return self

    def clear_columns(self) -> CsvSchemaBuilder:
        """Forget the columns."""
        self._columns.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> CsvSchemaBuilder:
        """Leave out lines that begin with #."""
        self._layout.comments = allow
        return self

    def set_array_element_separator(self, separator: str) -> CsvSchemaBuilder:
        """What stands between the elements of a list."""
        self._layout.array = separator
        return self

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """What stands between values."""
        self._layout.delimiter = character(char)
        return self

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """What stands before a character that has another meaning."""
        self._layout.escape = character(char)
        return self

    def disable_escape_char(self) -> CsvSchemaBuilder:
        """No character has that meaning. This is the default."""
        self._layout.escape = None
        return self

    def set_line_separator(self, separator: str) -> CsvSchemaBuilder:
        """What a line ends in when it is written; both usual ends are read."""
        self._layout.line_end = separator
        return self

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """What None is written as."""
        self._layout.null = null_value
        return self

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """What stands around a value that needs it."""
        self._layout.quote = character(char)
        return self

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Values are never quoted."""
        self._layout.quote = None
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Leave out the first row of each file."""
        self._layout.skip_first = skip
        return self

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """The first row of each file holds the names of its columns, in any order; it is also written."""
        self._layout.header = use
        return self

    def set_strict_headers(self, strict: bool = True) -> CsvSchemaBuilder:
        """The header must name the schema's columns in their order."""
        self._layout.strict_header = strict
        return self

    def size(self) -> int:
        """How many columns there are by now."""
        return len(self._columns)


class CsvReaderFormat(StreamFormat):
    r"""Reads rows from files of CSV.

    >>> schema = CsvSchema.builder().add_string_column("name").add_number_column("n").build()
    >>> list(
    ...     CsvReaderFormat.for_schema(schema).read_all(io.BytesIO(b'"a\nb",1\nc,2\n'), "demo.csv")
    ... )
    [[Row(name='a\nb', n=1), Row(name='c', n=2)]]
    """

    splittable = False

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        self._lenient = False

    def with_ignore_parse_errors(self) -> CsvReaderFormat:
        """Leave out what cannot be read, and say in the log how many lines of a file these were."""
        other = CsvReaderFormat(self._schema)
        other._lenient = True
        return other

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """The format of files of a schema, for `FileSource.for_record_stream_format`."""
        if not isinstance(schema, CsvSchema):
            hint = "CsvSchema.builder().add_string_column('name').build()"
            raise InvalidArgument("this is not a CsvSchema", got=type(schema).__name__, hint=hint)
        return CsvReaderFormat(schema)

    def read_range(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[list[Any]]:
        """Not called: such a file is read whole."""
        raise AssertionError("a file of CSV is not cut")

    def read_all(self, stream: BinaryIO, path: str) -> Iterator[list[Any]]:
        """All rows of a file, some at a time."""
        layout = self._schema.layout
        # A byte that is no text is the fault of its line, and not of the thousand lines that are decoded with it.
        text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
        uncommented = _without_comments(text, layout.quote) if layout.comments else text
        lines = csv.reader(uncommented, **layout.dialect())
        rows: list[Any] = []
        ignored = 0
        try:
            order = self._order(lines, path)
            if layout.skip_first:
                next(lines, None)
            to_row = CsvRowDeserializationSchema(self._schema.row_type, layout).row
            for texts in lines:
                if not texts:
                    continue  # an empty line, as the one that ends some files
                try:
                    rows.append(to_row(_checked(texts) if order is None else order.of(texts)))
                except (ValueError, ArithmeticError, TypeMismatchError):
                    if not self._lenient:
                        raise
                    ignored += 1
                if len(rows) >= _LIST:
                    yield rows
                    rows = []
        except (ValueError, ArithmeticError, csv.Error, TypeMismatchError) as error:
            raise SourceError(
                f"this line is not CSV of the schema's type: {error}",
                file=path,
                line=lines.line_num,
                hint="check the schema's columns, its separator and its quotes; with_ignore_parse_errors() leaves such "
                "lines out",
            ) from error
        finally:
            # The stream is its opener's to close.
            text.detach()
        if ignored:
            _log.warning(
                "%s: %d lines are not CSV of the schema's type and were left out", path, ignored
            )
        if rows:
            yield rows

    def _order(self, lines: Any, path: str) -> _Order | None:
        """Where a file has the columns, if it says so."""
        layout, names = self._schema.layout, list(self._schema.row_type.get_field_names())
        if not layout.header:
            return None
        found = next(lines, None)
        if found is None or found == names:
            return None
        missing = [name for name in names if name not in found]
        if missing or layout.strict_header:
            raise SourceError(
                f"the header has no {', '.join(missing)}"
                if missing
                else "the header is not the schema's",
                file=path,
                header=", ".join(found),
                columns=", ".join(names),
                hint="name the columns as the file does",
            )
        return _Order(len(found), [found.index(name) for name in names])


class _Order(NamedTuple):
    """Where a file that has so many columns has those of the schema."""

    width: int
    places: list[int]

    def of(self, texts: list[str]) -> list[str]:
        """The texts in the schema's order."""
        if len(texts) != self.width:
            raise ValueError(f"{len(texts)} fields, and {self.width} in the header")
        return _checked([texts[place] for place in self.places])


def _checked(texts: list[str]) -> list[str]:
    """The texts, if they are some: what is not UTF-8 was read as halves of characters."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("it is not UTF-8 text") from None
    return texts


def _without_comments(lines: Any, quote: str | None) -> Iterator[str]:
    """The lines that are no comments; one that begins inside of quotes is none."""
    inside = False
    for line in lines:
        if inside or not line.startswith("#"):
            inside ^= quote is not None and line.count(quote) % 2 == 1
            yield line


class CsvBulkWriters:
    r"""Rows as files of CSV.

    >>> schema = CsvSchema.builder().add_string_column("name").add_number_column("n").build()
    >>> stream = io.BytesIO()
    >>> writer = CsvBulkWriters.for_schema(schema).create(stream)
    >>> writer.add_element(Row(n=1, name="a,b"))
    >>> writer.finish()
    >>> stream.getvalue()
    b'"a,b",1\n'
    """

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Writers for rows of a schema."""
        if not isinstance(schema, CsvSchema):
            hint = "CsvSchema.builder().add_string_column('name').build()"
            raise InvalidArgument("this is not a CsvSchema", got=type(schema).__name__, hint=hint)
        return _CsvWriters(schema)


class _CsvWriters(BulkWriterFactory):
    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        self.concatenable = not schema.layout.header

    def create(self, stream: BinaryIO) -> BulkWriter:
        return _CsvWriter(stream, self._schema)


class _CsvWriter(BulkWriter):
    def __init__(self, stream: BinaryIO, schema: CsvSchema) -> None:
        self._write = stream.write
        self._names = list(schema.row_type.get_field_names())
        written = CsvRowSerializationSchema(schema.row_type, schema.layout)
        self._serialize = written.serialize
        if schema.layout.header:
            self._write(written.line(self._names))

    def add_element(self, element: Any) -> None:
        self._write(self._serialize(make_row(None, self._values(element))))

    def _values(self, element: Any) -> list[Any]:
        fields = element._fields if isinstance(element, Row) else None
        named = dict(zip(fields, element, strict=True)) if fields else element
        if isinstance(named, Mapping):
            missing = [name for name in self._names if name not in named]
            if missing or len(named) != len(self._names):
                raise _misfit(
                    element, f"it has the fields {', '.join(map(str, named))}", self._names
                )
            return [named[name] for name in self._names]
        values = list(element) if isinstance(element, Row | tuple | list) else [element]
        if len(values) != len(self._names):
            raise _misfit(element, f"it has {len(values)} fields", self._names)
        return values

    def finish(self) -> None:
        """Every record is written."""


def _misfit(element: Any, why: str, names: list[str]) -> TypeMismatchError:
    return TypeMismatchError(
        f"a record does not fit the CSV schema: {why}",
        columns=", ".join(names),
        record=shorten(element),
        hint="convert the record before the sink, or change the schema",
    )
