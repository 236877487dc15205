"""Connections to PostgreSQL, the table behind a sink, and what the server refuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import JsonbDumper

from millstream.connectors.postgres.settings import Settings
from millstream.errors import SinkError
from millstream.runtime.base.text import shorten

__all__ = [
    "Connection",
    "SqlTable",
    "Table",
    "connect",
    "find_table",
    "named",
    "patiently",
    "refused",
]

Connection = psycopg.Connection[tuple[Any, ...]]
_T = TypeVar("_T")

_PAUSES = (0.1, 0.4, 1.0)


def connect(settings: Settings) -> Connection:
    """A connection on which every statement is a transaction, unless `transaction()` says otherwise."""
    parameters: dict[str, Any] = {
        "connect_timeout": "10",
        "fallback_application_name": "millstream",
        **settings.parameters,
    }
    connection = psycopg.connect(make_conninfo("", **parameters), autocommit=True)
    connection.adapters.register_dumper(dict, JsonbDumper)
    return connection


def named(identifier: sql.Identifier) -> sql.SQL:
    """A name for a statement with parameters, in which the driver takes every % for the beginning of one.

    >>> named(sql.Identifier("share in %")).as_string()
    '"share in %%"'
    """
    return sql.SQL(identifier.as_string().replace("%", "%%"))


def patiently(work: Callable[[], _T]) -> _T:
    """Do what may be repeated; again, up to three times, if the connection or the server gives way."""
    for pause in _PAUSES:
        try:
            return work()
        except (psycopg.OperationalError, psycopg.InterfaceError):
            time.sleep(pause)
    return work()


@dataclass(frozen=True)
class Column:
    """What the server knows of a column."""

    type: str
    not_null: bool
    has_default: bool
    is_generated: bool


@dataclass(frozen=True)
class SqlTable:
    """A table that exists."""

    settings: Settings
    schema: str
    name: str
    columns: dict[str, Column]

    @property
    def identifier(self) -> sql.Identifier:
        """The table, quoted."""
        return sql.Identifier(self.schema, self.name)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise unless rows of these columns can be inserted."""
        missing = [name for name in columns if name not in self.columns]
        if missing:
            problem = f"the table has no column {', '.join(missing)}"
            hint = f"it has {', '.join(self.columns)}; names are taken as they are spelled"
        elif made := [name for name in columns if self.columns[name].is_generated]:
            problem = f"the table makes the values of {', '.join(made)} itself"
            hint = "leave such columns out of set_columns(...)"
        elif wanted := [
            name
            for name, column in self.columns.items()
            if column.not_null and not column.has_default and name not in columns
        ]:
            problem = f"the table needs a value for {', '.join(wanted)}"
            hint = "write these columns too, or give them a default"
        else:
            return
        raise SinkError(
            problem, table=self.settings.table_name, columns=", ".join(columns), hint=hint
        )

    def check_nulls(self, columns: Sequence[str], row: tuple[Any, ...]) -> None:
        """Raise if a value is NULL where the table has NOT NULL."""
        for name, value in zip(columns, row, strict=True):
            if value is None and self.columns[name].not_null:
                raise SinkError(
                    f"the record has no value for {name}, and the table does not take NULL there",
                    table=self.settings.table_name,
                    columns=", ".join(columns),
                    record=shorten(row),
                    hint="give every record a value, or filter those without one out",
                )


# Programs may know it by this name.
Table = SqlTable


def find_table(connection: Connection, settings: Settings) -> SqlTable:
    """Look the sink's table up; an error if there is none."""
    schema, name = settings.table
    parts = (name,) if schema is None else (schema, name)
    quoted = sql.Identifier(*parts).as_string(connection)
    row = connection.execute(
        "SELECT c.oid, n.nspname, c.relname FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        [quoted],
    ).fetchone()
    if row is None:
        raise SinkError(
            "the table does not exist",
            table=settings.table_name,
            database=settings.database,
            hint="create it before the job starts; names are taken as they are spelled",
        )
    oid, schema, name = row
    return SqlTable(settings, schema, name, _columns(connection, oid))


def _columns(connection: Connection, oid: int) -> dict[str, Column]:
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull,"
        " atthasdef OR attidentity <> '', attidentity = 'a' OR attgenerated <> ''"
        " FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
        " ORDER BY attnum",
        [oid],
    )
    return {name: Column(*facts) for name, *facts in rows}


def refused(
    settings: Settings,
    error: psycopg.Error,
    problem: str,
    *,
    columns: Sequence[str] | None = None,
    record: Any = None,
    **evidence: Any,
) -> SinkError:
    """The error for what the server or the driver said; the password, should it occur, is taken out."""
    said = error.diag.message_primary or str(error).strip() or type(error).__name__
    if error.diag.message_detail:
        said = f"{said}\n{error.diag.message_detail}"
    return SinkError(
        problem,
        table=settings.table_name,
        database=settings.database,
        columns=", ".join(columns) if columns else None,
        record=None if record is None else settings.redact(shorten(record)),
        **evidence,
        said=settings.redact(said),
        hint=_hint(error),
    )


def _hint(error: psycopg.Error) -> str:
    match error:
        case errors.UniqueViolation():
            return "records with a key that is there already need build_upsert(...), or a filter"
        case errors.InvalidColumnReference():
            return "the key columns of build_upsert(...) need a unique index or a primary key"
        case errors.InsufficientPrivilege():
            return "the role needs SELECT, INSERT and UPDATE on the table and CREATE on its schema"
        case errors.UndefinedTable() | errors.UndefinedColumn():
            return "do not change the sink's tables while the job runs; start it again"
        case psycopg.DataError() | psycopg.IntegrityError() | psycopg.ProgrammingError():
            return "emit values that the table's types and constraints take, or filter others out"
        case _:
            return "check that the server runs, that every worker can reach it, and the DSN"
