"""The key that the selector gave is the key that user code sees: everywhere, after a restore, at another parallelism,
on every backend.

`MILLSTREAM_EXAMPLES=2000` draws that many keys, new ones each time.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC
from enum import Enum, IntEnum, IntFlag
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.broadcast_functions import KeyedBroadcastProcessFunction
from millstream.api.state import MapStateDescriptor, ValueStateDescriptor
from millstream.api.window_functions import ProcessWindowFunction
from millstream.common.types import Row
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.state import open_savepoint
from millstream.testing import OperatorHarness


class Colour(Enum):
    RED = 1
    BLUE = "b"


class Number(IntEnum):
    ONE = 1


class Flags(IntFlag):
    A = 1
    B = 2


class Pair(NamedTuple):
    a: object
    b: object


@dataclass(frozen=True)
class Place:
    name: object


@dataclass(frozen=True, slots=True)
class Slotted:
    name: object


@dataclass
class Mutable:
    name: object


class Text(str):
    __slots__ = ()


def _script() -> Any:
    """Classes that no name leads to, as those of a user's script in a worker."""

    class Kind(Enum):
        A = 1

    @dataclass(frozen=True)
    class User:
        name: object

    class Spot(NamedTuple):
        x: object

    return Kind, User, Spot


Kind, User, Spot = _script()

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.binary(max_size=4).map(bytearray),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, ZoneInfo("Europe/Berlin")])),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
    st.sampled_from([*Colour, *Number, Flags.A | Flags.B, *Kind]),
    st.integers(-100, 100).map(np.int32),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.sampled_from([np.bool_(True), np.str_("a"), np.datetime64("2026-01-01"), pd.Timestamp(7)]),
    st.sampled_from([ip_address("::1"), PurePosixPath("/a"), ZoneInfo("UTC"), Text("t"), int]),
)
HASHABLE = st.one_of(
    st.text(max_size=2), st.integers(), st.dates(), st.uuids(), st.sampled_from([*Colour, *Kind])
)
KEYS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.lists(inner, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.frozensets(HASHABLE, max_size=3),
        st.sets(HASHABLE, max_size=3),
        st.builds(lambda a, b: Row(a=a, b=b), inner, inner),
        st.builds(Row, inner),
        st.builds(Pair, inner, inner),
        st.builds(Place, inner),
        st.builds(Slotted, inner),
        st.builds(Mutable, inner),
        st.builds(User, inner),
        st.builds(Spot, inner),
        st.lists(inner, max_size=2).map(deque),
    ),
    max_leaves=5,
)


def exact(value: Any) -> Any:
    """A value with the types of all its parts, so that == tells 1 from 1.0 from True."""
    kind = type(value).__qualname__
    if isinstance(value, Row):
        return kind, value._fields, [exact(one) for one in value]
    if isinstance(value, list | tuple | deque):
        return kind, [exact(one) for one in value]
    if isinstance(value, dict):
        return kind, sorted((repr(exact(k)), exact(v)) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(exact(one)) for one in value)
    if hasattr(value, "__dataclass_fields__"):
        return kind, exact(value.name)
    return kind, repr(value)


class Remember(KeyedProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.update(value[1])
        ctx.timer_service().register_event_time_timer(100)
        yield "element", value[1], ctx.get_current_key()

    def on_timer(self, timestamp, ctx):
        yield "timer", self.seen.value(), ctx.get_current_key()


class Show(ProcessWindowFunction):
    def __init__(self, where):
        self.where = where

    def process(self, key, context, elements):
        return [(self.where, value[1], key) for value in elements]


def pipeline(records):
    def keyed():
        return records.key_by(lambda value: value[0])

    return keyed().process(Remember()).uid("remember").union(
        keyed()
        .window(TumblingEventTimeWindows.of("100 ms"))
        .process(Show("tumbling")).uid("tumbling"),
        keyed()
        .window(SlidingEventTimeWindows.of("100 ms", "100 ms"))
        .process(Show("sliding")).uid("sliding"),
        keyed()
        .window(EventTimeSessionWindows.with_gap("50 ms"))
        .process(Show("session")).uid("session"),
        keyed()
        .window(TumblingEventTimeWindows.of("100 ms"))
        .trigger(EventTimeTrigger())
        .process(Show("general")).uid("general"),
    )  # fmt: skip


WHERE = ("timer", "tumbling", "sliding", "session", "general")


def as_seen(output):
    return sorted((where, number, exact(key)) for where, number, key in output)


def unlike(keys):
    """Keys without those that are the same to the job."""
    from millstream.runtime.wire.keys import canonical

    return list({canonical(key): key for key in keys}.values())


@given(
    keys=st.lists(KEYS, min_size=1, max_size=4).map(unlike),
    parallelism=st.sampled_from([(1, 1), (1, 3), (3, 2), (2, 1)]),
    backend=st.sampled_from(["hashmap", "lmdb"]),
)
def test_the_key_is_what_the_selector_gave(keys, parallelism, backend):
    before, after = parallelism
    numbered = list(enumerate(keys))
    with OperatorHarness(pipeline, parallelism=before, state_backend=backend) as harness:
        for number, key in numbered:
            harness.process_element((key, number), 10)
        assert as_seen(harness.extract_output()) == as_seen(
            ("element", number, key) for number, key in numbered
        )
        saved = harness.snapshot()
    reader = open_savepoint(saved.path, allow_pickle=True)
    assert as_seen(("state", number, key) for key, number in reader.rows("remember", "seen")) == (
        as_seen(("state", number, key) for number, key in numbered)
    )
    wanted = as_seen((where, number, key) for where in WHERE for number, key in numbered)
    with OperatorHarness.restore(pipeline, saved, parallelism=after) as harness:
        harness.process_watermark(1000)
        assert as_seen(harness.extract_output()) == wanted


class Apply(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.update(value[1])
        return []

    def process_broadcast_element(self, value, ctx):
        found = []
        ctx.apply_to_keyed_state(
            ValueStateDescriptor("seen"),
            lambda key, state: found.append(("applied", state.value(), key)),
        )
        return found


def broadcasting(records, rules):
    shared = rules.broadcast(MapStateDescriptor("rules"))
    return records.key_by(lambda value: value[0]).connect(shared).process(Apply()).uid("apply")


@given(keys=st.lists(KEYS, min_size=1, max_size=4).map(unlike), after=st.integers(1, 3))
def test_apply_to_keyed_state_gives_the_key(keys, after):
    with OperatorHarness(broadcasting, parallelism=2) as harness:
        for number, key in enumerate(keys):
            harness.process_element1((key, number), 10)
        saved = harness.snapshot()
    with OperatorHarness.restore(broadcasting, saved, parallelism=after) as harness:
        harness.process_element2("rule")
        found = as_seen(harness.extract_output())
    assert found == as_seen(("applied", number, key) for number, key in enumerate(keys))


@pytest.mark.parametrize("kind", [Counter, lambda d: defaultdict(int, d)])
def test_dictionaries_of_other_classes(kind):
    key = kind({"a": 1, "b": 2})
    with OperatorHarness(pipeline) as harness:
        harness.process_element((key, 0), 10)
        harness.process_watermark(1000)
        assert all(
            type(seen) is type(key) and seen == key for _, _, seen in harness.extract_output()
        )


def test_a_class_of_the_script_stays_the_programs_own():
    """An Enum's members are compared by identity: a second copy of the class would be another one."""

    class OnTimer(Remember):
        def on_timer(self, timestamp, ctx):
            yield ctx.get_current_key() is Kind.A

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:

        def script(records):
            return records.key_by(lambda value: value[0]).process(OnTimer()).uid("remember")

        with OperatorHarness(script) as harness:
            harness.process_element((Kind.A, 1), 10)
            saved = harness.snapshot()
        with OperatorHarness.restore(script, saved) as harness:
            harness.process_watermark(1000)
            assert harness.extract_output() == [True]
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
