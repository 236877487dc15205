"""Records into a table of PostgreSQL: each epoch's rows at once, or the last row of each key.

`build_transactional()` is **exactly once**. Tasks copy an epoch's rows into a staging table beside
the target; when the epoch's checkpoint is complete, the driver moves them to the target in one
transaction, which also notes the epoch in a log, so that a repetition changes nothing. Readers see
whole epochs. A record that breaks a unique or foreign key fails there, when it is too late to name
it or to leave it out; for records with a key there is the other one.

`build_upsert(keys)` is **effectively once**. Each subtask writes the last row of each key when the
epoch ends, before the checkpoint: after a failure the same rows are written again, over the first
ones. The same key must always come from the same subtask, which is what `key_by` does.

Into a target with columns (id, price) the tables and their lines are

```
orders                        id  price
orders__millstream_staging    id  price  millstream_{sink_id, job_id, epoch, subtask, attempt}
millstream_commits            sink_id  job_id  epoch  attempts  committed_at
```

A log line is needed for as long as its epoch's checkpoint is kept; older ones may be deleted. When the
target's columns, types or checks have changed, the staging table follows with the next epoch that writes.
What the server would refuse of a commit, a missing privilege for example, it refuses before the checkpoint.

Which values fit which columns is the same for both: see `millstream.connectors.postgres.values`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from millstream.connectors.postgres.settings import (
    Settings,
    describe_database,
    parse_dsn,
    parse_table,
    require_driver,
)
from millstream.errors import InvalidArgument

__all__ = ["PostgresSink", "PostgresSinkBuilder", "PostgresTransactionalSink", "PostgresUpsertSink"]


class PostgresSink(Sink):
    """Writes to a table; made by a builder.

    >>> builder = PostgresSink.builder().set_dsn("postgresql://ann:hunter2@db/shop")
    >>> builder.set_table("sales.orders").set_columns("id", "price").build_transactional()
    <PostgresTransactionalSink sales.orders (id, price) in db:5432/shop, exactly-once>
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @staticmethod
    def builder() -> PostgresSinkBuilder:
        """A builder of the sink."""
        return PostgresSinkBuilder()

    def __repr__(self) -> str:
        settings = self.settings
        columns = f" ({', '.join(settings.columns)})" if settings.columns else ""
        return (
            f"<{type(self).__name__} {settings.table_name}{columns} in {settings.database},"
            f" {self.guarantee.value}>"
        )


class PostgresTransactionalSink(PostgresSink):
    """Rows become visible with the checkpoint of their epoch, each once."""

    guarantee = DeliveryGuarantee.EXACTLY_ONCE

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch; does not connect before it has rows to stage."""
        require_driver()
        from millstream.connectors.postgres.write import StagingWriter

        return StagingWriter(self.settings, context)

    def create_committer(self) -> Committer:
        """Moves staged rows; connects with the first of them."""
        require_driver()
        from millstream.connectors.postgres.commit import PostgresCommitter

        return PostgresCommitter(self.settings)


class PostgresUpsertSink(PostgresSink):
    """The last row of each key is in the table."""

    guarantee = DeliveryGuarantee.EFFECTIVELY_ONCE

    def __init__(self, settings: Settings, key_columns: tuple[str, ...]) -> None:
        super().__init__(settings)
        self.key_columns = key_columns

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch; connects when the epoch ends."""
        require_driver()
        from millstream.connectors.postgres.write import UpsertWriter

        return UpsertWriter(self.settings, self.key_columns)

    def create_committer(self) -> Committer:
        """Nothing is left to do for the driver."""
        return _NothingToCommit()


class _NothingToCommit(Committer):
    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        pass


class PostgresSinkBuilder:
    """Builds the sinks; `set_dsn` and `set_table` are needed.

    >>> builder = PostgresSink.builder().set_dsn({"host": "db", "dbname": "shop"})
    >>> sink = builder.set_table("orders").build_upsert(["id"])
    >>> sink.settings.sink_id
    'db:5432/shop/orders'
    """

    def __init__(self) -> None:
        self._parameters: dict[str, str] | None = None
        self._table: tuple[str | None, str] | None = None
        self._columns: tuple[str, ...] | None = None
        self._sink_id: str | None = None

    def set_dsn(self, dsn: str | Mapping[str, Any]) -> PostgresSinkBuilder:
        """The database: libpq's `key=value` text, a `postgresql://` URL, or a dict of the same keys.

        A password that is not given is looked for by libpq, on each worker: `PGPASSWORD`, `~/.pgpass`.
        """
        self._parameters = parse_dsn(dsn)
        return self

    def set_table(self, table: str) -> PostgresSinkBuilder:
        """The table, `name` or `schema.name`, as it is spelled in the database. It must exist."""
        self._table = parse_table(table)
        return self

    def set_columns(self, *columns: str) -> PostgresSinkBuilder:
        """The columns to write; by default the field names of the first record.

        Needed for records without names, which are taken by position. Columns that are not written
        get their default.
        """
        self._columns = _names(columns, "set_columns")
        return self

    def set_sink_id(self, sink_id: str) -> PostgresSinkBuilder:
        """The name under which committed epochs are logged; by default database and table.

        It stays the same when the job is restarted, and no other sink may use it at the same time:
        **of two jobs, or two sinks of a job, that write to the same table, each needs its own**.
        """
        given: Any = sink_id
        if not isinstance(given, str) or not given:
            raise InvalidArgument("a sink id must be a text that is not empty", got=repr(sink_id))
        self._sink_id = sink_id
        return self

    def build_transactional(self) -> PostgresTransactionalSink:
        """A sink that is exactly once."""
        return PostgresTransactionalSink(self._settings())

    def build_upsert(self, key_columns: str | Sequence[str]) -> PostgresUpsertSink:
        """A sink that overwrites the row of the same key; the keys need a unique index, and every record a
        value for each of them: a unique index takes NULL any number of times."""
        keys = _names(
            [key_columns] if isinstance(key_columns, str) else key_columns, "build_upsert"
        )
        settings = self._settings()
        missing = [key for key in keys if settings.columns and key not in settings.columns]
        if missing:
            raise InvalidArgument(
                "the key columns must be among the columns",
                missing=", ".join(missing),
                columns=", ".join(settings.columns or ()),
                hint="name them in set_columns(...) too",
            )
        return PostgresUpsertSink(settings, keys)

    def _settings(self) -> Settings:
        if self._parameters is None or self._table is None:
            raise InvalidArgument(
                "the sink does not know where to write",
                missing="set_dsn" if self._parameters is None else "set_table",
                hint="call set_dsn(...) and set_table(...) before the sink is built",
            )
        settings = Settings(self._parameters, self._table, self._columns, self._sink_id or "")
        if self._sink_id is None:
            name = f"{describe_database(self._parameters)}/{settings.table_name}"
            return Settings(self._parameters, self._table, self._columns, name)
        return settings


def _names(names: Any, call: str) -> tuple[str, ...]:
    columns = tuple(names) if isinstance(names, Sequence) else ()
    if (
        not columns
        or len(set(columns)) < len(columns)
        or not all(isinstance(n, str) and n for n in columns)
    ):
        raise InvalidArgument(
            f"{call} needs one or more different column names",
            got=repr(names),
            hint='for example set_columns("id", "price") and build_upsert(["id"])',
        )
    return columns
