"""A harness goes on from the snapshot of another, at any parallelism, as if nothing had been between them."""

from __future__ import annotations

import random

import pytest

import millstream.state
from millstream.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
)
from millstream.datastream.functions import CheckpointedFunction
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import MillstreamError, StateError, UnsupportedOperation
from millstream.testing import OperatorHarness, Watermark

KEYS = [f"key {n}" for n in range(20)]
LATE = OutputTag("late")


class Alarms(KeyedProcessFunction):
    """Sums, and says the sum twenty after each element, by either clock."""

    def open(self, ctx):
        self.sum = ctx.get_state(ValueStateDescriptor("sum"))

    def process_element(self, value, ctx):
        self.sum.update((self.sum.value() or 0) + value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + 20)
        timers.register_processing_time_timer(timers.current_processing_time() + 20)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), ctx.time_domain().name, timestamp, self.sum.value()


def alarms(stream):
    return stream.key_by(lambda v: v[0]).process(Alarms()).uid("alarms")


class Text(ProcessWindowFunction):
    def process(self, key, context, elements):
        window = context.window()
        yield key, window.start, window.end, sorted(n for _, n in elements)


def tumbling(stream):
    windowed = stream.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of("50 ms"))
    return windowed.allowed_lateness(20).side_output_late_data(LATE).process(Text()).uid("windows")


def sliding(stream):
    windowed = stream.key_by(lambda v: v[0]).window(SlidingEventTimeWindows.of("60 ms", "20 ms"))
    return windowed.side_output_late_data(LATE).reduce(lambda a, b: (a[0], a[1] + b[1]))


def sessions(stream):
    windowed = stream.key_by(lambda v: v[0]).window(EventTimeSessionWindows.with_gap("15 ms"))
    return windowed.process(Text())


def script(seed):
    """Elements, watermarks and moves of the clock, as calls."""
    rng = random.Random(seed)
    calls, watermark, now = [], 0, 0
    for n in range(60):
        kind = rng.choice(["element"] * 6 + ["watermark", "clock"])
        if kind == "element":
            at = max(0, watermark + rng.randint(-20, 60))
            calls.append(("process_element", (rng.choice(KEYS), n), at))
        elif kind == "watermark":
            watermark += rng.randint(0, 40)
            calls.append(("process_watermark", watermark))
        else:
            now += rng.randint(0, 15)
            calls.append(("set_processing_time", now))
    return calls


def outcome(harness):
    """What has come out between each two watermarks, whatever the order of keys."""
    parts: list[object] = [[]]
    for one in harness.extract_stream():
        if isinstance(one, Watermark):
            parts += [one, []]
        else:
            parts[-1].append(one)
    main = [sorted(part) if isinstance(part, list) else part for part in parts]
    return main, sorted(harness.get_side_output(LATE))


def joined(outcomes):
    main: list[object] = [[]]
    late = []
    for parts, side in outcomes:
        main[-1] = sorted(main[-1] + parts[0])
        main += parts[1:]
        late += side
    return main, sorted(late)


@pytest.mark.parametrize("pipeline", [alarms, tumbling, sliding, sessions])
@pytest.mark.parametrize("seed", [1, 2])
def test_rescaled_on_the_way(pipeline, seed):
    calls = script(seed)
    with OperatorHarness(pipeline, side_outputs=[LATE]) as harness:
        for call, *arguments in calls:
            getattr(harness, call)(*arguments)
        harness.end_input()
        expected = outcome(harness)
    assert sum(len(part) for part in expected[0][::2]) > 20

    found, snapshot = [], None
    for stage, parallelism in enumerate((1, 3, 2)):
        if snapshot is None:
            harness = OperatorHarness(pipeline, side_outputs=[LATE])
        else:
            harness = OperatorHarness.restore(
                pipeline, snapshot, parallelism=parallelism, side_outputs=[LATE]
            )
        with harness:
            for call, *arguments in calls[stage * 20 : (stage + 1) * 20]:
                getattr(harness, call)(*arguments)
            if stage < 2:
                snapshot = harness.snapshot()
            else:
                harness.end_input()
            found.append(outcome(harness))
    assert joined(found) == expected


def test_timers_state_and_time_are_there_again():
    with OperatorHarness(alarms) as harness:
        for n, key in enumerate(KEYS):
            harness.process_element((key, n), n)
        harness.set_processing_time(7)
        harness.process_watermark(5)
        snapshot = harness.snapshot()
        # What happens afterwards is not in it.
        harness.process_watermark(1000)
        assert harness.num_event_time_timers() == 0
    for parallelism in (3, 2):
        with OperatorHarness.restore(alarms, snapshot, parallelism=parallelism) as harness:
            assert harness.num_event_time_timers() == harness.num_processing_time_timers() == 20
            assert harness.num_keyed_state_entries("sum") == 20
            assert harness.get_processing_time() == 7
            assert harness.get_current_watermark() == 5
            assert harness.extract_stream() == []
            harness.process_watermark(4)
            assert harness.extract_stream() == []
            snapshot = harness.snapshot()
            harness.process_watermark(20)
            assert harness.extract_output() == [("key 0", "EVENT_TIME", 20, 0)]


def test_an_overdue_timer_of_the_clock_fires_at_once():
    with OperatorHarness(alarms) as harness:
        harness.process_element(("a", 1), 0)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(alarms, snapshot, processing_time=500) as harness:
        assert harness.extract_output() == [("a", "PROCESSING_TIME", 20, 1)]
        assert harness.get_processing_time() == 500


class Pairs(KeyedCoProcessFunction):
    def open(self, ctx):
        self.left = ctx.get_state(ValueStateDescriptor("left"))

    def process_element1(self, value, ctx):
        self.left.update(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def process_element2(self, value, ctx):
        yield self.left.value(), value[1]

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp


def pairs(a, b):
    return a.connect(b).key_by(lambda v: v[0], lambda v: v[0]).process(Pairs())


def test_two_inputs_with_the_watermark_of_each():
    with OperatorHarness(pairs) as harness:
        harness.process_element1(("k", 1), 30)
        harness.process_watermark1(20)
        harness.process_watermark2(10)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(pairs, snapshot, parallelism=3) as harness:
        assert harness.get_current_watermark() == 10
        harness.process_element2(("k", 2), 30)
        harness.process_watermark2(100)
        assert harness.get_current_watermark() == 20
        harness.mark_idle2()
        snapshot = harness.snapshot()
        assert harness.extract_output() == [(1, 2)]
    with OperatorHarness.restore(pairs, snapshot, parallelism=2) as harness:
        harness.process_watermark1(40)
        # The second input is still idle.
        assert harness.extract_stream() == [(("timer", 30), 30), Watermark(40)]


def test_an_input_that_has_ended():
    with OperatorHarness(pairs) as harness:
        harness.process_element1(("k", 1), 30)
        harness.process_watermark2(10)
        harness.end_input2()
        snapshot = harness.snapshot()
    with OperatorHarness.restore(pairs, snapshot, parallelism=2) as harness:
        with pytest.raises(UnsupportedOperation, match="has ended"):
            harness.process_element2(("k", 2), 30)
        harness.process_watermark1(30)
        assert harness.extract_stream() == [(("timer", 30), 30), Watermark(30)]
        harness.end_input()
        assert harness.get_current_watermark() == 2**63 - 1


class Kept(ProcessFunction, CheckpointedFunction):
    """Operator state: all values, in a list."""

    def __init__(self):
        self.values = []

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("values"))
        self.values = list(self.state.get())

    def snapshot_state(self, context):
        self.state.update(self.values)

    def process_element(self, value, ctx):
        self.values.append(value)
        yield sorted(self.values)


def test_operator_state():
    with OperatorHarness(lambda s: s.process(Kept())) as harness:
        for n in range(4):
            harness.process_element(n)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(lambda s: s.process(Kept()), snapshot, parallelism=2) as harness:
        snapshot = harness.snapshot()
    with OperatorHarness.restore(lambda s: s.process(Kept()), snapshot) as harness:
        harness.process_element(4)
        assert harness.extract_output() == [[0, 1, 2, 3, 4]]


def test_a_snapshot_can_be_used_many_times_and_looked_into():
    with OperatorHarness(alarms) as harness:
        first = harness.snapshot()
        harness.process_element(("a", 5), 0)
        second = harness.snapshot()
    for _ in range(2):
        with OperatorHarness.restore(alarms, first) as harness:
            assert harness.num_event_time_timers() == 0
            harness.process_element(("a", 1), 0)
        with OperatorHarness.restore(alarms, second) as harness:
            harness.process_watermark(20)
            assert harness.extract_output() == [("a", "EVENT_TIME", 20, 5)]
    reader = millstream.state.open_savepoint(second.path, allow_pickle=True)
    assert list(reader.rows("alarms", "sum")) == [("a", 5)]


def test_after_a_failure_the_snapshot_is_that_of_before():
    class Fails(Alarms):
        def process_element(self, value, ctx):
            super().process_element(value, ctx)
            if value[1] < 0:
                raise ValueError("negative")

    def pipeline(stream):
        return stream.key_by(lambda v: v[0]).process(Fails())

    with OperatorHarness(pipeline, parallelism=2) as harness:
        harness.process_element(("a", 1), 0)
        with pytest.raises(MillstreamError):
            harness.process_element(("a", -1), 0)
        harness.process_element(("a", 2), 1)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(pipeline, snapshot) as harness:
        harness.process_watermark(100)
        assert [one[3] for one in harness.extract_output()] == [3, 3]


def test_between_backends():
    pytest.importorskip("lmdb")
    with OperatorHarness(alarms) as harness:
        harness.process_element(("a", 1), 0)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(alarms, snapshot, state_backend="lmdb", parallelism=2) as harness:
        harness.process_element(("a", 2), 1)
        harness.process_element(("b", 3), 1)
        snapshot = harness.snapshot()
        assert snapshot.state_backend == "lmdb"
    with OperatorHarness.restore(alarms, snapshot, state_backend="hashmap") as harness:
        harness.process_watermark(21)
        assert sorted(harness.extract_output()) == [
            ("a", "EVENT_TIME", 20, 3),
            ("a", "EVENT_TIME", 21, 3),
            ("b", "EVENT_TIME", 21, 3),
        ]


def test_what_is_refused():
    with OperatorHarness(alarms) as harness:
        harness.process_element(("a", 1), 0)
        snapshot = harness.snapshot()
        harness.end_input()
        with pytest.raises(UnsupportedOperation, match="ended"):
            harness.snapshot()
    with pytest.raises(StateError):
        OperatorHarness.restore(lambda s: s.map(lambda v: v).uid("other"), snapshot)
    with pytest.raises(MillstreamError, match="max"):
        OperatorHarness.restore(alarms, snapshot, max_parallelism=64)
