"""Files on S3: the protocol of a real server, its failures, and drivers that die."""

from __future__ import annotations

import builtins
import gzip
import json
import pickle
import random
import threading
from collections import Counter

import fsspec
import pytest

from millstream.api.sink import WriterContext
from millstream.common import Encoder
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.format import StreamFormat
from millstream.connectors.file.rolling_policy import RollingPolicy
from millstream.connectors.file.sink import FileSink
from millstream.connectors.file.source import FileSource
from millstream.errors import (
    JobError,
    RuntimeUnusable,
    SinkError,
    SourceError,
    SourceNotFound,
)
from millstream.storage import s3 as storage_s3
from tests.crashes import COUNT, EACH_ONCE, Outlet, dying_at, run
from tests.crashes import environment as crash_environment
from tests.inprocess import test_crash_points as situations
from tests.inprocess.test_crash_points import (
    test_a_commit_that_fails_once,
    test_a_savepoint_has_nothing_to_commit,
    test_started_again_by_name,
    test_started_by_path_and_died_again_at_the_start,
    test_two_jobs_start_from_one_checkpoint_by_path,
)
from tests.s3 import S3Files, _one_s3, s3
from tests.support import collect, environment, program_of
from tests.waiting import eventually

__all__ = [
    "_one_s3",
    "s3",
    "test_a_commit_that_fails_once",
    "test_a_savepoint_has_nothing_to_commit",
    "test_started_again_by_name",
    "test_started_by_path_and_died_again_at_the_start",
    "test_two_jobs_start_from_one_checkpoint_by_path",
]


class Memory(Outlet):
    """A storage that has no rename and no uploads: files are moved."""

    def __init__(self, folder, server):
        self.root = f"/{folder.name}"
        self.taken = Counter()

    def sink(self):
        files = FileSink.for_row_format(
            f"memory://{self.root}/out", Encoder.simple_string_encoder()
        )
        return files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()

    def files(self):
        found = fsspec.filesystem("memory").find(self.root)
        return [path for path in found if not path.rpartition("/")[2].startswith(".")]

    def read(self):
        memory = fsspec.filesystem("memory")
        texts = [memory.cat_file(path).decode() for path in self.files()]
        return self.taken + Counter(int(line) for text in texts for line in text.splitlines())

    def take(self):
        self.taken = self.read()
        for path in self.files():
            fsspec.filesystem("memory").rm_file(path)


@pytest.fixture(params=[S3Files, Memory])
def outlet(request, tmp_path, s3):
    return request.param(tmp_path, s3)


@pytest.fixture
def files(tmp_path, s3):
    return S3Files(tmp_path, s3)


@pytest.mark.parametrize("place", ["after manifest", "after commit"])
def test_started_by_path(tmp_path, outlet, place):
    situations.test_started_by_path(tmp_path, outlet, place, 3, "another job")
    assert outlet.read() == EACH_ONCE


def test_checkpoints_and_files_in_one_bucket(tmp_path, files, s3):
    run(tmp_path, files.sink(), execution_checkpointing_dir=f"s3://{s3.bucket()}/checkpoints")
    assert files.read() == EACH_ONCE
    assert s3.uploads(files.bucket) == []


# -- how files appear ------------------------------------------------------------------------------------------


def write(sink, records, epoch=0, attempt="one"):
    writer = pickle.loads(pickle.dumps(sink)).create_writer(WriterContext(0, 1, epoch, attempt))
    for record in records:
        writer.write(record)
    return writer


@pytest.mark.parametrize("prefix", ["100%25 of it", "#1"])
def test_a_sink_writes_where_a_source_reads(s3, prefix):
    bucket = s3.bucket()
    builder = FileSink.for_row_format(f"s3://{bucket}/{prefix}", Encoder.simple_string_encoder())
    sink = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    committer = sink.create_committer()
    writer = sink.create_writer(WriterContext(0, 1, 0, "a", "job", "sink"))
    writer.write("one")
    committer.commit(0, [writer.prepare_commit()])
    committer.close()
    assert [name.rpartition("/")[0] for name in s3.files(bucket)] == [prefix]
    assert lines_of(source_of(f"s3://{bucket}/{prefix}")) == ["one"]


def test_nothing_is_seen_before_the_commit(files, s3):
    sink = files.sink()
    committable = write(sink, [1, 2]).prepare_commit()
    assert s3.files(files.bucket) == {}
    assert len(s3.uploads(files.bucket)) == 1
    sink.create_committer().commit(0, [committable])
    assert list(s3.files(files.bucket).values()) == [b"1\n2\n"]


def test_a_large_file_is_sent_in_parts(files, s3, monkeypatch):
    monkeypatch.setattr(storage_s3, "_PART", 5 << 20)
    sink = files.builder().with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
    line = "x" * 99
    writer = write(sink, [line] * 120_000)
    sink.create_committer().commit(0, [writer.prepare_commit()])
    [data] = s3.files(files.bucket).values()
    assert data == f"{line}\n".encode() * 120_000
    assert sum("partNumber=" in path for _, path in s3.requests) == 3


def test_an_attempt_that_fails_leaves_no_upload(files, s3):
    writer = write(files.builder().with_rolling_policy(RollingPolicy(3)).build(), [1, 2, 3])
    assert len(s3.uploads(files.bucket)) == 2
    writer.abort()
    assert s3.uploads(files.bucket) == []


def test_uploads_of_attempts_that_lost_go_at_the_end_and_those_of_later_epochs_stay(files, s3):
    sink = files.sink()
    won = write(sink, [1]).prepare_commit()
    write(sink, [1], attempt="two").prepare_commit()
    later = write(sink, [2], epoch=1).prepare_commit()
    another = files.sink()
    theirs = write(another, [3]).prepare_commit()
    committer = sink.create_committer()
    committer.commit(0, [won])
    committer.close()
    assert len(s3.uploads(files.bucket)) == 2
    sink.create_committer().commit(1, [later])
    another.create_committer().commit(0, [theirs])
    assert files.read() == Counter([1, 2, 3])


def test_two_runs_into_one_folder_overwrite_nothing(files):
    for _ in range(2):
        sink = files.sink()
        sink.create_committer().commit(0, [write(sink, [1]).prepare_commit()])
    assert files.read() == {1: 2}


def test_credentials_in_the_url_are_written_nowhere(tmp_path, files, s3, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    user = "millstream-tests:hush-hush"
    url = f"s3://{user}@{files.bucket}/out?scheme=http&endpoint_override=127.0.0.1:{s3.port}&region=us-east-1"
    sink = FileSink.for_row_format(url, Encoder.simple_string_encoder()).build()
    committable = write(sink, ["a", "b"]).prepare_commit()
    assert b"hush" not in committable
    sink.create_committer().commit(0, [committable])
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), url).build()
    [split] = source.create_enumerator(1).discover()
    assert "hush" not in split
    assert list(source.create_reader().read(split, 0, 4)) == ["a", "b"]


# -- failures --------------------------------------------------------------------------------------------------


def failing(times, answer, what=lambda method, path: True):
    left = [times]

    def fault(method, path):
        if left[0] and what(method, path):
            left[0] -= 1
            return answer
        return None

    return fault


@pytest.mark.parametrize("answer", [500, 503, "lose the reply"])
@pytest.mark.parametrize(
    "what",
    [
        lambda method, path: method == "POST" and path.endswith("?uploads"),
        lambda method, path: method == "PUT",
        lambda method, path: method == "POST" and "uploadId=" in path,
        lambda method, path: method == "GET" and "uploadId=" in path,
    ],
    ids=["begin", "part", "complete", "look"],
)
def test_a_request_that_fails_twice_is_repeated(files, s3, answer, what):
    s3.faults = failing(2, answer, what)
    sink = files.sink()
    committable = write(sink, [1, 2]).prepare_commit()
    sink.create_committer().commit(0, [committable])
    sink.create_committer().commit_again(0, [committable])
    assert files.read() == Counter([1, 2])


def test_a_job_whose_requests_fail_at_random(tmp_path, files, s3):
    rng = random.Random(1)
    answers = [500, 503, "lose the reply", *[None] * 12]
    s3.faults = lambda method, path: rng.choice(answers)
    run(tmp_path, files.sink())
    assert files.read() == EACH_ONCE


def test_a_server_that_is_away_for_a_while_in_the_middle_of_a_job(
    tmp_path, files, s3, monkeypatch, caplog
):
    """Away for longer than requests are repeated: the job starts again from its last checkpoint."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    back = threading.Timer(3.0, s3.open)

    def fault(method, path):
        if (
            method == "POST"
            and "uploadId=" in path
            and not back.is_alive()
            and not back.finished.is_set()
        ):
            back.start()
            s3.shut()
        return

    s3.faults = fault
    run(
        tmp_path,
        files.sink(),
        restart__strategy_type="fixed-delay",
        restart__strategy_fixed__delay_attempts="50",
        restart__strategy_fixed__delay_delay="200 ms",
    )
    back.join()
    assert "S3 cannot be reached" in caplog.text
    assert files.read() == EACH_ONCE


def test_a_server_that_is_away_for_good_is_an_error_that_says_so(tmp_path, files, s3, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    sink = files.sink()
    s3.shut()
    try:
        with pytest.raises(SinkError, match="S3 cannot be reached"):
            write(sink, [1])
    finally:
        s3.open()


def test_wrong_credentials(files, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    with pytest.raises(SinkError, match=r"InvalidAccessKeyId.*check the credentials"):
        write(files.sink(), [1])
    url = f"s3://{files.bucket}/in"
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), url).build()
    with pytest.raises(SourceError, match="cannot be listed") as raised:
        source.validate()
    assert raised.value.evidence["path"] == url


def test_a_bucket_that_is_not_there(s3):
    sink = FileSink.for_row_format("s3://nowhere/out", Encoder.simple_string_encoder()).build()
    with pytest.raises(SinkError, match="there is no bucket nowhere"):
        write(sink, [1])
    text = StreamFormat.text_line_format()
    with pytest.raises(SourceNotFound, match="no such file"):
        FileSource.for_record_stream_format(text, "s3://nowhere/in").build().validate()


def test_a_missing_extra_is_named(files, monkeypatch):
    load = builtins.__import__

    def without(name, *more):
        if name.startswith("botocore"):
            raise ImportError(name)
        return load(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RuntimeUnusable, match=r"pip install 'millstream\[s3\]'"):
        write(files.sink(), [1])


def test_an_upload_that_somebody_has_aborted_is_a_loss_at_the_first_commit(files, s3):
    sink = files.sink()
    committable = write(sink, [1]).prepare_commit()
    s3.client().abort_multipart_upload(
        Bucket=files.bucket,
        Key=s3.uploads(files.bucket)[0],
        UploadId=upload_of(committable),
    )
    with pytest.raises(SinkError, match="gone"):
        sink.create_committer().commit(0, [committable])


def upload_of(committable):
    return json.loads(json.loads(committable)[0][4])[0]


# -- the source ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["s3", "memory"])
def folder(request, s3, tmp_path):
    """A URL, and a function that puts a file below it."""
    if request.param == "s3":
        bucket = s3.bucket()
        client = s3.client()
        return f"s3://{bucket}", lambda key, data: client.put_object(
            Bucket=bucket, Key=key, Body=data
        )
    root = f"memory://{tmp_path.name}"
    return root, lambda key, data: fsspec.filesystem("memory").pipe(f"{root}/{key}", data)


def source_of(*paths, block=None):
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *paths)
    return (builder.set_block_size(block) if block else builder).build()


def lines_of(source, parallelism=2):
    env = environment(parallelism, epoch=2000)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    return sorted(collect(stream))


def test_names_of_any_signs_are_read_as_they_are(folder):
    url, put = folder
    for number, name in enumerate(("what?.txt", "100%25.txt", "a b.txt", "#1.txt", "q?x/ü.txt")):
        put(f"in/{name}", f"{number}\n".encode())
    put("in/what", b"not asked for\n" * 5)
    assert lines_of(source_of(f"{url}/in/*.txt", f"{url}/in/*/ü.txt")) == list("01234")


def test_files_folders_and_patterns_are_read(folder):
    url, put = folder
    put("in/a.txt", b"one\ntwo\n")
    put("in/deep/b.txt", b"three\n")
    put("in/_hidden/c.txt", b"no\n")
    put("in/.d.txt", b"no\n")
    put("in/e.gz", gzip.compress(b"four\n"))
    put("in/f.csv", b"five\n")
    assert lines_of(source_of(f"{url}/in")) == ["five", "four", "one", "three", "two"]
    assert lines_of(source_of(f"{url}/in/a.txt", f"{url}/in/e.gz")) == ["four", "one", "two"]
    assert lines_of(source_of(f"{url}/in/**/*.txt")) == ["one", "three", "two"]
    assert lines_of(source_of(f"{url}/in/[ef].*")) == ["five", "four"]
    with pytest.raises(SourceNotFound, match="no such file"):
        source_of(f"{url}/out").validate()
    with pytest.raises(SourceNotFound, match="pattern"):
        source_of(f"{url}/in/*.parquet").validate()


@pytest.mark.parametrize("answer", [500, 503, "lose the reply"])
def test_a_request_of_the_source_that_fails_is_repeated(s3, answer):
    bucket = s3.bucket()
    s3.client().put_object(Bucket=bucket, Key="in/a.txt", Body=b"one\ntwo\n")
    s3.faults = failing(2, answer, lambda method, path: method in ("GET", "HEAD"))
    assert lines_of(source_of(f"s3://{bucket}/in")) == ["one", "two"]


def test_a_large_file_is_read_in_blocks_from_where_they_begin(folder):
    url, put = folder
    lines = [f"line {n}" for n in range(1000)]
    put("in/a.txt", "\n".join(lines).encode())
    assert lines_of(source_of(f"{url}/in", block=1997), 3) == sorted(lines)


def test_a_file_that_is_gone_or_shorter_is_named(folder):
    url, put = folder
    put("in/a.txt", b"one\ntwo\n")
    source = source_of(f"{url}/in")
    [split] = source.create_enumerator(1).discover()
    put("in/a.txt", b"one\n")
    with pytest.raises(SourceError, match="shorter") as raised:
        list(source.create_reader().read(split, 0, 8))
    assert raised.value.evidence["file"] == f"{url}/in/a.txt"
    gone = split.replace("a.txt", "b.txt")
    with pytest.raises(SourceNotFound, match="gone"):
        list(source.create_reader().read(gone, 0, 8))


def test_a_source_and_a_sink_on_s3_go_on_where_they_were(tmp_path, files, s3):
    """In ranges that begin in the middle of files; the second driver has more splits to give than the first."""
    bucket = s3.bucket()
    for place in range(3):
        lines = "".join(f"{n}\n" for n in range(COUNT) if n % 3 == place)
        s3.client().put_object(Bucket=bucket, Key=f"in/{place}.txt", Body=lines.encode())

    def copy(parallelism):
        env = crash_environment(tmp_path, parallelism=parallelism, millstream_epoch_records=40)
        source = source_of(f"s3://{bucket}/in", block=31)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in")
        numbers.map(int).uid("int").sink_to(files.sink()).uid("sink")
        env.execute("job")

    for times in (1, 2):
        with dying_at("after manifest", times), pytest.raises(JobError, match="Died"):
            copy(2)
    assert 0 < files.read().total() < COUNT
    copy(3)
    assert files.read() == EACH_ONCE


def test_a_watched_bucket(folder):
    url, put = folder
    builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{url}/in")
    splits = builder.monitor_continuously("1 ms").build().create_enumerator(1)
    assert splits.discover() == []
    put("in/a.txt", b"1")
    assert eventually(lambda: len(splits.discover()) == 1, 10)
    put("in/b.txt", b"1")
    assert eventually(lambda: len(splits.discover()) == 2, 10)


def test_the_program_of_the_page(s3):
    bucket = s3.bucket()
    s3.client().put_object(Bucket=bucket, Key="in/a.log", Body=b"ERROR a\nfine\nERROR b\n")
    instead = {"s3://shop": f"s3://{bucket}", '.monitor_continuously("30 s")': ""}
    exec(program_of("s3.md", instead), {})
    files = s3.files(bucket)
    assert [text for name, text in files.items() if name.startswith("out/")] == [
        b"ERROR a\nERROR b\n"
    ]
