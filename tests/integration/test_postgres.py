"""The PostgreSQL sinks against a real server: first writers and committers alone, then jobs on Spark."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import cloudpickle
import psycopg
import pytest

from millstream.api.sink import WriterContext
from millstream.common import Row
from millstream.connectors.postgres import table as postgres_table
from millstream.connectors.postgres import write as postgres_write
from millstream.connectors.postgres.commit import PostgresCommitter, Staged
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.errors import SinkError
from tests.integration import postgres as server
from tests.support import program_of

pytestmark = pytest.mark.timeout(300)

postgres = server.postgres
_numbers = itertools.count(1)


class Database:
    """The server as one test uses it: a schema of its own, and questions to it."""

    def __init__(self, dsn: dict[str, Any], schema: str | None = None) -> None:
        self.dsn = dsn
        self.schema = schema or f"test_{next(_numbers)}"
        self.admin = psycopg.connect(**dsn, autocommit=True)
        self.admin.execute(f"CREATE SCHEMA {self.schema}")
        self.admin.execute(f"SET search_path = {self.schema}")

    def run(self, statement: str) -> None:
        self.admin.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.admin.execute(query).fetchall()

    def ids(self) -> list[int]:
        return [n for (n,) in self.rows("SELECT id FROM t ORDER BY id")]

    def staged(self) -> int:
        return self.rows("SELECT count(*) FROM t__millstream_staging")[0][0]

    def builder(self, table: str = "t") -> Any:
        return PostgresSink.builder().set_dsn(self.dsn).set_table(f"{self.schema}.{table}")

    def end_connections(self) -> int:
        """Cut everybody else off, as a failing network does."""
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        return len(
            self.rows(f"{others} WHERE pid <> pg_backend_pid() AND application_name = 'millstream'")
        )


@pytest.fixture
def db(postgres: Any) -> Iterator[Database]:
    database = Database(postgres.dsn)
    database.run("CREATE TABLE t (id bigint NOT NULL, note text DEFAULT 'none')")
    yield database
    database.run(f"DROP SCHEMA {database.schema} CASCADE")
    database.admin.close()


def context(epoch: int = 0, subtask: int = 0, attempt: str = "one", job: str = "") -> Any:
    made = WriterContext(subtask, 2, epoch, attempt)
    if job:
        # Contexts need not know their job; those that do are told here.
        return type("Context", (), {**{n: getattr(made, n) for n in made.__slots__}, "job_id": job})
    return made


def write(sink: Any, records: Any, **where: Any) -> bytes:
    """Write an epoch's records as a task does; the committable."""
    writer = cloudpickle.loads(cloudpickle.dumps(sink)).create_writer(context(**where))
    for record in records:
        writer.write(record)
    return writer.prepare_commit()


def commit(sink: Any, epoch: int, committables: list[bytes]) -> None:
    """Commit as a driver that has just started does."""
    committer = cloudpickle.loads(cloudpickle.dumps(sink)).create_committer()
    committer.commit(epoch, committables)
    committer.close()


# -- the transactional sink ---------------------------------------------------------------------------


def test_rows_appear_with_the_commit_and_only_once(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    made = [write(sink, [1, 2], subtask=0), write(sink, [(3,)], subtask=1)]
    assert db.ids() == []
    for _ in range(3):
        commit(sink, 0, made)
        assert db.ids() == [1, 2, 3]
    # The column that was not written has its default, not NULL.
    assert db.rows("SELECT DISTINCT note FROM t") == [("none",)]
    assert db.staged() == 0


def test_epochs_follow_each_other(db: Database) -> None:
    sink = db.builder().build_transactional()
    committer = sink.create_committer()
    for epoch in range(5):
        made = [write(sink, [{"id": epoch, "note": "x"}], epoch=epoch)] if epoch != 2 else []
        committer.commit(epoch, made)
        committer.commit(epoch, made)
    committer.close()
    assert db.ids() == [0, 1, 3, 4]


@pytest.mark.parametrize("job", ["", "job-1"])
def test_rows_of_attempts_that_lost_vanish(db: Database, job: str) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    write(sink, [1, 99], attempt="lost", job=job)
    write(sink, [98], epoch=1, attempt="later", job=job)
    won = write(sink, [1, 2], attempt="won", job=job)
    committer = sink.create_committer()
    committer.commit(0, [won])
    assert db.ids() == [1, 2]
    assert db.staged() == 1  # epoch 1 may still be committed
    write(sink, [97], attempt="slow", job=job)
    committer.close()
    assert db.ids() == [1, 2]
    assert db.rows("SELECT id FROM t__millstream_staging") == [(98,)]


def test_a_job_started_anew_begins_at_epoch_0_again(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    for job in ("", "", "job-1", "job-2"):
        made = [write(sink, [1], job=job)]
        commit(sink, 0, made)
        commit(sink, 0, made)
    assert db.ids() == [1, 1, 1, 1]


def test_staged_rows_of_another_job_stay(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    waiting = write(sink, [1], job="job-1")
    commit(sink, 3, [write(sink, [2], epoch=3, job="job-2")])
    commit(sink, 0, [waiting])
    assert db.ids() == [1, 2]


def test_two_sinks_with_one_id_are_found_out(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    first, second = write(sink, [1], job="j"), write(sink, [2], job="j")
    commit(sink, 0, [first])
    with pytest.raises(SinkError, match="set_sink_id"):
        commit(sink, 0, [second])
    sinks = [db.builder().set_columns("id").set_sink_id(s).build_transactional() for s in "ab"]
    made = [write(sink, [3], job="j") for sink in sinks]
    for sink, committable in zip(sinks, made, strict=True):
        commit(sink, 0, [committable])
    assert db.ids() == [1, 3, 3]


def test_killed_between_staging_and_commit(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    made = [write(sink, range(10), epoch=7)]
    db.end_connections()
    # The next driver has the committables from the checkpoint, and nothing else.
    again = db.builder().set_columns("id").build_transactional()
    commit(again, 7, made)
    assert db.ids() == list(range(10))


def test_killed_while_staging(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_write, "_COPIED", 10)
    sink = db.builder().set_columns("id").build_transactional()
    writer = sink.create_writer(context(attempt="dead"))
    for n in range(25):
        writer.write(n)
    assert db.end_connections() == 1
    with pytest.raises(SinkError, match="staged"):
        writer.prepare_commit()
    writer.abort()
    assert db.staged() == 0
    commit(sink, 0, [write(sink, range(25))])
    assert db.ids() == list(range(25))


def test_abort_leaves_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_write, "_COPIED", 10)
    writer = db.builder().set_columns("id").build_transactional().create_writer(context())
    for n in range(25):
        writer.write(n)
    writer.abort()
    writer.abort()
    assert db.staged() == 0


def test_an_epoch_without_records_does_not_connect(db: Database) -> None:
    sink = PostgresSink.builder().set_dsn("host=nowhere.invalid").set_table("t")
    transactional = sink.build_transactional()
    assert write(transactional, []) is None
    commit(transactional, 0, [])


@pytest.mark.parametrize("tampering", ["DELETE FROM {} WHERE id = 2", "INSERT INTO {0} TABLE {0}"])
def test_a_wrong_count_is_detected(db: Database, tampering: str) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    made = [write(sink, [1, 2], epoch=4)]
    db.run(tampering.format("t__millstream_staging"))
    with pytest.raises(SinkError, match=r"2 rows were staged, and [14] are there"):
        commit(sink, 4, made)
    assert db.ids() == []
    assert db.rows("SELECT count(*) FROM millstream_commits") == [(0,)]


def test_connection_lost_in_the_middle_of_a_commit(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    made = [write(sink, [1, 2])]
    # The sequence is not rolled back, so the trigger ends only the first connection.
    db.run("CREATE SEQUENCE tries")
    db.run(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('{db.schema}.tries') = 1 THEN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$"
    )
    db.run("CREATE TRIGGER cut BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION cut()")
    commit(sink, 0, made)
    assert db.ids() == [1, 2]
    assert db.rows("SELECT last_value FROM tries")[0][0] == 3  # one row, then two


def test_the_answer_to_a_commit_is_lost(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    made = [write(sink, [1, 2])]
    original = PostgresCommitter._commit
    calls = []

    def lose_the_first_answer(self: Any, group: list[Staged]) -> None:
        original(self, group)
        calls.append(len(calls))
        if len(calls) == 1:
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresCommitter, "_commit", lose_the_first_answer)
    commit(sink, 0, made)
    assert calls == [0, 1]
    assert db.ids() == [1, 2]


def test_connection_lost_between_epochs(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    committer = sink.create_committer()
    for epoch in range(3):
        committer.commit(epoch, [write(sink, [epoch], epoch=epoch)])
        assert db.end_connections() == 1
    committer.close()
    assert db.ids() == [0, 1, 2]


def test_a_server_that_stays_away(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_table, "_PAUSES", (0, 0, 0))
    made = [write(db.builder().set_columns("id").build_transactional(), [1])]
    password = "never-shown-7f3"
    builder = PostgresSink.builder().set_dsn({**db.dsn, "password": password})
    sink = builder.set_table(f"{db.schema}.t").set_columns("id").build_transactional()
    with pytest.raises(SinkError, match="password authentication failed") as failed:
        commit(sink, 0, made)
    with pytest.raises(SinkError, match="check that the server runs") as unwritten:
        write(sink, [1])
    for error in (failed.value, unwritten.value):
        assert password not in str(error)
        assert password not in str(error.__cause__)
    assert failed.value.evidence["epoch"] == 0


def test_values_of_many_types(db: Database) -> None:
    db.run(
        "CREATE TABLE many (i int GENERATED ALWAYS AS IDENTITY, n numeric(8, 2), at timestamptz,"
        " tags text[], doc jsonb, ok bool, raw bytea, twice numeric GENERATED ALWAYS AS (n * 2) STORED)"
    )
    sink = db.builder("many").build_transactional()
    doc = {"a": [1, None], "b": "tab\there\nand \\ there"}
    row = Row(
        n=1.25, at="2024-05-01 12:00+00", tags=["x", None, "y,z"], doc=doc, ok=True, raw=b"\0"
    )
    commit(sink, 0, [write(sink, [row, dict.fromkeys(reversed(row.as_dict()))])])
    found = db.rows("SELECT i, n, at = '2024-05-01 12:00+00', tags, doc, ok, raw, twice FROM many")
    assert found[0][0] == 1
    assert [float(found[0][1]), float(found[0][7])] == [1.25, 2.5]
    assert found[0][2:7] == (True, ["x", None, "y,z"], doc, True, b"\0")
    assert found[1] == (2, *[None] * 7)


def test_a_target_that_has_got_a_column(db: Database) -> None:
    sink = db.builder().set_columns("id").build_transactional()
    commit(sink, 0, [write(sink, [1])])
    db.run("ALTER TABLE t ADD COLUMN more int")
    sink = db.builder().build_transactional()
    commit(sink, 1, [write(sink, [{"id": 2, "more": 5}], epoch=1)])
    assert db.rows("SELECT id, more FROM t ORDER BY id") == [(1, None), (2, 5)]


def test_names_that_need_quotes(db: Database) -> None:
    name = 'Order "x"; DROP' + "y" * 48
    quoted = name.replace('"', '""')
    db.run(f'CREATE TABLE "{quoted}" ("from" int, epoch int)')
    sink = db.builder(name).set_columns("from", "epoch").build_transactional()
    commit(sink, 0, [write(sink, [(1, 2)])])
    assert db.rows(f'SELECT "from", epoch FROM "{quoted}"') == [(1, 2)]


WIDER = [
    ("numeric(10,2)", "numeric(10,4)", Decimal("1.2345")),
    ("timestamp(0)", "timestamp", datetime(2024, 5, 1, 12, 0, 0, 654321)),
    ("real", "float8", 1.1234567890123),
    ("integer", "bigint", 1 << 40),
    ("varchar(3)", "text", "longer"),
    ("integer", "text", "no number"),
]


@pytest.mark.parametrize("waiting", [False, True], ids=["empty", "with rows"])
@pytest.mark.parametrize(("before", "after", "value"), WIDER)
def test_a_target_whose_column_has_got_another_type(
    db: Database, before: str, after: str, value: Any, waiting: bool
) -> None:
    db.run(f"CREATE TABLE w (id int, v {before})")
    first = {"timestamp(0)": datetime(2024, 1, 1), "varchar(3)": "abc"}.get(before, 1)
    sink = db.builder("w").set_columns("id", "v").build_transactional()
    commit(sink, 0, [write(sink, [(0, first)], job="j")])
    pending = write(sink, [(1, first)], epoch=1, job="j") if waiting else None
    db.run(f"ALTER TABLE w ALTER COLUMN v TYPE {after}")
    # A driver that starts again commits first, then tasks write; and the other way round.
    made = write(sink, [(2, value)], epoch=2, job="j")
    if pending is not None:
        commit(sink, 1, [pending])
    commit(sink, 2, [made])
    found = dict(db.rows("SELECT id, v FROM w"))
    assert found[2] == value
    assert sorted(found) == ([0, 1, 2] if waiting else [0, 2])
    assert str(found[0]).startswith(str(first)[:10])


@pytest.mark.parametrize("waiting", [False, True], ids=["empty", "with rows"])
def test_a_target_whose_checks_have_changed(db: Database, waiting: bool) -> None:
    db.run("ALTER TABLE t ADD CONSTRAINT small CHECK (id < 10)")
    sink = db.builder().set_columns("id").build_transactional()
    commit(sink, 0, [write(sink, [1], job="j")])
    pending = [write(sink, [2], epoch=1, job="j")] if waiting else []
    db.run("ALTER TABLE t DROP CONSTRAINT small, ADD CONSTRAINT even CHECK (id < 3 OR id % 2 = 0)")
    made = write(sink, [20], epoch=2, job="j")
    # Not only when it is committed.
    with pytest.raises(SinkError, match="even"):
        write(sink, [21], epoch=3, job="j")
    commit(sink, 1, pending)
    commit(sink, 2, [made])
    assert db.ids() == ([1, 2, 20] if waiting else [1, 20])


def test_names_with_a_percent_sign(db: Database, postgres: Any) -> None:
    strange = Database(postgres.dsn, '"100%s %% of %(x)s"')
    strange.run('CREATE TABLE "share in %" ("key %s" int PRIMARY KEY, "%" text)')
    for number, build in enumerate((True, False)):
        builder = (
            PostgresSink.builder().set_dsn(strange.dsn)
            .set_table('100%s %% of %(x)s.share in %').set_columns("key %s", "%")
        )  # fmt: skip
        sink = builder.build_transactional() if build else builder.build_upsert("key %s")
        made = write(sink, [(number, "100%")], job="j")
        commit(sink, 0, [made] if made else [])
        commit(sink, 0, [made] if made else [])
    assert strange.rows('SELECT * FROM "share in %" ORDER BY 1') == [(0, "100%"), (1, "100%")]
    strange.run(f"DROP SCHEMA {strange.schema} CASCADE")
    strange.admin.close()


def test_what_would_fail_at_the_commit_fails_before_the_checkpoint(
    db: Database, postgres: Any
) -> None:
    """A role that may stage rows, but not move them."""
    db.run("CREATE ROLE stager LOGIN PASSWORD 'x'")
    try:
        sink = db.builder().set_columns("id").build_transactional()
        commit(sink, 0, [write(sink, [1], job="j")])
        db.run(f"GRANT USAGE ON SCHEMA {db.schema} TO stager")
        db.run("GRANT SELECT ON t TO stager")
        db.run("GRANT ALL ON t__millstream_staging, millstream_commits TO stager")
        weak = (
            PostgresSink.builder()
            .set_dsn({**postgres.dsn, "user": "stager", "password": "x"})
            .set_table(f"{db.schema}.t").set_columns("id").build_transactional()
        )  # fmt: skip
        with pytest.raises(SinkError, match="permission denied"):
            write(weak, [2], epoch=1, job="j")
        assert db.staged() == 0
    finally:
        db.run("DROP OWNED BY stager")
        db.run("DROP ROLE stager")


UTC_NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

# One rule for both sinks: a type, a value, and what is there then (an exception: why not).
FITS: list[tuple[str, Any, Any]] = [
    ("smallint", 2.7, SinkError("invalid input syntax")),
    ("bigint", Decimal("2.5"), SinkError("invalid input syntax")),
    ("integer", 1 << 40, SinkError("out of range")),
    ("integer", True, SinkError("invalid input syntax")),
    ("integer", 7, 7),
    ("boolean", True, True),
    ("boolean", 1, True),
    ("text", 5, "5"),
    ("text", True, "t"),
    ("text", "a\tb\\n\n'%s", "a\tb\\n\n'%s"),
    ("numeric", 0.1, Decimal("0.1")),
    ("numeric(6,2)", Decimal("1.239"), Decimal("1.24")),
    ("double precision", 0.1, 0.1),
    ("timestamp", UTC_NOON, SinkError("it has a time zone")),
    ("timestamp", datetime(2024, 5, 1, 12), datetime(2024, 5, 1, 12)),
    ("timestamptz", UTC_NOON, UTC_NOON),
    ("date", datetime(2024, 5, 1, 12), SinkError("time of day")),
    ("date", datetime(2024, 5, 1), date(2024, 5, 1)),
    ("date", date(2024, 5, 1), date(2024, 5, 1)),
    ("time", datetime(2024, 5, 1, 12), SinkError("it has a date")),
    ("time", time(12, tzinfo=UTC), SinkError("it has a time zone")),
    ("time", time(12), time(12)),
    ("jsonb", {"a": [1, None]}, {"a": [1, None]}),
    ("jsonb", [1, "x", None, {"b": 2}], [1, "x", None, {"b": 2}]),
    ("jsonb", (1, 2), [1, 2]),
    ("jsonb", [], []),
    ("jsonb", True, True),
    ("jsonb", 5, 5),
    ("jsonb", 1.5, 1.5),
    ("jsonb", Decimal("1.5"), 1.5),
    ("jsonb", '{"a": 1}', {"a": 1}),
    ("jsonb", "no json", SinkError("invalid input syntax")),
    ("jsonb", float("nan"), SinkError("invalid input syntax")),
    ("jsonb", {"at": UTC_NOON}, SinkError("not JSON serializable")),
    ("json", [1], [1]),
    ("integer[]", [1, None, 3], [1, None, 3]),
    ("jsonb[]", [{"a": 1}], [{"a": 1}]),
    ("bytea", b"\0\xff", b"\0\xff"),
    ("uuid", UUID(int=7), UUID(int=7)),
    ("interval", timedelta(hours=30), timedelta(hours=30)),
]


@pytest.mark.parametrize("kind", ["transactional", "upsert"])
@pytest.mark.parametrize(("type_", "value", "there"), FITS)
def test_values_by_one_rule(db: Database, kind: str, type_: str, value: Any, there: Any) -> None:
    db.run(f"CREATE TABLE v (id int PRIMARY KEY, v {type_})")
    builder = db.builder("v").set_columns("id", "v")
    sink = builder.build_transactional() if kind == "transactional" else builder.build_upsert("id")
    if isinstance(there, SinkError):
        with pytest.raises(SinkError, match=there.what) as error:
            write(sink, [(1, None), (2, value)])
        assert error.value.evidence["record"].startswith("(2, ")
        return
    made = write(sink, [(1, None), (2, value)])
    commit(sink, 0, [made] if made else [])
    assert db.rows("SELECT v FROM v ORDER BY id") == [(None,), (there,)]


def test_a_key_that_is_null_is_refused(db: Database) -> None:
    db.run("CREATE TABLE k (a int, b int, n int, UNIQUE (a, b))")
    sink = db.builder("k").set_columns("a", "b", "n").build_upsert(["a", "b"])
    with pytest.raises(SinkError, match="no value for b") as error:
        write(sink, [(1, 1, 1), (1, None, 2)])
    assert "(1, None, 2)" in error.value.evidence["record"]
    write(sink, [(1, 1, None)])
    assert db.rows("SELECT a, b, n FROM k") == [(1, 1, None)]


# -- records and tables that do not fit ---------------------------------------------------------------


BAD = [
    ("transactional", {"id": "x"}, "invalid input syntax", "'x'"),
    ("transactional", {"id": None}, "no value for id", "None"),
    ("transactional", {"id": object()}, "cannot adapt", "object"),
    ("transactional", {"id": 50, "note": "\0"}, "NUL", "x00"),
    ("transactional", {"id": -1}, "check constraint", "-1"),
    ("upsert", {"id": "x"}, "invalid input syntax", "'x'"),
    ("upsert", {"id": None}, "no value for id", "None"),
    ("upsert", {"id": object()}, "cannot adapt", "object"),
    ("upsert", {"id": 50, "note": "\0"}, "NUL", "x00"),
    ("upsert", {"id": -1}, "check constraint", "-1"),
]


@pytest.mark.parametrize(("kind", "record", "said", "shown"), BAD)
def test_a_record_that_does_not_fit_is_named(
    db: Database, kind: str, record: Any, said: str, shown: str
) -> None:
    db.run("ALTER TABLE t ADD PRIMARY KEY (id), ADD CHECK (id >= 0)")
    builder = db.builder()
    sink = builder.build_transactional() if kind == "transactional" else builder.build_upsert("id")
    good = [{"id": n, **({"note": "fine"} if "note" in record else {})} for n in range(1, 9)]
    with pytest.raises(SinkError, match=said) as error:
        write(sink, [*good, record, *good])
    assert shown in error.value.evidence["record"]
    assert error.value.evidence["table"] == f"{db.schema}.t"
    assert error.value.evidence["columns"] == ", ".join(record)
    assert error.value.hint
    assert db.ids() == []


def test_tables_and_columns_that_are_missing(db: Database) -> None:
    db.run("CREATE TABLE made (id int GENERATED ALWAYS AS IDENTITY, n int)")
    for build in (lambda b: b.build_transactional(), lambda b: b.build_upsert("id")):
        with pytest.raises(SinkError, match="does not exist"):
            write(build(db.builder("nowhere").set_columns("id")), [1])
        with pytest.raises(SinkError, match="no column idd") as error:
            write(build(db.builder().set_columns("id", "idd")), [(1, 2)])
        assert "it has id, note" in str(error.value)
        with pytest.raises(SinkError, match="makes the values of id itself"):
            write(build(db.builder("made").set_columns("id")), [1])
    with pytest.raises(SinkError, match="needs a value for id"):
        write(db.builder().set_columns("note").build_transactional(), ["x"])


def test_a_key_that_is_there_already(db: Database) -> None:
    db.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    sink = db.builder().set_columns("id").build_transactional()
    commit(sink, 0, [write(sink, [1])])
    with pytest.raises(SinkError, match=r"\(id\)=\(1\) already exists") as error:
        commit(sink, 1, [write(sink, [2, 1], epoch=1)])
    assert "build_upsert" in str(error.value)
    assert db.ids() == [1]


# -- the upsert sink ----------------------------------------------------------------------------------


def test_upserts_can_be_repeated(db: Database) -> None:
    db.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    sink = db.builder().set_columns("id", "note").build_upsert(["id"])
    records = [(n % 2_500, f"note {n}") for n in range(4_000)]
    for _ in range(2):
        assert write(sink, records) is None
        commit(sink, 0, [])
        assert dict(db.rows("SELECT id, note FROM t")) == dict(records)
    write(sink, [(7, None), (7, "last")], epoch=1)
    assert dict(db.rows("SELECT id, note FROM t")) == {**dict(records), 7: "last"}


def test_a_table_of_keys_alone(db: Database) -> None:
    db.run("CREATE TABLE seen (a int, b int, PRIMARY KEY (b, a))")
    sink = db.builder("seen").set_columns("a", "b").build_upsert(["a", "b"])
    for _ in range(2):
        write(sink, [(1, 2), (2, 1), (1, 2)])
    assert db.rows("SELECT a, b FROM seen ORDER BY a") == [(1, 2), (2, 1)]


def test_an_upsert_needs_a_unique_index(db: Database) -> None:
    with pytest.raises(SinkError, match="need a unique index"):
        write(db.builder().set_columns("id").build_upsert("id"), [1])


def test_an_upsert_is_all_or_nothing_and_tries_again(db: Database) -> None:
    db.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    db.run("CREATE SEQUENCE tries")
    db.run(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF nextval('{db.schema}.tries') = 1500 THEN"
        " PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NEW; END $$"
    )
    db.run("CREATE TRIGGER cut BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION cut()")
    write(db.builder().set_columns("id").build_upsert("id"), range(2_000))
    assert db.ids() == list(range(2_000))
    # Nothing of the first try was there for the second: it inserted every row.
    assert db.rows("SELECT last_value FROM tries") == [(3_500,)]
    assert db.rows("SELECT count(*) FROM t WHERE xmax <> 0") == [(0,)]


# -- the page -----------------------------------------------------------------------------------------


def test_the_program_of_the_page(db: Database, tmp_path: Path) -> None:
    db.run("CREATE TABLE orders (id bigint PRIMARY KEY, grain text, kilos double precision)")
    db.run("CREATE TABLE totals (grain text PRIMARY KEY, kilos double precision)")
    instead = {
        '"postgresql://ann@db/shop"': repr(db.dsn),
        '"/data/checkpoints"': repr(str(tmp_path)),
        'set_table("orders")': f'set_table("{db.schema}.orders")',
        'set_table("totals")': f'set_table("{db.schema}.totals")',
    }
    exec(program_of("postgres.md", instead), {})
    assert db.rows("SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]
    assert db.rows("SELECT grain, kilos FROM totals ORDER BY grain") == [("oats", 6.5), ("rye", 1)]


# -- on Spark -----------------------------------------------------------------------------------------

WORDS = [f"word {n % 7}" for n in range(700)]


@pytest.mark.spark
def test_both_sinks_in_a_job(make_env: Any, db: Database) -> None:
    db.run("CREATE TABLE counts (word text PRIMARY KEY, n bigint)")
    env = make_env(options={"millstream.epoch.records": "100"})
    env.enable_checkpointing(200)
    events = env.from_collection(list(enumerate(WORDS)))
    events.map(lambda event: Row(id=event[0], note=event[1])).sink_to(
        db.builder().build_transactional()
    )
    events.map(lambda event: (event[1], 1)).key_by(lambda pair: pair[0]).sum(1).sink_to(
        db.builder("counts").set_columns("word", "n").build_upsert("word")
    )
    env.execute("words into tables")
    assert db.rows("SELECT id, note FROM t ORDER BY id") == list(enumerate(WORDS))
    assert dict(db.rows("SELECT word, n FROM counts")) == collections.Counter(WORDS)
    assert db.rows("SELECT count(*) > 1 FROM millstream_commits") == [(True,)]
    assert db.staged() == 0


@pytest.mark.spark
def test_a_job_that_fails_leaves_whole_epochs_and_can_be_run_again(
    make_env: Any, db: Database
) -> None:
    db.run("CREATE TABLE counts (word text PRIMARY KEY, n bigint)")

    def run(bad: int | None) -> None:
        def check(n: int) -> int:
            if n == bad:
                raise ValueError(n)
            return n

        env = make_env(parallelism=1, options={"millstream.epoch.records": "10"})
        env.enable_checkpointing(200)
        ids = env.from_collection(range(100)).map(check)
        ids.map(lambda n: (n, "x")).sink_to(
            db.builder().set_columns("id", "note").build_transactional()
        )
        ids.map(lambda n: (f"key {n % 3}", 1)).key_by(lambda pair: pair[0]).sum(1).sink_to(
            db.builder("counts").set_columns("word", "n").build_upsert("word")
        )
        env.execute()

    with pytest.raises(Exception, match="ValueError: 95"):
        run(bad=95)
    assert db.ids() == list(range(90))
    assert db.rows("SELECT sum(n) FROM counts")[0][0] <= 95
    db.run("DELETE FROM t")
    run(bad=None)
    assert db.ids() == list(range(100))
    assert dict(db.rows("SELECT word, n FROM counts")) == {"key 0": 34, "key 1": 33, "key 2": 33}
    assert db.staged() == 0
