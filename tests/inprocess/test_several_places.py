"""Operators whose lines stand at several places of a chain's code: behind elements and timers, or nowhere at all."""

from __future__ import annotations

from millstream.api.broadcast_functions import KeyedBroadcastProcessFunction
from millstream.api.functions import SinkFunction
from millstream.common.time import Time
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    RuntimeExecutionMode,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from tests.support import collect, environment, keeping

RECORDS = [("a", 1), ("b", 5), ("a", 20), ("b", 30)]
RULES = MapStateDescriptor("rules")
# What sinks, which are copied, leave for their tests.
WRITTEN: list = []


class Alarm(KeyedProcessFunction):
    """Sets a timer for each record, and tells of both."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] + 10)
        yield "element", value[1], ctx.timestamp()

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.timestamp()


class AlarmBesideRules(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] + 10)
        yield "element", value[1], ctx.timestamp()

    def process_broadcast_element(self, value, ctx):
        return None

    def on_timer(self, timestamp, ctx):
        yield "timer", timestamp, ctx.timestamp()


class WithTimestamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield *value, ctx.timestamp()


class Write(SinkFunction):
    def invoke(self, value, context):
        WRITTEN.append((*value, context.timestamp()))


class Field(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def batch_environment():
    env = environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return env


def times_of(records):
    """Elements have no timestamp here, timers have their own, wherever it was asked for."""
    return [(kind, *times) for kind, at, *times in records], [
        (kind, *([None if kind == "element" else at] * len(times))) for kind, at, *times in records
    ]


def test_a_record_without_a_timestamp_has_none_after_a_timer_of_another_key():
    WRITTEN.clear()
    env = batch_environment()
    told = env.from_collection(RECORDS).key_by(lambda v: v[0]).process(Alarm())
    told.process(WithTimestamp()).add_sink(Write())
    env.execute()
    assert sorted(kind for kind, *_ in WRITTEN) == ["element"] * 4 + ["timer"] * 4
    found, wanted = times_of(WRITTEN)
    assert found == wanted


def test_a_record_beside_broadcast_state_has_no_timestamp_of_a_timer():
    env = batch_environment()
    rules = env.from_collection([("rule", 1)]).broadcast(RULES)
    told = env.from_collection(RECORDS).key_by(lambda v: v[0]).connect(rules)
    out = collect(told.process(AlarmBesideRules()).process(WithTimestamp()))
    assert sorted(kind for kind, *_ in out) == ["element"] * 4 + ["timer"] * 4
    found, wanted = times_of(out)
    assert found == wanted


def test_a_side_output_that_nothing_is_put_into_is_empty_with_event_time_too():
    never = OutputTag("never")
    env = environment(epoch=2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Field())
    main = env.from_collection(RECORDS).assign_timestamps_and_watermarks(strategy).map(lambda v: v)
    side = main.get_side_output(never)
    with keeping() as kept:
        kept.add("main", main)
        # In another chain, and in another chain behind one that is chained.
        kept.add("timers", side.key_by(lambda v: v[0]).process(Alarm()))
        kept.add("behind", side.map(lambda v: v).rebalance().map(lambda v: v))
        windows = side.window_all(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        kept.add("windows", windows.reduce(lambda a, b: a))
        env.execute()
        assert kept.values("main") == RECORDS
        assert [kept.values(name) for name in ("timers", "behind", "windows")] == [[], [], []]


class Table:
    """A callable that has its columns as attributes, and says so in its own way if there is no such column."""

    def __init__(self):
        self.columns = {"one": 1}

    def __call__(self, value):
        return value + self.one

    def __getattr__(self, name):
        if name == "columns" or name in ("__getstate__", "__setstate__", "__reduce_ex__"):
            raise AttributeError(name)
        return self.columns[name]


def test_a_callable_may_raise_any_error_for_attributes_that_it_does_not_have():
    assert collect(environment().from_collection([1, 2]).map(Table())) == [2, 3]
