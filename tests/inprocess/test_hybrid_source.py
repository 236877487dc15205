"""Sources one after the other: their order, restarts in each of them, and results as of one continuous stream."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.time import Time
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.collection import CollectionSource
from millstream.connectors.datagen import DataGeneratorSource
from millstream.connectors.file.source import FileSource, StreamFormat
from millstream.connectors.hybrid_source import HybridSource
from millstream.connectors.number_seq import NumberSequenceSource
from millstream.datastream import ProcessFunction
from millstream.datastream.connectors.hybrid_source import HybridSource as Public
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import InvalidArgument, SourceNotFound, UserFunctionError
from millstream.graph.operators import CollectOp
from millstream.testing.scripted import ScriptedSource, record, watermark
from tests.properties import test_time_programs as timed
from tests.properties import time_reference as ref
from tests.support import collect, environment

NO_WATERMARKS = WatermarkStrategy.no_watermarks()
MODES = pytest.mark.parametrize("mode", list(RuntimeExecutionMode))


def hybrid(*sources):
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder = builder.add_source(source)
    return builder.build()


def numbers(*bounds):
    return hybrid(*(NumberSequenceSource(*both) for both in bounds))


# -- the source alone ------------------------------------------------------------------------------------------


def test_the_public_name():
    assert Public is HybridSource


def test_splits_of_the_next_source_come_when_those_before_have_ended():
    splits = numbers((1, 4), (5, 6)).create_enumerator(2)
    splits.restored({})
    assert splits.discover() == ["0:1..2", "0:3..4"]
    assert splits.available("0:1..2", 0) == 2
    assert splits.finished("0:1..2", 2)
    assert not splits.finished("0:3..4", 1)
    assert splits.discover() == ["0:1..2", "0:3..4"]
    assert not splits.exhausted()
    assert splits.available("0:3..4", 1) == 2
    # It stays until there is another, so that the source is never without one.
    assert not splits.finished("0:3..4", 2)
    assert splits.discover() == ["0:1..2", "0:3..4", "1:5..5", "1:6..6"]
    assert splits.available("0:3..4", 2) == 2
    assert splits.available("1:5..5", 0) == 1
    assert splits.finished("0:3..4", 2)
    assert splits.exhausted()


def test_it_goes_on_in_the_source_it_was_in():
    source = numbers((1, 4), (5, 6), (7, 8))
    splits = source.create_enumerator(1)
    # Made with another parallelism.
    splits.restored({"0:1..2": ~2, "0:3..4": ~2, "1:5..6": 1})
    assert splits.discover() == ["0:1..2", "0:3..4", "1:5..6"]
    assert splits.available("1:5..6", 1) == 2
    assert not splits.finished("1:5..6", 2)
    assert splits.discover()[-1] == "2:7..8"
    assert splits.finished("1:5..6", 2)


def test_after_a_failure_those_before_come_first():
    splits = numbers((1, 2), (5, 6)).create_enumerator(1)
    splits.restored({})
    splits.discover()
    assert splits.available("0:1..2", 0) == 2
    assert not splits.finished("0:1..2", 2)
    assert splits.discover() == ["0:1..2", "1:5..6"]
    assert splits.finished("0:1..2", 2)
    # The epoch has failed, and the coordinator begins anew with the enumerator that it has.
    assert splits.discover() == ["0:1..2", "1:5..6"]
    assert splits.available("0:1..2", 0) == 2
    assert splits.available("1:5..6", 0) == 0
    assert not splits.finished("1:5..6", 0)


def test_only_the_last_may_have_no_end():
    endless = DataGeneratorSource(lambda n: n)
    assert hybrid(NumberSequenceSource(1, 2), endless).boundedness() is (
        Boundedness.CONTINUOUS_UNBOUNDED
    )
    assert numbers((1, 2), (3, 4)).boundedness() is Boundedness.BOUNDED
    with pytest.raises(InvalidArgument, match="no end"):
        hybrid(endless, NumberSequenceSource(1, 2))


def test_it_is_made_of_sources():
    with pytest.raises(InvalidArgument, match="made of sources"):
        HybridSource.builder([1, 2, 3])
    with pytest.raises(InvalidArgument, match="made of sources"):
        HybridSource.builder(NumberSequenceSource(1, 2)).add_source("file")


def test_a_missing_file_is_told_of_at_once(tmp_path):
    lines = StreamFormat.text_line_format()
    missing = FileSource.for_record_stream_format(lines, str(tmp_path / "missing")).build()
    env = environment()
    with pytest.raises(SourceNotFound):
        env.from_source(hybrid(NumberSequenceSource(1, 2), missing), NO_WATERMARKS, "both")


# -- whole jobs ------------------------------------------------------------------------------------------------


class Behind(ProcessFunction):
    def process_element(self, value, ctx):
        if ctx.timestamp() <= ctx.timer_service().current_watermark():
            yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("epoch", [1, 2, 5])
def test_nothing_overtakes_the_next_source(p, epoch):
    scripts = [
        ScriptedSource({"a": [record(n, at=n), watermark(n)], "b": [record(n, at=n), watermark(n)]})
        for n in (10, 20, 30)
    ]
    ahead = ScriptedSource({"x": [record(n, at=n * 1000) for n in range(20)] + [watermark(20_000)]})
    env = environment(p, epoch)
    slow = env.from_source(hybrid(*scripts), NO_WATERMARKS, "slow")
    union = slow.union(env.from_source(ahead, NO_WATERMARKS, "ahead"))
    assert collect(union.rebalance().process(Behind())) == []


@MODES
@pytest.mark.parametrize("p", [1, 2, 3])
def test_all_records_of_all_sources(mode, p):
    env = environment(p).set_runtime_mode(mode)
    source = numbers((1, 50), (60, 69), (80, 80))
    found = collect(env.from_source(source, NO_WATERMARKS, "numbers"))
    assert sorted(found) == [*range(1, 51), *range(60, 70), 80]


@pytest.mark.parametrize("epoch", [None, 1, 3, 100])
def test_one_source_after_the_other(epoch):
    env = environment(2, epoch)
    found = collect(env.from_source(numbers((1, 20), (31, 40), (61, 70)), NO_WATERMARKS, "numbers"))
    assert [n // 30 for n in found] == sorted(n // 30 for n in found)
    assert len(found) == 40


@MODES
def test_empty_sources(mode):
    source = hybrid(CollectionSource([]), CollectionSource([1]), CollectionSource([]))
    env = environment(2).set_runtime_mode(mode)
    assert collect(env.from_source(source, NO_WATERMARKS, "some")) == [1]
    nothing = hybrid(CollectionSource([]), CollectionSource([]))
    env = environment(2).set_runtime_mode(mode)
    assert collect(env.from_source(nothing, NO_WATERMARKS, "none")) == []


def test_files_and_then_what_never_ends(tmp_path):
    (tmp_path / "history").write_text("1\n2\n3\n")
    history = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path / "history")
    ).build()
    source = hybrid(history, DataGeneratorSource(lambda n: str(n + 4)))
    env = environment(1, 2)
    with env.from_source(source, NO_WATERMARKS, "both").execute_and_collect() as results:
        assert list(itertools.islice(results, 10)) == [str(n) for n in range(1, 11)]


def test_what_was_open_is_completed_by_the_next_source():
    source = hybrid(CollectionSource([("a", 1, 5)]), CollectionSource([("a", 2, 7), ("a", 4, 12)]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(timed.Time1())
    env = environment(1, 1)
    windows = env.from_source(source, strategy, "both").key_by(ref.key_of)
    sums = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    results = collect(sums.reduce(lambda a, b: (a[0], a[1] + b[1], None)))
    assert results == [("a", 3, None), ("a", 4, 12)]


class Watched(Source):
    """Notes how far it was committed, and that its halves were closed."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        _logs[self.log].append(f"{self.name} begins")
        return WatchedSplit(self.name, self.log)

    def create_reader(self):
        return WatchedReader()


_logs: dict[int, list[str]] = {}


class WatchedSplit(SplitEnumerator):
    def __init__(self, name, log):
        self.name, self.log = name, log

    def discover(self):
        return ["only"]

    def available(self, split, position):
        return 2

    def finished(self, split, position):
        return position == 2

    def fetch(self, split, start, end):
        return [f"{self.name} {n}" for n in range(start, end)]

    def commit(self, split, position):
        _logs[self.log].append(f"{self.name} {position}")

    def close(self):
        _logs[self.log].append(f"{self.name} closed")


class WatchedReader(SourceReader):
    def read(self, split, start, end):
        raise AssertionError("the driver has the records")


def test_what_only_the_driver_has_and_commits():
    _logs[0] = []
    env = environment(1, 2)
    source = hybrid(Watched("one", 0), Watched("two", 0))
    found = collect(env.from_source(source, NO_WATERMARKS, "both"))
    assert found == ["one 0", "one 1", "two 0", "two 1"]
    log = _logs[0]
    assert log.index("one begins") < log.index("one 2") < log.index("two begins")
    assert log.index("two begins") < log.index("two 2")
    assert {"one closed", "two closed"} <= set(log)


# -- as one continuous stream ----------------------------------------------------------------------------------


def execute(source, program, parallelism, epoch, crash, folder, strategy, results):
    env = environment(parallelism, epoch, execution__checkpointing__dir=folder)
    for key, value in strategy.to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(program.disorder))
    times = bounded.with_timestamp_assigner(timed.Time1())
    stream = env.from_source(source, times, "both").uid("source")
    if crash is not None:
        stream = stream.map(timed.FailsOnce(crash)).uid("crash")
    stream = timed.windowed(stream, program.stage, timed.PLAIN).uid("stage")
    stream.process(timed.Stamp())._sink("results", CollectOp(results.extend))
    env.execute("job")


@st.composite
def cut(draw):
    """A program over one stream, and that stream in parts."""
    disorder = draw(st.sampled_from([0, 2, 6]))
    records = draw(timed.within_bound(disorder))
    places = sorted(draw(st.lists(st.integers(0, len(records)), min_size=1, max_size=2)))
    parts = [records[a:b] for a, b in itertools.pairwise([0, *places, len(records)])]
    return ref.Program((records,), disorder, (), False, draw(timed.windows(exact=False))), parts


@pytest.mark.timeout(1800)
@given(
    cut(),
    st.sampled_from([1, 2]),
    st.sampled_from([None, 1, 2, 5]),
    st.none() | st.integers(1, 12),
    st.sampled_from([None, 1, 3]),
)
def test_results_are_those_of_one_stream(drawn, parallelism, epoch, crash, other):
    program, parts = drawn
    source = hybrid(*map(CollectionSource, parts))
    results: list = []
    with tempfile.TemporaryDirectory() as folder:
        if other is None:
            restart = RestartStrategies.fixed_delay_restart(3, 0)
            execute(source, program, parallelism, epoch, crash, folder, restart, results)
        else:
            restart = RestartStrategies.no_restart()
            try:
                execute(source, program, parallelism, epoch, crash, folder, restart, results)
            except UserFunctionError:
                event("taken up again")
                execute(source, program, other, epoch, 0, folder, restart, results)
    assert Counter(results) == Counter(ref.run(program).results)
