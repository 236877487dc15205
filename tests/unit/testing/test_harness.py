"""`OperatorHarness`: every call has its exact effect, and none that it should not have."""

from __future__ import annotations

import gc
import os
import time

import pytest

from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from millstream.datastream.functions import BroadcastProcessFunction, CoMapFunction
from millstream.datastream.state import (
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    EventTimeSessionWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import (
    InvalidArgument,
    MissingTimestamp,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.runtime.base import clock
from millstream.testing import OperatorHarness, Watermark

MIN, MAX = -(2**63), 2**63 - 1


class Both(KeyedProcessFunction):
    """Counts, and sets a timer of either kind ten later."""

    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        timers = ctx.timer_service()
        if ctx.timestamp() is not None:
            timers.register_event_time_timer(ctx.timestamp() + 10)
        timers.register_processing_time_timer(timers.current_processing_time() + 10)
        yield value, self.count.value(), timers.current_watermark()

    def on_timer(self, timestamp, ctx):
        yield ctx.time_domain().name[:5], ctx.get_current_key(), timestamp, self.count.value()


def both(stream):
    return stream.key_by(lambda word: word).process(Both())


class WindowText(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield f"{key} {context.window().start}: {sorted(elements)}"


LATE = OutputTag("late")


def windows(stream):
    return (
        stream.key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of("1 s"))
        .side_output_late_data(LATE)
        .process(WindowText())
    )


def test_elements_keep_their_timestamps():
    with OperatorHarness(lambda s: s.map(lambda n: n * 2)) as harness:
        harness.process_element(1, 100)
        harness.process_element(2)
        harness.process_element(3, -5)
        assert harness.extract_output() == [2, 4, 6]
        assert harness.extract_output_with_timestamps() == [(2, 100), (4, None), (6, -5)]
        harness.clear_output()
        assert harness.extract_output() == []


def test_watermarks_are_where_they_belong():
    with OperatorHarness(both) as harness:
        harness.process_element("a", 100)
        harness.process_watermark(100)
        harness.process_element("a", 101)
        harness.process_watermark(Watermark(109))
        harness.process_watermark(111)
        assert harness.extract_stream() == [
            (("a", 1, MIN), 100),
            Watermark(100),
            (("a", 2, 100), 101),
            Watermark(109),
            (("EVENT", "a", 110, 2), 110),
            (("EVENT", "a", 111, 2), 111),
            Watermark(111),
        ]
        assert harness.get_current_watermark() == 111


def test_a_watermark_does_not_go_back(caplog):
    with OperatorHarness(both) as harness:
        harness.process_watermark(100)
        harness.process_watermark(50)
        harness.process_watermark(100)
        assert harness.extract_stream() == [Watermark(100)]
    assert not caplog.records


def test_the_clock_moves_by_the_test_alone():
    with OperatorHarness(both) as harness:
        assert harness.get_processing_time() == 0
        harness.process_element("a")
        harness.set_processing_time(9)
        harness.process_element("b")
        assert harness.num_processing_time_timers() == 2
        assert harness.extract_output() == [("a", 1, MIN), ("b", 1, MIN)]
        harness.clear_output()
        harness.set_processing_time(10)
        assert harness.extract_output_with_timestamps() == [(("PROCE", "a", 10, 1), None)]
        harness.set_processing_time(1000)
        assert harness.extract_output()[1:] == [("PROCE", "b", 19, 1)]
        assert harness.num_processing_time_timers() == 0
        with pytest.raises(InvalidArgument, match="does not go back"):
            harness.set_processing_time(999)
        # Everybody else's clock goes on.
        assert abs(clock.now() - time.time() * 1000) < 60_000


def test_counts_of_what_is_kept():
    with OperatorHarness(both) as harness:
        assert (harness.num_event_time_timers(), harness.num_keyed_state_entries()) == (0, 0)
        for word in ("a", "b", "a"):
            harness.process_element(word, 5)
        assert harness.num_event_time_timers() == 2
        assert harness.num_processing_time_timers() == 2
        assert harness.num_keyed_state_entries() == 2
        assert harness.num_keyed_state_entries("count") == 2
        assert harness.num_keyed_state_entries("other") == 0


def test_a_window_and_its_late_elements():
    with OperatorHarness(windows, side_outputs=[LATE]) as harness:
        harness.process_element(("k", 1), 100)
        harness.process_element(("k", 2), 999)
        harness.process_element(("j", 3), 1000)
        assert harness.num_keyed_state_entries() >= 2
        harness.process_watermark(998)
        assert harness.extract_output() == []
        harness.process_watermark(999)
        harness.process_element(("k", 4), 500)
        expected = ("k 0: [('k', 1), ('k', 2)]", 999)
        assert harness.extract_output_with_timestamps() == [expected]
        assert harness.get_side_output(LATE) == [("k", 4)]
        assert harness.get_side_output_with_timestamps(LATE) == [(("k", 4), 500)]
        harness.end_input()
        assert harness.extract_output()[1:] == ["j 1000: [('j', 3)]"]
        assert harness.extract_stream()[-1] == Watermark(MAX)
        assert harness.num_keyed_state_entries() == harness.num_event_time_timers() == 0


def test_windows_of_the_clock_are_dropped_at_the_end():
    def pipeline(stream):
        windowed = stream.key_by(lambda n: 0).window(TumblingProcessingTimeWindows.of("1 s"))
        return windowed.reduce(lambda a, b: a + b)

    with OperatorHarness(pipeline) as harness:
        harness.process_element(1)
        harness.set_processing_time(500)
        harness.process_element(2)
        harness.set_processing_time(998)
        harness.process_element(4)
        harness.set_processing_time(1000)
        harness.process_element(8)
        assert harness.extract_output_with_timestamps() == [(7, 999)]
        harness.end_input()
        assert harness.extract_output() == [7]


def test_sessions_that_merge():
    def pipeline(stream):
        windowed = stream.key_by(lambda n: 0).window(EventTimeSessionWindows.with_gap("10 ms"))
        return windowed.reduce(lambda a, b: a + b)

    with OperatorHarness(pipeline) as harness:
        harness.process_element(1, 0)
        harness.process_element(2, 20)
        harness.process_element(4, 10)
        harness.process_element(8, 100)
        harness.process_watermark(28)
        assert harness.extract_output() == []
        harness.process_watermark(29)
        assert harness.extract_output_with_timestamps() == [(7, 29)]
        harness.process_watermark(109)
        assert harness.extract_output_with_timestamps() == [(7, 29), (8, 109)]
        assert harness.num_keyed_state_entries() == 0


class Spread(ProcessFunction):
    def open(self, ctx):
        self.subtask = ctx.get_index_of_this_subtask()

    def process_element(self, value, ctx):
        yield value, self.subtask


def test_more_than_one_subtask():
    with OperatorHarness(
        lambda s: s.key_by(lambda n: n).map(lambda n: n).process(Spread()), parallelism=3
    ) as harness:
        harness.process_elements((n, n) for n in range(50))
        harness.process_watermark(50)
        found = harness.extract_output()
        assert sorted(n for n, _ in found) == list(range(50))
        assert {subtask for _, subtask in found} == {0, 1, 2}
        assert harness.extract_stream()[-1] == Watermark(50)


def test_many_at_once_are_in_order():
    with OperatorHarness(both) as harness:
        harness.process_elements((str(n), n) for n in range(7000))
        assert [one[0] for one in harness.extract_output()] == [str(n) for n in range(7000)]
        assert harness.num_event_time_timers() == 7000


# -- two inputs ------------------------------------------------------------------------------------


class Remember(KeyedCoProcessFunction):
    """The second input's value for a key is what the first one's get beside them."""

    def open(self, ctx):
        self.last = ctx.get_state(ValueStateDescriptor("last"))

    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield value, self.last.value()

    def process_element2(self, value, ctx):
        self.last.update(value[1])

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp


def remember(left, right):
    return left.connect(right).key_by(lambda v: v[0], lambda v: v[0]).process(Remember())


@pytest.mark.parametrize("parallelism", [1, 3])
def test_inputs_take_turns_as_the_test_says(parallelism):
    with OperatorHarness(remember, parallelism=parallelism) as harness:
        for n in range(5):
            harness.process_element1(("k", n), n)
            harness.process_element2(("k", n), n)
        found = [last for _, last in harness.extract_output()]
        assert found == [None, 0, 1, 2, 3]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_smaller_watermark_counts(parallelism):
    with OperatorHarness(remember, parallelism=parallelism) as harness:
        harness.process_element1(("k", 0), 10)
        harness.process_watermark1(100)
        assert harness.get_current_watermark() == MIN
        harness.process_watermark2(9)
        assert harness.get_current_watermark() == 9
        harness.process_watermark2(50)
        assert harness.extract_stream()[1:] == [Watermark(9), (("timer", 10), 10), Watermark(50)]


def test_an_idle_input_is_not_waited_for():
    with OperatorHarness(remember) as harness:
        harness.process_watermark1(10)
        harness.process_watermark2(5)
        harness.mark_idle2()
        assert harness.get_current_watermark() == 10
        harness.process_watermark1(20)
        harness.set_processing_time(1000)
        assert harness.get_current_watermark() == 20
        harness.mark_active2()
        harness.process_watermark1(30)
        assert harness.get_current_watermark() == 20
        harness.process_watermark2(25)
        assert harness.get_current_watermark() == 25
        harness.mark_idle2()
        assert harness.get_current_watermark() == 30
        # An element ends idleness too.
        harness.process_element2(("k", 1), 40)
        harness.process_watermark1(60)
        assert harness.get_current_watermark() == 30


def test_an_only_input_that_is_idle_and_wakes_up():
    with OperatorHarness(both) as harness:
        harness.process_watermark(10)
        harness.mark_idle()
        harness.mark_active()
        harness.process_watermark(20)
        harness.mark_idle()
        harness.process_element("a", 21)
        harness.process_watermark(40)
        assert [one for one in harness.extract_stream() if isinstance(one, Watermark)] == [
            Watermark(10),
            Watermark(20),
            Watermark(40),
        ]


def test_an_input_that_has_ended():
    with OperatorHarness(remember) as harness:
        harness.process_element1(("k", 0), 10)
        harness.end_input2()
        assert harness.get_current_watermark() == MIN
        harness.process_watermark1(10)
        assert harness.extract_output()[1:] == [("timer", 10)]
        with pytest.raises(UnsupportedOperation, match="has ended"):
            harness.process_element2(("k", 1), 11)
        harness.process_element1(("k", 1), 12)
        harness.end_input1()
        assert harness.extract_stream()[-2:] == [(("timer", 12), 12), Watermark(MAX)]
        with pytest.raises(UnsupportedOperation):
            harness.process_element1(("k", 1), 13)


class Refuses(Remember):
    def process_element1(self, value, ctx):
        if value[1] < 0:
            raise ValueError("negative")
        yield value


def test_an_input_stays_ended_when_the_other_fails():
    def pipeline(left, right):
        return left.connect(right).key_by(lambda v: v[0], lambda v: v[0]).process(Refuses())

    with OperatorHarness(pipeline) as harness:
        harness.end_input2()
        with pytest.raises(UserFunctionError, match="negative"):
            harness.process_element1(("k", -1), 1)
        with pytest.raises(UnsupportedOperation, match="has ended"):
            harness.process_element2(("k", 1), 1)
        harness.process_element1(("k", 1), 1)
        harness.process_watermark1(7)
        harness.end_input()
        assert harness.extract_stream() == [(("k", 1), 1), Watermark(7), Watermark(MAX)]


RULES = MapStateDescriptor("rules")


class Ruled(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.get_broadcast_state(RULES).get("rule")

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put("rule", value)


def test_a_broadcast_side():
    def pipeline(data, rules):
        return data.connect(rules.broadcast(RULES)).process(Ruled())

    with OperatorHarness(pipeline, parallelism=2) as harness:
        harness.process_element1("a")
        harness.process_element2("r")
        harness.process_element1("b")
        assert harness.extract_output() == [("a", None), ("b", "r")]


class Sides(CoMapFunction):
    def map1(self, value):
        return "left", value

    def map2(self, value):
        return "right", value


def test_a_function_without_keys():
    with OperatorHarness(lambda a, b: a.connect(b).map(Sides())) as harness:
        harness.process_element2(1, 5)
        harness.process_element1(2)
        assert harness.extract_output_with_timestamps() == [(("right", 1), 5), (("left", 2), None)]


# -- what else has to do with time -----------------------------------------------------------------


class Second:
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def test_a_pipeline_with_a_strategy_of_its_own():
    strategy = (
        WatermarkStrategy.for_bounded_out_of_orderness("5 ms")
        .with_timestamp_assigner(Second())
        .with_idleness("100 ms")
    )

    def pipeline(a, b):
        return a.assign_timestamps_and_watermarks(strategy).union(b).map(lambda v: v[0])

    with OperatorHarness(pipeline) as harness:
        harness.process_element1(("a", 100))
        harness.process_watermark1(5000)
        harness.process_watermark2(1000)
        assert harness.extract_stream() == [("a", 100), Watermark(94)]
        # Idleness counts by the clock of the harness.
        harness.set_processing_time(99)
        assert harness.get_current_watermark() == 94
        harness.set_processing_time(100)
        assert harness.get_current_watermark() == 1000


class Forgets(KeyedProcessFunction):
    def open(self, ctx):
        descriptor = ValueStateDescriptor("seen")
        descriptor.enable_time_to_live(StateTtlConfig.new_builder("1 s").build())
        self.seen = ctx.get_state(descriptor)

    def process_element(self, value, ctx):
        yield self.seen.value()
        self.seen.update(value)


def test_time_to_live_goes_by_the_clock():
    with OperatorHarness(lambda s: s.key_by(lambda v: 0).process(Forgets())) as harness:
        harness.process_element(1)
        harness.set_processing_time(999)
        harness.process_element(2)
        harness.set_processing_time(1998)
        harness.process_element(3)
        harness.set_processing_time(2998)
        harness.process_element(4)
        assert harness.extract_output() == [None, 1, 2, None]


def test_on_disk():
    pytest.importorskip("lmdb")
    with OperatorHarness(both, state_backend="lmdb", parallelism=2) as harness:
        for n in range(20):
            harness.process_element(str(n % 4), n)
        assert harness.num_keyed_state_entries("count") == 4
        assert harness.num_event_time_timers() == 20
        harness.process_watermark(19)
        assert harness.num_event_time_timers() == 10


# -- when something is wrong -----------------------------------------------------------------------


class Picky(KeyedProcessFunction):
    def open(self, ctx):
        self.sum = ctx.get_state(ValueStateDescriptor("sum"))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value)
        if value < 0:
            raise ValueError("negative")
        if ctx.timestamp() is not None:
            ctx.timer_service().register_event_time_timer(ctx.timestamp())
        ctx.timer_service().register_processing_time_timer(value)
        yield self.sum.value()

    def on_timer(self, timestamp, ctx):
        raise LookupError(f"timer {timestamp}")


def picky(stream):
    return stream.key_by(lambda v: 0).process(Picky())


def test_a_call_that_raises_has_not_happened():
    with OperatorHarness(picky) as harness:
        with pytest.raises(UserFunctionError, match="negative"):
            harness.process_element(-1)
        harness.process_element(5, 70)
        with pytest.raises(UserFunctionError, match="negative") as failed:
            harness.process_elements([(1, None), (-1, None)])
        assert isinstance(failed.value.__cause__, ValueError)
        harness.process_element(6)
        assert harness.extract_output() == [5, 11]
        with pytest.raises(UserFunctionError, match="timer 70"):
            harness.process_watermark(75)
        assert harness.get_current_watermark() == MIN
        with pytest.raises(UserFunctionError, match="timer 5"):
            harness.set_processing_time(5)
        assert harness.get_processing_time() == 0
        with pytest.raises(UserFunctionError, match="timer 70"):
            harness.end_input()
        harness.process_element(7)
        harness.process_watermark(69)
        assert harness.extract_stream() == [(5, 70), (11, None), (18, None), Watermark(69)]
    assert abs(clock.now() - time.time() * 1000) < 60_000


def test_an_event_window_needs_timestamps():
    with OperatorHarness(windows) as harness, pytest.raises(MissingTimestamp):
        harness.process_element(("k", 1))


class BadOpen(MapFunction):
    def open(self, ctx):
        raise OSError("no connection")

    def map(self, value):
        return value


class BadClose(MapFunction):
    def map(self, value):
        return value

    def close(self):
        raise OSError("still open")


def test_functions_are_opened_at_once_and_closed_at_the_end():
    with pytest.raises(UserFunctionError, match="no connection"):
        OperatorHarness(lambda s: s.map(BadOpen()))
    harness = OperatorHarness(lambda s: s.map(BadClose()))
    harness.process_element(1)
    with pytest.raises(UserFunctionError, match="still open"):
        harness.close()
    harness.close()
    error = KeyError("the test's own")
    with pytest.raises(KeyError), OperatorHarness(lambda s: s.map(BadClose())):
        raise error


def test_what_is_refused():
    with pytest.raises(InvalidArgument, match="last operator"):
        OperatorHarness(lambda s: s.key_by(lambda v: v))
    with pytest.raises(InvalidArgument, match="last operator"):
        OperatorHarness(lambda s: None)
    with pytest.raises(InvalidArgument, match="one stream or two"):
        OperatorHarness(lambda a, b, c: a)
    with pytest.raises(InvalidArgument, match="needs a function"):
        OperatorHarness("pipeline")
    with OperatorHarness(lambda s, times=2: s.map(lambda n: n * times)) as harness:
        with pytest.raises(InvalidArgument, match="two inputs"):
            harness.process_element2(1)
        with pytest.raises(InvalidArgument, match="side output 'late'"):
            harness.get_side_output(LATE)
        with pytest.raises(InvalidArgument, match="milliseconds"):
            harness.process_element(1, "now")
        with pytest.raises(InvalidArgument, match="milliseconds"):
            harness.process_watermark(1.5)
    with pytest.raises(UnsupportedOperation, match="closed"):
        harness.process_element(1)
    with OperatorHarness(remember) as harness, pytest.raises(InvalidArgument, match="mark_idle1"):
        harness.mark_idle()


def test_nothing_is_left_behind():
    harness = OperatorHarness(both)
    harness.process_element("a", 1)
    snapshot = harness.snapshot()
    folder, path = harness._folder, snapshot.path
    assert os.path.exists(folder)
    assert os.path.exists(path)
    harness.close()
    del harness, snapshot
    gc.collect()
    assert not os.path.exists(folder)
    assert not os.path.exists(path)


def test_many_calls():
    """State files are compacted as they are in a job, so that a call does not take longer and longer."""
    with OperatorHarness(both) as harness:
        for n in range(150):
            harness.process_element("a", n)
        assert harness.extract_output()[-1] == ("a", 150, MIN)
        assert harness.num_event_time_timers() == 150
        harness.process_watermark(1000)
        assert harness.num_event_time_timers() == 0
