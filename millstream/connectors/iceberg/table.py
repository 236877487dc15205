"""The Iceberg table itself: its files, its schema, its snapshots."""

from __future__ import annotations

import base64
import functools
import json
import os
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import (
    PartitionField,
    PartitionFieldValue,
    PartitionKey,
    partition_record_value,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from millstream.api.sink import WriterContext
from millstream.connectors.formats.schemas import arrow_schema
from millstream.connectors.iceberg.settings import IcebergSettings
from millstream.connectors.tables import (
    DataFileWriter,
    LogEntry,
    TableCommitter,
    check_creatable,
    check_partitioned,
    declared,
    grouped,
    patiently,
)
from millstream.errors import SinkError

__all__ = ["IcebergCommitter", "IcebergWriter"]

_SINK, _EPOCH, _DIGEST = "millstream.sink", "millstream.epoch", "millstream.digest"
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")


@functools.lru_cache(maxsize=8)
def _catalog(name: str, properties: str, process: int) -> Catalog:
    """A catalogue, once per process: what a fork has copied of its connections is the parent's."""
    return load_catalog(name, **json.loads(properties))


def _catalog_of(settings: IcebergSettings) -> Catalog:
    properties = json.dumps(settings.properties, sort_keys=True)
    return _catalog(settings.catalog, properties, os.getpid())


def _open(settings: IcebergSettings) -> Table:
    try:
        return _catalog_of(settings).load_table(settings.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise SinkError(
            "there is no such table in the catalogue",
            table=settings.table,
            catalogue=settings.catalog,
            hint="make it, or call set_row_type(...).create_if_missing()",
        ) from None


def _columns(schema: Schema) -> pa.Schema:
    """The schema of files: Parquet's columns carry the ids by which Iceberg knows them."""
    return schema_to_pyarrow(schema, include_field_ids=True)


def _as_made(schema: pa.Schema) -> pa.Schema:
    """The columns of a table that is made with a schema."""
    return schema_to_pyarrow(Catalog._convert_schema_if_needed(schema))


class IcebergWriter(DataFileWriter):
    """A subtask's half."""

    def __init__(self, settings: IcebergSettings, context: WriterContext) -> None:
        super().__init__(context, settings.target_bytes)
        self._settings = settings
        self._table: Table | None = None

    @property
    def table(self) -> Table:
        """The table as this epoch has found it."""
        if self._table is None:
            self._table = _open(self._settings)
        return self._table

    def load(self) -> pa.Schema:
        """The columns to be written."""
        settings, schema = self._settings, self.table.schema()
        columns = declared(settings.row_type, _columns(schema), settings.table)
        by = (schema.find_column_name(field.source_id) for field in self.table.spec().fields)
        check_partitioned(by, columns, settings.table)
        return columns

    def partitions(self, rows: pa.Table) -> Iterable[tuple[Any, pa.Table]]:
        """The rows by the values of the partition's transforms."""
        schema, fields = self.table.schema(), self.table.spec().fields
        if not fields:
            return [((), rows)]
        columns = [rows.column(schema.find_column_name(field.source_id)) for field in fields]
        keys = [
            _transformed(field, column.to_pylist(), schema)
            for field, column in zip(fields, columns, strict=True)
        ]
        return grouped(rows, keys)

    def _key(self, partition: Any) -> PartitionKey | None:
        spec = self.table.spec()
        if not spec.fields:
            return None
        values = [
            PartitionFieldValue(field=field, value=value)
            for field, value in zip(spec.fields, partition, strict=True)
        ]
        return PartitionKey(values, spec, self.table.schema())

    def create(self, partition: Any, name: str) -> tuple[str, BinaryIO]:
        """A file in the table's data folder."""
        table = self.table
        places = load_location_provider(table.location(), table.metadata.properties)
        path = places.new_data_location(name, self._key(partition))
        return path, cast(BinaryIO, table.io.new_output(path).create())

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.table.io.delete(path)

    def describe(
        self, path: str, partition: Any, size: int, facts: pq.FileMetaData
    ) -> dict[str, Any]:
        """What an entry of a manifest holds."""
        schema, key = self.table.schema(), self._key(partition)
        found = data_file_statistics_from_parquet_metadata(
            parquet_metadata=facts,
            stats_columns=compute_statistics_plan(schema, self.table.metadata.properties),
            parquet_column_mapping=parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()
        for name in _BOUNDS:
            found[name] = {
                column: base64.b64encode(value).decode() for column, value in found[name].items()
            }
        values = [] if key is None else [_plain(value) for value in key.partition._data]
        spec = self.table.spec().spec_id
        return {"path": path, "size": size, "partition": values, "spec": spec, "facts": found}


def _transformed(field: PartitionField, values: list[Any], schema: Schema) -> list[Any]:
    """The partition's values of a column's: its days, its buckets, or as they are. Each is worked out once; Arrow's way
    to do this needs one more package."""
    if isinstance(field.transform, IdentityTransform):
        return values
    transform = field.transform.transform(schema.find_type(field.source_id))
    known: dict[Any, Any] = {None: None}
    for value in values:
        if value not in known:
            known[value] = transform(partition_record_value(field, value, schema))
    return [known[value] for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"decimal": str(value)} if isinstance(value, Decimal) else value


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    if "bytes" in plain:
        return base64.b64decode(plain["bytes"])
    return Decimal(plain["decimal"])


def _data_file(file: dict[str, Any]) -> DataFile:
    facts = dict(file["facts"])
    for name in _COUNTS:
        facts[name] = {int(column): count for column, count in facts[name].items()}
    for name in _BOUNDS:
        facts[name] = {
            int(column): base64.b64decode(value) for column, value in facts[name].items()
        }
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*[_value(value) for value in file["partition"]]),
        file_size_in_bytes=file["size"],
        sort_order_id=None,
        spec_id=file["spec"],
        equality_ids=None,
        key_metadata=None,
        **facts,
    )


class _Committed(NamedTuple):
    """What a snapshot says of itself."""

    epoch: int
    digest: str | None


class IcebergCommitter(TableCommitter):
    """The driver's half."""

    def __init__(self, settings: IcebergSettings) -> None:
        super().__init__(settings.table, settings.sink_id)
        self._settings = settings
        # The newest snapshot that was looked at, and what was known then.
        self._seen: dict[str, tuple[int, _Committed | None]] = {}
        self._table: Table | None = None
        patiently(self._prepare, f"the table {settings.table}")

    def _prepare(self) -> None:
        settings = self._settings
        if settings.create:
            catalog = _catalog_of(settings)
            catalog.create_namespace_if_not_exists(settings.table.rpartition(".")[0])
            if not catalog.table_exists(settings.table):
                self._create(catalog)
        declared(settings.row_type, _columns(_open(settings).schema()), settings.table)

    def _create(self, catalog: Catalog) -> None:
        settings = self._settings
        schema = arrow_schema(settings.row_type)
        check_creatable(schema, _as_made, settings.table)
        with catalog.create_table_transaction(settings.table, schema=schema) as made:
            if settings.partition_by:
                with made.update_spec() as spec:
                    for name in settings.partition_by:
                        spec.add_identity(name)

    @property
    def _now(self) -> Table:
        """The table as it was when it was looked at last."""
        if self._table is None:
            self._table = _open(self._settings)
        return self._table

    def schema(self) -> pa.Schema:
        """The table's schema."""
        return _columns(self._now.schema())

    def committed(self, name: str) -> int | None:
        """The newest snapshot of the sink among those that lead to the current one."""
        self._table = _open(self._settings)
        found = self._found(self._table, name)
        return None if found is None else found.epoch

    def digest(self, name: str, epoch: int) -> str | None:
        """What the snapshot's summary says."""
        found = self._found(self._now, name)
        return None if found is None else found.digest

    def _found(self, table: Table, name: str) -> _Committed | None:
        newest = table.metadata.current_snapshot_id
        until, known = self._seen.get(name, (None, None))
        for snapshot in _ancestors(table):
            if snapshot.snapshot_id == until:
                break
            noted = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            if noted.get(_SINK) == name:
                known = _Committed(int(noted[_EPOCH]), noted.get(_DIGEST))
                break
        else:
            # The one that was looked at last does not lead here: the table was rolled back, or its history expired.
            known = known if until is None or _expired(table) else None
        if newest is not None:
            self._seen[name] = newest, known
        return known

    def exists(self, path: str) -> bool:
        """True if a data file is there."""
        return self._now.io.new_input(path).exists()

    def holds(self, entry: LogEntry) -> bool:
        """True if the table has the files although the snapshot that brought them has expired."""
        table = self._now
        if not _expired(table):
            return False
        there = set(table.inspect.files().column("file_path").to_pylist())
        return any(file["path"] in there for file in entry.files)

    def append(self, entry: LogEntry) -> None:
        """One snapshot with all files of the epoch, on top of the one that was looked at."""
        table = self._now
        wrong = {file["spec"] for file in entry.files} - {table.spec().spec_id}
        if wrong:
            raise SinkError(
                "the table is partitioned in another way than when the files were written",
                table=self._settings.table,
                epoch=entry.epoch,
                hint="set the former partition spec for a moment, let the job commit, then change it",
            )
        # Otherwise pyiceberg puts what was refused on top of what came between, without a look at that.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        noted = {_SINK: entry.name, _EPOCH: str(entry.epoch), _DIGEST: entry.digest}
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(snapshot_properties=noted).fast_append() as append,
        ):
            for file in entry.files:
                append.append_data_file(_data_file(file))


def _ancestors(table: Table) -> Iterator[Snapshot]:
    """The snapshots that lead to the current one, newest first, as far as they are kept."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    place = table.metadata.current_snapshot_id
    while place is not None and place in by_id:
        yield by_id[place]
        place = by_id[place].parent_snapshot_id


def _expired(table: Table) -> bool:
    """True if the table's history does not go back to its beginning."""
    oldest = next(reversed(list(_ancestors(table))), None)
    # Some take the parent's id away with the parent; the first snapshot of all has the number 1.
    return oldest is not None and (
        oldest.parent_snapshot_id is not None or oldest.sequence_number != 1
    )
