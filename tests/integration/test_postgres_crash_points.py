"""The situations of `tests/inprocess/test_crash_points.py` with the PostgreSQL sinks and a real server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.api.sink import Sink, SinkWriter
from tests.crashes import EACH_ONCE, FailsOnce, Outlet, latest, run
from tests.inprocess import test_crash_points as situations
from tests.inprocess.test_crash_points import (
    CLAIM,
    RECOVERY,
    die,
    test_a_commit_that_fails_once,
    test_a_savepoint_has_nothing_to_commit,
    test_started_again_by_name,
    test_started_by_path,
    test_started_by_path_and_died_again_at_the_start,
    test_what_is_for_the_driver_survives_a_failed_commit,
)
from tests.integration import postgres as server
from tests.integration.test_postgres import Database

pytestmark = pytest.mark.timeout(300)

postgres = server.postgres

__all__ = [
    "test_a_commit_that_fails_once",
    "test_a_savepoint_has_nothing_to_commit",
    "test_started_again_by_name",
    "test_started_by_path",
    "test_started_by_path_and_died_again_at_the_start",
    "test_what_is_for_the_driver_survives_a_failed_commit",
]


class Rows(FailsOnce):
    """Any sink, with numbers as rows of one column."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink, at=0, after=False)

    def create_writer(self, context: Any) -> SinkWriter:
        return _Rows(self.sink.create_writer(context))


class _Rows(SinkWriter):
    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def write(self, value: int) -> None:
        self._writer.write((value,))

    def prepare_commit(self) -> bytes | None:
        return self._writer.prepare_commit()

    def abort(self) -> None:
        self._writer.abort()


class Transactions(Outlet):
    """A table without any key: what is written twice is there twice."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._taken: Counter = Counter()
        database.run("CREATE TABLE t (id bigint NOT NULL)")

    def sink(self) -> Sink:
        return Rows(self._database.builder().set_columns("id").build_transactional())

    def read(self) -> Counter:
        return self._taken + Counter(self._database.ids())

    def take(self) -> None:
        self._taken = self.read()
        self._database.run("DELETE FROM t")


class Upserts(Transactions):
    """A table with a key, which is written before the checkpoint."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        database.run("CREATE UNIQUE INDEX ON t (id)")

    def sink(self) -> Sink:
        return Rows(self._database.builder().set_columns("id").build_upsert("id"))


@pytest.fixture(params=[Transactions, Upserts])
def outlet(request: Any, postgres: Any) -> Any:
    database = Database(postgres.dsn)
    yield request.param(database)
    database.run(f"DROP SCHEMA {database.schema} CASCADE")
    database.admin.close()


@pytest.fixture
def transactions(postgres: Any) -> Any:
    database = Database(postgres.dsn)
    yield Transactions(database)
    database.run(f"DROP SCHEMA {database.schema} CASCADE")
    database.admin.close()


def test_two_jobs_start_from_one_checkpoint_by_path(
    tmp_path: Path, transactions: Transactions
) -> None:
    situations.test_two_jobs_start_from_one_checkpoint_by_path(tmp_path, transactions)


@pytest.mark.parametrize("by_path", [False, True])
def test_a_sink_that_is_not_found_again_is_refused(
    tmp_path: Path, transactions: Transactions, by_path: bool, caplog: Any
) -> None:
    situations.test_a_sink_that_is_not_found_again_is_refused(
        tmp_path, transactions, by_path, "another uid", caplog
    )


def test_an_edited_checkpoint_keeps_what_it_has_to_commit(
    tmp_path: Path, transactions: Transactions
) -> None:
    situations.test_an_edited_checkpoint_keeps_what_it_has_to_commit(tmp_path, transactions)


def test_a_checkpoint_that_is_not_claimed_keeps_what_it_has_to_commit(
    tmp_path: Path, transactions: Transactions
) -> None:
    """Also when the copy has written and cleaned up since."""
    die(tmp_path, transactions, times=2)
    path = {RECOVERY: latest(tmp_path), CLAIM: "NO_CLAIM"}
    before = transactions.read()
    run(tmp_path, transactions.sink(), name="second", **path)
    copied = transactions.read() - before
    assert copied.total() == 20
    transactions.take()
    run(tmp_path, transactions.sink())
    assert transactions.read() == EACH_ONCE + copied
