"""The tasks' half of the PostgreSQL sinks."""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import Any

import psycopg
from psycopg import sql

from millstream.api.sink import SinkWriter, WriterContext
from millstream.connectors.postgres.commit import Staged, check_commit
from millstream.connectors.postgres.rows import Shape
from millstream.connectors.postgres.settings import Settings
from millstream.connectors.postgres.staging import STAGED_BY, prepare_staging, staging_of
from millstream.connectors.postgres.table import (
    Connection,
    SqlTable,
    connect,
    find_table,
    named,
    patiently,
    refused,
)
from millstream.connectors.postgres.values import Values
from millstream.errors import SinkError
from millstream.runtime.base.text import shorten

__all__ = ["StagingWriter", "UpsertWriter"]

_COPIED = 5_000  # rows per COPY: beyond a few thousand, more bring no more speed
_UPSERTED = 1_000  # rows per executemany

# "COPY orders__millstream_staging, line 17, column n: ..."; the word for line is the server's language.
# What is wrong with a JSON text is said on lines before it.
_LINE = re.compile(r"^COPY .*?, \D*(\d+)", re.MULTILINE)


class StagingWriter(SinkWriter):
    """Copies an epoch's rows into the staging table, and makes them durable with the checkpoint."""

    def __init__(self, settings: Settings, context: WriterContext) -> None:
        self._settings = settings
        self._shape = Shape(settings)
        self._staged = Staged(
            sink_id=settings.sink_id,
            job_id=str(getattr(context, "job_id", "") or ""),
            epoch=context.epoch,
            subtask=context.subtask,
            # Two sinks in one task share the attempt; rows must still be told apart.
            attempt=f"{context.attempt}-{uuid.uuid4().hex[:8]}",
        )
        self._rows: list[tuple[Any, ...]] = []
        self._connection: Connection | None = None
        self._table: SqlTable | None = None
        self._values: Values | None = None

    def write(self, value: Any) -> None:
        """Keep a row; copy when there are many."""
        self._rows.append(self._shape.values(value))
        if len(self._rows) >= _COPIED:
            self._copy()

    def prepare_commit(self) -> bytes | None:
        """Copy the rows that are left, and make all of them durable."""
        if self._rows:
            self._copy()
        if self._connection is None:
            return None
        try:
            self._connection.execute("COMMIT")
        except psycopg.Error as error:
            raise refused(self._settings, error, "rows cannot be staged") from error
        finally:
            self._close()
        return self._staged.encode()

    def abort(self) -> None:
        """Forget everything: without its COMMIT, the server drops what was staged."""
        self._rows.clear()
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _open(self) -> Connection:
        """Connect and look at the table; from here on everything is one transaction."""

        def start() -> Connection:
            self._close()
            self._connection = connection = connect(self._settings)
            self._table = find_table(connection, self._settings)
            self._table.check_columns(self._shape.columns)
            prepare_staging(connection, self._table)
            check_commit(connection, self._table, self._staged.with_more(0, self._shape.columns))
            self._values = Values(connection, self._table, self._shape.columns)
            connection.execute("BEGIN")
            return connection

        try:
            return patiently(start)
        except psycopg.Error as error:
            raise refused(self._settings, error, "the database cannot be prepared") from error

    def _copy(self) -> None:
        connection = self._connection or self._open()
        assert self._table is not None
        assert self._values is not None
        rows, columns = self._rows, self._shape.columns
        fitted = list(map(self._values.fitted, rows))
        staged = self._staged
        mark = (staged.sink_id, staged.job_id, staged.epoch, staged.subtask, staged.attempt)
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            staging_of(self._table),
            sql.SQL(", ").join(map(sql.Identifier, (*columns, *STAGED_BY))),
        )
        index = 0
        try:
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for index, row in enumerate(fitted):  # noqa: B007  # which one, if it fails
                    copy.write_row(row + mark)
        except psycopg.Error as error:
            raise refused(
                self._settings,
                error,
                "rows cannot be staged",
                columns=columns,
                record=_culprit(error, rows, index),
            ) from error
        self._staged = staged.with_more(len(rows), columns)
        rows.clear()


def _culprit(error: psycopg.Error, rows: list[tuple[Any, ...]], index: int) -> Any:
    """The row that a COPY failed at, if that can be told."""
    if error.sqlstate is None:
        # The driver could not even send it; unless it is the connection that broke.
        return None if isinstance(error, psycopg.OperationalError) else rows[index]
    match = _LINE.search(error.diag.context or "")
    number = int(match.group(1)) if match else 0
    return rows[number - 1] if 1 <= number <= len(rows) else None


class UpsertWriter(SinkWriter):
    """Keeps the last row of each key, and writes them all in one transaction when the epoch ends."""

    def __init__(self, settings: Settings, keys: tuple[str, ...]) -> None:
        self._settings = settings
        self._keys = keys
        self._shape = Shape(settings)
        self._positions: list[int] = []
        self._rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def write(self, value: Any) -> None:
        """Keep a row, in place of an earlier one of the same key."""
        row = self._shape.values(value)
        columns = self._shape.columns
        if not self._positions:
            absent = [key for key in self._keys if key not in columns]
            if absent:
                raise self._no_key(value, f"it has no {', '.join(absent)}")
            self._positions = [columns.index(key) for key in self._keys]
        key = tuple([row[position] for position in self._positions])
        if None in key:
            # A unique index takes any number of them, so a repetition would add the row again.
            absent = [name for name, part in zip(self._keys, key, strict=True) if part is None]
            raise self._no_key(value, f"it has no value for {', '.join(absent)}")
        try:
            # Out and in again: rows are written in the order of their last change.
            self._rows.pop(key, None)
            self._rows[key] = row
        except TypeError as error:
            raise self._no_key(value, str(error)) from error

    def _no_key(self, record: Any, why: str) -> SinkError:
        return SinkError(
            f"the record has no usable key: {why}",
            table=self._settings.table_name,
            columns=", ".join(self._shape.columns),
            key=", ".join(self._keys),
            record=shorten(record),
            hint="every key column needs a value, and one that can be hashed",
        )

    def prepare_commit(self) -> bytes | None:
        """Write. There is nothing left for the driver: a repetition writes the same rows again."""
        rows = list(self._rows.values())
        if rows:
            try:
                patiently(lambda: self._upsert(rows))
            except psycopg.Error as error:
                columns = self._shape.columns
                raise refused(
                    self._settings, error, "rows cannot be written", columns=columns
                ) from error
        self._rows.clear()
        return None

    def abort(self) -> None:
        """Nothing has been written."""
        self._rows.clear()

    def _upsert(self, rows: list[tuple[Any, ...]]) -> None:
        columns = self._shape.columns
        with contextlib.closing(connect(self._settings)) as connection:
            table = find_table(connection, self._settings)
            table.check_columns(columns)
            values = Values(connection, table, columns)
            fitted = list(map(values.fitted, rows))
            statement = upsert_statement(table.identifier, columns, self._keys)
            with connection.transaction(), connection.cursor() as cursor:
                for start in range(0, len(rows), _UPSERTED):
                    batch = fitted[start : start + _UPSERTED]
                    try:
                        with connection.transaction():
                            cursor.executemany(statement, map(values.text, batch))
                    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError):
                        self._name_culprit(connection, statement, batch, values)
                        raise

    def _name_culprit(
        self,
        connection: Connection,
        statement: sql.Composed,
        batch: list[tuple[Any, ...]],
        values: Values,
    ) -> None:
        """A batch failed: write its rows one by one, and raise for the one that fails."""
        for row in batch:
            try:
                with connection.transaction():
                    connection.execute(statement, values.text(row))
            except psycopg.Error as error:
                raise refused(
                    self._settings,
                    error,
                    "a row cannot be written",
                    columns=self._shape.columns,
                    record=row,
                ) from error


def upsert_statement(
    table: sql.Identifier, columns: tuple[str, ...], keys: tuple[str, ...]
) -> sql.Composed:
    """INSERT that overwrites what has the same key.

    >>> upsert_statement(sql.Identifier("t"), ("k", "n"), ("k",)).as_string()
    'INSERT INTO "t" ("k", "n") VALUES (%s, %s) ON CONFLICT ("k") DO UPDATE SET "n" = EXCLUDED."n"'
    """
    others = [named(sql.Identifier(name)) for name in columns if name not in keys]
    update = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others)
    return sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO {}").format(
        named(table),
        sql.SQL(", ").join(named(sql.Identifier(name)) for name in columns),
        sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        sql.SQL(", ").join(named(sql.Identifier(name)) for name in keys),
        sql.SQL("UPDATE SET ") + update if others else sql.SQL("NOTHING"),
    )
