"""BATCH mode in whole jobs: one key at a time, timers at the end of each, what is on disk, what is told of mistakes."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.serialization import Encoder
from millstream.common.time import Time
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.connectors.datagen import DataGeneratorSource
from millstream.connectors.file.sink import FileSink
from millstream.datastream import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessJoinFunction,
    ReduceFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowFunction,
)
from millstream.errors import TypeMismatchError, UnsupportedOperation, UserFunctionError
from millstream.runtime.base.recognize import kept_fields
from millstream.runtime.task.batch_spill import Spilled, in_order
from tests.support import collect, environment, keeping

MIN, MAX = -(2**63), 2**63 - 1
HOUR = 3_600_000
BATCH = RuntimeExecutionMode.BATCH
PARALLELISM = pytest.mark.parametrize("p", [1, 2, 3])


def batch(parallelism=1, **options):
    return environment(parallelism, **options).set_runtime_mode(BATCH)


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def timed(env, records):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    return env.from_collection(records).assign_timestamps_and_watermarks(strategy)


def first(value):
    return value[0]


# -- rolling aggregations --------------------------------------------------------------------------------------


@PARALLELISM
def test_one_result_for_each_key(p):
    words = batch(p).from_collection("to be or not to be".split())
    counts = words.map(lambda w: (w, 1)).rebalance().filter(lambda v: True).key_by(first).sum(1)
    assert sorted(collect(counts)) == [("be", 2), ("not", 1), ("or", 1), ("to", 2)]


class Add(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1]


@PARALLELISM
@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        (lambda a, b: (a[0], a[1] + b[1]), 6),
        (Add(), 6),
        # Counts only if it is called for one record after the other.
        (lambda a, b: (a[0], a[1] + 1), 3),
        (lambda a, b: (a[0], 10 * a[1] + b[1]), 123),
        (lambda a, b: (a[0], max(a[1], b[1])), 3),
    ],
)
def test_reduce(p, reduce, expected):
    records = [(key, number) for number in (1, 2, 3) for key in "abcde"]
    results = batch(p).from_collection(records).key_by(first).reduce(reduce)
    assert sorted(collect(results)) == [(key, expected) for key in "abcde"]


@PARALLELISM
def test_a_sum_that_would_have_another_key(p):
    numbers = batch(p).from_collection(list(range(10))).rebalance().map(lambda n: n)
    assert sorted(collect(numbers.key_by(lambda n: n % 2).sum(0))) == [20, 25]


@PARALLELISM
def test_a_reduce_whose_result_has_another_key(p):
    pairs = batch(p).from_collection([(n, n) for n in range(10)]).rebalance().map(lambda v: v)
    totals = pairs.key_by(lambda v: v[1] % 2).reduce(lambda a, b: (a[0], a[1] + b[1]))
    assert sorted(v[1] for v in collect(totals)) == [20, 25]


@PARALLELISM
@pytest.mark.parametrize(
    ("call", "expected"),
    [("sum", 6), ("min", 1), ("max", 3), ("min_by", 1), ("max_by", 3)],
)
def test_aggregations(p, call, expected):
    records = [(key, number) for number in (2, 1, 3) for key in "abc"]
    keyed = batch(p).from_collection(records).key_by(first)
    assert sorted(collect(getattr(keyed, call)(1))) == [(key, expected) for key in "abc"]


class Both(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        yield value
        ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), 100


@PARALLELISM
def test_all_that_an_operator_emits_is_combined(p):
    # Each input and the timers have code of their own; what they send is held back in one place.
    env = batch(p)
    one, two = (env.from_collection([(k, n) for k in "ab"]).key_by(first) for n in (1, 10))
    merged = one.connect(two).process(Both())
    assert sorted(collect(merged.key_by(first).sum(1))) == [("a", 111), ("b", 111)]


@PARALLELISM
def test_aggregations_in_a_row(p):
    records = [(f"{k}{n % 3}", n) for k in "ab" for n in range(9)]
    env = batch(p)
    totals = env.from_collection(records).key_by(first).sum(1)
    both = totals.map(lambda v: (v[0][0], v[1])).key_by(first).sum(1)
    assert sorted(collect(both)) == [("a", 36), ("b", 36)]


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda a, b: (a[0], a[1] + b[1]), {0}),
        (lambda a, b: (a[0], b[1] + a[1], b[2]), {0, 2}),
        (lambda a, b: (a[0], a[1] + a[1]), set()),
        (lambda a, b: (a[1], a[0] + b[0]), set()),
        (lambda a, b: (a[0], a[1] - b[1]), set()),
        (lambda a, b: a, set()),
        (lambda a, b: [a[0], a[1] + b[1]], set()),
        (lambda a, b=(1, 2): (a[0], a[1] + b[1]), set()),
        (lambda *ab: (ab[0], ab[1]), set()),
        (lambda a, b: (a[0], a[1] + b[1]) if a else b, set()),
        (Add(), set()),
        (max, set()),
    ],
)
def test_which_functions_may_be_combined(function, kept):
    assert kept_fields(function) == kept


# -- one key at a time -----------------------------------------------------------------------------------------


class Trace(KeyedProcessFunction):
    """Tells everything that it sees."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))
        self.named = runtime_context.get_map_state(MapStateDescriptor("named"))

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        before = self.seen.value(), list(self.all.get()), list(self.named.items())
        self.seen.update(value[1])
        self.all.add(value[1])
        self.named.put(value[1], 1)
        yield "element", value[0], value[1], service.current_watermark(), before
        service.register_processing_time_timer(service.current_processing_time() + HOUR)
        for time in (30, 10):
            service.register_event_time_timer(time)
        service.register_event_time_timer(20)
        service.delete_event_time_timer(20)

    def on_timer(self, timestamp, ctx):
        service = ctx.timer_service()
        service.register_event_time_timer(timestamp + 1)
        service.register_processing_time_timer(timestamp + 1)
        domain = ctx.time_domain().name
        at = timestamp if domain == "EVENT_TIME" else timestamp // HOUR > 0
        key = ctx.get_current_key()
        yield "timer", key, domain, at, service.current_watermark(), self.seen.value()


@PARALLELISM
def test_a_key_from_its_first_record_to_its_last_timer(p):
    records = [(key, number) for number in (3, 1, 2) for key in "abcdefgh"]
    with keeping() as kept:
        env = batch(p)
        trace = timed(env, records).key_by(first).process(Trace())
        kept.add("trace", trace, p)
        env.execute()
        by_subtask = kept.with_subtask("trace")
    for subtask in range(p):
        rows = [row for number, row in by_subtask if number == subtask]
        for key, found in itertools.groupby(rows, key=lambda row: row[1]):
            # All of a key stands together, so this is the only time it comes.
            assert list(found) == [
                ("element", key, 1, MIN, (None, [], [])),
                ("element", key, 2, MIN, (1, [1], [(1, 1)])),
                ("element", key, 3, MIN, (2, [1, 2], [(1, 1), (2, 1)])),
                ("timer", key, "EVENT_TIME", 10, MAX, 3),
                ("timer", key, "EVENT_TIME", 30, MAX, 3),
                # One for each record at most; those of one millisecond are one.
                *[("timer", key, "PROCESSING_TIME", True, MAX, 3)] * timers_of(rows, key),
            ]
    assert {row[1] for _, row in by_subtask} == set("abcdefgh")


def timers_of(rows, key):
    count = sum(row[:3] == ("timer", key, "PROCESSING_TIME") for row in rows)
    assert 1 <= count <= 3
    return count


class TakesBack(KeyedProcessFunction):
    def process_element(self, value, ctx):
        for time in (1, 2, 3):
            ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp, ctx):
        yield timestamp
        ctx.timer_service().delete_event_time_timer(2)


def test_a_timer_may_take_back_another():
    env = batch()
    assert collect(env.from_collection(["a"]).key_by(lambda v: v).process(TakesBack())) == [1, 3]


class Never(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        raise AssertionError("asked")

    def on_periodic_emit(self, output):
        raise AssertionError("asked")


@PARALLELISM
def test_generators_are_not_asked(p):
    strategy = WatermarkStrategy.for_generator(Never).with_timestamp_assigner(Second())
    env = batch(p)
    stream = env.from_collection([("a", 5), ("a", 1)]).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by(first).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    assert collect(windows.reduce(lambda a, b: (a[0], (a[1], b[1])))) == [("a", (1, 5))]


class Numbered(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def _next(self, side, value):
        self.count.update((self.count.value() or 0) + 1)
        return value[0], self.count.value(), side, value[1]

    def process_element1(self, value, ctx):
        yield self._next(1, value)

    def process_element2(self, value, ctx):
        yield self._next(2, value)


@PARALLELISM
def test_two_inputs_of_a_key_come_by_time(p):
    env = batch(p)
    one = timed(env, [(k, t) for k in "abc" for t in (7, 1, 4)])
    two = timed(env, [(k, t) for k in "abc" for t in (5, 4, 2)])
    joined = one.key_by(first).connect(two.key_by(first)).process(Numbered())
    by_time = [(1, 1), (2, 2), (1, 4), (2, 4), (2, 5), (1, 7)]
    expected = [(k, n, *one) for k in "abc" for n, one in enumerate(by_time, 1)]
    assert sorted(collect(joined)) == expected


class Rules(KeyedBroadcastProcessFunction):
    RULES = MapStateDescriptor("rules")

    def process_element(self, value, ctx):
        yield value[0], ctx.get_broadcast_state(self.RULES).get(value[0])

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.RULES).put(*value)


@PARALLELISM
def test_broadcast_input_comes_first(p):
    env = batch(p)
    events = env.from_collection([(k, n) for k in "abcd" for n in range(3)])
    # It takes a longer way, and yet it is there first.
    rules = env.from_collection([(k, k.upper()) for k in "abcd"]).rebalance().map(lambda v: v)
    joined = events.key_by(first).connect(rules.broadcast(Rules.RULES)).process(Rules())
    assert Counter(collect(joined)) == Counter([(k, k.upper()) for k in "abcd" for _ in range(3)])


class Lookup(BroadcastProcessFunction):
    """What the broadcast side says of a record, or None if it has not been read."""

    def __init__(self, *states):
        self.states = states

    def process_element(self, value, ctx):
        yield (value[0], *(ctx.get_broadcast_state(one).get(value[0]) for one in self.states))

    def process_broadcast_element(self, value, ctx):
        for one in self.states:
            ctx.get_broadcast_state(one).put(*value)


def behind_levels(rules):
    """As far down as the records, and one level further."""
    return rules.rebalance().map(lambda v: v).rebalance().map(lambda v: v)


def in_halves(rules):
    return rules.filter(lambda v: v[0] % 2).union(rules.filter(lambda v: v[0] % 2 == 0))


@PARALLELISM
@pytest.mark.parametrize("records", [6, 3000])
@pytest.mark.parametrize("buffer", [2, 8192])
@pytest.mark.parametrize("way", [lambda rules: rules, behind_levels, in_halves])
def test_broadcast_input_comes_first_without_keys_too(p, records, buffer, way):
    env = batch(p, millstream__buffer__records=buffer)
    events = env.from_collection([(n % 500, n) for n in range(records)]).rebalance()
    rules = way(env.from_collection([(n, -n) for n in range(500)]))
    states = MapStateDescriptor("one"), MapStateDescriptor("two")
    found = events.connect(rules.broadcast(*states)).process(Lookup(*states))
    assert Counter(collect(found)) == Counter(
        (n % 500, -(n % 500), -(n % 500)) for n in range(records)
    )


@PARALLELISM
def test_one_broadcast_input_after_the_other(p):
    env = batch(p)
    state = MapStateDescriptor("one")
    rules = env.from_collection([(n, -n) for n in range(50)])
    once = env.from_collection([(n, 0) for n in range(50)]).connect(rules.broadcast(state))
    pairs = once.process(Lookup(state))
    # The records of the second are the results of the first; its rules are the records of the first.
    twice = pairs.connect(pairs.broadcast(state)).process(Lookup(state))
    assert sorted(collect(twice)) == [(n, -n) for n in range(50)]


class TracedRules(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value, ctx):
        service = ctx.timer_service()
        rule = ctx.get_broadcast_state(Rules.RULES).get(value[0])
        yield "element", value[0], value[1], service.current_watermark(), self.seen.value(), rule
        self.seen.update(value[1])
        service.register_event_time_timer(10)
        service.register_processing_time_timer(HOUR)
        service.register_processing_time_timer(service.current_processing_time() + HOUR)
        service.delete_processing_time_timer(HOUR)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(Rules.RULES).put(*value)

    def on_timer(self, timestamp, ctx):
        key, domain = ctx.get_current_key(), ctx.time_domain().name
        yield "timer", key, domain, ctx.timer_service().current_watermark(), self.seen.value()


@PARALLELISM
def test_keys_beside_a_broadcast_input_come_one_at_a_time_too(p):
    records = [(key, number) for number in (3, 1, 2) for key in "abcdefgh"]
    with keeping() as kept:
        env = batch(p)
        rules = env.from_collection([(k, k.upper()) for k in "abcdefgh"]).broadcast(Rules.RULES)
        trace = timed(env, records).key_by(first).connect(rules).process(TracedRules())
        kept.add("trace", trace, p)
        env.execute()
        by_subtask = kept.with_subtask("trace")
    for subtask in range(p):
        rows = [row for number, row in by_subtask if number == subtask]
        for key, found in itertools.groupby(rows, key=lambda row: row[1]):
            assert list(found) == [
                ("element", key, 1, MIN, None, key.upper()),
                ("element", key, 2, MIN, 1, key.upper()),
                ("element", key, 3, MIN, 2, key.upper()),
                ("timer", key, "EVENT_TIME", MAX, 3),
                *[("timer", key, "PROCESSING_TIME", MAX, 3)] * timers_of(rows, key),
            ]
    assert {row[1] for _, row in by_subtask} == set("abcdefgh")


class Join(CoProcessFunction):
    def process_element1(self, value, ctx):
        yield "one", value

    def process_element2(self, value, ctx):
        yield "two", value


@PARALLELISM
def test_connected_streams_without_keys(p):
    env = batch(p)
    joined = env.from_collection([1, 2]).connect(env.from_collection([3])).process(Join())
    assert sorted(collect(joined)) == [("one", 1), ("one", 2), ("two", 3)]


SMALL = OutputTag("small")


class Sides(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value
        if value[1] < 2:
            yield SMALL, value
        ctx.timer_service().register_event_time_timer(99)

    def on_timer(self, timestamp, ctx):
        yield SMALL, (ctx.get_current_key(), "end")


@PARALLELISM
def test_side_outputs(p):
    env = batch(p)
    with keeping() as kept:
        keyed = env.from_collection([(k, n) for n in range(4) for k in "ab"]).key_by(first)
        main = keyed.process(Sides())
        kept.add("main", main)
        kept.add("side", main.get_side_output(SMALL))
        env.execute()
        assert sorted(kept.values("main")) == [(k, n) for k in "ab" for n in range(4)]
        expected = [(k, n) for k in "ab" for n in (0, 1, "end")]
        assert Counter(kept.values("side")) == Counter(expected)


# -- windows and joins -----------------------------------------------------------------------------------------


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [v[1] for v in elements], context.current_watermark()


@PARALLELISM
def test_windows_fire_at_the_end_of_the_key_in_their_order(p):
    env = batch(p)
    records = [(k, t) for k in "abc" for t in (25, 3, 12, 1)]
    windows = timed(env, records).key_by(first).window(TumblingEventTimeWindows.of("10 ms"))
    results = collect(windows.process(Contents()))
    for key in "abc":
        assert [v[1:] for v in results if v[0] == key] == [
            (0, [1, 3], MAX),
            (10, [12], MAX),
            (20, [25], MAX),
        ]


@PARALLELISM
def test_nothing_is_late(p):
    late = OutputTag("late")
    env = batch(p)
    windows = timed(env, [("a", t) for t in (1000, 1, 2)]).key_by(first)
    sessions = windows.window(EventTimeSessionWindows.with_gap("10 ms")).side_output_late_data(late)
    with keeping() as kept:
        main = sessions.process(Contents())
        kept.add("main", main)
        kept.add("late", main.get_side_output(late))
        env.execute()
        assert [v[1:3] for v in kept.values("main")] == [(1, [1, 2]), (1000, [1000])]
        assert kept.values("late") == []


@PARALLELISM
def test_windows_of_the_clock_fire(p):
    env = batch(p)
    stream = env.from_collection([("a", 1), ("a", 2), ("b", 3)])
    hours = TumblingProcessingTimeWindows.of(Time.days(3650))
    results = collect(stream.key_by(first).window(hours).reduce(lambda a, b: (a[0], a[1] + b[1])))
    assert sorted(results) == [("a", 3), ("b", 3)]


@PARALLELISM
def test_windows_of_the_whole_stream(p):
    env = batch(p)
    stream = timed(env, [("a", 12), ("b", 3), ("c", 4)])
    windows = stream.window_all(TumblingEventTimeWindows.of("10 ms"))
    assert Counter(collect(windows.reduce(lambda a, b: (a[0] + b[0], a[1])))) == Counter(
        [("bc", 3), ("a", 12)]
    )


@PARALLELISM
@pytest.mark.parametrize("memory", ["64 mb", "1 b"])
def test_windows_of_the_clock_of_the_whole_stream_fire(p, memory):
    env = batch(p, millstream__sort__memory=memory)
    numbers = env.from_collection([1, 2, 3]).rebalance().map(lambda n: n)
    windows = numbers.window_all(TumblingProcessingTimeWindows.of(Time.days(3650)))
    assert collect(windows.reduce(lambda a, b: a + b)) == [6]


class Size(WindowFunction):
    def apply(self, key, window, inputs):
        yield key, len(list(inputs))


@PARALLELISM
def test_counts(p):
    env = batch(p)
    keyed = env.from_collection([(k, n) for n in range(5) for k in "ab"]).key_by(first)
    windows = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
    results = collect(windows.apply(Size()))
    assert sorted(results) == [("a", 2), ("a", 4), ("b", 2), ("b", 4)]


@PARALLELISM
def test_windows_of_windows(p):
    env = batch(p)
    records = [(f"{k}{n}", 10 * n) for k in "ab" for n in range(6)]
    totals = (
        timed(env, records)
        .map(lambda v: (v[0], 1))
        .key_by(first)
        .window(SlidingEventTimeWindows.of("20 ms", "10 ms"))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    hours = (
        totals.map(lambda v: (v[0][0], v[1]))
        .key_by(first)
        .window(TumblingEventTimeWindows.of("1 h"))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    assert sorted(collect(hours)) == [("a", 12), ("b", 12)]


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right, ctx.timestamp()


@PARALLELISM
def test_interval_joins(p):
    env = batch(p)
    left = timed(env, [(k, t) for k in "abc" for t in (30, 10, 20)]).key_by(first)
    right = timed(env, [(k, t) for k in "abc" for t in (21, 1, 12)]).key_by(first)
    pairs = left.interval_join(right).between("-5 ms", "5 ms").process(Pair())
    expected = [((k, t), (k, u), max(t, u)) for k in "abc" for t, u in ((10, 12), (20, 21))]
    assert Counter(collect(pairs)) == Counter(expected)


@PARALLELISM
def test_window_joins(p):
    env = batch(p)
    left = timed(env, [(k, t) for k in "abc" for t in (11, 1)])
    right = timed(env, [(k, t) for k in "abc" for t in (2, 13, 3)])
    joined = (
        left.join(right)
        .where(first)
        .equal_to(first)
        .window(TumblingEventTimeWindows.of("10 ms"))
        .apply(lambda a, b: (a[0], a[1], b[1]))
    )
    expected = [(k, *pair) for k in "abc" for pair in ((1, 2), (1, 3), (11, 13))]
    assert Counter(collect(joined)) == Counter(expected)


# -- modes -----------------------------------------------------------------------------------------------------


def sums_of(env, mode):
    keyed = env.set_runtime_mode(mode).from_collection([("a", 1), ("a", 2)]).key_by(first)
    return collect(keyed.sum(1))


def test_automatic_is_batch_if_everything_ends():
    assert sums_of(environment(), RuntimeExecutionMode.AUTOMATIC) == [("a", 3)]
    assert sums_of(environment(), RuntimeExecutionMode.STREAMING) == [("a", 1), ("a", 3)]
    assert sums_of(environment(execution__runtime_mode="BATCH"), BATCH) == [("a", 3)]


def endless(env):
    source = DataGeneratorSource(lambda n: ("a", n))
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def test_automatic_is_streaming_if_something_does_not_end():
    env = environment(1, 3).set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    with endless(env).key_by(first).sum(1).execute_and_collect() as results:
        assert list(itertools.islice(results, 3)) == [("a", 0), ("a", 1), ("a", 3)]


def test_a_source_without_an_end_is_refused():
    stream = endless(batch()).key_by(first).sum(1)
    with pytest.raises(UnsupportedOperation, match="numbers' has no end"):
        collect(stream)


def test_an_empty_input():
    env = batch(2)
    assert collect(env.from_collection([]).key_by(first).sum(1)) == []


# -- sinks and failures ----------------------------------------------------------------------------------------


def lines_of(folder):
    files = [f for f in folder.rglob("*") if f.is_file() and not f.name.startswith((".", "_"))]
    return sorted(line for file in files for line in file.read_text().splitlines())


@PARALLELISM
def test_files_are_committed_at_the_end(tmp_path, p):
    env = batch(p)
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    counts = env.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(first).sum(1)
    counts.map(lambda v: f"{v[0]} {v[1]}").sink_to(sink)
    env.execute()
    assert lines_of(tmp_path) == ["a 4", "b 2"]


def failing(env, folder, times):
    sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
    stream = env.from_collection([(k, n) for k in "ab" for n in (1, 2, 3)]).map(Twos(times))
    stream.key_by(first).sum(1).map(lambda v: f"{v[0]} {v[1]}").sink_to(sink)


_left: dict[int, int] = {}
_numbers = itertools.count()


class Twos(MapFunction):
    """Fails at a two, so often. Functions are copied, this module is not."""

    def __init__(self, times):
        self.number = next(_numbers)
        _left[self.number] = times

    def map(self, value):
        if value[1] == 2 and _left[self.number]:
            _left[self.number] -= 1
            raise ValueError("no twos")
        return value


def test_what_fails_begins_anew(tmp_path):
    env = batch(2)
    restart = RestartStrategies.fixed_delay_restart(2, 0)
    for key, value in restart.to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    failing(env, tmp_path, 2)
    env.execute()
    assert lines_of(tmp_path) == ["a 6", "b 6"]


def test_what_fails_leaves_nothing(tmp_path):
    env = batch(2)
    for key, value in RestartStrategies.no_restart().to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    failing(env, tmp_path, 1)
    with pytest.raises(UserFunctionError, match="no twos"):
        env.execute()
    assert lines_of(tmp_path) == []


class Broken(KeyedProcessFunction):
    def __init__(self, where):
        self.where = where

    def process_element(self, value, ctx):
        if self.where == "element" and value == ("b", 2):
            raise ValueError("broken")
        if self.where == "timer":
            ctx.timer_service().register_event_time_timer(5)

    def on_timer(self, timestamp, ctx):
        raise ValueError("broken")


@pytest.mark.parametrize("memory", ["64 mb", "1 b"])
def test_a_failure_names_operator_and_record(memory):
    env = batch(millstream__sort__memory=memory)
    stream = env.from_collection([(k, n) for k in "ab" for n in (1, 2)]).key_by(first)
    with pytest.raises(UserFunctionError) as caught:
        collect(stream.process(Broken("element")).name("the broken one"))
    text = str(caught.value)
    assert "the broken one" in text
    assert "('b', 2)" in text
    assert "record 1 of its key" in text
    assert "broken" in text


def test_a_failure_of_a_timer_names_the_operator():
    stream = batch().from_collection([("a", 1)]).key_by(first)
    with pytest.raises(UserFunctionError, match="the broken one"):
        collect(stream.process(Broken("timer")).name("the broken one"))


def test_a_failure_while_combining():
    stream = batch().from_collection([("a", 1), ("a", None)]).key_by(first)
    with pytest.raises(TypeMismatchError, match="sum"):
        collect(stream.sum(1))


# -- more than fits into memory --------------------------------------------------------------------------------


class Collect(KeyedProcessFunction):
    def open(self, runtime_context):
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))

    def process_element(self, value, ctx):
        self.all.add(value[1])
        ctx.timer_service().register_event_time_timer(0)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), list(self.all.get())


@PARALLELISM
@pytest.mark.parametrize("memory", ["1 b", "1 kb", "20 kb"])
@pytest.mark.parametrize("stamped", [False, True])
def test_key_groups_larger_than_memory(p, memory, stamped):
    env = batch(p, millstream__sort__memory=memory)
    records = [(key, 100 - n) for n in range(100) for key in range(40)]
    stream = timed(env, records) if stamped else env.from_collection(records)
    keyed = stream.key_by(first).process(Collect()).set_max_parallelism(4)
    numbers = list(range(1, 101)) if stamped else list(range(100, 0, -1))
    assert sorted(collect(keyed)) == [(key, numbers) for key in range(40)]


class InOrder(KeyedProcessFunction):
    """Holds nothing but the last record."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        assert value[1] > (self.last.value() or -1)
        self.last.update(value[1])
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(0)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.count.value()


def test_a_single_key_larger_than_memory_comes_by_time():
    env = batch(millstream__sort__memory="4 kb")
    records = [("one", (n * 7919) % 6007) for n in range(6007)]
    assert collect(timed(env, records).key_by(first).process(InOrder())) == [("one", 6007)]


def test_two_inputs_of_a_single_key_larger_than_memory():
    env = batch(millstream__sort__memory="1 kb")
    one, two = (timed(env, [("k", (n * 7) % 1500 * 2 + i) for n in range(1500)]) for i in (0, 1))
    joined = one.key_by(first).connect(two.key_by(first)).process(Numbered())
    results = collect(joined)
    assert [v[1] for v in results] == list(range(1, 3001))
    assert [v[3] for v in results] == list(range(3000))


def test_keys_are_taken_apart_by_another_hash_at_each_depth():
    parts = [{depth: Spilled(depth)._part(key) for depth in (1, 2, 3)} for key in range(1000)]
    together = [one for one in parts if one[1] == parts[0][1]]
    assert 2 < len(together) < 60
    assert len({one[2] for one in together}) > 1


def test_in_order_keeps_equal_times_as_they_came():
    items = [(n % 3, 0, n) for n in range(5000)]
    assert list(in_order(iter(items), 100)) == sorted(items, key=lambda item: item[0])


def test_many_keys_through_a_combiner_with_little_memory():
    env = batch(3, millstream__sort__memory="1 kb")
    words = env.from_collection([f"word {n % 700}" for n in range(7000)]).rebalance()
    counts = words.map(lambda w: (w, 1)).key_by(first).sum(1)
    assert sorted(collect(counts)) == sorted((f"word {n}", 10) for n in range(700))
