"""Which operators keep something from one epoch to the next."""

import pytest

from millstream.api.checkpointed import CheckpointedFunction
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ProcessJoinFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.graph import operators


class Same(MapFunction):
    def map(self, value):
        return value


class Remembers(Same, CheckpointedFunction):
    def initialize_state(self, context):
        pass

    def snapshot_state(self, context):
        pass


class Both(CoMapFunction):
    def map1(self, value):
        return value

    map2 = map1


class Process(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Keyed(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Co(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    process_element2 = process_element1


class KeyedCo(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    process_element2 = process_element1


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        pass


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left


class Asks(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


def key(value):
    return value


def windows(stream):
    return stream.key_by(key).window(TumblingEventTimeWindows.of("1 s"))


KEEP = {
    "a source": lambda s: s,
    "keyed map": lambda s: s.key_by(key).map(Same()),
    "checkpointed map": lambda s: s.map(Remembers()),
    "keyed process": lambda s: s.key_by(key).process(Keyed()),
    "reduce": lambda s: s.key_by(key).reduce(lambda a, b: a),
    "sum": lambda s: s.key_by(key).sum(0),
    "min by": lambda s: s.key_by(key).min_by(0),
    "keyed connect": lambda s: s.key_by(key).connect(s.key_by(key)).map(Both()),
    "keyed co-process": lambda s: s.key_by(key).connect(s.key_by(key)).process(KeyedCo()),
    "broadcast": lambda s: s.connect(s.broadcast(MapStateDescriptor("m"))).process(Rules()),
    "window": lambda s: windows(s).reduce(lambda a, b: a),
    "count window": lambda s: s.key_by(key).count_window(2).reduce(lambda a, b: a),
    "window join": lambda s: (
        s.join(s)
        .where(key)
        .equal_to(key)
        .window(TumblingEventTimeWindows.of("1 s"))
        .apply(lambda a, b: a)
    ),
    "interval join": lambda s: (
        s.key_by(key).interval_join(s.key_by(key)).between("-1 s", "1 s").process(Pairs())
    ),
    "watermarks": lambda s: s.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps()
    ),
}
KEEP_NOTHING = {
    "map": lambda s: s.map(Same()),
    "lambda": lambda s: s.map(key),
    "keyed lambda": lambda s: s.key_by(key).map(key),
    "flat map": lambda s: s.flat_map(lambda v: [v]),
    "filter": lambda s: s.filter(bool),
    "process": lambda s: s.process(Process()),
    "connect": lambda s: s.connect(s).map(Both()),
    "co-process": lambda s: s.connect(s).process(Co()),
    "batches": lambda s: s.map_batches(list),
    "keyed batches": lambda s: s.key_by(key).filter_batches(list),
    "async": lambda s: AsyncDataStream.unordered_wait(s, Asks(), "1 s", 10),
    "project": lambda s: s.map(lambda v: (v, v)).project(0),
}


def operator_of(build):
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    return build(env.from_collection([1]))._transformation.operator


@pytest.mark.parametrize("name", KEEP)
def test_those_that_keep_something(name):
    assert operator_of(KEEP[name]).stateful


@pytest.mark.parametrize("name", KEEP_NOTHING)
def test_those_that_do_not(name):
    assert not operator_of(KEEP_NOTHING[name]).stateful


def test_every_operator_is_one_of_the_two():
    seen = {type(operator_of(build)) for build in (KEEP | KEEP_NOTHING).values()}
    named = {getattr(operators, name) for name in operators.__all__} - {
        operators.Key,
        operators.Operator,
    }
    # Sinks, and what the engine adds.
    others = {
        operators.CollectOp,
        operators.FeedbackOp,
        operators.FeedbackSourceOp,
        operators.FrameSourceOp,
        operators.PrintOp,
        operators.SinkFunctionOp,
        operators.SinkOp,
    }
    assert named - seen - others - {operators.CoFlatMapOp} == set()
    assert not seen & others
