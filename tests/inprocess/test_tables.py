"""Delta and Iceberg as sinks: drivers that die, other writers, tables that change, starts from older checkpoints."""

from __future__ import annotations

import builtins
import datetime as dt
import shutil
import threading
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import BucketTransform, DayTransform, MonthTransform, TruncateTransform

from millstream.api.sink import WriterContext
from millstream.common import Row, RowKind, Types
from millstream.connectors import tables
from millstream.connectors.delta.sink import DeltaSink
from millstream.errors import (
    InvalidArgument,
    RuntimeUnusable,
    SinkError,
    StateMismatch,
    TypeMismatchError,
)
from tests.crashes import EACH_ONCE, latest, run
from tests.inprocess import test_crash_points as situations
from tests.inprocess.test_crash_points import (
    RECOVERY,
    die,
    test_a_commit_that_fails_once,
    test_a_savepoint_has_nothing_to_commit,
    test_started_again_by_name,
    test_started_by_path_and_died_again_at_the_start,
    test_two_jobs_start_from_one_checkpoint_by_path,
)
from tests.s3 import KEY, SECRET, client_of, s3_process
from tests.tables import DeltaRows, IcebergRows

__all__ = [
    "test_a_commit_that_fails_once",
    "test_a_savepoint_has_nothing_to_commit",
    "test_started_again_by_name",
    "test_started_by_path_and_died_again_at_the_start",
    "test_two_jobs_start_from_one_checkpoint_by_path",
]

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:pyiceberg.*", "ignore:Delete operation did not match any records"
)


@pytest.fixture(params=[DeltaRows, IcebergRows])
def outlet(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch):
    monkeypatch.setattr(tables, "_PAUSES", (0.01, 0.05, 0.1, 0.2, 0.4))


@pytest.mark.parametrize("place", ["after manifest", "after commit"])
def test_started_by_path(tmp_path, outlet, place):
    situations.test_started_by_path(tmp_path, outlet, place, 3, "another job")
    assert outlet.read() == EACH_ONCE


def write(sink, rows, epoch=0, subtask=0, job_id="job"):
    context = WriterContext(subtask, 1, epoch, "a", job_id, "sink")
    writer = sink.create_writer(context)
    for row in rows:
        writer.write(row)
    return writer.prepare_commit()


def committer_of(sink, job_id="job"):
    committer = sink.create_committer()
    committer.job_id, committer.sink = job_id, "sink"
    return committer


# -- what is in the log --------------------------------------------------------------------------------------------


def test_an_epoch_is_one_entry_of_the_log_however_often_it_is_committed(outlet):
    sink = outlet.sink()
    committer = committer_of(sink)
    committables = [write(sink, range(n * 10, n * 10 + 10), subtask=n) for n in (0, 1)]
    assert outlet.read() == Counter()
    committer.commit(0, committables)
    committer.commit(0, committables)
    committer_of(sink).commit_again(0, committables)
    committer.commit(1, [])
    committer.commit(2, [write(sink, [20], epoch=2)])
    assert outlet.read() == Counter(range(21))
    assert outlet.commits() == 2
    assert len(outlet.files()) == 3


def test_jobs_and_sinks_are_told_apart(outlet):
    sink = outlet.sink()
    committer_of(sink, "one").commit(0, [write(sink, [1])])
    committer_of(sink, "two").commit(0, [write(sink, [2])])
    named = outlet.builder().set_sink_id("other").build()
    committer_of(named, "one").commit(0, [write(named, [3])])
    assert outlet.read() == Counter([1, 2, 3])


def test_an_epoch_with_other_files_is_refused(outlet):
    """The checkpoints were put back from a backup: the job repeats epochs under their old numbers."""
    sink = outlet.sink()
    for epoch in (0, 1):
        committer_of(sink).commit(epoch, [write(sink, [epoch], epoch)])
    for epoch in (0, 1):
        with pytest.raises(StateMismatch, match="already, with other files"):
            committer_of(sink).commit(epoch, [write(sink, [epoch], epoch)])
    assert outlet.read() == Counter([0, 1])


def test_checkpoints_that_were_put_back_from_a_backup_are_refused(tmp_path, outlet):
    die(tmp_path, outlet, times=2)
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "backup")
    die(tmp_path, outlet, times=3, place="after commit")
    shutil.rmtree(tmp_path / "checkpoints")
    shutil.move(tmp_path / "backup", tmp_path / "checkpoints")
    before = outlet.read()
    with pytest.raises(StateMismatch, match="would be written twice"):
        run(tmp_path, outlet.sink())
    assert outlet.read() == before


def test_a_start_by_path_from_an_older_checkpoint_is_refused(tmp_path, outlet):
    die(tmp_path, outlet, times=3, place="after commit")
    newest = latest(tmp_path)
    stem, _, number = newest.rpartition("-")
    older = {RECOVERY: f"{stem}-{int(number) - 1}"}
    before = outlet.read()
    with pytest.raises(StateMismatch, match="would be written twice"):
        run(tmp_path, outlet.sink(), name="second", **older)
    assert outlet.read() == before
    run(tmp_path, outlet.sink(), name="third", **{RECOVERY: newest})
    assert outlet.read() == EACH_ONCE


# -- other writers ---------------------------------------------------------------------------------------------------


def test_two_drivers_commit_one_epoch_at_the_same_moment(outlet):
    sink = outlet.sink()
    committers = [committer_of(sink) for _ in range(4)]
    committable = write(sink, range(50))
    together = threading.Barrier(4)
    failed = []

    def commit(committer):
        together.wait()
        try:
            committer.commit_again(0, [committable])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=commit, args=[one]) for one in committers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert outlet.read() == Counter(range(50))
    assert outlet.commits() == 1


def test_jobs_that_write_to_one_table_at_once_wait_for_each_other(outlet, monkeypatch):
    monkeypatch.setattr(tables, "_PAUSES", (0.05,) * 60)
    sink = outlet.sink()
    sink.create_committer()
    failed = []

    def job(name):
        try:
            committer = committer_of(sink, name)
            for epoch in range(4):
                committer.commit(epoch, [write(sink, [epoch], epoch, job_id=name)])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=job, args=[f"job {n}"]) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert outlet.read() == Counter([0, 1, 2, 3] * 3)


def test_a_commit_whose_answer_is_lost_is_not_repeated(outlet, monkeypatch):
    sink = outlet.sink()
    committer = committer_of(sink)
    append, lost = committer.append, []

    def appended(entry):
        append(entry)
        if not lost:
            lost.append(entry)
            raise ConnectionError("the answer is lost")

    monkeypatch.setattr(committer, "append", appended)
    committer.commit(0, [write(sink, [1])])
    assert lost
    assert outlet.commits() == 1
    assert outlet.read() == {1: 1}


def test_a_table_that_is_away_for_good_is_an_error_and_for_a_while_is_not(outlet, monkeypatch):
    sink = outlet.sink()
    committer = committer_of(sink)
    committable = write(sink, [1])
    append, left = committer.append, [3]

    def away(entry):
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError("nobody there")
        append(entry)

    monkeypatch.setattr(committer, "append", away)
    committer.commit(0, [committable])
    assert outlet.read() == {1: 1}
    left[0] = 100
    with pytest.raises(SinkError, match="nobody there"):
        committer.commit(1, [write(sink, [2], 1)])


def test_files_that_were_cleared_away_before_their_commit_are_not_made_part_of_the_table(
    tmp_path, outlet
):
    sink = outlet.sink()
    committer = committer_of(sink)
    committable = write(sink, [1])
    for path in outlet.folder.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(SinkError, match="a data file to commit is gone"):
        committer.commit_again(0, [committable])
    assert outlet.read() == Counter()


def test_an_iceberg_table_whose_snapshots_have_expired(tmp_path):
    outlet = IcebergRows(tmp_path)
    sink = outlet.sink()
    committer = committer_of(sink)
    committable = write(sink, [1, 2])
    committer.commit(0, [committable])
    outlet.loaded().append(pa.table({"id": pa.array([3], pa.int64())}))
    ours = outlet.loaded().snapshots()[0]
    outlet.loaded().maintenance.expire_snapshots().by_id(ours.snapshot_id).commit()
    assert len(outlet.loaded().snapshots()) == 1
    committer_of(sink).commit_again(0, [committable])
    assert outlet.read() == Counter([1, 2, 3])
    fresh = write(sink, [4], 1)
    committer_of(sink).commit_again(1, [fresh])
    assert outlet.read() == Counter([1, 2, 3, 4])


def test_an_iceberg_table_that_was_rolled_back_takes_the_epoch_again(tmp_path):
    outlet = IcebergRows(tmp_path)
    sink = outlet.sink()
    committer = committer_of(sink)
    committer.commit(0, [write(sink, [1])])
    first = outlet.loaded().current_snapshot().snapshot_id
    committer.commit(1, [write(sink, [2], 1)])
    outlet.loaded().manage_snapshots().rollback_to_snapshot(first).commit()
    committer.starts_from("job", 0)
    committer.commit(1, [write(sink, [2], 1)])
    assert outlet.read() == Counter([1, 2])


# -- schemas ----------------------------------------------------------------------------------------------------------

ORDER = Types.ROW_NAMED(
    ["id", "country", "day", "price", "tags"],
    [
        Types.LONG(),
        Types.STRING(),
        Types.SQL_DATE(),
        Types.DOUBLE(),
        Types.LIST(Types.STRING()),
    ],
)


def orders(count):
    return [
        Row(
            id=n,
            country=[None, "nl", "a/b c", "é%"][n % 4],
            day=dt.date(2026, 11, 1 + n % 3),
            price=n / 2,
            tags=["x"] * (n % 3),
        )
        for n in range(count)
    ]


def test_partitions(outlet):
    builder = outlet.builder().set_row_type(ORDER)
    sink = builder.create_if_missing(partition_by=["country", "day"]).build()
    committer = committer_of(sink)
    committables = [write(sink, orders(48), subtask=n) for n in (0, 1)]
    committer.commit(0, committables)
    rows = outlet.table().to_pylist()
    key = lambda row: (row["id"], str(row))  # noqa: E731
    assert sorted(rows, key=key) == sorted([row.as_dict() for row in orders(48)] * 2, key=key)
    assert len(outlet.files()) == 2 * 12
    found = duckdb.read_parquet([name.removeprefix("file://") for name in outlet.files()])
    assert found.aggregate("sum(id)").fetchall() == [(2 * sum(range(48)),)]


def test_a_single_partition_column_may_stand_alone(outlet):
    kind = Types.ROW_NAMED(["id", "country"], [Types.LONG(), Types.STRING()])
    sink = outlet.builder().set_row_type(kind).create_if_missing(partition_by="country").build()
    committer_of(sink).commit(0, [write(sink, [Row(1, "nl"), Row(2, "be")])])
    assert sorted(outlet.table().column("country").to_pylist()) == ["be", "nl"]
    assert len(outlet.files()) == 2


@pytest.mark.parametrize(("before", "after"), [((), ("country",)), (("country",), ())])
def test_a_table_that_was_made_anew_is_written_as_it_is_now(tmp_path, before, after):
    """In one process, as in a notebook: the writers of the second job must not know the first one's table."""
    outlet = DeltaRows(tmp_path)
    kind = Types.ROW_NAMED(["id", "country"], [Types.LONG(), Types.STRING()])
    rows = [Row(1, "nl"), Row(2, "be")]
    for job_id, keys in (("one", before), ("two", after)):
        shutil.rmtree(outlet.folder, ignore_errors=True)
        sink = outlet.builder().set_row_type(kind).create_if_missing(partition_by=keys).build()
        committer_of(sink, job_id).commit(0, [write(sink, rows, job_id=job_id)])
        found = sorted(outlet.table().to_pylist(), key=lambda row: row["id"])
        assert found == [{"id": 1, "country": "nl"}, {"id": 2, "country": "be"}]


def test_files_of_a_table_that_was_partitioned_otherwise_are_refused(tmp_path):
    outlet = DeltaRows(tmp_path)
    kind = Types.ROW_NAMED(["id", "country"], [Types.LONG(), Types.STRING()])
    builder = outlet.builder().set_row_type(kind)
    sink = builder.create_if_missing().build()
    sink.create_committer()
    committable = write(sink, [Row(1, "nl")])
    shutil.rmtree(outlet.folder / "_delta_log")
    committer = committer_of(builder.create_if_missing(partition_by=["country"]).build())
    with pytest.raises(SinkError, match="partitioned in another way"):
        committer.commit_again(0, [committable])


def test_delta_partitions_that_would_lose_something_are_refused(tmp_path):
    outlet = DeltaRows(tmp_path)
    kind = Types.ROW_NAMED(["id", "country"], [Types.LONG(), Types.STRING()])
    builder = outlet.builder().set_row_type(kind)
    everything = builder.create_if_missing(partition_by=["id", "country"]).build()
    with pytest.raises(SinkError, match="nothing but the columns by which"):
        everything.create_committer()
    shutil.rmtree(outlet.folder)
    sink = builder.create_if_missing(partition_by=["country"]).build()
    sink.create_committer()
    with pytest.raises(SinkError, match="no other word for null"):
        write(sink, [Row(1, "")])


def test_transforms_of_iceberg_s_partitions(tmp_path):
    outlet = IcebergRows(tmp_path)
    catalog = outlet.catalog()
    catalog.create_namespace("shop")
    moment = pa.timestamp("us", "UTC")
    fields = [("id", pa.int64()), ("s", pa.string()), ("at", moment), ("d", pa.date32())]
    table = catalog.create_table(outlet.name, pa.schema(fields))
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "day")
        spec.add_field("id", BucketTransform(3), "bucket")
        spec.add_field("s", TruncateTransform(1), "first")
        spec.add_field("d", MonthTransform(), "month")
    sink = outlet.builder().build()
    begin = dt.datetime(2026, 10, 30, tzinfo=dt.UTC)
    rows = [
        {
            "id": n,
            "s": ["oats", "rye", None][n % 3],
            "at": begin + dt.timedelta(hours=7 * n),
            "d": None if n % 5 == 0 else (begin + dt.timedelta(days=n)).date(),
        }
        for n in range(30)
    ]
    committer_of(sink).commit(0, [write(sink, rows)])
    assert sorted(outlet.table().to_pylist(), key=lambda row: row["id"]) == rows
    assert len(outlet.files()) > 20
    # A scan leaves out files by their partitions: what is wrong there would be missing here.
    middle = rows[13]
    equal: Any = EqualTo
    for name in ("id", "s", "at", "d"):
        found = outlet.loaded().scan(equal(name, _literal(middle[name]))).to_arrow()
        wanted = [row["id"] for row in rows if row[name] == middle[name]]
        assert sorted(found.column("id").to_pylist()) == wanted


def _literal(value):
    return value.isoformat() if isinstance(value, dt.date) else value


def test_a_partition_spec_that_changes_before_the_commit_is_an_error(tmp_path):
    outlet = IcebergRows(tmp_path)
    sink = outlet.sink()
    committer = committer_of(sink)
    committable = write(sink, [1])
    with outlet.loaded().update_spec() as spec:
        spec.add_identity("id")
    with pytest.raises(SinkError, match="partitioned in another way"):
        committer.commit(0, [committable])
    committer.commit(1, [write(sink, [2], 1)])
    assert outlet.read() == {2: 1}


def test_a_long_epoch_makes_several_files(outlet, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS", 100)
    monkeypatch.setattr(tables, "_HELD", 4000)
    outlet.sink().create_committer()
    sink = outlet.builder().set_target_file_size(10_000).build()
    committer_of(sink).commit(0, [write(sink, range(10_000))])
    assert 3 < len(outlet.files()) < 20
    assert outlet.read() == Counter(range(10_000))


def test_an_attempt_that_fails_leaves_no_files(outlet):
    sink = outlet.sink()
    sink.create_committer()
    writer = sink.create_writer(WriterContext(0, 1, 0, "a", "job", "sink"))
    for n in range(20_000):
        writer.write(n)
    writer.abort()
    assert not list(outlet.folder.rglob("*.parquet"))


def test_a_table_that_is_not_there_is_an_error_at_the_start(tmp_path, outlet):
    with pytest.raises(SinkError, match=r"there is no (Delta|such) table"):
        run(tmp_path, outlet.builder().build())


def test_a_type_that_does_not_fit_the_table_is_an_error_at_the_start(tmp_path, outlet):
    outlet.sink().create_committer()
    for kind, why in (
        (Types.ROW_NAMED(["id"], [Types.STRING()]), "has the column 'id' as int64"),
        (Types.ROW_NAMED(["no"], [Types.LONG()]), "has no column 'no'"),
    ):
        with pytest.raises(SinkError, match=why):
            run(tmp_path, outlet.builder().set_row_type(kind).build())
    assert outlet.read() == Counter()


def test_columns_that_no_such_table_has_are_an_error_before_it_is_made(outlet):
    kind = Types.SQL_TIME() if isinstance(outlet, DeltaRows) else Types.BYTE()
    builder = outlet.builder().set_row_type(Types.ROW_NAMED(["id", "v"], [Types.LONG(), kind]))
    with pytest.raises(SinkError, match="no such table can have the column 'v'") as raised:
        builder.create_if_missing().build().create_committer()
    assert len(str(raised.value).splitlines()) == 3
    assert not outlet.there()


def test_a_record_that_does_not_fit_is_named(outlet):
    sink = outlet.sink()
    sink.create_committer()
    with pytest.raises(TypeMismatchError, match="column 'id'"):
        write(sink, [1, "two"])


def test_rows_that_take_something_back_are_refused(outlet):
    sink = outlet.sink()
    sink.create_committer()
    for kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE):
        with pytest.raises(SinkError, match="takes something back"):
            write(sink, [1, Row.of_kind(kind, 1)])


def add_column(outlet, name, kind):
    if isinstance(outlet, DeltaRows):
        empty = pa.table({"id": pa.array([], pa.int64()), name: pa.array([], kind)})
        write_deltalake(str(outlet.folder), empty, mode="append", schema_mode="merge")
    else:
        with outlet.loaded().update_schema() as update:
            update.union_by_name(pa.schema([("id", pa.int64()), (name, kind)]))


def test_a_column_that_is_added_while_the_job_runs_is_null(outlet):
    sink = outlet.sink()
    committer = committer_of(sink)
    committables = [write(sink, [1])]
    add_column(outlet, "more", pa.string())
    committer.commit(0, committables)
    committer.commit(1, [write(sink, [2], 1)])
    rows = sorted(outlet.table().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "more": None}, {"id": 2, "more": None}]


def test_a_column_that_is_gone_when_its_files_are_committed_is_an_error(tmp_path):
    outlet = IcebergRows(tmp_path)
    kind = Types.ROW_NAMED(["id", "more"], [Types.LONG(), Types.STRING()])
    sink = outlet.builder().set_row_type(kind).create_if_missing().build()
    committer = committer_of(sink)
    committable = write(sink, [Row(id=1, more="a")])
    with outlet.loaded().update_schema() as update:
        update.delete_column("more")
    with pytest.raises(SinkError, match="has no column 'more'"):
        committer.commit(0, [committable])
    with pytest.raises(SinkError, match="has no column 'more'"):
        write(sink, [Row(id=1, more="a")])


def test_a_delta_table_with_constraints_is_refused_at_the_start(tmp_path):
    outlet = DeltaRows(tmp_path)
    outlet.sink().create_committer()
    DeltaTable(str(outlet.folder)).alter.add_constraint({"positive": "id >= 0"})
    with pytest.raises(SinkError, match="constraints") as raised:
        run(tmp_path, outlet.sink())
    assert raised.value.evidence["found"] == "delta.constraints.positive"


def test_statistics_let_readers_skip_files(tmp_path):
    outlet = DeltaRows(tmp_path)
    sink = outlet.sink()
    committer_of(sink).commit(0, [write(sink, [5, 3, 9])])
    [action] = pa.table(DeltaTable(str(outlet.folder)).get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.id"], action["max.id"]) == (3, 3, 9)


@pytest.mark.parametrize("package", ["deltalake", "pyiceberg"])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, package):
    load = builtins.__import__

    def without(name, *more):
        if name.startswith(package):
            raise ImportError(name)
        return load(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    outlet = (DeltaRows if package == "deltalake" else IcebergRows)(tmp_path)
    with pytest.raises(RuntimeUnusable, match=r"pip install 'millstream\[(delta|iceberg)\]'"):
        outlet.builder().build()


def test_secrets_of_a_catalogue_are_not_shown(tmp_path):
    outlet = IcebergRows(tmp_path)
    outlet.properties["s3.secret-access-key"] = "hush-hush-1"
    sink = outlet.sink()
    committer_of(sink)
    assert "hush" not in repr(sink)
    assert "hush" not in repr(sink.settings)
    assert "hush" not in str(SinkError("the storage says: hush-hush-1 is wrong"))


def test_bad_arguments(outlet):
    with pytest.raises(InvalidArgument, match="needs set_row_type"):
        outlet.builder().create_if_missing().build()
    with pytest.raises(InvalidArgument, match="partition_by names 'day'"):
        outlet.builder().set_row_type(Types.ROW_NAMED(["id"], [Types.LONG()])).create_if_missing(
            partition_by=["day"]
        ).build()
    with pytest.raises(InvalidArgument, match="the type of a row"):
        outlet.builder().set_row_type([("id", "long")]).create_if_missing().build()
    with pytest.raises(InvalidArgument):
        outlet.builder().set_target_file_size(0)
    with pytest.raises(InvalidArgument, match="1 byte or more"):
        outlet.builder().set_target_file_size("128 MB")
    with pytest.raises(InvalidArgument, match="names of columns"):
        outlet.builder().create_if_missing(partition_by=[1])
    with pytest.raises(InvalidArgument):
        outlet.builder().set_target_file_size("128 MB")
    with pytest.raises(InvalidArgument):
        outlet.builder().set_table("")


# -- on S3 -----------------------------------------------------------------------------------------------------------


def test_a_delta_table_on_s3(monkeypatch):
    with s3_process() as endpoint:
        client_of(endpoint).create_bucket(Bucket="tables")
        for name, value in (("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)):
            monkeypatch.setenv(name, value)
        host = endpoint.removeprefix("http://")
        url = f"s3://tables/orders?endpoint_override={host}&scheme=http&region=us-east-1"
        builder = DeltaSink.builder().set_table(url).set_row_type(ORDER)
        sink = builder.create_if_missing(partition_by=["day"]).build()
        committer = committer_of(sink)
        committable = write(sink, orders(30))
        committer.commit(0, [committable])
        committer_of(sink).commit_again(0, [committable])
        options = {
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
        }
        found = DeltaTable("s3://tables/orders", storage_options=options).to_pyarrow_table()
        assert sorted(found.column("id").to_pylist()) == list(range(30))


def test_an_iceberg_table_on_s3(tmp_path):
    with s3_process() as endpoint:
        client_of(endpoint).create_bucket(Bucket="tables")
        outlet = IcebergRows(tmp_path)
        outlet.properties |= {
            "warehouse": "s3://tables/warehouse",
            "s3.endpoint": endpoint,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }
        sink = outlet.sink()
        committer = committer_of(sink)
        committable = write(sink, range(30))
        committer.commit(0, [committable])
        committer_of(sink).commit_again(0, [committable])
        assert sorted(outlet.table().column("id").to_pylist()) == list(range(30))
