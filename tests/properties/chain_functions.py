"""Functions, sources and sinks of random chains (`chains.py`): decent ones, some that spoil records, some that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.api.sink import Sink, SinkWriter
from millstream.api.source import Boundedness, Source
from millstream.common import Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from millstream.datastream import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterBatchesFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapBatchesFunction,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    SinkFunction,
)
from millstream.datastream.state import ValueStateDescriptor

SIDE = OutputTag("side")
TYPED = OutputTag("typed", Types.TUPLE([Types.STRING(), Types.DOUBLE()]))

HEARD: list[Any] = []
"""What sinks have got. Functions are copied, this module is not."""


# -- functions that keep and change nothing ------------------------------------------------------------------


def plain(v: Any) -> Any:
    return v[0], v[1], v[2], [v[1]]


def fixed(v: Any) -> Any:
    return v[0], v[1], v[2], "no list"


def as_list(v: Any) -> Any:
    return [v[0], bool(v[1] % 2), v[2], [v[1]]]


def several(v: Any) -> Any:
    return [(v[0], n, v[2], [n]) for n in range(v[1] % 4)]


def longer(v: Any) -> Any:
    return v[0] + "!"


def text_and_number(v: Any) -> Any:
    return v[0], v[1] % 2


def by_number(key: Any, count: int) -> int:
    return key % count


def add_up(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1], max(a[2], b[2]), sorted(a[3] + b[3])


def is_even(v: Any) -> bool:
    return bool(v[1] % 2 == 0)


def in_batches(one: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """A function over batches that does what another does to each record."""
    return lambda batch: [one(v) for v in batch]


class BatchesOf(MapBatchesFunction):
    def __init__(self, one):
        self.one = one

    def map_batches(self, batch):
        return tuple(self.one(v) for v in batch)


class Grow(MapFunction):
    def map(self, v):
        return v[0], v[1] + 1, v[2], [v[1]]


class Odd(FilterFunction):
    def filter(self, v):
        return v[1] % 2 == 1


class Split(ProcessFunction):
    """Tells the time, and gives some to side outputs."""

    def process_element(self, v, ctx):
        now = ctx.timestamp()
        yield v[0], v[1], -1 if now is None else now, [ctx.timer_service().current_watermark()]
        if v[1] % 3 == 1:
            yield SIDE, v
        if v[1] % 3 == 2:
            yield TYPED, (v[0], v[1])


class Both(CoMapFunction):
    def map1(self, v):
        return None if v[1] % 2 else v

    def map2(self, v):
        return v[0], -v[1], v[2], []


class Flat(CoFlatMapFunction):
    def flat_map1(self, v):
        return None if v[1] % 2 else [v, v]

    def flat_map2(self, v):
        yield v


class Meet(CoProcessFunction):
    def process_element1(self, v, ctx):
        yield v[0], v[1], ctx.timestamp() or -1, [1]

    def process_element2(self, v, ctx):
        yield SIDE, v


class CountKeys(KeyedProcessFunction):
    """Counts a key's records in its state."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, v, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield repr(ctx.get_current_key()), self.count.value(), ctx.timestamp() or -1, []
        if v[1] % 3 == 1:
            yield SIDE, v


class Wake(CountKeys):
    """Counts, and says the count when a timer fires."""

    def process_element(self, v, ctx):
        yield from super().process_element(v, ctx)
        ctx.timer_service().register_event_time_timer(v[2] + 10)

    def on_timer(self, timestamp, ctx):
        yield repr(ctx.get_current_key()), self.count.value(), timestamp, []


class KeyedMeet(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element1(self, v, ctx):
        self.sum.update((self.sum.value() or 0) + v[1])
        yield repr(ctx.get_current_key()), self.sum.value(), v[2], []

    def process_element2(self, v, ctx):
        yield SIDE, v
        yield repr(ctx.get_current_key()), self.sum.value() or 0, v[2], []


class Seen(MapFunction):
    """A map on a keyed stream, with state."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map(self, v):
        self.count.update((self.count.value() or 0) + 1)
        return v[0], self.count.value(), v[2], v[3]


class First(FilterFunction):
    """A filter with state: the first record of each key."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("first", Types.BOOLEAN()))

    def filter(self, v):
        is_first = self.seen.value() is None
        self.seen.update(True)
        return is_first


class Before(FlatMapFunction):
    """A flat map with state: the key's number before this one."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def flat_map(self, v):
        last = self.last.value()
        self.last.update(v[1])
        return [] if last is None else [(v[0], last, v[2], []), v]


class BothSeen(CoMapFunction):
    """Two keyed inputs that share their state."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map1(self, v):
        self.seen.update((self.seen.value() or 0) + v[1])
        return

    def map2(self, v):
        return v[0], self.seen.value() or 0, v[2], v[3]


class Total(AggregateFunction):
    """The accumulator can be changed, and is."""

    def create_accumulator(self):
        return ["", 0, 0]

    def add(self, v, accumulator):
        accumulator[0] = max(accumulator[0], v[0])
        accumulator[1] += v[1]
        accumulator[2] += 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0], accumulator[1], accumulator[2], []

    def merge(self, a, b):
        return [max(a[0], b[0]), a[1] + b[1], a[2] + b[2]]


class PerWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        (total,) = elements
        window = context.window()
        yield total[0] + repr(key), total[1], window.start, [window.end, total[2]]
        if total[1] % 2:
            yield SIDE, total


# -- functions that do what they should not ------------------------------------------------------------------


def spoil(v: Any) -> None:
    """Whoever sees this record from now on sees that it was changed."""
    if isinstance(v[3], list):
        v[3].append(-99)


class Change(MapFunction):
    """Changes its argument."""

    def map(self, v):
        spoil(v)
        return v


def change(v: Any) -> Any:
    v[3].append(v[1])
    return v


class Keep(MapFunction):
    """Gives what it was given, keeps it, and changes it later."""

    kept: Any = None

    def map(self, v):
        if self.kept is not None:
            spoil(self.kept)
        self.kept = v
        return v


class KeepBatches(FilterBatchesFunction):
    """Changes what it was given in the call before."""

    def __init__(self):
        self.kept = []

    def filter_batches(self, batch):
        for v in self.kept:
            v[3].append("seen later")
        self.kept = batch
        return [True for v in batch]


class KeepFilter(FilterFunction):
    kept: Any = None

    def filter(self, v):
        if self.kept is not None:
            spoil(self.kept)
        self.kept = v
        return v[1] % 2 == 0


class Again(FlatMapFunction):
    """One object, again and again."""

    def flat_map(self, v):
        out = [v[0], 0, v[2], []]
        for n in range(3):
            out[1] = n
            out[3].append(n)
            yield out


def twice(v: Any) -> Any:
    return [v, v]


class ChangeSides(ProcessFunction):
    """Changes what it has given away."""

    def process_element(self, v, ctx):
        yield SIDE, v
        spoil(v)
        yield v
        spoil(v)


class Gather(ReduceFunction):
    """Changes the value so far, and keeps the record."""

    def reduce(self, a, b):
        a[3].append(b[1])
        self.kept = b
        spoil(b)
        return a


# -- functions that fail, for operators with an error policy --------------------------------------------------


class BadRecord(Exception):
    pass


def fail_sometimes(v: Any) -> None:
    if v[1] % 3 == 0:
        raise BadRecord(f"{v[1]} is bad")


class FailMap(MapFunction):
    def map(self, v):
        spoil(v)
        fail_sometimes(v)
        return v


class FailFlat(FlatMapFunction):
    """Fails half-way."""

    def flat_map(self, v):
        yield v
        fail_sometimes(v)
        yield v


class FailFilter(FilterFunction):
    def filter(self, v):
        fail_sometimes(v)
        return v[1] % 2 == 1


class FailProcess(ProcessFunction):
    def process_element(self, v, ctx):
        yield v
        yield SIDE, v
        fail_sometimes(v)


class FailKeyed(CountKeys):
    """Has changed its state when it fails."""

    def process_element(self, v, ctx):
        yield from super().process_element(v, ctx)
        fail_sometimes(v)


class FailReduce(ReduceFunction):
    def reduce(self, a, b):
        fail_sometimes(b)
        return a[0], a[1] + b[1], a[2], a[3]


class FailTotal(Total):
    def add(self, v, accumulator):
        accumulator = super().add(v, accumulator)
        fail_sometimes(v)
        return accumulator


# -- time ------------------------------------------------------------------------------------------------------


class ByField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class ByCall(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] + max(record_timestamp, 0) % 2


class Marks(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp - 7)


STRATEGIES = {
    "none": WatermarkStrategy.no_watermarks(),
    "timestamps": WatermarkStrategy.no_watermarks().with_timestamp_assigner(ByField()),
    "monotonous": WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByField()),
    "bounded": WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(ByCall()),
    "generator": WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(ByField()),
}


class AnySource(Source):
    """Never read: what a chain gets is drawn."""

    def __init__(self, stamps: bool) -> None:
        self.stamps = stamps

    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        raise AssertionError

    def create_reader(self):
        raise AssertionError

    def stamped(self):
        return self.stamps


# -- the ends of a chain ---------------------------------------------------------------------------------------


class Hear(SinkFunction):
    def __init__(self, number: int) -> None:
        self.number = number

    def invoke(self, value, context):
        HEARD.append((self.number, repr(value), context.timestamp()))


class HearWriter(SinkWriter):
    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, value):
        HEARD.append((self.number, repr(value)))

    def prepare_commit(self):
        return None


class HearSink(Sink):
    def __init__(self, number: int) -> None:
        self.number = number

    def create_writer(self, context):
        return HearWriter(self.number)

    def create_committer(self):
        return None


class Same(MapFunction):
    def map(self, v):
        return v


class Times(ProcessFunction):
    """Behind an edge, so that timestamps and watermarks travel along it."""

    def process_element(self, v, ctx):
        yield v


class Chosen:
    """A selector that nobody can look into: its keys travel with the records."""

    def __call__(self, v: Any) -> Any:
        return v[0]


class Modulo(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions
