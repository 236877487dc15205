"""Sinks into tables that keep a log of their own: Iceberg, Delta.

```
task     Parquet files beside the table, which no log names: nobody sees them
driver   one entry in the table's log per epoch: the files, and which epoch of which job and sink they are
```

An entry of the log appears whole or not at all, and names its epoch. So a commit that is repeated finds the entry and
does nothing, whoever repeats it. If the table is further than the checkpoint that a job starts from, the job would
write again what is there: it is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.api.sink import Committer, SinkWriter, WriterContext
from millstream.common.types import Row, RowKind
from millstream.connectors.columns import as_columns
from millstream.connectors.formats.schemas import arrow_schema
from millstream.errors import InvalidArgument, MillstreamError, SinkError, StateMismatch
from millstream.redaction import get_logger, is_secret_name, remember
from millstream.runtime.base.text import shorten

__all__ = ["DataFileWriter", "LogEntry", "TableCommitter"]

_log = get_logger("millstream.job")
_T = TypeVar("_T")

_ROWS = 8_192  # made columns at once
_HELD = 64 << 20  # bytes of columns that a writer keeps before it writes row groups
_RETRACTIONS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)
_PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class LogEntry:
    """What is to be written into the log: the files of an epoch."""

    job_id: str
    sink: str
    epoch: int
    files: list[dict[str, Any]]
    schema: dict[str, str]

    @property
    def digest(self) -> str:
        """Tells these files from others of the same epoch.

        >>> LogEntry("j", "s", 1, [{"path": "a"}], {}).digest[:8]
        'ca978112'
        """
        paths = "\n".join(sorted(file["path"] for file in self.files))
        return hashlib.sha256(paths.encode()).hexdigest()

    @property
    def name(self) -> str:
        """Whose epochs these are: one job's, one sink's.

        >>> LogEntry("4f2a", "orders", 1, [], {}).name
        'millstream/4f2a/orders'
        """
        return name_of(self.job_id, self.sink)

    @staticmethod
    def gathered(committables: Sequence[bytes], job_id: str, sink: str, epoch: int) -> LogEntry:
        """The files of all subtasks."""
        files: list[dict[str, Any]] = []
        schema: dict[str, str] = {}
        for committable in committables:
            body = json.loads(committable)
            files += body["files"]
            schema.update(body["schema"])
        return LogEntry(job_id, sink, epoch, files, schema)


def name_of(job_id: str, sink: str) -> str:
    """What a job's sink is called in the log of a table."""
    return f"millstream/{job_id}/{sink}"


class TableCommitter(Committer):
    """The driver's half. A subclass knows how a table is asked, and how its log is written."""

    def __init__(self, table: str, sink_id: str | None) -> None:
        self._table_name = table
        self._sink_id = sink_id

    @abstractmethod
    def committed(self, name: str) -> int | None:
        """Look at the table as it is now: the last epoch of a job's sink that it has."""

    @abstractmethod
    def digest(self, name: str, epoch: int) -> str | None:
        """What tells the files of that epoch from others, if the log still says so."""

    @abstractmethod
    def append(self, entry: LogEntry) -> None:
        """Write an entry on top of the table that `committed` has looked at, or raise if it has changed since."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """True if a data file is there."""

    def holds(self, entry: LogEntry) -> bool:
        """True if the table has the files although its log does not say so any more."""
        return False

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the table that `committed` has looked at."""

    def starts_from(self, job_id: str, epoch: int) -> None:
        """Refuse a start from a checkpoint that the table is further than."""
        found = self._asked(lambda: self.committed(name_of(job_id, self._name)))
        if found is not None and found > epoch:
            raise StateMismatch(
                f"the table has epoch {found} of the job, and the checkpoint is of epoch {epoch}: what is "
                "between them would be written twice",
                table=self._table_name,
                job_id=job_id,
                sink=self._name,
                hint="start from the job's last checkpoint; or roll the table back and give the sink another "
                "set_sink_id(...), which makes it forget what the table has",
            )

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Write the epoch into the log, unless it is there."""
        if not committables:
            return
        entry = LogEntry.gathered(committables, self.job_id, self._name, epoch)
        self._asked(lambda: self._commit(entry, again=False))

    def commit_again(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Write the epoch into the log, unless it is there. Time may have passed, in which files that no log names are
        cleared away."""
        if committables:
            entry = LogEntry.gathered(committables, self.job_id, self._name, epoch)
            self._asked(lambda: self._commit(entry, again=True))

    def _commit(self, entry: LogEntry, *, again: bool) -> None:
        # Looked up at each try: the one before may have come through although it has failed.
        found = self.committed(entry.name)
        if found is not None and found >= entry.epoch:
            if found == entry.epoch and self.digest(entry.name, found) in (entry.digest, None):
                _log.info("epoch %d is in %s already", entry.epoch, self._table_name)
                return
            raise StateMismatch(
                f"the table has epoch {found} of the job already, with other files",
                table=self._table_name,
                job_id=entry.job_id,
                sink=entry.sink,
                epoch=entry.epoch,
                hint="nothing was written twice. Was the job started from an older checkpoint than its last? Or have "
                "two of its sinks the same set_sink_id(...)? Each needs its own",
            )
        if again:
            if self.holds(entry):
                return
            gone = [file["path"] for file in entry.files if not self.exists(file["path"])]
            if gone:
                raise SinkError(
                    "a data file to commit is gone",
                    table=self._table_name,
                    file=gone[0],
                    files=f"{len(gone)} of {len(entry.files)}",
                    epoch=entry.epoch,
                    hint="was the table cleared of orphans while the job was down? Start from an older checkpoint that "
                    "has nothing to commit, if the source still has the records",
                )
        check_fits(entry.schema, self.schema(), self._table_name)
        self.append(entry)

    @property
    def _name(self) -> str:
        return self._sink_id or self.sink

    def _asked(self, work: Callable[[], _T]) -> _T:
        return patiently(work, f"the table {self._table_name}")


def patiently(work: Callable[[], _T], what: str) -> _T:
    """Do what may be repeated, again and again for some seconds, if the table's storage or catalogue gives way, or
    another writer was faster."""
    for pause in (*_PAUSES, None):
        try:
            return work()
        except MillstreamError:
            raise
        except Exception as error:
            if pause is None:
                raise SinkError(
                    f"{what} cannot be read or written: {type(error).__name__}: {error}",
                    hint="nothing is lost: the commit is repeated when the job starts again and the table answers",
                ) from error
            _log.warning("%s: %s; trying again", what, error)
            time.sleep(pause * random.uniform(0.5, 1.0))
    raise AssertionError("not reached")


def check_fits(written: dict[str, str], table: pa.Schema, name: str) -> None:
    """Raise if files with these columns cannot be part of the table.

    >>> check_fits({"n": "int64"}, pa.schema([("n", pa.int64()), ("more", pa.string())]), "t")
    """
    there = {field.name: field for field in table}
    for column, kind in written.items():
        if column not in there:
            raise _changed(name, f"has no column '{column}' ({kind})", table)
        now = described(there[column].type)
        if now != kind:
            raise _changed(name, f"has the column '{column}' as {now}, and not as {kind}", table)
    for field in table:
        if not field.nullable and field.name not in written:
            raise _changed(name, f"needs a value for the column '{field.name}'", table)


def _changed(name: str, why: str, table: pa.Schema) -> SinkError:
    return SinkError(
        f"the table {why}",
        table=name,
        columns=", ".join(f"{field.name}: {described(field.type)}" for field in table),
        hint="change the table, or the program's type, so that they agree",
    )


def declared(row_type: Any, table: pa.Schema, name: str) -> pa.Schema:
    """The columns of the table that rows of a type fill, or all of them; an error if the type does not fit."""
    if row_type is None:
        return table
    wanted = arrow_schema(row_type)
    check_fits(columns_of(wanted), table, name)
    return pa.schema([table.field(field.name) for field in wanted])


def check_partitioned(by: Iterable[str | None], rows: pa.Schema, name: str) -> None:
    """Raise if rows lack a column by which the table is partitioned."""
    for column in by:
        if column not in rows.names:
            raise SinkError(
                f"the rows have no '{column}', by which the table is partitioned",
                table=name,
                hint="add it to the type of set_row_type(...); it must not be inside another column",
            )


def check_creatable(
    wanted: pa.Schema, as_made: Callable[[pa.Schema], pa.Schema], name: str
) -> None:
    """Raise if a table that is made with these columns would not have them so; `as_made` says what it would have.

    >>> check_creatable(pa.schema([("n", pa.int64())]), lambda schema: schema, "t")
    """
    for field in wanted:
        kind = described(field.type)
        try:
            made = described(as_made(pa.schema([field])).field(0).type)
        except Exception as error:
            why = next(iter(str(error).splitlines()), type(error).__name__)
        else:
            if made == kind:
                continue
            why = f"it would be {made} there"
        raise SinkError(
            f"no such table can have the column '{field.name}' as {kind}: {why}",
            table=name,
            hint="declare the field with a type that these tables have, and convert the records before the sink",
        )


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """Names and types, as committables hold them."""
    return {field.name: described(field.type) for field in schema}


def described(kind: pa.DataType) -> str:
    """A type in words that do not depend on how its parts are called, or how long its values may be.

    >>> described(pa.list_(pa.field("element", pa.large_string())))
    'list<string>'
    """
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{described(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{described(kind.key_type)}, {described(kind.item_type)}>"
    if pa.types.is_struct(kind):
        inside = (kind.field(n) for n in range(kind.num_fields))
        return f"struct<{', '.join(f'{field.name}: {described(field.type)}' for field in inside)}>"
    return str(kind).removeprefix("large_")


class DataFileWriter(SinkWriter):
    """A subtask's half: one file for each partition of the table, more if it grows too long."""

    def __init__(self, context: WriterContext, target_bytes: int) -> None:
        self._context = context
        self._target = target_bytes
        self._rows: list[Any] = []
        self._open: dict[Any, _File] = {}
        self._done: list[dict[str, Any]] = []
        self._schema: pa.Schema | None = None
        self._held = 0
        self._mark = uuid.uuid4().hex

    # -- what a kind of table says ----------------------------------------------------------------------------

    @abstractmethod
    def load(self) -> pa.Schema:
        """Look at the table; the schema of the rows to be written."""

    @abstractmethod
    def partitions(self, rows: pa.Table) -> Iterable[tuple[Any, pa.Table]]:
        """The rows by partition, as they stand in files."""

    @abstractmethod
    def create(self, partition: Any, name: str) -> tuple[str, BinaryIO]:
        """A new file: its path as the log is to name it, and a stream into it."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file that no log names."""

    @abstractmethod
    def describe(
        self, path: str, partition: Any, size: int, facts: pq.FileMetaData
    ) -> dict[str, Any]:
        """What the log needs to know of a file."""

    # -- the writer --------------------------------------------------------------------------------------------

    def write(self, value: Any) -> None:
        """Keep a row; make columns of many."""
        self._rows.append(value)
        if len(self._rows) >= _ROWS:
            self._take()

    def _take(self) -> None:
        if self._schema is None:
            self._schema = patiently(self.load, "the table")
        for row in self._rows:
            if isinstance(row, Row) and row.get_row_kind() in _RETRACTIONS:
                raise SinkError(
                    f"a row of kind {row.get_row_kind()} takes something back, and this sink only adds",
                    record=shorten(row),
                    hint="filter such rows out before the sink",
                )
        rows = pa.Table.from_batches([as_columns(self._rows, self._schema)], self._schema)
        self._rows.clear()
        for partition, some in self.partitions(rows):
            file = self._open.get(partition)
            if file is None:
                context, number = self._context, len(self._done) + len(self._open)
                stem = f"{context.epoch:08d}-{context.subtask}-{number}-{self._mark}"
                path, stream = self._storing(lambda: self.create(partition, f"{stem}.parquet"))  # noqa: B023
                file = self._open[partition] = _File(path, stream, some.schema)
            file.rows.append(some)
            self._held += some.nbytes
        if self._held >= _HELD:
            self._write_groups()

    def _write_groups(self) -> None:
        for partition, file in list(self._open.items()):
            self._storing(file.write_group)
            if file.stream.tell() >= self._target:
                self._end(partition)
        self._held = 0

    def _end(self, partition: Any) -> None:
        file = self._open[partition]
        size, facts = self._storing(file.end)
        del self._open[partition]
        self._done.append(self.describe(file.path, partition, size, facts))

    def _storing(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except OSError as error:
            raise SinkError(
                f"a data file of the table cannot be written: {error}",
                epoch=self._context.epoch,
                hint="check that every worker can reach the table's storage and may write there",
            ) from error

    def prepare_commit(self) -> bytes | None:
        """End the files; what the driver has to write into the log."""
        if self._rows:
            self._take()
        self._write_groups()
        for partition in list(self._open):
            self._end(partition)
        if not self._done:
            return None
        assert self._schema is not None
        schema = columns_of(self._schema)
        return json.dumps({"files": self._done, "schema": schema}).encode()

    def abort(self) -> None:
        """Remove the files; what cannot be removed is an orphan, which tables are cleaned of now and then."""
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.discard()
        paths = [file.path for file in self._open.values()]
        for path in (*paths, *(file["path"] for file in self._done)):
            with contextlib.suppress(Exception):
                self.remove(path)
        self._rows.clear()
        self._open.clear()
        self._done.clear()


class _File:
    """A Parquet file that is being written."""

    def __init__(self, path: str, stream: BinaryIO, schema: pa.Schema) -> None:
        self.path = path
        self.stream = stream
        self.rows: list[pa.Table] = []
        self._schema = schema
        self._writer = pq.ParquetWriter(pa.PythonFile(stream, mode="w"), schema)

    def write_group(self) -> None:
        """Write what is held."""
        if self.rows:
            self._writer.write_table(pa.concat_tables(self.rows))
            self.rows.clear()

    def discard(self) -> None:
        """Close the file, whatever is in it."""
        self.rows.clear()
        # The writer first: it would close itself when it is collected, into a stream that is closed.
        self._writer.close()
        self.stream.close()

    def end(self) -> tuple[int, pq.FileMetaData]:
        """Close the file: its size, and what stands at its end."""
        self.write_group()
        self._writer.close()
        size = self.stream.tell()
        self.stream.close()
        return size, self._writer.writer.metadata


def grouped(
    rows: pa.Table, keys: Sequence[Sequence[Any]]
) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows by what some lists have at their places, in the order in which these come.

    >>> rows = pa.table({"n": [1, 2, 3]})
    >>> [(key, some.column("n").to_pylist()) for key, some in grouped(rows, [["a", "b", "a"]])]
    [(('a',), [1, 3]), (('b',), [2])]
    """
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(zip(*keys, strict=True)):
        places.setdefault(key, []).append(place)
    if len(places) == 1:
        yield next(iter(places)), rows
        return
    for key, chosen in places.items():
        yield key, rows.take(chosen)


def hide(properties: dict[str, str]) -> None:
    """Have messages leave out the values of names that speak of secrets, in this process."""
    for name, value in properties.items():
        if is_secret_name(name):
            remember(value)


def check_size(size: Any) -> int:
    """A number of bytes that a file can have.

    >>> check_size(1 << 20)
    1048576
    """
    if not isinstance(size, int) or size < 1:
        raise InvalidArgument("a file must hold 1 byte or more", got=repr(size))
    return size


def check_partitions(columns: Any) -> tuple[str, ...]:
    """The columns by whose values a table is divided.

    >>> check_partitions(["day", "grain"]), check_partitions("day")
    (('day', 'grain'), ('day',))
    """
    found = (columns,) if isinstance(columns, str) else tuple(columns)
    if not all(isinstance(name, str) and name for name in found):
        raise InvalidArgument(
            "partition_by takes names of columns", got=repr(columns), hint='for example ["day"]'
        )
    return found


def check_created(row_type: Any, partition_by: Any) -> None:
    """Raise if a table cannot be made of what `create_if_missing` was told."""
    if row_type is None:
        raise InvalidArgument("create_if_missing needs set_row_type(...)")
    names = arrow_schema(row_type).names
    unknown = [name for name in partition_by if name not in names]
    if unknown:
        raise InvalidArgument(
            f"partition_by names {', '.join(map(repr, unknown))}, and the row type has no such field",
            fields=", ".join(names),
            hint="for example create_if_missing(partition_by=['day'])",
        )


def check_name(value: Any, what: str) -> str:
    """The text, if it is one and not empty."""
    if isinstance(value, str) and value:
        return value
    raise InvalidArgument(f"{what} must be a text that is not empty", got=repr(value)[:200])
