"""Joins by window and by interval, against all pairs that there are."""

from __future__ import annotations

import itertools
import logging
from collections import Counter

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from millstream.api.error_policy import ErrorPolicy
from millstream.common.time import Time
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import (
    InvalidArgument,
    KeySelectorError,
    MillstreamError,
    MissingTimestamp,
    TypeMismatchError,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.testing import OperatorHarness
from tests.support import collect, environment

LATE, LATE_LEFT, LATE_RIGHT = OutputTag("late"), OutputTag("late left"), OutputTag("late right")
BACKENDS = ["hashmap", "lmdb"]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Stamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        assert ctx.timestamp() == max(ctx.get_left_timestamp(), ctx.get_right_timestamp())
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp()


class Both(CoGroupFunction):
    def co_group(self, first, second):
        return [(sorted(first), sorted(second))]


_numbers = itertools.count()
_left: dict[int, int] = {}


class FailsOnce(MapFunction):
    """Fails at the record with this number, once; never at 0. Functions are copied, this module is not."""

    def __init__(self, record):
        self.number = next(_numbers)
        _left[self.number] = record

    def map(self, value):
        _left[self.number] -= 1
        if _left[self.number] == 0:
            raise ValueError("once")
        return value


# -- any input ---------------------------------------------------------------------------------------------------------

DISORDER = 6


@st.composite
def records(draw, side):
    """Records (key, timestamp, who) that are at most so much behind the latest one."""
    found, latest = [], 0
    for number in range(draw(st.integers(0, 14))):
        at = latest + draw(st.integers(-DISORDER, 8))
        latest = max(latest, at)
        found.append((draw(st.sampled_from("aab")), at, f"{side}{number}"))
    return found


runs = st.fixed_dictionaries(
    {
        "parallelism": st.sampled_from([1, 2, 3]),
        "epoch": st.sampled_from([1, 3, None]),
        "backend": st.sampled_from(BACKENDS),
        "crash": st.integers(0, 8),
    }
)


def run(made, how, folder):
    """The results of two streams, with their timestamps."""
    env = environment(
        how["parallelism"],
        how["epoch"],
        state__backend__type=how["backend"],
        execution__checkpointing__dir=folder,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__delay="1 ms",
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(DISORDER))
    strategy = strategy.with_timestamp_assigner(Second())

    def stream(records):
        read = env.from_collection(records, Types.PICKLED_BYTE_ARRAY())
        return read.assign_timestamps_and_watermarks(strategy)

    result = made(stream).map(FailsOnce(how["crash"])).disable_chaining()
    return Counter(collect(result.process(Stamp())))


def windows_of(kind, records):
    """Every window of one key: its end, and its records."""
    if kind == "session":
        found = []
        for one in sorted(records, key=lambda r: r[1]):
            if found and one[1] <= found[-1][0]:
                found[-1] = one[1] + 5, [*found[-1][1], one]
            else:
                found.append((one[1] + 5, [one]))
        return found
    size, slide = (10, 10) if kind == "tumbling" else (10, 4)
    ends: dict[int, list] = {}
    for one in records:
        start = one[1] - one[1] % slide
        while start > one[1] - size:
            ends.setdefault(start + size, []).append(one)
            start -= slide
    return list(ends.items())


def assigner(kind):
    return {
        "tumbling": TumblingEventTimeWindows.of("10 ms"),
        "sliding": SlidingEventTimeWindows.of("10 ms", "4 ms"),
        "session": EventTimeSessionWindows.with_gap("5 ms"),
    }[kind]


@settings(max_examples=40, deadline=None)
@given(
    records("l"),
    records("r"),
    st.sampled_from(["tumbling", "sliding", "session"]),
    st.booleans(),
    runs,
)
def test_windows_hold_all_pairs_of_a_key(tmp_path_factory, left, right, kind, grouped, how):
    expected: Counter = Counter()
    for key in "ab":
        for end, inside in windows_of(kind, [r for r in left + right if r[0] == key]):
            one = [r for r in inside if r[2][0] == "l"]
            two = [r for r in inside if r[2][0] == "r"]
            if grouped:
                expected[str((sorted(one), sorted(two))), end - 1] += 1
            else:
                expected.update((str(pair), end - 1) for pair in itertools.product(one, two))
    event(f"results: {bool(expected)}")

    def made(stream):
        one, two = stream(left), stream(right)
        both = one.co_group(two) if grouped else one.join(two)
        windows = both.where(0).equal_to(lambda r: r[0]).window(assigner(kind))
        result = windows.apply(Both()) if grouped else windows.apply(lambda a, b: (a, b))
        return result.map(str)

    assert run(made, how, tmp_path_factory.mktemp("job")) == expected


@settings(max_examples=60, deadline=None)
@given(
    records("l"),
    records("r"),
    st.tuples(st.integers(-12, 12), st.integers(-12, 12)).map(sorted),
    st.tuples(st.booleans(), st.booleans()),
    runs,
)
def test_an_interval_join_finds_all_pairs(tmp_path_factory, left, right, bounds, without, how):
    lowest, highest = bounds[0] + without[0], bounds[1] - without[1]
    if lowest > highest:
        without, (lowest, highest) = (False, False), bounds
    expected = Counter(
        ((one, two, one[1], two[1]), max(one[1], two[1]))
        for one, two in itertools.product(left, right)
        if one[0] == two[0] and lowest <= two[1] - one[1] <= highest
    )
    event(f"results: {bool(expected)}")

    def made(stream):
        one, two = stream(left).key_by(0), stream(right).key_by(lambda r: r[0])
        join = one.interval_join(two).in_event_time().between(*bounds)
        if without[0]:
            join = join.lower_bound_exclusive()
        if without[1]:
            join = join.upper_bound_exclusive()
        return join.process(Pair())

    assert run(made, how, tmp_path_factory.mktemp("job")) == expected


@pytest.mark.parametrize("parallelism", [1, 3])
def test_batch_mode(parallelism):
    """Records need no order there: nothing is late."""
    env = environment(parallelism, execution__runtime_mode="BATCH")
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    left = [("abc"[n % 3], 37 * n % 100, f"l{n}") for n in range(40)]
    right = [("abc"[n % 3], 61 * n % 100, f"r{n}") for n in range(40)]
    one, two = (
        env.from_collection(side).assign_timestamps_and_watermarks(strategy)
        for side in (left, right)
    )
    by_interval = one.key_by(0).interval_join(two.key_by(0)).between(-5, 20).process(Pair())
    by_window = one.join(two).where(0).equal_to(0).window(TumblingEventTimeWindows.of(20))
    result = by_interval.map(lambda p: ("interval", *p[:2])).union(
        by_window.apply(lambda a, b: ("window", a, b))
    )
    same_key = [(a, b) for a, b in itertools.product(left, right) if a[0] == b[0]]
    expected = Counter(("interval", a, b) for a, b in same_key if -5 <= b[1] - a[1] <= 20)
    expected += Counter(("window", a, b) for a, b in same_key if a[1] // 20 == b[1] // 20)
    assert Counter(collect(result)) == expected


# -- the interval join, step by step -----------------------------------------------------------------------------------


def interval(lower, upper, function=None, change=lambda join: join):
    def pipeline(left, right):
        join = left.key_by(0).interval_join(right.key_by(0)).between(lower, upper)
        return change(join).process(function or Pair())

    return pipeline


def pairs(harness):
    found = [(left[1], right[1]) for left, right, *_ in harness.extract_output()]
    harness.clear_output()
    return found


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda j: j, [8, 9, 11, 12]),
        (lambda j: j.lower_bound_exclusive(), [9, 11, 12]),
        (lambda j: j.upper_bound_exclusive(), [8, 9, 11]),
        (lambda j: j.lower_bound_exclusive().upper_bound_exclusive(), [9, 11]),
    ],
)
@pytest.mark.parametrize("left_first", [True, False])
def test_bounds(change, wanted, left_first):
    with OperatorHarness(interval("-2 ms", "2 ms", change=change)) as harness:
        if left_first:
            harness.process_element1(("a", 10), 10)
        for at in (7, 8, 9, 11, 12, 13):
            harness.process_element2(("a", at), at)
        harness.process_element2(("b", 10), 10)
        if not left_first:
            harness.process_element1(("a", 10), 10)
        assert harness.extract_output_with_timestamps() == [
            ((("a", 10), ("a", at), 10, at), max(10, at)) for at in wanted
        ]


@pytest.mark.parametrize(
    ("bounds", "left_goes", "right_goes"),
    [((-3, 5), 15, 13), ((2, 5), 15, 10), ((-5, -2), 10, 15), ((0, 0), 10, 10)],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_records_are_kept_as_long_as_they_can_meet_others(bounds, left_goes, right_goes, backend):
    for side, goes in ((1, left_goes), (2, right_goes)):
        with OperatorHarness(interval(*bounds), state_backend=backend) as harness:
            getattr(harness, f"process_element{side}")(("a", 10), 10)
            getattr(harness, f"process_element{side}")(("a", 10), 10)
            for watermark, left in ((goes - 1, 1), (goes, 0)):
                harness.process_watermark1(watermark)
                harness.process_watermark2(watermark)
                assert harness.num_keyed_state_entries() == left


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_is_left_at_the_end(backend):
    with OperatorHarness(interval(-5, 5), state_backend=backend, parallelism=2) as harness:
        for at in range(40):
            harness.process_element1(("ab"[at % 2], at), at)
            harness.process_element2(("ab"[at % 3 % 2], at), at)
            harness.process_watermark1(at - 1)
            harness.process_watermark2(at - 1)
            assert harness.num_keyed_state_entries() <= 14
        assert harness.num_keyed_state_entries() > 0
        harness.end_input()
        assert harness.num_keyed_state_entries() == 0


def test_late_records_of_either_side():
    def outputs(join):
        return join.side_output_left_late_data(LATE_LEFT).side_output_right_late_data(LATE_RIGHT)

    tags = [LATE_LEFT, LATE_RIGHT]
    with OperatorHarness(interval(-9, 9, change=outputs), side_outputs=tags) as harness:
        harness.process_watermark1(20)
        harness.process_element1(("a", 1), 1)
        assert harness.get_side_output(LATE_LEFT) == []
        harness.process_watermark2(10)
        for at in (9, 10, 11):
            harness.process_element1(("a", at), at)
            harness.process_element2(("a", at), at)
        # What is at the watermark is not late yet.
        found = [(left[1], right[1]) for left, right, *_ in harness.extract_output()]
        assert found == [(10, 10), (11, 10), (10, 11), (11, 11)]
        assert harness.get_side_output_with_timestamps(LATE_LEFT) == [(("a", 9), 9)]
        assert harness.get_side_output_with_timestamps(LATE_RIGHT) == [(("a", 9), 9)]


def test_late_records_that_nobody_wants_are_counted(caplog):
    env = environment(1, 1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    times = [("a", 1), ("a", 50), ("a", 2), ("a", 3)]
    one, two = (
        env.from_collection(times).assign_timestamps_and_watermarks(strategy).key_by(0)
        for _ in range(2)
    )
    with caplog.at_level(logging.WARNING, "millstream.job"):
        found = collect(one.interval_join(two).between(0, 0).process(Pair()))
    assert [left[1] for left, *_ in found] == [1, 50]
    assert any("'Interval Join' has dropped" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interval_join_moves_to_another_parallelism(backend):
    pipeline = interval(-10, 10)
    keys = "abcdefgh"
    with OperatorHarness(pipeline, parallelism=1, state_backend=backend) as harness:
        for key in keys:
            harness.process_element1((key, 5), 5)
            harness.process_element2((key, 30), 30)
        harness.process_watermark1(4)
        harness.process_watermark2(4)
        first = harness.snapshot()
    with OperatorHarness.restore(pipeline, first, parallelism=3) as harness:
        for key in keys:
            harness.process_element2((key, 15), 15)
        assert Counter(pairs(harness)) == {(5, 15): 8}
        harness.process_watermark1(16)
        harness.process_watermark2(16)
        second = harness.snapshot()
    with OperatorHarness.restore(pipeline, second, parallelism=2) as harness:
        for key in keys:
            harness.process_element1((key, 20), 20)
        assert Counter(pairs(harness)) == {(20, 15): 8, (20, 30): 8}
        harness.end_input()
        assert harness.num_keyed_state_entries() == 0


def test_side_outputs_and_state_of_the_function():
    odd = OutputTag("odd")

    class Numbered(ProcessJoinFunction):
        def open(self, runtime_context):
            self.count = runtime_context.get_state(ValueStateDescriptor("count"))

        def process_element(self, left, right, ctx):
            number = (self.count.value() or 0) + 1
            self.count.update(number)
            result = left[0], number
            return [(odd, result) if number % 2 else result]

    with OperatorHarness(interval(0, 9, Numbered()), side_outputs=[odd]) as harness:
        for key in "ab":
            harness.process_element1((key, 1), 1)
            for at in (1, 2, 3):
                harness.process_element2((key, at), at)
        assert harness.extract_output_with_timestamps() == [(("a", 2), 2), (("b", 2), 2)]
        assert harness.get_side_output_with_timestamps(odd) == [
            (("a", 1), 1),
            (("a", 3), 3),
            (("b", 1), 1),
            (("b", 3), 3),
        ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_function_does_to_a_record_is_not_kept(backend):
    class Spoils(ProcessJoinFunction):
        def process_element(self, left, right, ctx):
            yield list(left[2]), list(right[2])
            left[2].append("spoilt")
            right[2].append("spoilt")

    with OperatorHarness(interval(0, 9, Spoils()), state_backend=backend) as harness:
        harness.process_element1(("a", 1, ["l"]), 1)
        harness.process_element2(("a", 1, ["r1"]), 1)
        harness.process_element2(("a", 2, ["r2"]), 2)
        harness.process_element1(("a", 1, ["m"]), 1)
        harness.process_element1(("a", 2, ["n"]), 2)
        found = harness.extract_output()
        # Pairs of one record are made one after the other, so the second sees what the first has done.
        assert found == [
            (["l"], ["r1"]),
            (["l"], ["r2"]),
            (["m"], ["r1"]),
            (["m", "spoilt"], ["r2"]),
            (["n"], ["r2"]),
        ]


def test_a_record_whose_failure_is_passed_over_goes_one_day():
    class Bad(ProcessJoinFunction):
        def process_element(self, left, right, ctx):
            raise ValueError("bad")

    def pipeline(left, right):
        join = left.key_by(0).interval_join(right.key_by(0)).between(0, 5)
        return join.process(Bad()).on_error(ErrorPolicy.skip())

    with OperatorHarness(pipeline) as harness:
        harness.process_element1(("a", 1), 1)
        harness.process_element2(("a", 2), 2)
        harness.end_input()
        assert harness.num_keyed_state_entries() == 0


def test_a_stream_joined_with_itself():
    env = environment(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    stream = env.from_collection([("a", 1), ("a", 3), ("b", 3)])
    keyed = stream.assign_timestamps_and_watermarks(strategy).key_by(0)
    found = collect(keyed.interval_join(keyed).between(1, 5).process(Pair()))
    assert [(left, right) for left, right, *_ in found] == [(("a", 1), ("a", 3))]


@pytest.mark.parametrize("key", [[1], (1, "x"), 1.5, True, Row(1, "x"), {"k": 1}])
def test_any_key(key):
    other = [*key] if isinstance(key, list) else key
    with OperatorHarness(interval(0, 9), parallelism=2) as harness:
        harness.process_element1((key, 1), 1)
        harness.process_element2((other, 2), 2)
        harness.process_element2((1, 2), 2)
        assert pairs(harness) == [(1, 2)]
        harness.end_input()
        assert harness.num_keyed_state_entries() == 0


# -- joins by window, step by step -------------------------------------------------------------------------------------


def joined(change=lambda windows: windows, function=lambda a, b: (a, b), group=False):
    def pipeline(left, right):
        both = left.co_group(right) if group else left.join(right)
        windows = both.where(lambda v: v[0]).equal_to(lambda v: v[0])
        return change(windows.window(TumblingEventTimeWindows.of("10 ms"))).apply(function)

    return pipeline


def advance(harness, watermark):
    harness.process_watermark1(watermark)
    harness.process_watermark2(watermark)


def test_results_have_the_last_timestamp_of_the_window():
    with OperatorHarness(joined()) as harness:
        harness.process_element1("a1", 3)
        harness.process_element2("a2", 5)
        harness.process_element2("b2", 5)
        harness.process_element2("a3", 15)
        advance(harness, 8)
        assert harness.extract_output() == []
        advance(harness, 9)
        assert harness.extract_output_with_timestamps() == [(("a1", "a2"), 9)]
        harness.end_input()
        assert harness.extract_output() == [("a1", "a2")]
        assert harness.num_keyed_state_entries() == 0


def test_groups_are_there_if_one_stream_has_records():
    with OperatorHarness(joined(function=Both(), group=True)) as harness:
        harness.process_element1("a1", 3)
        harness.process_element2("b2", 5)
        harness.end_input()
        assert sorted(harness.extract_output()) == [([], ["b2"]), (["a1"], [])]


def test_lateness_and_late_records():
    def late(windows):
        return windows.allowed_lateness("5 ms").side_output_late_data(LATE)

    with OperatorHarness(joined(late), side_outputs=[LATE]) as harness:
        harness.process_element1("a1", 3)
        advance(harness, 9)
        harness.process_element2("a2", 4)
        assert harness.extract_output_with_timestamps() == [(("a1", "a2"), 9)]
        advance(harness, 14)
        harness.process_element1("a3", 5)
        harness.process_element2("a4", 5)
        assert harness.get_side_output_with_timestamps(LATE) == [((0, "a3"), 5), ((1, "a4"), 5)]


def test_triggers_and_evictors():
    def twice(windows):
        return windows.trigger(PurgingTrigger.of(CountTrigger.of(3))).evictor(CountEvictor.of(2))

    with OperatorHarness(joined(twice)) as harness:
        harness.process_element1("a1", 1)
        harness.process_element1("a2", 2)
        harness.process_element2("a3", 3)
        assert harness.extract_output() == [("a2", "a3")]


def test_a_global_window():
    def pipeline(left, right):
        both = left.join(right).where(0).equal_to(0).window(GlobalWindows.create())
        return both.trigger(CountTrigger.of(2)).apply(Sum())

    class Sum(JoinFunction):
        def join(self, first, second):
            return first[1] + second[1]

    with OperatorHarness(pipeline) as harness:
        harness.process_element1(("a", 1))
        harness.process_element2(("a", 2))
        assert harness.extract_output() == [3]


def test_any_number_of_results():
    class Some(FlatJoinFunction):
        def open(self, runtime_context):
            self.opened = True

        def join(self, first, second):
            assert self.opened
            if first[1] == "1":
                return None
            return [first, second] if first[1] == "2" else [(LATE, first)]

    with OperatorHarness(joined(function=Some()), side_outputs=[LATE]) as harness:
        for left in ("a1", "a2", "a3"):
            harness.process_element1(left, 1)
        harness.process_element2("a9", 2)
        harness.end_input()
        assert harness.extract_output() == ["a2", "a9"]
        assert harness.get_side_output(LATE) == ["a3"]


def test_key_selectors_and_declared_keys():
    class First(KeySelector):
        def get_key(self, value):
            return value[0]

    def pipeline(left, right):
        windows = left.join(right).where(First(), Types.LONG()).equal_to(lambda v: v)
        endless = windows.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
        return endless.apply(lambda a, b: a[1] * b, Types.STRING())

    with OperatorHarness(pipeline, parallelism=2) as harness:
        harness.process_element1((2, "x"))
        harness.process_element1((3, "y"))
        harness.process_element2(3)
        assert harness.extract_output() == ["yyy"]
        # The type holds for the keys of both streams.
        with pytest.raises(TypeMismatchError):
            harness.process_element2("3")


# -- mistakes ----------------------------------------------------------------------------------------------------------


def two_streams():
    env = environment()
    return env.from_collection([("a", 1)]), env.from_collection([("a", 2)])


def test_bounds_in_the_wrong_order():
    one, two = (stream.key_by(0) for stream in two_streams())
    with pytest.raises(InvalidArgument, match="lower bound"):
        one.interval_join(two).between("1 s", "0 s")
    for change in ("lower_bound_exclusive", "upper_bound_exclusive"):
        join = one.interval_join(two).between(5, 5)
        with pytest.raises(InvalidArgument, match="nothing is between"):
            getattr(join, change)().process(Pair())


def test_processing_time_is_refused():
    one, two = (stream.key_by(0) for stream in two_streams())
    with pytest.raises(UnsupportedOperation, match="event time only"):
        one.interval_join(two).in_processing_time()


def test_streams_that_do_not_fit():
    one, two = two_streams()
    with pytest.raises(InvalidArgument, match="keyed stream"):
        one.key_by(0).interval_join(two)
    with pytest.raises(InvalidArgument, match="another environment"):
        one.key_by(0).interval_join(two_streams()[0].key_by(0))
    with pytest.raises(InvalidArgument, match="different types"):
        one.key_by(0, Types.STRING()).interval_join(two.key_by(0, Types.INT()))
    for call in ("join", "co_group"):
        with pytest.raises(InvalidArgument, match=f"{call} takes a stream"):
            getattr(one, call)([1, 2])
        with pytest.raises(InvalidArgument, match="another environment"):
            getattr(one, call)(two_streams()[0])
        with pytest.raises(InvalidArgument, match="different types"):
            getattr(one, call)(two).where(0, Types.STRING()).equal_to(0, Types.INT())
        with pytest.raises(InvalidArgument, match="equal_to needs"):
            getattr(one, call)(two).where(0).equal_to(None)


def test_functions_that_do_not_fit():
    one, two = two_streams()
    join = one.key_by(0).interval_join(two.key_by(0)).between(0, 1)
    for wrong in (lambda a, b, c: a, Both()):
        with pytest.raises(InvalidArgument, match="ProcessJoinFunction"):
            join.process(wrong)
    with pytest.raises(InvalidArgument, match="the class Pair"):
        join.process(Pair)
    with pytest.raises(InvalidArgument, match="OutputTag"):
        join.side_output_left_late_data("late")
    windows = one.join(two).where(0).equal_to(0).window(TumblingEventTimeWindows.of(1))
    with pytest.raises(InvalidArgument, match="JoinFunction"):
        windows.apply(Both())
    with pytest.raises(InvalidArgument, match="window needs"):
        one.join(two).where(0).equal_to(0).window(5)
    sessions = EventTimeSessionWindows.with_gap(5)
    with pytest.raises(UnsupportedOperation, match="merge"):
        one.co_group(two).where(0).equal_to(0).window(sessions).trigger(NeverTrigger())


def failing(stream):
    with pytest.raises(MillstreamError) as caught:
        collect(stream)
    return caught.value


def test_joins_by_event_time_need_timestamps():
    one, two = two_streams()
    error = failing(one.key_by(0).interval_join(two.key_by(0)).between(0, 1).process(Pair()))
    assert type(error) is MissingTimestamp
    assert "interval join" in error.what
    assert error.evidence["record"] in ("('a', 1)", "('a', 2)")
    assert error.evidence["declared_at"] is not None
    one, two = two_streams()
    windows = one.join(two).where(0).equal_to(0).window(TumblingEventTimeWindows.of(1))
    assert type(failing(windows.apply(lambda a, b: a))) is MissingTimestamp


def test_what_functions_raise_names_the_operator_and_the_line():
    class Bad(ProcessJoinFunction):
        def process_element(self, left, right, ctx):
            raise ValueError("no pair")  # join

    def bad(left, right):
        raise ValueError("no pair")  # join

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    one, two = (s.assign_timestamps_and_watermarks(strategy) for s in two_streams())
    windows = one.join(two).where(0).equal_to(0).window(TumblingEventTimeWindows.of(10))
    for made in (
        one.key_by(0).interval_join(two.key_by(0)).between(-5, 5).process(Bad()),
        windows.apply(bad),
    ):
        error = failing(made.name("my join"))
        assert type(error) is UserFunctionError
        assert "my join" in error.what
        assert "no pair" in error.what
        assert "# join" in error.evidence["line"]


def test_a_key_that_is_not_there():
    one, two = two_streams()
    windows = one.join(two).where(0).equal_to(5).window(GlobalWindows.create())
    error = failing(windows.apply(lambda a, b: a))
    assert type(error) is KeySelectorError
    assert "no key 5" in error.what
    assert "equal_to(5)" in str(error.evidence["declared_at"])
