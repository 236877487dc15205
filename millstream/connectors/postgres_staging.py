"""The two tables that the transactional sink keeps beside its target.

```
<table>__millstream_staging    rows of epochs that are not committed yet, with who wrote them
millstream_commits             one line per committed epoch, of all sinks into the target's schema
```

Both are ordinary, logged tables: what is staged must survive a crash of the server, because a
checkpoint may count on it already.
"""

from __future__ import annotations

import hashlib

from psycopg import sql

from millstream.connectors.postgres_table import Connection, Table

__all__ = ["STAGED_BY", "commits_of", "prepare_staging", "staging_name", "staging_of"]

# Who staged a row. The prefix keeps clear of the target's own columns.
STAGED_BY = {
    "millstream_sink_id": "text",
    "millstream_job_id": "text",
    "millstream_epoch": "bigint",
    "millstream_subtask": "integer",
    "millstream_attempt": "text",
}

_SUFFIX = "__millstream_staging"
_NAME_BYTES = 63  # PostgreSQL cuts longer names off without a word.


def staging_name(table: str) -> str:
    """The name of a table's staging table.

    >>> staging_name("orders")
    'orders__millstream_staging'
    >>> len(staging_name("long" * 15))
    63
    """
    name = table + _SUFFIX
    if len(name.encode()) <= _NAME_BYTES:
        return name
    mark = f"_{hashlib.sha256(table.encode()).hexdigest()[:8]}{_SUFFIX}"
    return table.encode()[: _NAME_BYTES - len(mark)].decode(errors="ignore") + mark


def staging_of(table: Table) -> sql.Identifier:
    """The staging table, quoted."""
    return sql.Identifier(table.schema, staging_name(table.name))


def commits_of(table: Table) -> sql.Identifier:
    """The log of committed epochs, quoted."""
    return sql.Identifier(table.schema, "millstream_commits")


def prepare_staging(connection: Connection, table: Table) -> None:
    """Make what is missing; give the staging table columns that the target has got since."""
    # Looked at first, so that a role that may not create tables can use tables made for it.
    if _is_complete(connection, table):
        return
    with connection.transaction():
        # Two CREATE IF NOT EXISTS at the same time can both find nothing, and one then fails.
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        connection.execute(lock, [f"millstream {table.schema}"])
        connection.execute(
            sql.SQL(
                "CREATE TABLE IF NOT EXISTS {} (sink_id text, job_id text, epoch bigint,"
                " attempts text NOT NULL, committed_at timestamptz NOT NULL DEFAULT now(),"
                " PRIMARY KEY (sink_id, job_id, epoch))"
            ).format(commits_of(table))
        )
        present = _columns_of(connection, staging_of(table))
        if present:
            _add_columns(connection, table, present)
        else:
            _create(connection, table)


def _create(connection: Connection, table: Table) -> None:
    staging = staging_of(table)
    # Checks are copied, so that a record that fails one is found while it can still be named.
    create = sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING CONSTRAINTS, {})").format(
        staging,
        table.identifier,
        sql.SQL(", ").join(
            sql.SQL("{} {} NOT NULL").format(sql.Identifier(name), _type(kind))
            for name, kind in STAGED_BY.items()
        ),
    )
    connection.execute(create)
    for name, column in table.columns.items():
        if column.not_null:
            # Columns that are not written stay empty here, and get their default with the commit.
            drop = sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL")
            connection.execute(drop.format(staging, sql.Identifier(name)))
    # The rows of an epoch are found among many dead ones until the server has cleaned up.
    index = sql.SQL("CREATE INDEX ON {} (millstream_sink_id, millstream_job_id, millstream_epoch)")
    connection.execute(index.format(staging))


def _add_columns(connection: Connection, table: Table, present: set[str]) -> None:
    for name, column in table.columns.items():
        if name not in present:
            add = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}")
            connection.execute(
                add.format(staging_of(table), sql.Identifier(name), _type(column.type))
            )


def _is_complete(connection: Connection, table: Table) -> bool:
    present = _columns_of(connection, staging_of(table))
    return present >= set(table.columns) and bool(_columns_of(connection, commits_of(table)))


def _columns_of(connection: Connection, identifier: sql.Identifier) -> set[str]:
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s)"
        " AND attnum > 0 AND NOT attisdropped",
        [identifier.as_string(connection)],
    )
    return {name for (name,) in rows}


def _type(name: str) -> sql.SQL:
    """A type as the server itself spells it, quotes included."""
    return sql.SQL(name)
