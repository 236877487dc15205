"""Parquet files (Flink's `ParquetColumnarRowInputFormat`, `ParquetBulkWriters`, `AvroParquetReaders`).

Rows become columns as `millstream.connectors.columns` says: a value fits its column as it is, or is refused. A row
group belongs to the range in which its first byte lies, and is read in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.common.serialization import BulkWriter, BulkWriterFactory
from millstream.connectors.columns import as_columns, as_records, fitted_columns
from millstream.connectors.file.compact import FileCompactor
from millstream.connectors.file.format import BulkFormat
from millstream.connectors.formats.avro import AvroSchema
from millstream.connectors.formats.schemas import arrow_schema
from millstream.errors import InvalidArgument, SinkError, SourceError

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
    "ParquetFileCompactor",
    "ParquetWriters",
]

_ROWS = 8_192  # made columns at once
_COLUMN_ROWS = 65_536  # read as columns at once, if they are not long
_COLUMN_BYTES = 32 << 20
_BUFFER = 4 << 20  # read of a column at once
_GROUP = 32 << 20  # bytes of a row group, in memory


class ParquetWriters(BulkWriterFactory):
    """Writes Parquet; made by `ParquetBulkWriters` and `AvroParquetWriters`."""

    takes_columns = True

    def __init__(self, schema: pa.Schema, compression: str = "snappy") -> None:
        self._schema = schema
        self._compression = compression

    def create(self, stream: BinaryIO) -> BulkWriter:
        """A writer into a new file."""
        return _ParquetWriter(stream, self._schema, self._compression)


class _ParquetWriter(BulkWriter):
    def __init__(self, stream: BinaryIO, schema: pa.Schema, compression: str) -> None:
        self._schema = schema
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []
        self._file = pa.PythonFile(stream, mode="w")
        self._writer = pq.ParquetWriter(self._file, schema, compression=compression)

    def add_element(self, element: Any) -> None:
        self._rows.append(element)
        if len(self._rows) >= _ROWS:
            self._make_columns()

    def add_columns(self, columns: pa.RecordBatch, *, named: bool) -> bool:
        batch = fitted_columns(columns, self._schema, named=named)
        if batch is None:
            return False
        if self._rows:
            self._make_columns()
        self._hold(batch)
        return True

    def _make_columns(self) -> None:
        batch = as_columns(self._rows, self._schema)
        self._rows.clear()
        self._hold(batch)

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self.held += batch.nbytes
        if self.held >= _GROUP:
            self._write_group()

    def _write_group(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
        self._batches.clear()
        self.held = 0

    def finish(self) -> None:
        if self._rows:
            self._make_columns()
        if self._batches:
            self._write_group()
        self._writer.close()

    def discard(self) -> None:
        self._batches.clear()
        # Otherwise it would do so when it is collected, into a stream that is closed.
        self._writer.close()


class ParquetFileCompactor(FileCompactor):
    """Makes one Parquet file of several, row group by row group, for `FileSink.enable_compact`."""

    plain = False

    def __init__(self, compression: str = "snappy") -> None:
        self._compression = compression

    def compact(self, inputs: Sequence[Callable[[], BinaryIO]], output: BinaryIO) -> None:
        """Copy the rows; small row groups become larger ones. A column that a file has not is null there."""
        schema = _common(inputs)
        held: list[pa.Table] = []
        place = pa.PythonFile(output, mode="w")
        with pq.ParquetWriter(place, schema, compression=self._compression) as writer:
            for opened in inputs:
                with opened() as stream:
                    file = pq.ParquetFile(stream)
                    for group in range(file.num_row_groups):
                        held.append(_widened(file.read_row_group(group), schema))
                        if sum(table.nbytes for table in held) >= _GROUP:
                            writer.write_table(pa.concat_tables(held))
                            held.clear()
            if held:
                writer.write_table(pa.concat_tables(held))


def _common(inputs: Sequence[Callable[[], BinaryIO]]) -> pa.Schema:
    """The columns of all files: those of the program may have changed since the first was written."""
    schemas = []
    for opened in inputs:
        with opened() as stream:
            schemas.append(pq.read_schema(stream))
    try:
        return pa.unify_schemas(schemas)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SinkError(
            f"Parquet files whose columns have different types cannot become one: {error}",
            hint="let the program with the former type go on, and stop it: it compacts what waits",
        ) from error


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema == schema:
        return table
    there = set(table.schema.names)
    columns = [
        table.column(field.name) if field.name in there else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class ParquetBulkWriters:
    """Rows as Parquet.

    >>> from millstream.common import Row, Types
    >>> import io
    >>> kind = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])
    >>> stream = io.BytesIO()
    >>> writer = ParquetBulkWriters.for_row_type(kind).create(stream)
    >>> writer.add_element(Row("a", 1))
    >>> writer.finish()
    >>> pq.read_table(io.BytesIO(stream.getvalue())).to_pylist()
    [{'name': 'a', 'n': 1}]
    """

    @staticmethod
    def for_row_type(
        row_type: Any,
        hadoop_config: Any = None,
        utc_timestamp: bool = False,
        *,
        compression: str = "snappy",
    ) -> BulkWriterFactory:
        """Writers for rows of a type (`Types.ROW_NAMED`, or a schema of PyArrow). With `utc_timestamp`, timestamps are
        moments in UTC, and records need a time zone."""
        if hadoop_config is not None:
            raise InvalidArgument("there is no Hadoop behind this writer", hint="leave it out")
        schema = arrow_schema(row_type)
        if utc_timestamp:
            schema = pa.schema([_in_utc(field) for field in schema])
        return ParquetWriters(schema, compression)


def _in_utc(field: pa.Field) -> pa.Field:
    if pa.types.is_timestamp(field.type) and field.type.tz is None:
        return field.with_type(pa.timestamp(field.type.unit, "UTC"))
    return field


class AvroParquetWriters:
    """Records of an Avro schema, as Parquet."""

    @staticmethod
    def for_generic_record(schema: AvroSchema, *, compression: str = "snappy") -> BulkWriterFactory:
        """Writers for dicts, or rows, of a schema."""
        return ParquetWriters(schema.arrow_schema(), compression)


class ParquetColumnarRowInputFormat(BulkFormat):
    """Reads rows from Parquet files: the columns of the type, by name. A column that a file has not is None, unless the
    file has none of them.

    >>> from millstream.common import Types
    >>> ParquetColumnarRowInputFormat(Types.ROW_NAMED(["n"], [Types.LONG()]))
    ParquetColumnarRowInputFormat(n: int64)
    """

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Any = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        if hadoop_config is not None:
            raise InvalidArgument("there is no Hadoop behind this format", hint="leave it out")
        if batch_size < 1:
            raise InvalidArgument("a batch must hold 1 row or more", got=batch_size)
        schema = arrow_schema(row_type)
        self._schema = pa.schema(map(_in_utc, schema)) if is_utc_timestamp else schema
        self._batch_size = batch_size
        self._sensitive = is_case_sensitive

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {field.type}" for field in self._schema)
        return f"{type(self).__name__}({fields})"

    def read_range(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[list[Any]]:
        """The rows of the row groups that begin in the range."""
        batches = self._batches(stream, path, start, end, lambda facts: self._batch_size)
        return (self._records(batch) for batch in batches)

    def read_columns(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as batches."""
        return self._batches(stream, path, start, end, self._column_rows)

    def _column_rows(self, facts: pq.RowGroupMetaData) -> int:
        """How many rows of a row group are read as columns at once: no more of long ones than as records."""
        fitting: int = _COLUMN_BYTES * facts.num_rows // max(facts.total_byte_size, 1)
        return max(self._batch_size, min(fitting, _COLUMN_ROWS))

    def gives_columns(self) -> bool:
        """True: its rows are columns in the file. What a class of its own makes of them is not known."""
        return type(self) is ParquetColumnarRowInputFormat

    def _batches(
        self,
        stream: BinaryIO,
        path: str,
        start: int,
        end: int,
        rows_of: Callable[[pq.RowGroupMetaData], int],
    ) -> Iterator[pa.RecordBatch]:
        try:
            # Otherwise a row group would be read as a whole, however long it is.
            file = pq.ParquetFile(stream, pre_buffer=False, buffer_size=_BUFFER)
            groups = [n for n in range(file.num_row_groups) if start <= _begin(file, n) < end]
            if not groups:
                return
            found = self._found(file.schema_arrow.names, path)
            columns = [name for name in found if name is not None]
            for n in groups:
                # One after the other: how much is read ahead is then a row group at the most.
                rows = rows_of(file.metadata.row_group(n))
                for batch in file.iter_batches(rows, row_groups=[n], columns=columns):
                    yield self._fitted(batch, found, path)
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"this is not a complete Parquet file: {error}",
                file=path,
                hint="write it anew; files must not be seen before they are complete",
            ) from error

    def _found(self, names: list[str], path: str) -> list[str | None]:
        """For each column that is wanted, its name in the file."""
        if self._sensitive:
            known = {name: name for name in names}
            found = [known.get(field.name) for field in self._schema]
        else:
            known = {name.lower(): name for name in names}
            found = [known.get(field.name.lower()) for field in self._schema]
        if names and len(self._schema) and not any(found):
            raise SourceError(
                "the file has none of the columns",
                file=path,
                columns=", ".join(self._schema.names),
                found=", ".join(names),
                hint="name the columns as the file does",
            )
        return found

    def _fitted(self, batch: pa.RecordBatch, found: list[str | None], path: str) -> pa.RecordBatch:
        columns = []
        for field, name in zip(self._schema, found, strict=True):
            if name is None:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(name)
            try:
                columns.append(_cast(column, field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SourceError(
                    f"the column '{name}' of the file is {column.type}, which cannot be read as {field.type}: {error}",
                    file=path,
                    hint="declare the field with the type that the files have",
                ) from error
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _records(self, batch: pa.RecordBatch) -> list[Any]:
        return list(as_records(batch, batch.num_columns))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column as another type, if nothing is lost. Arrow looks after all but the digits of floats."""
    if column.type == kind:
        return column
    cast = column.cast(kind)
    if pa.types.is_floating(column.type) and pa.types.is_floating(kind):
        back = cast.cast(column.type)
        same = pc.or_(pc.equal(back, column), pc.is_nan(column))
        if not pc.all(same, min_count=0).as_py():
            raise pa.ArrowInvalid("a number would be rounded")
    return cast


class _Dicts(ParquetColumnarRowInputFormat):
    def _records(self, batch: pa.RecordBatch) -> list[Any]:
        return [row.as_dict(True) for row in as_records(batch, batch.num_columns)]


class AvroParquetReaders:
    """Parquet as records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkFormat:
        """A format that gives dicts, for `FileSource.for_record_stream_format`."""
        return _Dicts(schema.arrow_schema())


def _begin(file: pq.ParquetFile, group: int) -> int:
    """The place of a row group's first byte."""
    facts = file.metadata.row_group(group)
    places = []
    for n in range(facts.num_columns):
        column = facts.column(n)
        places += [p for p in (column.dictionary_page_offset, column.data_page_offset) if p]
    return min(places, default=0)
