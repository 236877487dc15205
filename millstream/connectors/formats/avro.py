"""Avro: files of records, and single records as messages (Flink's `AvroInputFormat`, `AvroBulkWriters`,
`AvroRowDeserializationSchema`).

A file says which schema it was written with. It is read with the schema of the program, by Avro's own rules: fields are
found by their names, new ones need a default, numbers may grow. What these rules do not allow is an error that names
the file and the field. A block of a file belongs to the range in which its first byte lies.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from millstream.common.serialization import (
    BulkWriter,
    BulkWriterFactory,
    DeserializationSchema,
    SerializationSchema,
)
from millstream.common.typeinfo import TypeInformation
from millstream.common.typeinfo_basic import PickledBytesTypeInfo
from millstream.common.types import Row
from millstream.connectors.file.format import BulkFormat
from millstream.connectors.file.paths import stable_path
from millstream.connectors.formats.avro_schema import (
    as_arrow_schema,
    as_rows,
    disagreement,
    misfit,
    plain,
    rows_reader,
)
from millstream.errors import InvalidArgument, RuntimeUnusable, SourceError, TypeMismatchError
from millstream.runtime.base.text import shorten

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]

_CHUNK = 1 << 16
_SYNC = 16
_LIST = 1_000


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
        import fastavro.validation
    except ImportError:
        raise RuntimeUnusable(
            "Avro is read and written with fastavro, which is not installed",
            hint="pip install 'millstream[avro]', on every machine of the job",
        ) from None
    return fastavro


class AvroSchema:
    """A schema of Avro.

    >>> AvroSchema.parse_string('{"type": "record", "name": "r", "fields": []}').name
    'r'
    """

    def __init__(self, json_schema: str) -> None:
        self._json = json_schema
        self.logical = "logicalType" in json_schema
        self._parsed: Any = None
        self.parsed  # noqa: B018  # a schema that is none is refused now

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": None}

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """The schema in a text of JSON."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """The schema in a file of JSON."""
        try:
            return AvroSchema(Path(file_path).read_text())
        except OSError as error:
            raise InvalidArgument(
                f"the file of the schema cannot be read: {error.strerror}", file=str(file_path)
            ) from error

    @property
    def parsed(self) -> Any:
        """The schema as fastavro takes it."""
        if self._parsed is None:
            fastavro = _fastavro()
            try:
                self._parsed = fastavro.parse_schema(json.loads(self._json))
            except (
                ValueError,
                fastavro.schema.SchemaParseException,
                fastavro.schema.UnknownType,
            ) as error:
                raise InvalidArgument(
                    f"this is not a schema of Avro: {error}", got=self._json[:200]
                ) from error
        return self._parsed

    @property
    def name(self) -> str:
        """The name of the record."""
        return str(self.parsed.get("name", "")) if isinstance(self.parsed, dict) else ""

    @property
    def named(self) -> dict[str, Any]:
        """The schemas inside that have names, which others may refer to."""
        found: dict[str, Any] = {}
        if isinstance(self.parsed, dict):
            found = self.parsed.get("__named_schemas", {})
        return found

    def arrow_schema(self) -> pa.Schema:
        """The schema of columns that hold such records."""
        return as_arrow_schema(self.parsed)

    def __repr__(self) -> str:
        return f"AvroSchema({self._json!r})"


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """The type of a stream of Avro's records: dicts, which travel as they are.

    >>> schema = AvroSchema.parse_string('{"type": "record", "name": "r", "fields": []}')
    >>> GenericRecordAvroTypeInfo(schema).schema.name
    'r'
    """

    def __init__(self, schema: AvroSchema) -> None:
        super().__init__()
        self.schema = schema


class AvroInputFormat(BulkFormat):
    """Reads records, as dicts, from files of Avro.

    `env.create_input(AvroInputFormat(path, schema))` reads one path, as in PyFlink;
    `FileSource.for_bulk_file_format(AvroInputFormat(path, schema), *paths)` any others. Without a schema records are
    read with the one each file was written with.
    """

    def __init__(self, path: str, schema: AvroSchema | None = None) -> None:
        self.path = stable_path(path)
        self._schema = schema

    def get_produced_type(self) -> TypeInformation:
        """What the stream's type is."""
        if self._schema is None:
            return PickledBytesTypeInfo()
        return GenericRecordAvroTypeInfo(self._schema)

    def read_range(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[list[Any]]:
        """The records of the blocks that begin in the range."""
        fastavro = _fastavro()
        wanted = None if self._schema is None else self._schema.parsed
        blocks: Any = None
        try:
            stream.seek(0)
            blocks = fastavro.block_reader(stream, wanted)
            first = stream.tell()
            at = first if start <= first else _next_block(stream, blocks._header["sync"], start)
            if at is None or not start <= at < end:
                return
            stream.seek(at)
            for block in blocks:
                if block.offset >= end:
                    return
                yield from _lists(block)
        except fastavro.read.SchemaResolutionError as error:
            why = disagreement(blocks.writer_schema, wanted) or str(error)
            raise SourceError(
                f"the file was written with a schema that cannot be read with this one: {why}",
                file=path,
                hint="give a new field a default, or read the file with the schema it was written with",
            ) from error
        except (ValueError, EOFError, IndexError, KeyError, TypeError, StopIteration) as error:
            raise SourceError(
                f"this is not a complete Avro file: {type(error).__name__}: {error}",
                file=path,
                hint="write it anew; files must not be seen before they are complete",
            ) from error


def _lists(block: Any) -> Iterator[list[Any]]:
    records: list[Any] = []
    for record in block:
        records.append(record)
        if len(records) >= _LIST:
            yield records
            records = []
    if records:
        yield records


def _next_block(stream: BinaryIO, mark: bytes, start: int) -> int | None:
    """Where the first block begins at or after a place: behind one of the marks that stand between blocks."""
    place = start - _SYNC
    stream.seek(place)
    data = b""
    while True:
        more = stream.read(_CHUNK)
        data += more
        found = data.find(mark)
        if found >= 0:
            return place + found + _SYNC
        if not more:
            return None
        place += len(data) - (_SYNC - 1)
        data = data[1 - _SYNC :]


class AvroBulkWriters:
    """Records as files of Avro."""

    @staticmethod
    def for_generic_record(schema: AvroSchema, *, codec: str = "null") -> BulkWriterFactory:
        """Writers for dicts, or rows, of a schema; `codec` is null, deflate, bzip2 or xz."""
        if codec not in ("null", "deflate", "bzip2", "xz"):
            raise InvalidArgument("this codec is not known", got=codec, hint="null, deflate")
        return _AvroWriters(schema, codec)


class _AvroWriters(BulkWriterFactory):
    def __init__(self, schema: AvroSchema, codec: str) -> None:
        self._schema = schema
        self._codec = codec

    def create(self, stream: BinaryIO) -> BulkWriter:
        return _AvroWriter(stream, self._schema, self._codec)


class _AvroWriter(BulkWriter):
    def __init__(self, stream: BinaryIO, schema: AvroSchema, codec: str) -> None:
        self._schema = schema
        self._names = _field_names(schema)
        self._writer = _fastavro().write.Writer(stream, schema.parsed, codec)
        self._write = self._writer.write

    def add_element(self, element: Any) -> None:
        record = plain(element, self._names)
        # Checked before: a record that fails half-way would be half in the block.
        _check(record, self._schema, element)
        try:
            self._write(record)
        except ValueError as error:
            raise _misfit(element, str(error)) from error

    def finish(self) -> None:
        self._writer.flush()


def _field_names(schema: AvroSchema) -> list[str] | None:
    """What the fields of rows without names are called."""
    is_record = isinstance(schema.parsed, dict) and schema.parsed.get("type") == "record"
    return [field["name"] for field in schema.parsed["fields"]] if is_record else None


def _check(record: Any, schema: AvroSchema, element: Any) -> None:
    validation = _fastavro().validation
    why = misfit(record, schema.parsed, schema.named) if schema.logical else None
    if why is not None:
        raise _misfit(element, why)
    if validation.validate(record, schema.parsed, raise_errors=False, strict=False):
        if isinstance(record, Mapping) and isinstance(schema.parsed, dict):
            known = {field["name"] for field in schema.parsed.get("fields", ())}
            unknown = [name for name in record if name not in known]
            if unknown:
                raise _misfit(element, f"the schema has no field {', '.join(map(str, unknown))}")
        return
    try:
        validation.validate(record, schema.parsed, raise_errors=True)
    except validation.ValidationError as error:
        raise _misfit(element, str(error)) from None


def _misfit(element: Any, why: str) -> TypeMismatchError:
    return TypeMismatchError(
        f"a record does not fit the Avro schema: {why}",
        record=shorten(element),
        hint="convert the record before the sink, or change the schema",
    )


class AvroRowDeserializationSchema(DeserializationSchema):
    """Reads a message of Avro, without a header, into a row.

    >>> text = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}'
    >>> AvroRowDeserializationSchema(avro_schema_string=text).deserialize(bytes([6]))
    Row(n=3)
    """

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _schema_of(record_class, avro_schema_string)

    def deserialize(self, message: bytes) -> Row | None:
        """The row of a message."""
        fastavro = _fastavro()
        stream = io.BytesIO(message)
        try:
            found = fastavro.schemaless_reader(stream, self._schema.parsed)
        except (ValueError, EOFError, IndexError, KeyError, TypeError, StopIteration) as error:
            raise _undecodable(message, f"{type(error).__name__}: {error}") from error
        if stream.tell() != len(message):
            raise _undecodable(message, f"{len(message) - stream.tell()} bytes follow the record")
        row: Row = as_rows(rows_reader(self._schema.parsed, self._schema.named), found)
        return row


def _undecodable(message: bytes, why: str) -> TypeMismatchError:
    return TypeMismatchError(
        f"this message is not Avro of the schema: {why}",
        message=bytes(message[:64]).hex(" "),
        hint="check that it was written with this schema, and without a header",
    )


class AvroRowSerializationSchema(SerializationSchema):
    """Writes a row as a message of Avro, without a header.

    >>> text = '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}'
    >>> AvroRowSerializationSchema(avro_schema_string=text).serialize(Row(n=3))
    b'\\x06'
    """

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _schema_of(record_class, avro_schema_string)

    def serialize(self, element: Any) -> bytes:
        """The message of a row."""
        record = plain(element, _field_names(self._schema))
        _check(record, self._schema, element)
        stream = io.BytesIO()
        try:
            _fastavro().schemaless_writer(stream, self._schema.parsed, record)
        except ValueError as error:
            raise _misfit(element, str(error)) from error
        return stream.getvalue()


def _schema_of(record_class: str | None, avro_schema_string: str | None) -> AvroSchema:
    if record_class is not None:
        raise InvalidArgument(
            "record_class names a class of Java, and there is none here",
            got=record_class,
            hint='give the schema: avro_schema_string=\'{"type": "record", ...}\'',
        )
    if avro_schema_string is None:
        raise InvalidArgument("this needs avro_schema_string, a schema of Avro as JSON")
    schema = AvroSchema(avro_schema_string)
    if not isinstance(schema.parsed, dict) or schema.parsed.get("type") != "record":
        raise InvalidArgument("rows need the schema of a record", got=avro_schema_string[:200])
    return schema
