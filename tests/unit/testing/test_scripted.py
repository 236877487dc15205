"""`ScriptedSource`: what the script says, where it says it, and the same after every failure."""

from __future__ import annotations

import pickle
import time

import pytest

from millstream.common import Configuration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import InvalidArgument, SourceError
from millstream.testing import (
    ScriptedCrash,
    ScriptedSource,
    collect,
    collect_with_timestamps,
    crash,
    pause,
    record,
    watermark,
)

MIN = -(2**63)
RESTART = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "0 ms",
}
NONE = WatermarkStrategy.no_watermarks()


def environment(options=None, parallelism=1):
    config = Configuration.from_dict({"execution.target": "in-process", **(options or {})})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    return env.set_parallelism(parallelism)


class Seen(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def seen(source, options=None, strategy=NONE):
    stream = environment(options).from_source(source, strategy, "script")
    return collect(stream.rebalance().process(Seen()))


def test_records_and_watermarks_in_their_places():
    source = ScriptedSource(
        {
            "only": [
                record("a", at=10),
                watermark(10),
                record("b", at=20),
                record("c"),
                watermark(5),
                watermark(30),
                record("d", at=-1),
            ]
        }
    )
    assert seen(source) == [("a", 10, MIN), ("b", 20, 10), ("c", None, 10), ("d", -1, 30)]
    assert seen(pickle.loads(pickle.dumps(source))) == seen(source)


def test_the_place_of_a_watermark_does_not_depend_on_epochs():
    source = ScriptedSource(
        {"only": [one for n in range(50) for one in (record(n, at=n), watermark(n))]}
    )
    expected = [(n, n, n - 1 if n else MIN) for n in range(50)]
    for size in ("1", "3", "7", "1000"):
        assert seen(source, {"millstream.epoch.records": size}) == expected


def test_several_splits_take_the_minimum():
    late = OutputTag("late")
    source = ScriptedSource(
        {
            "a": [record(1, at=100), watermark(999), record(2, at=1500), watermark(2999)],
            "b": [record(4, at=200), watermark(499), record(8, at=900), watermark(999)],
        }
    )
    stream = environment({"millstream.epoch.records": "1"}, 2).from_source(source, NONE, "script")
    windows = stream.window_all(TumblingEventTimeWindows.of("1 s")).side_output_late_data(late)
    result = windows.reduce(lambda a, b: a + b)
    assert collect_with_timestamps(result) == [(13, 999), (2, 1999)]


def test_a_pause_takes_its_time():
    source = ScriptedSource({"only": [record(1), pause("150 ms"), record(2), pause("150 ms")]})
    assert source.paced()
    began = time.monotonic()
    assert [value for value, _, _ in seen(source)] == [1, 2]
    assert time.monotonic() - began >= 0.3


class Keep:
    """The timestamps that the source gives."""

    def extract_timestamp(self, value, record_timestamp):
        return record_timestamp


def test_a_split_that_pauses_is_idle():
    """The window of the one fires while the other says nothing, though its watermark is behind."""
    source = ScriptedSource(
        {
            "busy": [
                record("x", at=100),
                watermark(999),
                pause("600 ms"),
                record("y", at=1100),
                watermark(1999),
            ],
            "silent": [
                record("z", at=200),
                watermark(500),
                pause("900 ms"),
                record("late", at=600),
            ],
        }
    )
    late = OutputTag("late")
    strategy = NONE.with_timestamp_assigner(Keep()).with_idleness("200 ms")
    stream = environment().from_source(source, strategy, "script")
    windows = stream.window_all(TumblingEventTimeWindows.of("1 s")).side_output_late_data(late)
    result = windows.reduce(lambda a, b: f"{a}{b}")
    found = collect(result.union(result.get_side_output(late).map(lambda v: f"late: {v}")))
    assert found == ["xz", "late: late", "y"] or found == ["xz", "y", "late: late"]


# -- crashes ---------------------------------------------------------------------------------------


class Sum(KeyedProcessFunction):
    def open(self, ctx):
        self.sum = ctx.get_state(ValueStateDescriptor("sum"))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value)
        yield self.sum.value()


@pytest.mark.parametrize("size", ["1", "2", "100"])
def test_each_crash_happens_once(size):
    source = ScriptedSource(
        {
            "a": [record(1), crash("first"), record(2), crash("second"), record(3)],
            "b": [record(10), crash("third"), record(20)],
        }
    )
    options = {**RESTART, "millstream.epoch.records": size}
    stream = environment(options).from_source(source, NONE, "script")
    result = collect(stream.key_by(lambda v: 0).process(Sum()))
    # Each record counts once, whatever was repeated.
    assert len(result) == 5
    assert result[-1] == 36


def test_without_restarts_a_crash_ends_the_job():
    source = ScriptedSource({"only": [record(1), crash("the disk is gone"), record(2)]})
    with pytest.raises(SourceError, match="the disk is gone") as failed:
        seen(source)
    assert isinstance(failed.value.__context__, ScriptedCrash)
    # The marker is the source's: the next job that reads it goes on.
    assert [value for value, _, _ in seen(source)] == [1, 2]


def test_a_marker_of_ones_own(tmp_path):
    marker = tmp_path / "deep" / "marker"
    for _ in range(2):
        source = ScriptedSource({"only": [record(1), crash(marker_path=str(marker)), record(2)]})
        if marker.exists():
            assert len(seen(source)) == 2
        else:
            with pytest.raises(SourceError, match="the script says so"):
                seen(source)
            assert marker.exists()


def test_a_pause_is_not_repeated_after_a_crash():
    source = ScriptedSource({"only": [record(1), pause("300 ms"), record(2), crash(), record(3)]})
    began = time.monotonic()
    options = {**RESTART, "execution.checkpointing.interval": "1 ms"}
    assert [value for value, _, _ in seen(source, options)] == [1, 2, 3]
    assert 0.3 <= time.monotonic() - began < 10


def test_without_an_end():
    source = ScriptedSource({"only": [record(1, at=5), watermark(9)]}, bounded=False)
    stream = environment().from_source(source, NONE, "script")
    with stream.process(Seen()).execute_and_collect() as results:
        assert next(results) == (1, 5, MIN)


def test_what_is_refused():
    with pytest.raises(InvalidArgument, match="entry 1 of the script 'a'"):
        ScriptedSource({"a": [record(1), 2]})
    with pytest.raises(InvalidArgument, match="at least one split"):
        ScriptedSource({})
    with pytest.raises(InvalidArgument, match="milliseconds"):
        record(1, at="soon")
    with pytest.raises(InvalidArgument, match="64 bits"):
        watermark(2**63)
    with pytest.raises(InvalidArgument):
        pause("-1 s")
