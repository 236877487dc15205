"""Few files instead of many, each record once: wherever a driver dies, and whatever the storage."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from millstream.api.sink import WriterContext
from millstream.common import Encoder, Row, Types
from millstream.connectors.file import compact
from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.compact import FileCompactor, FileCompactStrategy
from millstream.connectors.file.sink import FileSink
from millstream.connectors.formats.avro import AvroBulkWriters, AvroSchema
from millstream.connectors.formats.parquet import ParquetBulkWriters, ParquetFileCompactor
from millstream.errors import InvalidArgument, JobError, SinkError, StateMismatch
from tests.crashes import EACH_ONCE, Files, run
from tests.inprocess import test_crash_points as situations
from tests.inprocess.test_crash_points import (
    test_a_commit_that_fails_once,
    test_a_savepoint_has_nothing_to_commit,
    test_started_again_by_name,
    test_started_by_path_and_died_again_at_the_start,
    test_two_jobs_start_from_one_checkpoint_by_path,
)
from tests.s3 import S3Files, _one_s3, s3

__all__ = [
    "_one_s3",
    "s3",
    "test_a_commit_that_fails_once",
    "test_a_savepoint_has_nothing_to_commit",
    "test_started_again_by_name",
    "test_started_by_path_and_died_again_at_the_start",
    "test_two_jobs_start_from_one_checkpoint_by_path",
]


def every(checkpoints):
    return FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()


CONCAT = FileCompactor.concat_file_compactor()


class CompactedFiles(Files):
    def sink(self):
        builder = FileSink.for_row_format(self.folder, Encoder.simple_string_encoder())
        builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        return builder.enable_compact(every(2), CONCAT).build()


class CompactedS3(S3Files):
    def sink(self):
        return self.builder().enable_compact(every(2), CONCAT).build()

    def there(self):
        hidden = self.server.files(self.bucket).items()
        texts = [
            data.decode() for key, data in hidden if not key.rpartition("/")[2].startswith(".")
        ]
        return Counter(int(line) for text in texts for line in text.splitlines())

    def take(self):
        self.taken = self.read()
        client = self.server.client()
        for key in self.server.files(self.bucket):
            if not key.rpartition("/")[2].startswith("."):
                client.delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture(params=[CompactedFiles, pytest.param(CompactedS3, marks=pytest.mark.nightly)])
def outlet(request, tmp_path):
    if request.param is CompactedS3:
        return CompactedS3(tmp_path, request.getfixturevalue("s3"))
    return CompactedFiles(tmp_path)


@pytest.mark.parametrize("place", ["after manifest", "after commit"])
def test_started_by_path(tmp_path, outlet, place):
    situations.test_started_by_path(tmp_path, outlet, place, 3, "another job")
    assert outlet.read() == EACH_ONCE


def write(sink, records, epoch, subtask=0):
    writer = sink.create_writer(WriterContext(subtask, 2, epoch, "a", "job", "sink"))
    for record in records:
        writer.write(record)
    return writer.prepare_commit()


def committer_of(sink):
    committer = sink.create_committer()
    committer.job_id, committer.sink = "job", "sink"
    return committer


def sink_of(folder, strategy, compactor=CONCAT, assigner=None):
    builder = FileSink.for_row_format(folder, Encoder.simple_string_encoder())
    assigner = assigner or BucketAssigner.base_path_bucket_assigner()
    return builder.with_bucket_assigner(assigner).enable_compact(strategy, compactor).build()


def visible(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_files_of_several_epochs_become_one(tmp_path):
    sink = sink_of(tmp_path, every(3))
    committer = committer_of(sink)
    for epoch in range(7):
        committer.commit(epoch, [write(sink, [epoch], epoch, n) for n in (0, 1)])
        assert len(visible(tmp_path)) == (epoch + 1) // 3
    assert visible(tmp_path)["compacted-part-0-0"] == "0\n0\n1\n1\n2\n2\n"
    committer.close()
    lines = Counter(line for text in visible(tmp_path).values() for line in text.split())
    assert lines == dict.fromkeys(map(str, range(7)), 2)
    assert len(visible(tmp_path)) == 3
    hidden = [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(hidden) == 1
    assert hidden[0].startswith(".compaction-")


def test_files_become_one_when_there_are_enough_bytes(tmp_path):
    strategy = FileCompactStrategy.builder().set_size_threshold(100).build()
    sink = sink_of(tmp_path, strategy)
    committer = committer_of(sink)
    for epoch in range(4):
        committer.commit(epoch, [write(sink, ["x" * 29], epoch)])
    assert list(map(len, visible(tmp_path).values())) == [120]


class ByFirst(BucketAssigner):
    def get_bucket_id(self, element):
        return element[0]


def test_buckets_stay_apart(tmp_path):
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2)
    sink = sink_of(tmp_path, strategy.set_num_compact_threads(2).build(), assigner=ByFirst())
    committer = committer_of(sink)
    for epoch in range(2):
        committer.commit(epoch, [write(sink, ["a1", "b1"], epoch)])
    assert visible(tmp_path) == {
        "a/compacted-part-0-0": "a1\na1\n",
        "b/compacted-part-0-0": "b1\nb1\n",
    }


def test_files_that_are_only_held_back(tmp_path):
    sink = sink_of(tmp_path, every(2), FileCompactor.identical_file_compactor())
    committer = committer_of(sink)
    for epoch in range(2):
        committer.commit(epoch, [write(sink, [epoch], epoch)])
    assert sorted(visible(tmp_path).values()) == ["0\n", "1\n"]


class Crash(BaseException):
    pass


@pytest.mark.parametrize("step", range(12))
def test_a_driver_that_dies_at_any_step_of_a_compaction(tmp_path, step):
    """Whatever it was doing with files, the next driver finishes it."""
    sink = sink_of(tmp_path, every(2))
    left = [step]

    def dying(original):
        def call(*arguments, **more):
            if left[0] == 0:
                left[0] = -1
                raise Crash
            left[0] -= 1
            result = original(*arguments, **more)
            if left[0] == 0:
                left[0] = -1
                raise Crash
            left[0] -= 1
            return result

        return call

    committables = [[write(sink, [epoch], epoch)] for epoch in range(4)]
    with contextlib.ExitStack() as stack:
        place = type(compact.place_of(str(tmp_path)))
        for owner, name in (
            (compact.LocalStorage, "write"),
            (place, "finish"),
            (place, "publish"),
            (place, "discard"),
        ):
            stack.enter_context(patch.object(owner, name, dying(getattr(owner, name))))
        committer, crashes = committer_of(sink), 0
        for epoch in range(4):
            try:
                committer.commit(epoch, committables[epoch])
            except Crash:
                crashes += 1
                committer = committer_of(sink)
                committer.starts_from("job", epoch)
                committer.commit_again(epoch, committables[epoch])
        committer.close()
    assert crashes == 1
    lines = Counter(line for text in visible(tmp_path).values() for line in text.split())
    assert lines == dict.fromkeys("0123", 1)


def test_an_epoch_with_other_files_is_refused(tmp_path):
    sink = sink_of(tmp_path, every(2))
    for epoch in range(2):
        committer_of(sink).commit(epoch, [write(sink, [epoch], epoch)])
    with pytest.raises(StateMismatch, match="would be written twice"):
        committer_of(sink).commit(1, [write(sink, [1], 1)])
    with pytest.raises(StateMismatch, match="would be written twice"):
        committer_of(sink).starts_from("job", 0)


def test_a_job_ends_with_everything_visible(tmp_path):
    outlet = CompactedFiles(tmp_path)
    run(tmp_path, outlet.sink())
    assert outlet.read() == EACH_ONCE
    assert len(outlet.visible()) == 2


def test_a_program_that_no_longer_compacts_publishes_what_waits(tmp_path):
    """And one that begins to finds what was written without."""
    outlet = CompactedFiles(tmp_path)
    situations.die(tmp_path, outlet, place="after commit", times=1)
    assert outlet.read() == Counter()
    situations.die(tmp_path, Files_of(tmp_path), place="after manifest", times=1)
    assert 0 < outlet.read().total() < EACH_ONCE.total()
    run(tmp_path, outlet.sink())
    assert outlet.read() == EACH_ONCE


def test_compaction_is_switched_off_and_on_between_checkpoint_and_commit_on_s3(tmp_path, s3):
    outlet = CompactedS3(tmp_path, s3)
    situations.die(tmp_path, outlet, place="after manifest", times=1)
    plain = S3Files.sink.__get__(outlet)
    with situations.dying_at("after manifest", 1), pytest.raises(JobError):
        run(tmp_path, plain())
    run(tmp_path, outlet.sink())
    assert outlet.read() == EACH_ONCE


def Files_of(folder):
    """The folder that is there, written without compaction."""
    files = Files.__new__(Files)
    files.folder, files.taken = folder / "out", folder / "taken"
    return files


KIND = Types.ROW_NAMED(["n"], [Types.LONG()])


def test_parquet_files_become_one(tmp_path):
    builder = FileSink.for_bulk_format(tmp_path, ParquetBulkWriters.for_row_type(KIND))
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    sink = builder.enable_compact(every(3), ParquetFileCompactor()).build()
    committer = committer_of(sink)
    for epoch in range(3):
        rows = [Row(n=epoch * 10 + n) for n in range(10)]
        committer.commit(epoch, [write(sink, rows, epoch)])
    [path] = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    table = pq.read_table(io.BytesIO(path.read_bytes()))
    assert table.column("n").to_pylist() == list(range(30))
    assert pq.ParquetFile(path).num_row_groups == 1


def parquet_sink(folder, kind):
    builder = FileSink.for_bulk_format(folder, ParquetBulkWriters.for_row_type(kind))
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    return builder.enable_compact(every(2), ParquetFileCompactor()).build()


def test_parquet_files_with_more_columns_than_before_become_one(tmp_path):
    sink = parquet_sink(tmp_path, KIND)
    committer_of(sink).commit(0, [write(sink, [Row(n=1)], 0)])
    sink = parquet_sink(tmp_path, Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()]))
    committer_of(sink).commit(1, [write(sink, [Row(n=2, s="x")], 1)])
    [path] = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert pq.read_table(path).to_pylist() == [{"n": 1, "s": None}, {"n": 2, "s": "x"}]


def test_parquet_files_with_other_types_wait_for_the_former_program(tmp_path):
    former = parquet_sink(tmp_path, KIND)
    committer_of(former).commit(0, [write(former, [Row(n=1)], 0)])
    sink = parquet_sink(tmp_path, Types.ROW_NAMED(["n"], [Types.STRING()]))
    with pytest.raises(SinkError, match="different types"):
        committer_of(sink).commit(1, [write(sink, [Row(n="2")], 1)])


@pytest.mark.parametrize("compacts", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_what_waits_appears_where_it_was_written_when_the_sink_has_another_path(
    tmp_path, compacts, committed
):
    former, now = sink_of(tmp_path / "a", every(5)), sink_of(tmp_path / "b", every(5))
    committer = committer_of(former)
    committer.commit(0, [write(former, ["zero"], 0)])
    committable = write(former, ["one"], 1)
    if committed:
        committer.commit(1, [committable])
    # The driver is lost, and the program is started with another folder.
    if not compacts:
        builder = FileSink.for_row_format(tmp_path / "b", Encoder.simple_string_encoder())
        now = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    committer = committer_of(now)
    committer.starts_from("job", 1)
    committer.commit_again(1, [committable])
    committer.commit(2, [write(now, ["two"], 2)])
    committer.close()
    assert sorted("".join(visible(tmp_path / "a").values()).split()) == ["one", "zero"]
    assert "".join(visible(tmp_path / "b").values()).split() == ["two"]


def test_a_damaged_ledger_is_named(tmp_path):
    sink = sink_of(tmp_path, every(5))
    committer_of(sink).commit(0, [write(sink, ["zero"], 0)])
    [ledger] = tmp_path.glob(".compaction-*")
    ledger.write_bytes(b"")
    with pytest.raises(SinkError, match="is damaged") as raised:
        committer_of(sink).starts_from("job", 0)
    assert raised.value.evidence["ledger"] == ledger.name


def test_formats_that_cannot_be_joined_byte_by_byte(tmp_path):
    avro = AvroSchema.parse_string('{"type": "record", "name": "r", "fields": []}')
    for factory in (
        ParquetBulkWriters.for_row_type(KIND),
        AvroBulkWriters.for_generic_record(avro),
    ):
        builder = FileSink.for_bulk_format(tmp_path, factory)
        with pytest.raises(InvalidArgument, match="cannot be joined"):
            builder.enable_compact(every(2), CONCAT)
        builder.enable_compact(every(2), FileCompactor.identical_file_compactor()).build()


def test_bad_arguments(tmp_path):
    with pytest.raises(InvalidArgument, match="at least one condition"):
        FileCompactStrategy.builder().build()
    with pytest.raises(InvalidArgument):
        FileCompactStrategy.builder().enable_compaction_on_checkpoint(0)
    with pytest.raises(InvalidArgument):
        FileCompactStrategy.builder().set_size_threshold("1 MB")
