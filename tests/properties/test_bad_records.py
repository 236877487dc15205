"""Nothing of a bad record remains: a program that skips some records gives what it gives if these do nothing.

A record is a list of steps for its key: changes of every kind of state, timers, results. A bad one raises after some of
them. Under `skip` the outcome must be that of the same records, of which the bad ones have no steps at all.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Types, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.time import Time
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.runtime.operators.interval_join import _Buffer
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.journal import Journal

TEN = Time.milliseconds(10)
PICKLED = Types.PICKLED_BYTE_ARRAY()
BAD = "bad"


def environment(backend: str, epoch: int) -> StreamExecutionEnvironment:
    config = Configuration().set_string("execution.target", "in-process")
    config.set_string("state.backend.type", backend)
    config.set_string("millstream.epoch.records", str(epoch))
    return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(1)


class Adds(AggregateFunction):
    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, acc: Any) -> Any:
        acc.append(value)
        return acc

    def get_result(self, acc: Any) -> Any:
        return list(acc)

    def merge(self, a: Any, b: Any) -> Any:
        return a + b


class Joins(ReduceFunction):
    def reduce(self, a: Any, b: Any) -> Any:
        return [*a, *b]


class Steps(KeyedProcessFunction):
    """Does what a record says, then tells all that is in state."""

    def open(self, context: Any) -> None:
        def timed(descriptor: Any) -> Any:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
            return descriptor

        self.states = {
            "value": context.get_state(ValueStateDescriptor("value", PICKLED)),
            "list": context.get_list_state(ListStateDescriptor("list", PICKLED)),
            "map": context.get_map_state(MapStateDescriptor("map", PICKLED, PICKLED)),
            "reducing": context.get_reducing_state(
                ReducingStateDescriptor("reducing", Joins(), PICKLED)
            ),
            "aggregating": context.get_aggregating_state(
                AggregatingStateDescriptor("aggregating", Adds(), PICKLED)
            ),
            "ttl value": context.get_state(timed(ValueStateDescriptor("tv", PICKLED))),
            "ttl list": context.get_list_state(timed(ListStateDescriptor("tl", PICKLED))),
            "ttl map": context.get_map_state(timed(MapStateDescriptor("tm", PICKLED, PICKLED))),
        }

    def process_element(self, v: Any, ctx: Any) -> Any:
        key, time, steps = v
        for what, how, number in steps:
            if what == BAD:
                raise ValueError(number)
            if what == "emit":
                yield "emitted", key, number
            elif what == "timer":
                timers = ctx.timer_service()
                call = "register" if how == "add" else "delete"
                getattr(timers, f"{call}_event_time_timer")(number)
            else:
                self.change(what, how, number)
        if steps:
            yield "state", key, time, self.told()

    def change(self, what: str, how: str, number: int) -> None:
        state = self.states[what]
        if how == "clear":
            state.clear()
        elif "map" in what:
            if how == "add":
                state.put(number, [number])
            else:
                state.remove(number)
        elif "value" in what:
            state.update([number] if how == "add" else None)
        elif "list" in what and how == "replace":
            state.update([[number], [number + 1]])
        elif what == "reducing" or "list" in what:
            state.add([number])
        else:
            state.add(number)

    def told(self) -> Any:
        def plain(name: str, state: Any) -> Any:
            if "map" in name:
                return sorted((k, tuple(v)) for k, v in state.items())
            if "value" in name:
                return state.value()
            return list(state.get() or ())

        return repr({name: plain(name, state) for name, state in self.states.items()})

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.get_current_key(), timestamp, self.told()


kinds = st.sampled_from(
    "value,list,map,reducing,aggregating,ttl value,ttl list,ttl map,timer,timer,emit".split(",")
)
steps = st.lists(
    st.tuples(kinds, st.sampled_from(["add", "add", "add", "remove", "replace", "clear"])).flatmap(
        lambda one: st.tuples(st.just(one[0]), st.just(one[1]), st.integers(0, 30))
    ),
    min_size=1,
    max_size=5,
)
records = st.lists(st.tuples(st.sampled_from("ab"), steps, st.booleans()), max_size=12)
runs = st.tuples(st.sampled_from(["hashmap", "lmdb"]), st.sampled_from([1, 4, 1000]))


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


def stamped(stream: Any) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(SecondField()))


@given(records, runs)
def test_a_bad_record_leaves_nothing_in_keyed_state_and_timers(
    drawn: list[tuple], run: tuple[str, int]
) -> None:
    def outcome(*, bad: bool) -> Any:
        given = []
        for place, (key, steps, fails) in enumerate(drawn):
            done = [*steps, (BAD, "", 0)] if bad else []
            given.append((key, place, done if fails else steps))
        stream = stamped(environment(*run).from_collection(given))
        result = stream.key_by(lambda v: v[0]).process(Steps()).on_error("skip")
        # Key by key: of timers of one time, that of any key may fire first.
        return sorted(result.execute_and_collect(), key=lambda one: one[1])

    assert outcome(bad=True) == outcome(bad=False)


# -- operators that keep state themselves ---------------------------------------------------------------------------


class Fold(ReduceFunction):
    """Changes its argument before it fails."""

    def reduce(self, a: Any, b: Any) -> Any:
        a[2].append(b[1])
        if b[2] == [BAD]:
            raise ValueError(b)
        return a


class Listing(AggregateFunction):
    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, acc: Any) -> Any:
        acc.append(value[1])
        if value[2] == [BAD]:
            raise ValueError(value)
        return acc

    def get_result(self, acc: Any) -> Any:
        return tuple(acc)

    def merge(self, a: Any, b: Any) -> Any:
        return [*a, *b]


def windows(stream: Any, assigner: Any) -> Any:
    return stream.key_by(lambda v: v[0]).window(assigner)


PROGRAMS = {
    "reduce": lambda s: s.key_by(lambda v: v[0]).reduce(Fold()),
    "tumbling reduce": lambda s: windows(s, TumblingEventTimeWindows.of(TEN)).reduce(Fold()),
    "tumbling": lambda s: windows(s, TumblingEventTimeWindows.of(TEN)).aggregate(Listing()),
    "sliding": lambda s: windows(
        s, SlidingEventTimeWindows.of(TEN, Time.milliseconds(5))
    ).aggregate(Listing()),
    "session": lambda s: windows(s, EventTimeSessionWindows.with_gap(TEN)).aggregate(Listing()),
    "general": lambda s: (
        windows(s, TumblingEventTimeWindows.of(TEN))
        .trigger(CountTrigger.of(2))
        .aggregate(Listing())
    ),
}


@pytest.mark.parametrize("program", sorted(PROGRAMS))
@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=14), runs, st.data())
def test_a_bad_record_leaves_nothing_in_reductions_and_windows(
    program: str, drawn: list[tuple], run: tuple[str, int], data: st.DataObject
) -> None:
    """Here a record must be left out to do nothing; the others keep their times."""
    reduces = "reduce" in program
    first = set()
    given = []
    for place, (key, fails) in enumerate(drawn):
        window = (key, place * 2 // 10 if program == "tumbling reduce" else 0)
        # A reduction does not see the first record of a key and window.
        fails = fails and not (reduces and window not in first)
        first.add(window)
        given.append([key, place * 2, [BAD] if fails else []])

    def outcome(records: list) -> Any:
        stream = PROGRAMS[program](stamped(environment(*run).from_collection(records)))
        return Counter(map(repr, stream.on_error("skip").execute_and_collect()))

    good = [one for one in given if one[2] != [BAD]]
    assert outcome(given) == outcome(good)


def test_a_bad_record_meets_nobody_in_a_join() -> None:
    journal, table = Journal(), make_hash_table("join/left", "list")
    journal.watch(table)
    buffer = _Buffer(table)
    buffer.times.refresh()
    buffer.add("k", 5, "good")
    journal.begin()
    buffer.add("k", 5, "bad")
    buffer.add("k", 7, "bad")
    buffer.add("other", 5, "bad")
    journal.undo()
    assert buffer.times.of("k") == [5]
    assert buffer.times.of("other") is None
    assert buffer.at("k", 5) == ["good"]
    assert list(table.changes) == [("k", 5)]


class Holds(ProcessFunction, CheckpointedFunction):
    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("held", PICKLED))

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, v: Any, ctx: Any) -> Any:
        self.state.add(v)
        if v % 3 == 0:
            self.state.clear()
        if v % 2:
            raise ValueError(v)
        yield tuple(self.state.get())


RULES = MapStateDescriptor("rules", PICKLED, PICKLED)


class Ruled(BroadcastProcessFunction):
    def process_element(self, v: Any, ctx: Any) -> Any:
        return ()

    def process_broadcast_element(self, v: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        rules.put(v, [v])
        rules.remove(v - 2)
        if v % 2:
            rules.clear()
            raise ValueError(v)
        yield tuple(rules.keys())


def test_a_bad_record_leaves_nothing_in_operator_state() -> None:
    stream = environment("hashmap", 3).from_collection(list(range(1, 9))).process(Holds())
    assert list(stream.on_error("skip").execute_and_collect()) == [(2,), (2, 4), (), (8,)]


def test_a_bad_record_leaves_nothing_in_broadcast_state() -> None:
    env = environment("hashmap", 3)
    rules = env.from_collection([1, 2, 3, 4, 5, 8]).broadcast(RULES)
    stream = env.from_collection([0]).connect(rules).process(Ruled()).on_error("skip")
    assert list(stream.execute_and_collect()) == [(2,), (4,), (4, 8)]


# -- the policies themselves ------------------------------------------------------------------------------------------


def test_a_bad_record_that_cannot_be_pickled_is_skipped() -> None:
    class Fails(MapFunction):
        def map(self, v: Any) -> Any:
            raise ValueError("always")

    env = environment("hashmap", 100)
    env.get_config().enable_object_reuse()
    streams = env.from_collection([1, 2]).map(lambda n: (n, (x for x in ())))
    assert list(streams.map(Fails()).on_error("skip").execute_and_collect()) == []


def test_a_letter_of_a_record_that_cannot_be_pickled_has_no_data() -> None:
    class Fails(MapFunction):
        def map(self, v: Any) -> Any:
            raise ValueError("always")

    tag = OutputTag("bad")
    env = environment("hashmap", 100)
    env.get_config().enable_object_reuse()
    stream = env.from_collection([1]).map(lambda n: (n, (x for x in ()))).map(Fails())
    letters = stream.on_error(ErrorPolicy.dead_letter(tag)).get_side_output(tag)
    (letter,) = letters.execute_and_collect()
    assert letter.data == b""
    assert letter.record.startswith("(1, <generator")
    assert "always" in letter.error


def test_a_letter_has_the_record_as_it_came() -> None:
    class Spoils(MapFunction):
        def map(self, v: Any) -> Any:
            v.append("spoilt")
            raise ValueError("always")

    tag = OutputTag("bad")
    stream = environment("hashmap", 100).from_collection([["a"]]).map(Spoils())
    letters = stream.on_error(ErrorPolicy.dead_letter(tag)).get_side_output(tag)
    assert [letter.record for letter in letters.execute_and_collect()] == ["['a']"]
