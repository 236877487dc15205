"""Moves an epoch's rows from the staging table to their table, once.

All of an epoch is one transaction, and the first thing in it is a line in the log of commits: a
repetition finds the line and changes nothing, also when the answer to the first COMMIT was lost, and
also when two drivers commit at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import psycopg
from psycopg import sql

from millstream.api.sink import Committer
from millstream.connectors.postgres.settings import Settings
from millstream.connectors.postgres.staging import commits_of, prepare_staging, staging_of
from millstream.connectors.postgres.table import (
    Connection,
    SqlTable,
    connect,
    find_table,
    named,
    patiently,
    refused,
)
from millstream.errors import SinkError

__all__ = ["PostgresCommitter", "Staged", "check_commit"]


@dataclass(frozen=True)
class Staged:
    """What a writer has staged: the committable. There is no secret in it.

    >>> staged = Staged("shop orders", "job", 7, 0, "a1").with_more(3, ("id", "price"))
    >>> Staged.decode(staged.encode()) == staged, staged.count
    (True, 3)
    """

    sink_id: str
    job_id: str
    epoch: int
    subtask: int
    attempt: str
    count: int = 0
    columns: tuple[str, ...] = ()

    def with_more(self, count: int, columns: tuple[str, ...]) -> Staged:
        """What is staged after so many more rows of these columns."""
        return replace(self, count=self.count + count, columns=columns)

    def encode(self) -> bytes:
        """The committable that says what is staged."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(committable: bytes) -> Staged:
        """What `encode` wrote."""
        fields = json.loads(committable)
        return Staged(**{**fields, "columns": tuple(fields["columns"])})


class PostgresCommitter(Committer):
    """The driver's half of the transactional sink."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._table: SqlTable | None = None
        self._last: dict[tuple[str, str], int] = {}

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Move the rows that the committables name, unless that was done before."""
        groups: dict[tuple[str, str, int], list[Staged]] = {}
        for committable in committables:
            staged = Staged.decode(committable)
            groups.setdefault((staged.sink_id, staged.job_id, staged.epoch), []).append(staged)
        for (sink_id, job_id, staged_epoch), group in groups.items():
            try:
                patiently(lambda group=group: self._commit(group))  # type: ignore[misc]
            except psycopg.Error as error:
                problem = "an epoch cannot be committed"
                raise refused(self._settings, error, problem, epoch=epoch) from error
            self._last[sink_id, job_id] = staged_epoch

    def close(self) -> None:
        """Remove what attempts that lost have staged after the commit of their epoch."""
        with contextlib.suppress(psycopg.Error):
            if self._connection is not None and self._table is not None:
                for (sink_id, job_id), epoch in self._last.items():
                    _clean_up(self._connection, self._table, sink_id, job_id, epoch)
        self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def _commit(self, group: list[Staged]) -> None:
        try:
            if self._connection is None:
                self._connection = connect(self._settings)
                self._table = find_table(self._connection, self._settings)
                # Not adapted: what waits there was staged before the target changed, if it has.
                prepare_staging(self._connection, self._table, adapt=False)
            assert self._table is not None
            with self._connection.transaction():
                self._move(self._connection, self._table, group)
        except BaseException:
            # The next try must not build on a connection of which nothing is known.
            self._disconnect()
            raise

    def _move(self, connection: Connection, table: SqlTable, group: list[Staged]) -> None:
        first = group[0]
        if not self._log(connection, table, group):
            return
        for staged in group:
            moved = _move_rows(connection, table, staged)
            if moved != staged.count:
                raise SinkError(
                    f"{staged.count} rows were staged, and {moved} are there",
                    table=self._settings.table_name,
                    sink_id=staged.sink_id,
                    epoch=staged.epoch,
                    subtask=staged.subtask,
                    hint="sinks that write to one table at the same time need an own set_sink_id(...)"
                    " each, and nobody else may change the staging table",
                )
        _clean_up(connection, table, first.sink_id, first.job_id, first.epoch)

    def _log(self, connection: Connection, table: SqlTable, group: list[Staged]) -> bool:
        """Log the epoch; False if it was logged before."""
        first = group[0]
        attempts = hashlib.sha256("\n".join(sorted(s.attempt for s in group)).encode()).hexdigest()
        # Without a job's id, epoch 0 of each run would look like the first run's.
        key = (first.sink_id, first.job_id or attempts, first.epoch)
        if connection.execute(_log_statement(table), [*key, attempts]).rowcount == 1:
            return True
        if connection.execute(_find_statement(table), key).fetchone() == (attempts,):
            return False
        raise SinkError(
            "the epoch was committed before, with other rows",
            table=self._settings.table_name,
            sink_id=first.sink_id,
            job_id=first.job_id,
            epoch=first.epoch,
            hint="give each sink an own set_sink_id(...), and each job that starts anew an own id",
        )


def _log_statement(table: SqlTable) -> sql.Composed:
    return sql.SQL(
        "INSERT INTO {} (sink_id, job_id, epoch, attempts) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT DO NOTHING"
    ).format(named(commits_of(table)))


def _find_statement(table: SqlTable) -> sql.Composed:
    return sql.SQL(
        "SELECT attempts FROM {} WHERE sink_id = %s AND job_id = %s AND epoch = %s"
    ).format(named(commits_of(table)))


def _move_statement(table: SqlTable, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(
        "WITH moved AS (DELETE FROM {staging} WHERE millstream_sink_id = %s"
        " AND millstream_job_id = %s AND millstream_epoch = %s AND millstream_subtask = %s"
        " AND millstream_attempt = %s RETURNING {columns}),"
        " arrived AS (INSERT INTO {target} ({columns}) SELECT {columns} FROM moved)"
        " SELECT count(*) FROM moved"
    ).format(
        staging=named(staging_of(table)),
        target=named(table.identifier),
        columns=sql.SQL(", ").join(named(sql.Identifier(name)) for name in columns),
    )


def _clean_up_statement(table: SqlTable) -> sql.Composed:
    return sql.SQL(
        "DELETE FROM {} WHERE millstream_sink_id = %s AND millstream_job_id = %s"
        " AND millstream_epoch <= %s"
    ).format(named(staging_of(table)))


def check_commit(connection: Connection, table: SqlTable, staged: Staged) -> None:
    """Have the server plan all that a commit will do, privileges included. What fails there would else fail when the
    checkpoint is complete, and the job would stand still."""
    key = (staged.sink_id, staged.job_id, staged.epoch)
    for statement, values in (
        (_log_statement(table), [*key, ""]),
        (_find_statement(table), [*key]),
        (_move_statement(table, staged.columns), [*key, staged.subtask, staged.attempt]),
        (_clean_up_statement(table), [*key]),
    ):
        connection.execute(sql.SQL("EXPLAIN ") + statement, values)


def _move_rows(connection: Connection, table: SqlTable, staged: Staged) -> int:
    """Move what an attempt has staged. Counted where it leaves: triggers may drop rows on arrival."""
    moved = connection.execute(
        _move_statement(table, staged.columns),
        [staged.sink_id, staged.job_id, staged.epoch, staged.subtask, staged.attempt],
    ).fetchone()
    assert moved is not None
    return int(moved[0])


def _clean_up(
    connection: Connection, table: SqlTable, sink_id: str, job_id: str, epoch: int
) -> None:
    """Remove what other attempts have staged: nobody will commit it. Other jobs' rows stay."""
    connection.execute(_clean_up_statement(table), [sink_id, job_id, epoch])
