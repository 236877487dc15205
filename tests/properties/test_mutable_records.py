"""A record is what it was when it was emitted (rule 64): random programs whose functions do all that spoils records.

They emit one object again and again, keep what they have taken or emitted and change it later, change what they are
given, and put it into state and change it there. What each gives is, if records stay what they were, a function of its
input alone, so the reference is a list of plain functions. Everything that a function of the program kept is changed
when the next record comes, long before buffers are written.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Types, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.time import Time
from millstream.common.types import Row
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.functions import SourceFunction
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import RecordNotSerializable

SIDE = OutputTag("side")


@dataclass
class Box:
    k: Any
    n: int
    more: list

    def __getitem__(self, place: int) -> Any:
        return (self.k, self.n, self.more)[place]

    def __setitem__(self, place: int, value: Any) -> None:
        setattr(self, ("k", "n", "more")[place], value)


# All have the key at 0, a number at 1 and a list at 2.
KINDS: dict[str, Callable[[Any, int], Any]] = {
    "list": lambda k, n: [k, n, [n]],
    "dict": lambda k, n: {0: k, 1: n, 2: [n]},
    "row": lambda k, n: Row(k, n, [n]),
    "object": lambda k, n: Box(k, n, [n]),
}


def spoil(v: Any) -> None:
    """Whoever sees this record from now on sees that it was changed."""
    v[0], v[1] = "spoilt", -1
    v[2].append("spoilt")


class Spoils:
    """Keeps what it has taken and emitted, and changes all of it when the next record comes."""

    def __init__(self, kind: str) -> None:
        self.make = KINDS[kind]
        self.kept: list[Any] = []

    def begin(self, v: Any) -> None:
        for one in self.kept:
            spoil(one)
        self.kept = []

    def keep(self, *values: Any) -> None:
        self.kept.extend(values)


class Again(Spoils, FlatMapFunction):
    """One object, again and again."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.out = self.make("", 0)

    def flat_map(self, v: Any) -> Any:
        for more in (0, 1):
            self.out[0], self.out[1] = v[0], v[1] + more
            self.out[2][:] = [v[1] + more]
            yield self.out


def again_locally(v: Any) -> Any:
    out = [None, None, []]
    for more in (0, 1):
        out[0], out[1] = v[0], v[1] + more
        out[2][:] = [v[1] + more]  # type: ignore[index]
        yield out


class Keep(Spoils, MapFunction):
    """Gives what it was given, keeps it, and changes it later."""

    def map(self, v: Any) -> Any:
        self.begin(v)
        self.keep(v)
        return v


class KeepPart(Spoils, MapFunction):
    """Only a part of what it gives is known to it."""

    def map(self, v: Any) -> Any:
        self.begin(v)
        out = self.make(v[0], v[1])
        self.inner = out[2]
        self.keep([0, 0, self.inner])
        return out


class Change(Spoils, MapFunction):
    """Changes its argument."""

    def map(self, v: Any) -> Any:
        v[1] += 10
        v[2][:] = [v[1]]
        return v


def change_plainly(v: Any) -> Any:
    v[1] = v[1] + 10
    v[2][:] = [v[1]]
    return v


class Sieve(Spoils, FilterFunction):
    def filter(self, v: Any) -> bool:
        self.begin(v)
        self.keep(v)
        return v[1] % 2 == 0


class Sides(Spoils, ProcessFunction):
    """The same object to both outputs, and changed in between."""

    def process_element(self, v: Any, ctx: Any) -> Any:
        self.begin(v)
        yield v
        v[1] += 100
        v[2][:] = [v[1]]
        yield SIDE, v
        spoil(v)


class Listed(Spoils, KeyedProcessFunction):
    """Puts the record into state, changes it there and after it has been read."""

    def open(self, context: Any) -> None:
        self.seen = context.get_list_state(ListStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY()))
        self.last = context.get_state(ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, v: Any, ctx: Any) -> Any:
        self.begin(v)
        key = ctx.get_current_key()
        before = list(self.seen.get())
        whole = all(one[0] == key and one[2] == [one[1]] for one in before)
        last = self.last.value()
        whole = whole and (not before or last[1] == before[-1][1])
        for one in before:
            spoil(one)
        self.seen.add(v)
        self.last.update(v)
        out = self.make(v[0], v[1] if whole else -2)
        spoil(v)
        self.keep(out)
        yield out


class Adding(Spoils, ReduceFunction):
    """One object for all keys."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.out = self.make("", 0)

    def reduce(self, a: Any, b: Any) -> Any:
        self.out[0], self.out[1] = a[0], a[1] + b[1]
        self.out[2][:] = [self.out[1]]
        return self.out


def add_in_place(a: Any, b: Any) -> Any:
    a[1] += b[1]
    a[2][:] = [a[1]]
    return a


class Summing(Spoils, AggregateFunction):
    """One accumulator for all keys, and one result."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.zero = [0]
        self.out = self.make("", 0)

    def create_accumulator(self) -> Any:
        self.zero[:] = [None, 0]
        return self.zero

    def add(self, v: Any, acc: Any) -> Any:
        acc[0], acc[1] = v[0], acc[1] + v[1]
        spoil(v)
        return acc

    def get_result(self, acc: Any) -> Any:
        self.out[0], self.out[1] = acc
        self.out[2][:] = [acc[1]]
        acc[:] = ["spoilt", -1]
        return self.out

    def merge(self, a: Any, b: Any) -> Any:
        a[1] += b[1]
        return a


class All(Spoils, ProcessWindowFunction):
    """All records of a window, one object for each."""

    def process(self, key: Any, ctx: Any, elements: Any) -> Any:
        self.begin(None)
        out = self.make("", 0)
        for v in elements:
            out[0], out[1], out[2][:] = v[0], v[1], v[2]
            spoil(v)
            yield out
        self.keep(out)

    def clear(self, ctx: Any) -> None:
        pass


class AtOnce(TimestampAssigner):
    """All records are in one window."""

    def __init__(self) -> None:
        self.last: Any = None

    def extract_timestamp(self, v: Any, t: int) -> int:
        if self.last is not None:
            spoil(self.last)
        self.last = v
        return 5


def key(v: Any) -> Any:
    return v[0]


def stamped(s: Any) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return s.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(AtOnce())).key_by(
        key
    )


def by_key(records: list, fold: Callable[[Any, list[int]], list[tuple]]) -> list[tuple]:
    groups: dict[Any, list[int]] = {}
    for k, n in records:
        groups.setdefault(k, []).append(n)
    return [one for k, numbers in groups.items() for one in fold(k, numbers)]


def total(records: list) -> list[tuple]:
    return by_key(records, lambda k, numbers: [(k, sum(numbers))])


def counted(records: list) -> list[tuple]:
    """What a running sum of ones gives, in any order of the records."""
    return by_key(records, lambda k, numbers: [(k, i + 1) for i in range(len(numbers))])


TEN = Time.milliseconds(10)

# By name: what the program does with a stream, and what comes of a list of (key, number).
STEPS: dict[str, tuple[Callable[[Any, str], Any], Callable[[list], list]]] = {
    "again": (
        lambda s, kind: s.flat_map(Again(kind)),
        lambda records: [(k, n + i) for k, n in records for i in (0, 1)],
    ),
    "again locally": (
        lambda s, kind: s.flat_map(again_locally),
        lambda records: [(k, n + i) for k, n in records for i in (0, 1)],
    ),
    "the same twice": (
        lambda s, kind: s.flat_map(lambda v: [v, v]),
        lambda records: [one for one in records for _ in (0, 1)],
    ),
    "keep": (lambda s, kind: s.map(Keep(kind)), lambda records: records),
    "keep a part": (lambda s, kind: s.map(KeepPart(kind)), lambda records: records),
    "change": (
        lambda s, kind: s.map(Change(kind)),
        lambda records: [(k, n + 10) for k, n in records],
    ),
    "change plainly": (
        lambda s, kind: s.map(change_plainly),
        lambda records: [(k, n + 10) for k, n in records],
    ),
    "pair": (
        lambda s, kind: s.map(lambda v: (v, 1)).map(lambda pair: pair[0]),
        lambda records: records,
    ),
    "skipping": (
        lambda s, kind: s.flat_map(Again(kind)).on_error(ErrorPolicy.skip()),
        lambda records: [(k, n + i) for k, n in records for i in (0, 1)],
    ),
    "sieve": (
        lambda s, kind: s.filter(Sieve(kind)),
        lambda records: [(k, n) for k, n in records if n % 2 == 0],
    ),
    "main": (lambda s, kind: s.process(Sides(kind)), lambda records: records),
    "side": (
        lambda s, kind: s.process(Sides(kind)).get_side_output(SIDE),
        lambda records: [(k, n + 100) for k, n in records],
    ),
    "exchange": (lambda s, kind: s.rebalance().map(Keep(kind)), lambda records: records),
    "listed": (lambda s, kind: s.key_by(key).process(Listed(kind)), lambda records: records),
    "reduce": (
        lambda s, kind: (
            s.map(lambda v: [v[0], 1, [1]]).key_by(key).reduce(Adding("list")).map(Keep(kind))
        ),
        counted,
    ),
    "reduce in place": (
        lambda s, kind: s.map(lambda v: [v[0], 1, [1]]).key_by(key).reduce(add_in_place),
        counted,
    ),
    "window reduce": (
        lambda s, kind: stamped(s).window(TumblingEventTimeWindows.of(TEN)).reduce(Adding(kind)),
        total,
    ),
    "window aggregate": (
        lambda s, kind: (
            stamped(s).window(TumblingEventTimeWindows.of(TEN)).aggregate(Summing(kind))
        ),
        total,
    ),
    "session": (
        lambda s, kind: (
            stamped(s).window(EventTimeSessionWindows.with_gap(TEN)).aggregate(Summing(kind))
        ),
        total,
    ),
    "sliding": (
        lambda s, kind: (
            stamped(s).window(SlidingEventTimeWindows.of(TEN, TEN)).reduce(add_in_place)
        ),
        total,
    ),
    "window list": (
        lambda s, kind: stamped(s).window(TumblingEventTimeWindows.of(TEN)).process(All(kind)),
        lambda records: records,
    ),
    "union": (lambda s, kind: s.union(s.map(Change(kind))), None),
    "itself": (
        lambda s, kind: s.union(s).map(Change(kind)),
        lambda records: [(k, n + 10) for k, n in records for _ in (0, 1)],
    ),
}
STEPS["union"] = (
    STEPS["union"][0],
    lambda records: [*records, *((k, n + 10) for k, n in records)],
)
WINDOWS = {name for name in STEPS if "window" in name or name in ("session", "sliding")}


class Given(SourceFunction):
    """Collects one object again and again."""

    def __init__(self, kind: str, count: int) -> None:
        self.kind, self.count = kind, count

    def run(self, ctx: Any) -> None:
        out = KINDS[self.kind]("", 0)
        for i in range(self.count):
            out[0], out[1], out[2][:] = "abc"[i % 3], i, [i]
            ctx.collect(out)
        spoil(out)

    def cancel(self) -> None:
        pass


def environment(parallelism: int, **options: Any) -> StreamExecutionEnvironment:
    config = Configuration().set_string("execution.target", "in-process")
    for name, value in options.items():
        config.set_string(name.replace("_", "."), str(value))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    return env.set_parallelism(parallelism)


def seen(records: Any) -> Counter:
    return Counter((v[0], v[1], tuple(v[2])) for v in records)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, str]]:
    """Steps, each with the number of the one it reads; 0 is the source."""
    steps: list[tuple[int, str]] = []
    windowed: set[int] = set()
    for number in range(1, draw(st.integers(1, 5)) + 1):
        reads = draw(st.integers(max(0, number - 3), number - 1))
        names = sorted(STEPS)
        if reads in windowed:
            # A window behind a window would need time to pass it.
            names = sorted(set(STEPS) - WINDOWS)
        name = draw(st.sampled_from(names))
        if name in WINDOWS or reads in windowed:
            windowed.add(number)
        steps.append((reads, name))
    return steps


@given(
    programs(),
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 3),
    st.sampled_from([1, 3, 1000]),
    st.integers(1, 12),
    st.booleans(),
)
def test_records_stay_what_they_were(
    steps: list[tuple[int, str]],
    kind: str,
    parallelism: int,
    epoch: int,
    count: int,
    repeating: bool,
) -> None:
    env = environment(parallelism, millstream_epoch_records=epoch)
    if repeating:
        first = env.add_source(Given(kind, count), "given")
    else:
        first = env.from_collection([KINDS[kind]("abc"[i % 3], i) for i in range(count)])
    streams = [first]
    results: list[list] = [[("abc"[i % 3], i) for i in range(count)]]
    for reads, name in steps:
        apply, reference = STEPS[name]
        streams.append(apply(streams[reads], kind))
        results.append(reference(results[reads]))
    read = {reads for reads, _ in steps}
    leaves = [number for number in range(len(streams)) if number not in read] or [0]
    end = streams[leaves[0]]
    if len(leaves) > 1:
        end = end.union(*(streams[number] for number in leaves[1:]))
    wanted = Counter((k, n, (n,)) for number in leaves for k, n in results[number])
    assert seen(end.execute_and_collect()) == wanted


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_record_is_processed_under_the_key_it_was_sent_by(kind: str) -> None:
    env = environment(2)
    records = [KINDS[kind]("abc"[i % 3], i) for i in range(30)]
    stream = env.from_collection(records).map(Keep(kind)).key_by(key).process(Listed(kind))
    assert seen(stream.execute_and_collect()) == Counter(("abc"[i % 3], i, (i,)) for i in range(30))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_change_in_one_branch_is_not_seen_in_another(kind: str) -> None:
    env = environment(1)
    source = env.from_collection([KINDS[kind]("a", i) for i in range(3)]).map(change_plainly)
    one, two = source.map(Change(kind)), source.filter(Sieve(kind))
    wanted = Counter([("a", i + 20, (i + 20,)) for i in range(3)])
    wanted.update([("a", i + 10, (i + 10,)) for i in range(3) if i % 2 == 0])
    assert seen(one.union(two, source).execute_and_collect()) == wanted + Counter(
        [("a", i + 10, (i + 10,)) for i in range(3)]
    )


def test_with_object_reuse_nothing_is_copied() -> None:
    class Unlike:
        """Cannot be copied."""

        def __init__(self, n: int) -> None:
            self.n = n

        def __reduce__(self) -> Any:
            raise AssertionError("copied")

    class Wrap(MapFunction):
        def map(self, n: int) -> Any:
            return Unlike(n)

    env = environment(1)
    env.get_config().enable_object_reuse()
    stream = env.from_collection([1, 2]).map(Wrap()).map(lambda one: one.n)
    assert list(stream.execute_and_collect()) == [1, 2]


def test_a_record_that_cannot_be_copied_is_named() -> None:
    class Locks(MapFunction):
        def map(self, n: int) -> Any:
            self.lock = threading.Lock()
            return [n, self.lock]

    stream = environment(1).from_collection([7]).map(Locks()).name("locks").map(lambda v: v[0])
    with pytest.raises(RecordNotSerializable) as caught:
        list(stream.execute_and_collect())
    text = str(caught.value)
    assert "locks" in text
    assert "[7, <unlocked" in text
    assert "enable_object_reuse" in text
