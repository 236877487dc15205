"""Small programs, at least one for every operator, exchange and setting whose generated code is a code of its own.

Each gives the stream, or the sink, whose chain is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from millstream.api.error_policy import ErrorPolicy
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import (
    WatermarkStrategy,
)
from millstream.connectors.number_seq import NumberSequenceSource
from millstream.datastream import (
    AsyncDataStream,
    DataStream,
    DataStreamSink,
    OutputTag,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.graph.operators import CollectOp
from tests.unit.graph.code_functions import (
    SIDE,
    Ask,
    Chosen,
    Clocked,
    CoFlatMap,
    CoMap,
    CoProcess,
    Count,
    EndMarks,
    Filter,
    First,
    FlatMap,
    FromClock,
    Joined,
    Keyed,
    KeyedCo,
    KeyedCoTimers,
    KeyedRules,
    LosingSink,
    Map,
    Modulo,
    Nowhere,
    PerWindow,
    Reduce,
    Rules,
    Second,
    Split,
    Timers,
    upper,
)

LATE = OutputTag("late")
BAD = OutputTag("bad")
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])


class Program(NamedTuple):
    """A program, what is to be seen in its code, and the options that it runs with."""

    about: str
    build: Callable[[StreamExecutionEnvironment], Any]
    options: dict[str, str]


PROGRAMS: dict[str, Program] = {}


def program(about: str, **options: str) -> Callable[[Any], Any]:
    """Add a program, by the name of the function that builds it."""

    def add(build: Any) -> Any:
        PROGRAMS[build.__name__] = Program(about, build, options)
        return build

    return add


def per_stream(name: str, about: str, build: Callable[[Any], Any], **options: str) -> None:
    """Add a program that does something with a stream of pairs (text, number), and prints the result."""

    def whole(env: StreamExecutionEnvironment) -> Any:
        return printed(build(pairs(env)))

    PROGRAMS[name] = Program(about, whole, options)


def pairs(env: StreamExecutionEnvironment) -> DataStream:
    """Pairs of a text and a number, without timestamps."""
    return env.from_collection([("a", 1)])


def numbers(env: StreamExecutionEnvironment) -> DataStream:
    """Numbers, from a source that may have several subtasks."""
    return env.from_source(NumberSequenceSource(1, 9), WatermarkStrategy.no_watermarks(), "numbers")


def timed(env: StreamExecutionEnvironment) -> DataStream:
    """Pairs with timestamps and watermarks."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return pairs(env).assign_timestamps_and_watermarks(strategy)


def printed(stream: Any) -> Any:
    """The stream, whose records are printed; a sink stays what it is."""
    if not isinstance(stream, DataStreamSink):
        stream.print()
    return stream


# -- one record ---------------------------------------------------------------------------------------------

per_stream("map_lambda", "a map", lambda s: s.map(lambda v: v[0].upper()))
per_stream("map_pair", "a map to a pair, which is not called", lambda s: s.map(lambda v: (v, 1)))
per_stream("map_function", "a map with a function object", lambda s: s.map(Map()))
per_stream("map_keyed", "a map on a keyed stream, by an object", lambda s: s.key_by(0).map(Map()))
per_stream("project", "some fields", lambda s: s.project(1, 0))
per_stream("flat_map", "a flat map", lambda s: s.flat_map(lambda v: v[0].split()))
per_stream("flat_map_keyed", "a keyed flat map", lambda s: s.key_by(0).flat_map(FlatMap()))
per_stream("filter", "a filter", lambda s: s.filter(lambda v: v[1] > 0))
per_stream("filter_keyed", "a keyed filter", lambda s: s.key_by(0).filter(Filter()))
per_stream("process", "a process function", lambda s: s.process(Split()))


@program("a process function with a side output that is read, and timestamps")
def process_side_outputs(env):
    split = timed(env).process(Split())
    split.get_side_output(SIDE).print("side")
    return printed(split)


@program("a map of two inputs")
def co_map(env):
    return printed(pairs(env).connect(numbers(env)).map(CoMap()))


@program("a map of two keyed inputs")
def co_map_keyed(env):
    return printed(pairs(env).connect(pairs(env)).key_by(0, First()).map(CoMap()))


@program("a flat map of two inputs")
def co_flat_map(env):
    return printed(pairs(env).connect(numbers(env)).flat_map(CoFlatMap()))


@program("a process function of two inputs, with timestamps")
def co_process(env):
    return printed(timed(env).connect(timed(env)).process(CoProcess()))


# -- keys ---------------------------------------------------------------------------------------------------

per_stream("keyed_process", "a keyed process function", lambda s: s.key_by(0).process(Keyed()))


@program("a keyed process function with timers, and timestamps")
def keyed_process_timers(env):
    return printed(timed(env).key_by(0).process(Timers()))


@program("a keyed process function of two inputs")
def keyed_co_process(env):
    return printed(pairs(env).connect(pairs(env)).key_by(0, 0).process(KeyedCo()))


@program("a keyed process function of two inputs, with timers")
def keyed_co_process_timers(env):
    return printed(timed(env).connect(timed(env)).key_by(0, 0).process(KeyedCoTimers()))


@program("a stream beside a broadcast one")
def broadcast_process(env):
    told = numbers(env).broadcast(MapStateDescriptor("told"))
    return printed(pairs(env).connect(told).process(Rules()))


@program("a keyed stream beside a broadcast one, with timers")
def broadcast_process_keyed(env):
    told = numbers(env).broadcast(MapStateDescriptor("told"))
    return printed(timed(env).key_by(0).connect(told).process(KeyedRules()))


per_stream("reduce", "a reduce", lambda s: s.key_by(0).reduce(lambda a, b: (a[0], a[1] + b[1])))
per_stream("reduce_opened", "a reduce that may have state", lambda s: s.key_by(0).reduce(Reduce()))
per_stream("rolling_sum", "a sum of the second field", lambda s: s.key_by(0).sum(1))
per_stream("rolling_sum_named", "a sum of a named field", lambda s: s.key_by("k").sum("n"))
per_stream("rolling_min", "a minimum", lambda s: s.key_by(0).min(1))
per_stream("rolling_max_by", "the record with the largest field", lambda s: s.key_by(0).max_by(1))
per_stream(
    "rolling_shown",
    "a sum that a function of the same chain gets",
    lambda s: s.key_by(0).sum(1).map(lambda v: v[1] + 1),
)
per_stream(
    "rolling_min_shown",
    "a minimum that a function of the same chain gets",
    lambda s: s.key_by(0).min(1).map(lambda v: v[1] + 1),
)

# -- windows and joins --------------------------------------------------------------------------------------

TUMBLING = TumblingEventTimeWindows.of("1 s")


def windowed(name: str, about: str, assigner: Any, build: Callable[[Any], Any], **o: str) -> None:
    """Add a program with windows over a stream of pairs with timestamps."""

    def whole(env: StreamExecutionEnvironment) -> Any:
        return printed(build(timed(env).key_by(0).window(assigner)))

    PROGRAMS[name] = Program(about, whole, o)


def add_up(one: Any, two: Any) -> Any:
    return one[0], one[1] + two[1]


windowed(
    "window_tumbling", "tumbling windows, aggregated", TUMBLING, lambda w: w.aggregate(Count())
)
windowed(
    "window_tumbling_reduce", "tumbling windows, reduced", TUMBLING, lambda w: w.reduce(add_up)
)
windowed(
    "window_tumbling_offset",
    "tumbling windows that begin at a quarter past",
    TumblingEventTimeWindows.of("1 h", "15 min"),
    lambda w: w.sum(1),
)
windowed(
    "window_tumbling_process",
    "tumbling windows, aggregated, then seen by a function",
    TUMBLING,
    lambda w: w.aggregate(Count(), PerWindow()),
)
windowed(
    "window_sliding",
    "sliding windows whose size is a multiple of their slide",
    SlidingEventTimeWindows.of("4 s", "2 s"),
    lambda w: w.aggregate(Count()),
)
windowed(
    "window_sliding_cut",
    "sliding windows whose size is no multiple of their slide",
    SlidingEventTimeWindows.of("5 s", "2 s"),
    lambda w: w.aggregate(Count()),
)
windowed(
    "window_sliding_gap",
    "sliding windows with gaps between them",
    SlidingEventTimeWindows.of("1 s", "2 s"),
    lambda w: w.aggregate(Count()),
)
windowed(
    "window_sliding_reduce",
    "sliding windows that are reduced, each for itself",
    SlidingEventTimeWindows.of("4 s", "2 s"),
    lambda w: w.reduce(add_up),
)
windowed(
    "window_session",
    "sessions",
    EventTimeSessionWindows.with_gap("1 s"),
    lambda w: w.aggregate(Count()),
)
windowed(
    "window_session_dynamic",
    "sessions whose gap depends on the record",
    EventTimeSessionWindows.with_dynamic_gap(lambda v: v[1]),
    lambda w: w.reduce(add_up),
)
windowed(
    "window_general",
    "windows with a trigger and an evictor",
    TUMBLING,
    lambda w: w.trigger(CountTrigger.of(2)).evictor(CountEvictor.of(1)).process(PerWindow()),
)


@program("tumbling windows whose late records are read")
def window_late(env):
    windows = timed(env).key_by(0).window(TUMBLING).side_output_late_data(LATE)
    counts = windows.aggregate(Count())
    counts.get_side_output(LATE).print("late")
    return printed(counts)


@program("windows of a whole stream")
def window_all(env):
    return printed(timed(env).window_all(TUMBLING).reduce(add_up))


@program("count windows")
def window_count(env):
    return printed(pairs(env).key_by(0).count_window(2).reduce(add_up))


@program("a join by windows")
def window_join(env):
    joined = timed(env).join(timed(env)).where(First()).equal_to(upper)
    return printed(joined.window(TUMBLING).apply(lambda a, b: (a, b)))


@program("a join by intervals, with late records of one side")
def interval_join(env):
    left, right = timed(env).key_by(0), timed(env).key_by(0)
    between = left.interval_join(right).between("-1 s", "1 s")
    joined = between.side_output_left_late_data(LATE).process(Joined())
    joined.get_side_output(LATE).print("late")
    return printed(joined)


# -- outside ------------------------------------------------------------------------------------------------


@program("asynchronous I/O")
def async_io(env):
    return printed(AsyncDataStream.ordered_wait(pairs(env), Ask(), "1 s"))


@program("asynchronous I/O, whose failures become letters")
def async_io_letters(env):
    asked = AsyncDataStream.unordered_wait(pairs(env), Ask(), "1 s")
    asked.on_error(ErrorPolicy.dead_letter(BAD)).get_side_output(BAD).print("bad")
    return printed(asked)


@program("a function over batches")
def map_batches(env):
    return printed(pairs(env).map_batches(list, 100))


@program("a flat map over batches, behind another")
def flat_map_batches(env):
    return printed(pairs(env).filter_batches(list, 10).flat_map_batches(list, 20))


@program("a filter over batches, whose failures become letters")
def filter_batches_letters(env):
    kept = pairs(env).filter_batches(list, 10, "numpy").on_error(ErrorPolicy.dead_letter(BAD))
    kept.get_side_output(BAD).print("bad")
    return printed(kept)


@program("a sink function")
def sink_function(env):
    return pairs(env).add_sink(Nowhere())


@program("a sink function, with timestamps")
def sink_function_stamped(env):
    return timed(env).add_sink(Nowhere())


@program("a sink with writers")
def sink(env):
    return pairs(env).sink_to(LosingSink())


@program("records that are printed by several subtasks")
def print_parallel(env):
    env.set_parallelism(2)
    return numbers(env).print("numbers")


@program("records that the driver gives to the user")
def collect(env):
    stream = pairs(env)
    stream._sink("Sink: Collect", CollectOp(None), like_input=True)
    return stream


@program("the beginning of a loop, where what was fed back comes in")
def feedback_head(env):
    loop = pairs(env).iterate()
    loop.close_with(loop.map(lambda v: (v[0], v[1] - 1)))
    loop.print()
    return SimpleNamespace(_transformation=loop._head)


@program("the end of a loop, with timestamps")
def feedback_tail(env):
    loop = timed(env).iterate()
    body = loop.process(Split())
    loop.close_with(body)
    return printed(body)


# -- sources ------------------------------------------------------------------------------------------------


@program("a Spark frame")
def source_frame(env):
    return printed(env.from_dataframe(SimpleNamespace(isStreaming=False)))


def source(name: str, about: str, strategy: WatermarkStrategy, reader: Any = None) -> None:
    """Add a program whose source has a strategy, with an operator that looks at the time."""

    def whole(env: StreamExecutionEnvironment) -> Any:
        read = NumberSequenceSource(1, 9) if reader is None else reader
        return printed(env.from_source(read, strategy, "numbers").process(Split()))

    PROGRAMS[name] = Program(about, whole, {})


NONE = WatermarkStrategy.no_watermarks()
MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness("1 s")
GENERATOR = WatermarkStrategy.for_generator(EndMarks)

source("source_plain", "no timestamps", NONE)
source("source_stamped", "the source's own timestamps and watermarks", NONE, Clocked())
source(
    "source_timestamps",
    "timestamps of a field, and no watermarks",
    NONE.with_timestamp_assigner(Second()),
)
source(
    "source_monotonous",
    "growing timestamps, which are a field",
    MONOTONOUS.with_timestamp_assigner(Second()),
)
source(
    "source_monotonous_own",
    "growing timestamps, which are the source's own",
    MONOTONOUS,
    Clocked(),
)
source(
    "source_bounded_called",
    "timestamps out of order, which a call gives",
    BOUNDED.with_timestamp_assigner(FromClock()),
)
source(
    "source_idleness",
    "a source that may fall silent",
    BOUNDED.with_timestamp_assigner(Second()).with_idleness("1 s"),
)
source(
    "source_generator",
    "a generator of the user's own",
    GENERATOR.with_timestamp_assigner(Second()),
)


@program("timestamps and watermarks in the middle of a stream, in place of those it had")
def assign_again(env):
    strategy = BOUNDED.with_timestamp_assigner(FromClock())
    again = timed(env).map(lambda v: v).assign_timestamps_and_watermarks(strategy)
    return printed(again.process(Split()))


# -- bad records --------------------------------------------------------------------------------------------

per_stream("skip_map", "a map that skips", lambda s: s.map(int).on_error(ErrorPolicy.skip()))
per_stream(
    "skip_reduce",
    "a reduce that skips",
    lambda s: s.key_by(0).reduce(add_up).on_error(ErrorPolicy.skip()),
)


@program("a map whose bad records become letters")
def letters_map(env):
    mapped = pairs(env).map(int).on_error(ErrorPolicy.dead_letter(BAD))
    mapped.get_side_output(BAD).print("bad")
    return printed(mapped)


@program("a process function with a side output, whose bad records become letters")
def letters_process(env):
    split = pairs(env).process(Split()).on_error(ErrorPolicy.dead_letter(BAD))
    split.get_side_output(BAD).print("bad")
    split.get_side_output(SIDE).print("side")
    return printed(split)


windowed(
    "skip_window",
    "tumbling windows that skip",
    TUMBLING,
    lambda w: w.aggregate(Count()).on_error(ErrorPolicy.skip()),
)

# -- types and copies ---------------------------------------------------------------------------------------

per_stream("typed_map", "a declared type", lambda s: s.map(lambda v: (v[0], v[1] + 1), PAIR))
per_stream(
    "typed_row",
    "a declared type that only a call can check",
    lambda s: s.map(Map(), Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])).map(Map()),
)


@program("a source, a filter and a side output with declared types")
def typed_all(env):
    stream = env.from_collection([("a", 1)], PAIR).filter(lambda v: v[1] > 0)
    split = stream.process(Split(), PAIR)
    split.get_side_output(OutputTag("side", Types.INT())).print("side")
    return printed(split)


def to_two(stream: Any) -> Any:
    made = stream.map(Map())
    made.map(Map()).print("one")
    return made.map(Map())


per_stream("copy_for_two", "two functions that get one record", to_two)
per_stream("copy_nothing", "the same with object reuse", to_two, pipeline__object_reuse="true")
per_stream(
    "copy_no_pair",
    "two functions, of which one cannot change the record",
    lambda s: (
        s.map(lambda v: (v, 1)).print("one"),
        s.map(Map()),
    )[1],
)


@program("a function and an edge that get one record")
def copy_for_edge(env):
    env.set_parallelism(2)
    made = numbers(env).map(Map())
    made.rebalance().print()
    return printed(made.map(Map()))


# -- batch --------------------------------------------------------------------------------------------------

BATCH = {"execution__runtime_mode": "BATCH"}
per_stream("batch_reduce", "a reduce in a batch job", lambda s: s.key_by(0).reduce(add_up), **BATCH)
per_stream("batch_rolling", "a sum in a batch job", lambda s: s.key_by(0).sum(1), **BATCH)
windowed(
    "batch_window",
    "tumbling windows in a batch job",
    TUMBLING,
    lambda w: w.aggregate(Count()),
    **BATCH,
)


@program("timestamps in a batch job, whose watermarks nobody makes", **BATCH)
def batch_source(env):
    strategy = MONOTONOUS.with_timestamp_assigner(Second())
    stream = env.from_source(NumberSequenceSource(1, 9), strategy, "numbers")
    return printed(stream.process(Split()))


def sending(name: str, about: str, build: Callable[[Any], Any], **options: str) -> None:
    """Add a program whose records go to two subtasks; the chain looked at is the one that sends."""

    def whole(env: StreamExecutionEnvironment) -> Any:
        env.set_parallelism(2)
        sender = env.from_collection([("a", 1)])
        build(sender).print()
        return sender

    PROGRAMS[name] = Program(about, whole, options)


sending(
    "combine_pairs",
    "pairs that are summed up before they are sent",
    lambda s: s.key_by(0).sum(1),
    **BATCH,
)
sending(
    "combine_reduce",
    "records that are reduced before they are sent",
    lambda s: s.key_by(0).reduce(lambda a, b: (a[0], a[1] + b[1])),
    **BATCH,
)
sending("hash_batch", "keys in a batch job", lambda s: s.key_by(0).map(Map()), **BATCH)

# -- exchanges ----------------------------------------------------------------------------------------------

sending("hash_field", "keys that are a field", lambda s: s.key_by(0).map(Map()))
sending("hash_name", "keys that are a named field", lambda s: s.key_by("k").map(Map()))
sending("hash_inlined", "a selector that is a field", lambda s: s.key_by(lambda v: v[0]).map(Map()))
sending("hash_selector", "a selector", lambda s: s.key_by(lambda v: v[0].lower()).map(Map()))
sending("hash_typed", "a declared key", lambda s: s.key_by(0, Types.INT()).map(Map()))
sending("hash_typed_tuple", "a declared key of two", lambda s: s.key_by(upper, PAIR).map(Map()))
sending("hash_carried", "a key that travels along", lambda s: s.key_by(Chosen()).map(Map()))
sending("rebalance", "round robin", lambda s: s.rebalance().map(Map()))
sending("rescale", "round robin to some", lambda s: s.rescale().map(Map()))
sending("shuffle", "at random", lambda s: s.shuffle().map(Map()))
sending("broadcast", "to all", lambda s: s.broadcast().map(Map()))
sending("global", "to the first", lambda s: s.global_().map(Map()))
sending("custom", "a partitioner", lambda s: s.partition_custom(lambda key, count: 0, 0).map(Map()))
sending(
    "custom_object", "a partitioner object", lambda s: s.partition_custom(Modulo(), 1).map(Map())
)


@program("an operator behind an edge that brings its key")
def carried(env):
    return printed(pairs(env).key_by(Chosen()).reduce(add_up))


@program("an operator behind an edge that brings its key and its timestamp")
def carried_stamped(env):
    return printed(timed(env).key_by(Chosen()).process(Timers()))


@program("an edge to the subtask of the same number")
def forward(env):
    stream = pairs(env)
    stream.map(Map()).disable_chaining().print()
    return stream


@program("an edge to the subtask of the same number, with timestamps")
def forward_stamped(env):
    stream = timed(env)
    stream.process(Split()).disable_chaining().print()
    return stream


def sending_timed(name: str, about: str, build: Callable[[Any], Any]) -> None:
    """Add a program that sends records with their timestamps to two subtasks."""

    def whole(env: StreamExecutionEnvironment) -> Any:
        env.set_parallelism(2)
        sender = timed(env)
        build(sender).print()
        return sender

    PROGRAMS[name] = Program(about, whole, {})


sending_timed("hash_stamped", "keys and timestamps", lambda s: s.key_by(0).process(Keyed()))
sending_timed(
    "rebalance_stamped", "timestamps, round robin", lambda s: s.rebalance().process(Split())
)
sending_timed("broadcast_stamped", "timestamps, to all", lambda s: s.broadcast().process(Split()))


def expanding(name: str, about: str, build: Callable[[Any], Any]) -> None:
    """Add a program that sends many records for one, so that lists must be looked at as they grow."""

    def whole(env: StreamExecutionEnvironment) -> Any:
        env.set_parallelism(2)
        sender = timed(env).flat_map(FlatMap())
        build(sender).print()
        return sender

    PROGRAMS[name] = Program(about, whole, {})


expanding("hash_expanding", "many records, by their keys", lambda s: s.key_by(0).process(Keyed()))
expanding(
    "rebalance_expanding", "many records, round robin", lambda s: s.rebalance().process(Split())
)
expanding("broadcast_expanding", "many records, to all", lambda s: s.broadcast().process(Split()))
expanding("global_expanding", "many records, to the first", lambda s: s.global_().process(Split()))
