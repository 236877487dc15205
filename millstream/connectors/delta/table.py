"""The Delta table itself: its files, its schema, its log."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
import os
import re
import time
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, BinaryIO
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from millstream.api.sink import WriterContext
from millstream.connectors.delta.settings import DeltaSettings
from millstream.connectors.formats.schemas import arrow_schema
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
from millstream.storage.s3 import S3Address
from millstream.storage.urls import DataUrl, is_url, open_data

__all__ = ["DeltaCommitter", "DeltaWriter"]

_DIGEST = "millstream.digest"
_HISTORY = 50
_SAFE = re.compile(r"[A-Za-z0-9_.:-]{1,80}")


def _open(settings: DeltaSettings) -> DeltaTable:
    try:
        return DeltaTable(*_address(settings))
    except TableNotFoundError:
        raise SinkError(
            "there is no Delta table",
            table=settings.shown,
            hint="make it, or call set_row_type(...).create_if_missing()",
        ) from None


def _address(settings: DeltaSettings) -> tuple[str, None, dict[str, str] | None]:
    if not is_url(settings.uri):
        return settings.uri, None, settings.options or None
    url = DataUrl.parse(settings.uri)
    options = dict(settings.options)
    if url.scheme in ("s3", "s3a"):
        options = {**_s3_options(settings.uri), **options}
    return url.plain, None, options or None


def _s3_options(uri: str) -> dict[str, str]:
    """What the URL says in the words of checkpoints, in deltalake's."""
    address = S3Address.parse(uri)
    endpoint = address.endpoint or os.environ.get("AWS_ENDPOINT_URL")
    found = {
        "AWS_ACCESS_KEY_ID": address.key,
        "AWS_SECRET_ACCESS_KEY": address.secret,
        "AWS_REGION": address.region,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http://") else None,
    }
    return {name: value for name, value in found.items() if value is not None}


class _Known:
    """A table that this process has loaded once, and brings up to date from then on."""

    def __init__(self, settings: DeltaSettings) -> None:
        self._settings = settings
        self._table: DeltaTable | None = None

    def now(self) -> DeltaTable:
        """The table as it is now."""
        if self._table is None:
            self._table = _open(self._settings)
        else:
            try:
                self._table.update_incremental()
            except Exception:
                # What is wrong with it shows when it is loaded anew.
                self._table = None
                raise
        return self._table

    def as_seen(self) -> DeltaTable:
        """The table as it was when it was looked at last."""
        return self._table or self.now()


@functools.lru_cache(maxsize=8)
def _known(uri: str, options: str, process: int, job_id: str) -> _Known:
    """A table, once per process and job: one that was made anew since another job has seen it cannot be told from
    one that has not changed."""
    return _Known(DeltaSettings(uri, json.loads(options)))


def _check_plain(table: DeltaTable, settings: DeltaSettings) -> None:
    """Raise if the table promises of its rows what nobody would check or do here."""
    told = table.metadata().configuration
    found = [name for name in told if name.startswith("delta.constraints.")]
    if told.get("delta.columnMapping.mode", "none") != "none":
        found.append("delta.columnMapping.mode")
    for field in table.schema().fields:
        kept = ("delta.generationExpression", "delta.invariants", "delta.identity")
        found += [f"{name} of {field.name}" for name in field.metadata if name.startswith(kept)]
    if found:
        raise SinkError(
            "the table has constraints, generated columns or renamed columns, which this sink does not know",
            table=settings.shown,
            found=", ".join(found),
            hint="write to a table without them, and copy from there with an engine that knows them",
        )


def _schema_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _as_made(schema: pa.Schema) -> pa.Schema:
    """The columns of a table that is made with a schema."""
    return pa.schema(Schema.from_arrow(schema).to_arrow())


def _partition_keys(table: DeltaTable, rows: pa.Schema, settings: DeltaSettings) -> list[str]:
    """The columns by which the table is partitioned; an error if rows do not have them, or nothing else."""
    keys = list(table.metadata().partition_columns)
    check_partitioned(keys, rows, settings.shown)
    if set(rows.names) <= set(keys):
        # These stand in the log, so that files without any column would be left, which hold no rows.
        raise SinkError(
            "the rows have nothing but the columns by which the table is partitioned",
            table=settings.shown,
            columns=", ".join(keys),
            hint="partition the table by fewer columns, or add another one to the rows",
        )
    return keys


class DeltaWriter(DataFileWriter):
    """A subtask's half."""

    def __init__(self, settings: DeltaSettings, context: WriterContext) -> None:
        super().__init__(context, settings.target_bytes)
        self._settings = settings
        self._keys: list[str] = []

    def load(self) -> pa.Schema:
        """The table's schema, as it is now."""
        settings = self._settings
        options = json.dumps(settings.options, sort_keys=True)
        table = _known(settings.uri, options, os.getpid(), self._context.job_id).now()
        schema = declared(settings.row_type, _schema_of(table), settings.shown)
        self._keys = _partition_keys(table, schema, settings)
        return schema

    def partitions(self, rows: pa.Table) -> Iterable[tuple[Any, pa.Table]]:
        """The rows by the values of the partition columns, without these: they stand in the log."""
        if not self._keys:
            return [((), rows)]
        inside = rows.drop_columns(self._keys)
        return grouped(inside, [rows.column(name).to_pylist() for name in self._keys])

    def create(self, partition: Any, name: str) -> tuple[str, BinaryIO]:
        """A file below the table's folder."""
        folders = [
            _folder(key, _text(value)) for key, value in zip(self._keys, partition, strict=True)
        ]
        path = "/".join([*folders, f"part-{name}"])
        if is_url(self._settings.uri):
            return path, open_data(DataUrl.parse(self._settings.uri)).open_hidden(path)
        full = os.path.join(self._settings.uri, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return path, _Synced(full)

    def remove(self, path: str) -> None:
        """Remove a file."""
        if is_url(self._settings.uri):
            open_data(DataUrl.parse(self._settings.uri)).delete(path)
        else:
            os.unlink(os.path.join(self._settings.uri, path))

    def describe(
        self, path: str, partition: Any, size: int, facts: pq.FileMetaData
    ) -> dict[str, Any]:
        """What an action of the log holds."""
        values = {key: _text(value) for key, value in zip(self._keys, partition, strict=True)}
        stats = {"numRecords": facts.num_rows, **_bounds(facts)}
        return {"path": path, "size": size, "partition": values, "stats": stats}


class _Synced(io.BufferedWriter):
    """A file that is on the disk when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(io.FileIO(path, "xb"), 1 << 18)

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
        super().close()


class DeltaCommitter(TableCommitter):
    """The driver's half."""

    def __init__(self, settings: DeltaSettings) -> None:
        super().__init__(settings.shown, settings.sink_id)
        self._settings = settings
        self._known = _Known(settings)
        patiently(self._prepare, f"the table {settings.shown}")

    def _prepare(self) -> None:
        settings = self._settings
        if settings.create:
            uri, _, options = _address(settings)
            wanted = arrow_schema(settings.row_type)
            if not DeltaTable.is_deltatable(uri, options):
                check_creatable(wanted, _as_made, settings.shown)
            DeltaTable.create(
                uri,
                schema=wanted,
                mode="ignore",
                partition_by=list(settings.partition_by) or None,
                storage_options=options,
            )
        rows = declared(settings.row_type, self.schema(), settings.shown)
        _check_plain(self._known.as_seen(), settings)
        _partition_keys(self._known.as_seen(), rows, settings)

    def schema(self) -> pa.Schema:
        """The table's schema."""
        return _schema_of(self._known.as_seen())

    def committed(self, name: str) -> int | None:
        """The version of the application transaction."""
        return self._known.now().transaction_version(name)

    def digest(self, name: str, epoch: int) -> str | None:
        """What the commit's own notes say. To look for them takes a request for each version."""
        for version in self._known.as_seen().history(_HISTORY):
            if version.get("millstream.sink") == name and version.get("millstream.epoch") == str(
                epoch
            ):
                return version.get(_DIGEST)
        return None

    def exists(self, path: str) -> bool:
        """True if a data file is there."""
        if is_url(self._settings.uri):
            return open_data(DataUrl.parse(self._settings.uri)).exists(path)
        return os.path.exists(os.path.join(self._settings.uri, path))

    def append(self, entry: LogEntry) -> None:
        """One commit with all files of the epoch, on top of what `committed` has looked at: if somebody has committed
        the same since then, Delta refuses this one."""
        table = self._known.as_seen()
        keys = set(table.metadata().partition_columns)
        if any(set(file["partition"]) != keys for file in entry.files):
            raise SinkError(
                "the table is partitioned in another way than when the files were written",
                table=self._settings.shown,
                epoch=entry.epoch,
                hint="was it made anew? Then start the job from before that, or anew",
            )
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=quote(file["path"], safe="/=:-_.~"),
                size=file["size"],
                partition_values=file["partition"],
                modification_time=now,
                data_change=True,
                stats=json.dumps(file["stats"]),
            )
            for file in entry.files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            list(table.metadata().partition_columns) or None,
            commit_properties=CommitProperties(
                custom_metadata={
                    "millstream.sink": entry.name,
                    "millstream.epoch": str(entry.epoch),
                    _DIGEST: entry.digest,
                },
                app_transactions=[Transaction(entry.name, entry.epoch)],
            ),
        )


def _text(value: Any) -> str | None:
    """A partition's value as Delta writes it."""
    if value is None:
        return None
    if value == "":
        raise SinkError(
            "an empty text cannot be a partition's value: Delta has no other word for null",
            hint="replace it before the sink, or partition by another column",
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        raise SinkError("bytes cannot be a partition's value", hint="partition by another column")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _folder(key: str, text: str | None) -> str:
    """The folder of a partition. What a partition is stands in the log; this is for people who look at folders."""
    name = "__HIVE_DEFAULT_PARTITION__" if text is None else text
    if not _SAFE.fullmatch(name) or not _SAFE.fullmatch(key):
        return f"partition-{hashlib.sha256(f'{key}={text}'.encode()).hexdigest()[:16]}"
    return f"{key}={name}"


def _bounds(facts: pq.FileMetaData) -> dict[str, Any]:
    """The least and largest values of plain columns, and how many nulls they have, for readers that skip files."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(facts.num_row_groups):
        for place in range(facts.num_columns):
            column = facts.row_group(group).column(place)
            name, stats = column.path_in_schema, column.statistics
            if "." in name or stats is None or not stats.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + stats.null_count
            if stats.num_values == 0:
                continue
            least, most = _bound(stats)
            if least is None:
                unknown.add(name)
                continue
            low[name] = min(low.get(name, least), least)
            high[name] = max(high.get(name, most), most)
    return {
        "minValues": {name: value for name, value in low.items() if name not in unknown},
        "maxValues": {name: value for name, value in high.items() if name not in unknown},
        "nullCount": {name: value for name, value in nulls.items() if "." not in name},
    }


def _bound(stats: Any) -> tuple[Any, Any]:
    if not stats.has_min_max:
        return None, None
    least, most = stats.min, stats.max
    if type(least) is date:
        return least.isoformat(), most.isoformat()
    if type(least) is int:
        return least, most
    if type(least) is float and math.isfinite(least) and math.isfinite(most):
        return least, most
    # Longer texts would have to be cut, and the larger one made larger.
    if type(least) is str and len(least) <= 32 and len(most) <= 32:
        return least, most
    return None, None
