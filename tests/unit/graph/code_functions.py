"""Functions, sources and sinks of the programs in `code_programs.py`: each does next to nothing."""

from typing import Any

from millstream.api.sink import Sink, SinkWriter
from millstream.api.source import Boundedness, Source
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from millstream.datastream import (
    AggregateFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
)

SIDE = OutputTag("side")


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class FromClock(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return max(value[1], record_timestamp)


class EndMarks(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)


class Map(MapFunction):
    def map(self, value):
        return value


class FlatMap(FlatMapFunction):
    def flat_map(self, value):
        yield value


class Filter(FilterFunction):
    def filter(self, value):
        return True


class Reduce(ReduceFunction):
    def open(self, runtime_context):
        self.context = runtime_context

    def reduce(self, value1, value2):
        return value1


class CoMap(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class CoFlatMap(CoFlatMapFunction):
    def flat_map1(self, value):
        yield value

    def flat_map2(self, value):
        yield value


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield SIDE, value


class CoProcess(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value


class Keyed(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Timers(Keyed):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
        ctx.timer_service().register_processing_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        yield timestamp


class KeyedCo(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value


class KeyedCoTimers(KeyedCo):
    def on_timer(self, timestamp, ctx):
        yield timestamp


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value


class KeyedRules(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def process_broadcast_element(self, value, ctx):
        yield value

    def on_timer(self, timestamp, ctx):
        yield timestamp


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class PerWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key


class Joined(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right


class Ask(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


class First(KeySelector):
    def get_key(self, value):
        return value[0]


class Modulo(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions


class Nowhere(SinkFunction):
    def invoke(self, value, context):
        pass


class Lost(SinkWriter):
    def write(self, record):
        pass

    def prepare_commit(self):
        return None


class LosingSink(Sink):
    def create_writer(self, context):
        return Lost()

    def create_committer(self):
        raise AssertionError


class Clocked(Source):
    """A source whose records bring timestamps."""

    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        raise AssertionError

    def create_reader(self):
        raise AssertionError

    def stamped(self):
        return True


class Chosen:
    """A selector that may choose another key each time that it is asked."""

    def __call__(self, value):
        return value[0]


def upper(value: Any) -> Any:
    return value[0].upper()
