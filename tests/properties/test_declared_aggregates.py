"""Aggregates that are named give what a function written by hand gives, in windows of every kind."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    count,
    max_of,
    mean_of,
    min_of,
    sum_of,
)
from millstream.datastream.window import (
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import InvalidArgument, TypeMismatchError
from millstream.graph.operators import CollectOp
from tests.support import collect, environment

NAMED = (sum_of(1), count(), min_of(1), max_of(1), mean_of(1))

ASSIGNERS = {
    "tumbling": lambda: TumblingEventTimeWindows.of(10),
    "sliding": lambda: SlidingEventTimeWindows.of(12, 4),
    "sliding cut": lambda: SlidingEventTimeWindows.of(11, 4, 1),
    "session": lambda: EventTimeSessionWindows.with_gap(5),
}


class AtThird(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class ByHand(AggregateFunction):
    """All values of a window in a list, from which everything follows."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        return [*accumulator, value[1]]

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b

    def get_result(self, accumulator):
        values = [value for value in accumulator if value is not None]
        if not values:
            return None, len(accumulator), None, None, None
        least, most = min(values), max(values)
        if any(math.isnan(value) for value in values):
            least = most = math.nan
        total = sum(values)
        return total, len(accumulator), least, most, total / len(values)


class WithKey(ProcessWindowFunction):
    def process(self, key, context, elements):
        for results in elements:
            yield (key, *results)


# Sums of these are exact, in whatever order.
VALUES = st.none() | st.integers(-(10**20), 10**20) | st.integers(-40, 40).map(lambda n: n / 4)
RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), VALUES | st.just(math.nan), st.integers(0, 40)), max_size=25
)


def small(records):
    """Ints and floats that add up exactly: either all of them are whole, or none is large."""
    floats = any(type(value) is float for _, value, _ in records)
    return [
        (key, value % 1000 if floats and type(value) is int else value, time)
        for key, value, time in records
    ]


def windows(records, kind, parallelism, epoch, evicting, **options):
    env = environment(parallelism, epoch, **options)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(50)
    stream = env.from_collection(records).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(AtThird())
    )
    windowed = stream.key_by(0).window(ASSIGNERS[kind]())
    return windowed.evictor(CountEvictor.of(1000)) if evicting else windowed


@pytest.mark.timeout(1800)
@given(
    RECORDS.map(small),
    st.sampled_from(sorted(ASSIGNERS)),
    st.sampled_from([1, 2]),
    st.sampled_from([None, 7]),
    st.booleans(),
    st.booleans(),
)
def test_they_give_what_a_function_gives(records, kind, parallelism, epoch, evicting, panes):
    options = {"millstream__windows__share_panes": panes}
    made = windows(records, kind, parallelism, epoch, evicting, **options)
    found: list = []
    expected: list = []
    made.aggregate_of(*NAMED)._sink("named", CollectOp(found.extend))
    made.aggregate(ByHand(), WithKey())._sink("by hand", CollectOp(expected.extend))
    made.get_execution_environment().execute()
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


def test_they_go_on_from_a_checkpoint(tmp_path):
    """Open windows are state like any other."""
    records = [("a", number, number) for number in range(40)]
    options = {
        "execution__checkpointing__dir": tmp_path,
        "restart_strategy__type": "fixed-delay",
        "restart_strategy__fixed_delay__delay": "0 ms",
    }
    FAILED.clear()
    env = environment(1, 7, **options)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(50)
    stream = env.from_collection(records).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(AtThird())
    )
    found = stream.map(fail_once).key_by(0).window(SlidingEventTimeWindows.of(20, 10))
    sums = collect(found.aggregate_of(sum_of(1), count()))
    assert sums == [
        ("a", sum(range(max(0, end - 20), min(end, 40))), 10 if end in (10, 50) else 20)
        for end in range(10, 51, 10)
    ]
    assert FAILED


FAILED: list = []


def fail_once(value):
    if value[1] == 30 and not FAILED:
        FAILED.append(value)
        raise ValueError("once")
    return value


def test_fields_by_name_and_windows_of_a_whole_stream():
    rows = [Row(word="a", n=3), Row(word="b", n=5)]
    windows = environment().from_collection(rows).count_window_all(2)
    assert collect(windows.aggregate_of(sum_of("n"), max_of("word"))) == [(8, "b")]
    numbers = environment().from_collection([1, 2, 4, 6]).count_window_all(2)
    assert collect(numbers.aggregate_of(mean_of(0))) == [(1.5,), (5.0,)]


def test_a_window_function_gets_the_results():
    pairs = environment().from_collection([("a", 3), ("a", 5)]).key_by(0).count_window(2)
    assert collect(pairs.aggregate_of(sum_of(1), window_function=WithKey())) == [("a", 8)]


@pytest.mark.parametrize(
    "record", [("a", "text"), ("a",), ("a", [1]), None], ids=["text", "too short", "list", "None"]
)
def test_what_cannot_be_added_is_told(record):
    stream = environment().from_collection([("a", 1), record])
    windows = stream.key_by(lambda v: 0).count_window(2)
    with pytest.raises(TypeMismatchError, match="cannot take a record") as failure:
        collect(windows.aggregate_of(sum_of(1)))
    assert failure.value.evidence["aggregates"] == "sum_of(1)"
    assert failure.value.evidence["record"] == repr(record)


@pytest.mark.parametrize(
    "wrong",
    [(), (sum,), (sum_of(-1),), (sum_of("missing"),), (sum_of("word"),), (mean_of(7),), ("n",)],
)
def test_what_cannot_be_right_is_refused_at_once(wrong):
    declared = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.INT()])
    stream = environment().from_collection([("a", 1)], declared)
    with pytest.raises(InvalidArgument):
        stream.key_by(0).count_window(2).aggregate_of(*wrong)
