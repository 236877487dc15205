"""Files that appear with the commit of their epoch."""

import errno
import json
import os

import cloudpickle
import pytest

from millstream.api.sink import DeliveryGuarantee, WriterContext
from millstream.common.serialization import Encoder
from millstream.connectors.file import commit as file_commit
from millstream.connectors.file.bucket_assigner import BucketAssigner, DateTimeBucketAssigner
from millstream.connectors.file.rolling_policy import OutputFileConfig, RollingPolicy
from millstream.connectors.file.sink import FileSink
from millstream.errors import ConfigurationError, InvalidArgument, SinkError

STRINGS = Encoder.simple_string_encoder()


def flat(path):
    """A builder of a sink without buckets."""
    builder = FileSink.for_row_format(path, STRINGS)
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())


def write(sink, records, *, epoch=0, subtask=0, attempt="one"):
    """Write an epoch's records as a task does; the committable."""
    sink = cloudpickle.loads(cloudpickle.dumps(sink))
    writer = sink.create_writer(WriterContext(subtask, 2, epoch, attempt))
    for record in records:
        writer.write(record)
    return writer.prepare_commit()


def visible(folder):
    """The files a reader sees, with their texts."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def hidden(folder):
    return [path.name for path in folder.rglob(".*") if path.is_file()]


def test_files_appear_with_the_commit(tmp_path):
    sink = flat(tmp_path).build()
    committables = [write(sink, ["a", 1], epoch=3, subtask=s) for s in (0, 1)]
    assert visible(tmp_path) == {}
    assert len(hidden(tmp_path)) == 2
    sink.create_committer().commit(3, committables)
    assert visible(tmp_path) == {"part-0-3": "a\n1\n", "part-1-3": "a\n1\n"}
    assert hidden(tmp_path) == []
    assert sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE


def test_a_commit_can_be_repeated(tmp_path):
    sink = flat(tmp_path).build()
    committables = [write(sink, ["a"], subtask=s) for s in (0, 1)]
    sink.create_committer().commit(0, committables[:1])
    for _ in range(2):
        sink.create_committer().commit(0, committables)
    assert visible(tmp_path) == {"part-0-0": "a\n", "part-1-0": "a\n"}


def test_a_commit_that_was_cut_short_in_the_middle_of_a_rename(tmp_path, monkeypatch):
    sink = flat(tmp_path).build()
    committable = write(sink, ["a"])

    def crash(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            sink.create_committer().commit(0, [committable])
    assert len(hidden(tmp_path)) == 1
    sink.create_committer().commit(0, [committable])
    assert visible(tmp_path) == {"part-0-0": "a\n"}
    assert hidden(tmp_path) == []


def test_a_file_that_is_gone_is_named(tmp_path):
    sink = flat(tmp_path).build()
    committable = write(sink, ["a"])
    (name,) = hidden(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(SinkError, match="gone") as error:
        sink.create_committer().commit(0, [committable])
    assert error.value.evidence["file"] == str(tmp_path / name)


def test_a_commit_that_finds_nothing_the_second_time_says_so_and_goes_on(tmp_path, caplog):
    """A file that a consumer has moved looks the same."""
    sink = flat(tmp_path / "out").build()
    taken, left = write(sink, ["a"]), write(sink, ["b"], subtask=1)
    sink.create_committer().commit(0, [taken])
    (tmp_path / "out" / "part-0-0").rename(tmp_path / "taken")
    sink.create_committer().commit_again(0, [taken, left])
    assert visible(tmp_path) == {"out/part-1-0": "b\n", "taken": "a\n"}
    assert "have been moved or removed since" in caplog.text
    caplog.clear()
    sink.create_committer().commit_again(0, [left])
    assert caplog.text == ""


def test_what_was_written_to_one_folder_is_committed_there_by_a_sink_into_another(tmp_path):
    committable = write(flat(tmp_path / "before").build(), ["a"])
    flat(tmp_path / "after").build().create_committer().commit_again(0, [committable])
    assert visible(tmp_path) == {"before/part-0-0": "a\n"}


def test_committables_without_a_folder_are_looked_for_in_the_sink_s(tmp_path):
    sink = flat(tmp_path).build()
    [part] = file_commit.Part.decode(write(sink, ["a"]))
    sink.create_committer().commit(0, [json.dumps([part[:3]]).encode()])
    assert visible(tmp_path) == {"part-0-0": "a\n"}


@pytest.mark.parametrize("links", [True, False])
def test_nothing_is_overwritten(tmp_path, monkeypatch, links):
    if not links:

        def refuse(old, new):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    sink = flat(tmp_path).build()
    # Two uses of one sink, then another run: all three want the name part-0-0.
    for text in "abc":
        sink = flat(tmp_path).build() if text == "c" else sink
        committable = write(sink, [text])
        for _ in range(2):
            sink.create_committer().commit(0, [committable])
    found = visible(tmp_path)
    assert found.pop("part-0-0") == "a\n"
    assert sorted(found.values()) == ["b\n", "c\n"]
    assert all(name.startswith("part-0-0-") for name in found)


def test_an_epoch_without_records_leaves_no_trace(tmp_path):
    sink = flat(tmp_path / "out").build()
    assert write(sink, []) is None
    sink.create_committer().commit(0, [])
    sink.create_committer().close()
    assert not (tmp_path / "out").exists()


def test_abort_removes_what_was_written(tmp_path):
    writer = flat(tmp_path).build().create_writer(WriterContext(0, 1, 0, "one"))
    writer.write("a")
    assert len(hidden(tmp_path)) == 1
    writer.abort()
    writer.abort()
    assert hidden(tmp_path) == []


def test_abort_after_an_encoder_that_raises(tmp_path):
    class Picky(Encoder):
        def encode(self, element, stream):
            stream.write(bytes([element]))

    writer = FileSink.for_row_format(tmp_path, Picky()).build()
    writer = writer.create_writer(WriterContext(0, 1, 0, "one"))
    writer.write(1)
    with pytest.raises(ValueError, match="range"):
        writer.write(300)
    writer.abort()
    assert hidden(tmp_path) == []


def test_leftovers_of_committed_epochs_go_at_the_end(tmp_path):
    sink, other = flat(tmp_path).build(), flat(tmp_path).build()
    write(sink, ["dead"], epoch=1, attempt="dead")
    good = write(sink, ["good"], epoch=1, attempt="good")
    write(sink, ["not yet"], epoch=2)
    write(other, ["not ours"], epoch=1)
    committer = sink.create_committer()
    committer.commit(1, [good])
    committer.close()
    assert visible(tmp_path) == {"part-0-1": "good\n"}
    left = sorted((tmp_path / name).read_text() for name in hidden(tmp_path))
    assert left == ["not ours\n", "not yet\n"]


def test_prefix_and_suffix(tmp_path):
    config = OutputFileConfig.builder().with_part_prefix("log").with_part_suffix(".txt").build()
    sink = flat(tmp_path).with_output_file_config(config).build()
    for text in "ab":
        sink.create_committer().commit(5, [write(sink, [text], epoch=5)])
    names = sorted(visible(tmp_path))
    assert names[1] == "log-0-5.txt"
    assert names[0].startswith("log-0-5-")
    assert names[0].endswith(".txt")


@pytest.mark.parametrize("prefix", ["", ".x", "_x", "a/b"])
def test_prefixes_that_would_hide_a_file(prefix):
    with pytest.raises(InvalidArgument):
        OutputFileConfig.builder().with_part_prefix(prefix).build()


def test_a_file_ends_early_when_it_is_full(tmp_path):
    policy = RollingPolicy.default_rolling_policy(part_size=4)
    sink = flat(tmp_path).with_rolling_policy(policy).build()
    sink.create_committer().commit(0, [write(sink, "abcde")])
    assert visible(tmp_path) == {"part-0-0": "a\nb\n", "part-0-0-1": "c\nd\n", "part-0-0-2": "e\n"}


def test_a_large_file_ends_soon_after_it_is_full(tmp_path):
    policy = RollingPolicy.default_rolling_policy(part_size=1 << 20)
    sink = flat(tmp_path).with_rolling_policy(policy).build()
    sink.create_committer().commit(0, [write(sink, ["x" * 9_999] * 200)])
    assert len(visible(tmp_path)["part-0-0"]) == 10_000 * 128
    assert len(visible(tmp_path)["part-0-0-1"]) == 10_000 * 72


# -- buckets --------------------------------------------------------------------------------------


class ByFirstLetter(BucketAssigner):
    def get_bucket_id(self, element):
        return element[0]


def test_each_bucket_has_a_file_of_its_own(tmp_path):
    builder = FileSink.for_row_format(tmp_path, STRINGS)
    sink = builder.with_bucket_assigner(ByFirstLetter()).build()
    write(sink, ["az"], attempt="dead")
    committer = sink.create_committer()
    committer.commit(0, [write(sink, ["a1", "b1", "a2"])])
    committer.close()
    assert visible(tmp_path) == {"a/part-0-0": "a1\na2\n", "b/part-0-0": "b1\n"}
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("bucket", ["../x", "/x", "a//b", "a/", "a\0b", None])
def test_buckets_outside_of_the_folder_are_refused(tmp_path, bucket):
    class Bad(BucketAssigner):
        def get_bucket_id(self, element):
            return bucket

    sink = FileSink.for_row_format(tmp_path / "out", STRINGS).with_bucket_assigner(Bad()).build()
    with pytest.raises(SinkError, match="relative path"):
        write(sink, ["a"])


def test_by_default_there_is_a_bucket_per_hour(tmp_path):
    sink = FileSink.for_row_format(tmp_path, STRINGS).build()
    sink.create_committer().commit(0, [write(sink, ["a"])])
    (name,) = visible(tmp_path)
    bucket, file = name.split("/")
    assert len(bucket) == len("2024-01-31--23")
    assert file == "part-0-0"


def test_buckets_by_time():
    now = [1_700_000_000.9]
    pattern = "'it''s 100% 'yyyy-MM-dd--HH:mm:ss"
    assigner = DateTimeBucketAssigner(pattern, "America/New_York", clock=lambda: now[0])
    assert assigner.get_bucket_id(None) == "it's 100% 2023-11-14--17:13:20"
    now[0] += 1
    assert assigner.get_bucket_id(None) == "it's 100% 2023-11-14--17:13:21"


@pytest.mark.parametrize("pattern", ["", "yyyy-QQ", "yyy", "'open"])
def test_formats_that_are_none(pattern):
    with pytest.raises(InvalidArgument):
        BucketAssigner.date_time_bucket_assigner(pattern)


def test_a_time_zone_that_is_none():
    with pytest.raises(InvalidArgument):
        BucketAssigner.date_time_bucket_assigner("yyyy", "Mars/Olympus")


# -- arguments ------------------------------------------------------------------------------------


def test_bad_arguments(tmp_path):
    with pytest.raises(InvalidArgument):
        FileSink.for_row_format(tmp_path, print)
    with pytest.raises(InvalidArgument):
        flat(tmp_path).with_rolling_policy("daily")
    with pytest.raises(InvalidArgument):
        RollingPolicy.default_rolling_policy(part_size=0)
    with pytest.raises(InvalidArgument):
        RollingPolicy.default_rolling_policy(part_size="1 MB")
    with pytest.raises(InvalidArgument):
        OutputFileConfig.builder().with_part_suffix(None).build()
    with pytest.raises(InvalidArgument):
        RollingPolicy.default_rolling_policy(rollover_interval="0 s")
    with pytest.raises(InvalidArgument):
        FileSink.for_row_format("", STRINGS)
    with pytest.raises(ConfigurationError, match="no storage is known"):
        FileSink.for_row_format("nowhere://bucket/out", STRINGS)
    with pytest.raises(InvalidArgument):
        flat(tmp_path).enable_compact(None, None)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SinkError) as error:
        write(flat(tmp_path / "file" / "out").build(), ["a"])
    assert str(tmp_path) in error.value.evidence["file"]


def test_paths_do_not_depend_on_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert flat("out").build().path == os.path.join(tmp_path, "out")
