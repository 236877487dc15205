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

from millstream.connectors.postgres.table import Connection, SqlTable

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


def staging_of(table: SqlTable) -> sql.Identifier:
    """The staging table, quoted."""
    return sql.Identifier(table.schema, staging_name(table.name))


def commits_of(table: SqlTable) -> sql.Identifier:
    """The log of committed epochs, quoted."""
    return sql.Identifier(table.schema, "millstream_commits")


def prepare_staging(connection: Connection, table: SqlTable, *, adapt: bool = True) -> None:
    """Make what is missing. With `adapt` also give the staging table the columns, types and checks that the target has
    now: a value that is staged as another type is rounded without a word."""
    # Looked at first, so that a role that may not create tables can use tables made for it.
    if _is_complete(connection, table, adapt=adapt):
        return
    with connection.transaction():
        # A writer of the same task may hold the table: better an error than waiting for oneself.
        connection.execute("SET LOCAL lock_timeout = '30s'")
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
        if not _columns_of(connection, staging_of(table)):
            _create(connection, table)
        elif adapt and not _is_complete(connection, table, adapt=True):
            _adapt(connection, table)


def _adapt(connection: Connection, table: SqlTable) -> None:
    """The target has changed. A staging table without rows is made anew; rows that wait for their commit are converted
    as the target's own rows were."""
    staging = staging_of(table)
    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(staging))
    if connection.execute(sql.SQL("SELECT FROM {} LIMIT 1").format(staging)).fetchone() is None:
        connection.execute(sql.SQL("DROP TABLE {}").format(staging))
        _create(connection, table)
        return
    present = _columns_of(connection, staging)
    old, new = _checks(connection, staging), _checks(connection, table.identifier)
    for name in old:
        if old[name] != new.get(name):
            _alter(connection, staging, "DROP CONSTRAINT {}", sql.Identifier(name))
    for name, column in table.columns.items():
        if name not in present:
            change = "ADD COLUMN {} {}"
        elif present[name] != column.type:
            change = "ALTER COLUMN {} TYPE {}"
        else:
            continue
        _alter(connection, staging, change, sql.Identifier(name), _as_is(column.type))
    for name, check in new.items():
        if old.get(name) != check:
            check = check.removesuffix(" NOT VALID") + " NOT VALID"
            _alter(connection, staging, "ADD CONSTRAINT {} {}", sql.Identifier(name), _as_is(check))


def _alter(
    connection: Connection, staging: sql.Identifier, change: str, *parts: sql.Composable
) -> None:
    connection.execute(sql.SQL("ALTER TABLE {} ").format(staging) + sql.SQL(change).format(*parts))


def _create(connection: Connection, table: SqlTable) -> None:
    staging = staging_of(table)
    # Checks are copied, so that a record that fails one is found while it can still be named.
    create = sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING CONSTRAINTS, {})").format(
        staging,
        table.identifier,
        sql.SQL(", ").join(
            sql.SQL("{} {} NOT NULL").format(sql.Identifier(name), _as_is(kind))
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


def _is_complete(connection: Connection, table: SqlTable, *, adapt: bool) -> bool:
    staging = staging_of(table)
    present = _columns_of(connection, staging)
    if not present or not _columns_of(connection, commits_of(table)):
        return False
    return not adapt or (
        all(present.get(name) == column.type for name, column in table.columns.items())
        and _checks(connection, staging) == _checks(connection, table.identifier)
    )


def _columns_of(connection: Connection, identifier: sql.Identifier) -> dict[str, str]:
    """The columns and their types; empty if there is no such table."""
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
        [identifier.as_string(connection)],
    )
    return {row[0]: row[1] for row in rows}


def _checks(connection: Connection, identifier: sql.Identifier) -> dict[str, str]:
    """The table's checks by name."""
    rows = connection.execute(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE conrelid = to_regclass(%s) AND contype = 'c'",
        [identifier.as_string(connection)],
    )
    return {name: check.removesuffix(" NOT VALID") for name, check in rows}


def _as_is(text: str) -> sql.SQL:
    """A type or a check as the server itself spells it, quotes included."""
    return sql.SQL(text)
