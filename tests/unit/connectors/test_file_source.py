"""Files, folders and patterns as a source of lines."""

import bz2
import gzip
import os
from itertools import pairwise

import cloudpickle
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.api.source import Boundedness
from millstream.common import Duration, RuntimeExecutionMode, WatermarkStrategy
from millstream.connectors.file import discovery
from millstream.connectors.file.discovery import FileSplit, FileSplits
from millstream.connectors.file.format import StreamFormat
from millstream.connectors.file.source import FileSource
from millstream.datastream import MapFunction, StreamExecutionEnvironment
from millstream.errors import InvalidArgument, SourceError, SourceNotFound

LINES = StreamFormat.text_line_format()


def source_of(*paths, lines=LINES):
    return FileSource.for_record_stream_format(lines, *paths)


def read_all(source):
    enumerator = source.create_enumerator(2)
    enumerator.restored({})
    reader = cloudpickle.loads(cloudpickle.dumps(source)).create_reader()
    return [
        record
        for split in enumerator.discover()
        for record in reader.read(split, 0, enumerator.available(split, 0))
    ]


# -- ranges ---------------------------------------------------------------------------------------

TEXT = st.text(alphabet=st.sampled_from("aü€😀\n\r\x0b\u2028 "), max_size=30)


def expected_lines(text: str) -> list[str]:
    """The contract, written the slow way."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


@given(text=TEXT, cuts=st.sets(st.integers(0, 90)), block=st.integers(1, 40), bom=st.booleans())
@example(text="a\r\nb", cuts={2, 3}, block=40, bom=False)
@example(text="\n\n", cuts={1}, block=1, bom=False)
@example(text="", cuts=set(), block=40, bom=True)
@example(text="😀\nü", cuts={1, 2, 3, 4, 5, 6}, block=40, bom=True)
def test_any_cut_reads_every_line_once(tmp_path_factory, text, cuts, block, bom):
    path = tmp_path_factory.mktemp("cut") / "file.txt"
    path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    source = source_of(path).set_block_size(block).build()
    enumerator = source.create_enumerator(1)
    reader = source.create_reader()
    found = []
    for split in enumerator.discover():
        length = enumerator.available(split, 0)
        places = [0, *sorted(cut for cut in cuts if 0 < cut < length), length]
        for start, end in pairwise(places):
            found.extend(reader.read(split, start, end))
        assert enumerator.finished(split, length)
    assert found == expected_lines(text)


def test_lines_longer_than_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr("millstream.connectors.file.format._CHUNK", 4)
    path = tmp_path / "file.txt"
    path.write_text("a\nlonger than four\n\nb\n")
    assert read_all(source_of(path).build()) == ["a", "longer than four", "", "b"]
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_all(source_of(packed).build()) == ["a", "longer than four", "", "b"]


def test_a_range_without_a_line_start_reads_no_further_than_itself(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("x" * 100 + "\n")
    reader = source_of(path).build().create_reader()
    assert list(reader.read(f"{path}#0-101", 10, 20)) == []
    assert list(reader.read(f"{path}#0-101", 0, 1)) == ["x" * 100]


def test_a_byte_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes(b"\xef\xbb\xbfgood\nb\xffd\n")
    with pytest.raises(SourceError) as error:
        read_all(source_of(path).build())
    assert error.value.evidence["file"] == str(path)
    assert error.value.evidence["byte_offset"] == 9
    assert error.value.evidence["bytes"] == "ff"


def test_another_charset(tmp_path):
    path = tmp_path / "file.txt"
    path.write_bytes("zwölf\n".encode("latin-1"))
    lines = StreamFormat.text_line_format("ISO-8859-1")
    assert read_all(source_of(path, lines=lines).build()) == ["zwölf"]


@pytest.mark.parametrize("charset", ["utf-16", "no-such-charset"])
def test_charsets_that_cannot_be_cut_are_refused(charset):
    with pytest.raises(InvalidArgument):
        StreamFormat.text_line_format(charset)


# -- compressed files -----------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_compressed_file_is_one_position(tmp_path, suffix, pack):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(pack("a\r\nü".encode()))
    source = source_of(path).set_block_size(1).build()
    enumerator = source.create_enumerator(1)
    (split,) = enumerator.discover()
    assert enumerator.available(split, 0) == 1
    assert enumerator.finished(split, 1)
    assert list(source.create_reader().read(split, 0, 1)) == ["a", "ü"]
    assert list(source.create_reader().read(split, 1, 1)) == []


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"text" + b])
def test_a_damaged_gz_file_is_an_error_that_names_it(tmp_path, damage):
    path = tmp_path / "file.gz"
    path.write_bytes(damage(gzip.compress(b"abc\n" * 100)))
    with pytest.raises(SourceError) as error:
        read_all(source_of(path).build())
    assert error.value.evidence["file"] == str(path)


# -- finding files --------------------------------------------------------------------------------


def test_folders_are_read_with_all_below_them_but_nothing_hidden(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden", "_SUCCESS", "deep/er/c.txt", "_tmp/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    assert read_all(source_of(tmp_path).build()) == ["a.txt", "b.txt", "deep/er/c.txt"]
    assert read_all(source_of(tmp_path / ".hidden").build()) == [".hidden"]


def test_patterns(tmp_path):
    for name in ("a.txt", "b.txt", "_c.txt", "d.csv"):
        (tmp_path / name).write_text(name)
    assert read_all(source_of(tmp_path / "*.txt").build()) == ["a.txt", "b.txt"]
    both = source_of(tmp_path / "*.txt", f"file://{tmp_path}/a.txt").build()
    assert read_all(both) == ["a.txt", "b.txt"]


def test_patterns_do_not_lead_into_what_is_hidden(tmp_path):
    for name in ("a.txt", "day/b.txt", "_temporary/0/c.txt", ".tmp/d.txt", "day/_old/e.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for pattern in ("**/*.txt", "**", "*"):
        assert sorted(read_all(source_of(tmp_path / pattern).build())) == ["a.txt", "day/b.txt"]
    assert read_all(source_of(tmp_path / "_temporary/*/*.txt").build()) == ["_temporary/0/c.txt"]
    assert read_all(source_of(tmp_path / "*/_old/*").build()) == ["day/_old/e.txt"]


def test_links(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "gone")
    assert read_all(source_of(tmp_path).build()) == ["a"]
    assert read_all(source_of(tmp_path / "link" / "*.txt").build()) == ["a"]
    assert read_all(source_of(tmp_path / "**" / "?.txt").build()) == ["a"]
    assert read_all(source_of(tmp_path / "**" / "real").build()) == ["a"]
    with pytest.raises(SourceNotFound):
        read_all(source_of(tmp_path / "nowhere.*").build())


def test_a_name_with_pattern_signs_is_a_name_if_it_is_there(tmp_path):
    (tmp_path / "a[1]#2-3.txt").write_text("found")
    assert read_all(source_of(tmp_path / "a[1]#2-3.txt").build()) == ["found"]


@pytest.mark.parametrize("name", ["missing.txt", "*.missing"])
def test_a_missing_path_is_named(tmp_path, name):
    source = source_of(tmp_path / name).build()
    for look in (source.validate, source.create_enumerator(1).discover):
        with pytest.raises(SourceNotFound) as error:
            look()
        assert error.value.evidence["path"] == str(tmp_path / name)
        assert error.value.hint


def test_an_empty_folder_and_an_empty_file_still_end(tmp_path):
    for expected in (["#0-0"], [f"{tmp_path}/empty#0-0"]):
        source = source_of(tmp_path).build()
        source.validate()
        enumerator = source.create_enumerator(1)
        assert enumerator.discover() == expected
        assert enumerator.finished(expected[0], 0)
        assert enumerator.exhausted()
        assert list(source.create_reader().read(expected[0], 0, 0)) == []
        (tmp_path / "empty").touch()


def test_large_files_are_cut_into_blocks(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12\n" * 10)
    splits = source_of(path).set_block_size(16).build().create_enumerator(1).discover()
    assert splits == [f"{path}#0-16/30", f"{path}#16-30/30"]
    assert [str(FileSplit.parse(split)) for split in splits] == splits


def test_in_batch_mode_small_files_are_cut_for_all_readers(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"12\n" * 10)
    monkeypatch.setattr(discovery, "_LEAST", 4)
    builder = source_of(path)

    def cut(*, batch: bool = True, parallelism: int = 2) -> list[str]:
        enumerator = builder.build().create_enumerator(parallelism)
        if batch:
            enumerator.at_once()
        return [split.partition("#")[2] for split in enumerator.discover()]

    assert cut() == ["0-8/30", "8-16/30", "16-24/30", "24-30/30"]
    assert cut(parallelism=100) == [*(f"{n}-{n + 4}/30" for n in range(0, 28, 4)), "28-30/30"]
    # In a stream a file is one sequence of records.
    assert cut(batch=False) == ["0-30"]
    builder.set_block_size(5)
    assert len(cut()) == 6
    builder.monitor_continuously("1 s").set_block_size(100)
    assert cut() == ["0-30"]


def test_a_job_in_batch_mode_reads_a_small_file_with_all_subtasks(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"".join(b"%d\n" % n for n in range(1000)))
    monkeypatch.setattr(discovery, "_LEAST", 4)

    def read(mode: RuntimeExecutionMode) -> dict[int, list[str]]:
        env = StreamExecutionEnvironment.get_execution_environment("in-process")
        env.set_parallelism(3).set_runtime_mode(mode)
        lines = env.from_source(source_of(tmp_path).build(), WatermarkStrategy.no_watermarks(), "f")
        found: dict[int, list[str]] = {}
        with lines.map(WithSubtask()).execute_and_collect() as results:
            for subtask, line in results:
                found.setdefault(subtask, []).append(line)
        return found

    together = read(RuntimeExecutionMode.BATCH)
    assert sorted(together) == [0, 1, 2]
    lines = sorted((line for part in together.values() for line in part), key=int)
    assert lines == [str(n) for n in range(1000)]
    (alone,) = read(RuntimeExecutionMode.STREAMING).values()
    assert alone == lines


class WithSubtask(MapFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.subtask, value


def test_a_restored_job_keeps_its_files_and_their_sizes(tmp_path):
    path = tmp_path / "a"
    path.write_text("one\n")
    source = source_of(tmp_path).build()
    before = source.create_enumerator(1).discover()
    path.write_text("one\ntwo\n")
    (tmp_path / "b").write_text("three\n")
    enumerator = source.create_enumerator(1)
    enumerator.restored({before[0]: ~4})
    assert enumerator.discover() == before
    assert list(source.create_reader().read(before[0], 0, 4)) == ["one"]


def test_what_is_appended_to_an_unfinished_last_line_is_not_read(tmp_path):
    path = tmp_path / "a"
    path.write_text("one\ntw")
    source = source_of(path).set_block_size(5).build()
    splits = source.create_enumerator(1).discover()
    path.write_text("one\ntwo\n")
    reader = source.create_reader()
    assert [list(reader.read(split, 0, 5)) for split in splits[:1]] == [["one", "tw"]]


def test_files_that_shrink_or_vanish_are_errors(tmp_path):
    path = tmp_path / "a"
    path.write_text("one\ntwo\n")
    source = source_of(path).build()
    (split,) = source.create_enumerator(1).discover()
    path.write_text("one\n")
    with pytest.raises(SourceError, match="shorter"):
        list(source.create_reader().read(split, 0, 8))
    path.unlink()
    with pytest.raises(SourceNotFound, match="gone"):
        list(source.create_reader().read(split, 0, 8))


# -- watching folders -----------------------------------------------------------------------------


def test_a_watched_folder_is_looked_at_once_per_interval(tmp_path):
    now = [0.0]
    enumerator = FileSplits([str(tmp_path)], 10_000, clock=lambda: now[0])
    enumerator.restored({})
    assert enumerator.discover() == []
    for name, age in (("z", 1), ("y", 2), ("x", 2)):
        (tmp_path / name).write_text("line\n")
        os.utime(tmp_path / name, (age, age))
    now[0] = 9.9
    assert enumerator.discover() == []
    now[0] = 10.0
    assert [FileSplit.parse(s).path[-1] for s in enumerator.discover()] == ["z", "x", "y"]
    (tmp_path / "a").write_text("line\n")
    os.utime(tmp_path / "a", (0, 0))
    now[0] = 20.0
    assert [FileSplit.parse(s).path[-1] for s in enumerator.discover()] == ["z", "x", "y", "a"]
    assert not enumerator.exhausted()


def test_a_watched_folder_knows_its_files_again(tmp_path):
    (tmp_path / "a").write_text("one\n")
    source = source_of(tmp_path).monitor_continuously("1 s").build()
    (first,) = source.create_enumerator(1).discover()
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("three\n")
    enumerator = source.create_enumerator(1)
    enumerator.restored({first: 2})
    assert enumerator.discover() == [first, f"{tmp_path}/b#0-6"]
    assert enumerator.available(first, 2) == 4


def test_a_pattern_may_match_nothing_yet(tmp_path):
    source = source_of(tmp_path / "*.txt").monitor_continuously(Duration.of_seconds(1)).build()
    source.validate()
    assert source.create_enumerator(1).discover() == []


def test_the_builder():
    builder = source_of("/data").monitor_continuously("1 s")
    assert builder.build().boundedness() is Boundedness.CONTINUOUS_UNBOUNDED
    assert builder.process_static_file_set().build().boundedness() is Boundedness.BOUNDED
    with pytest.raises(InvalidArgument):
        builder.monitor_continuously(0)
    with pytest.raises(InvalidArgument):
        builder.set_block_size(0)
    with pytest.raises(InvalidArgument):
        builder.set_block_size("64 MB")
    with pytest.raises(InvalidArgument):
        source_of()
    with pytest.raises(InvalidArgument):
        source_of("/data", lines="text")
