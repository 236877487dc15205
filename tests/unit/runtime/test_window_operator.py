"""The general window operator, record by record: what each combination emits, and what it leaves in state."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.api.evictor import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from millstream.api.functions import AggregateFunction, ReduceFunction, RuntimeContext
from millstream.api.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.api.trigger import Trigger, TriggerResult
from millstream.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaFunction,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from millstream.api.window_assigner import MergingWindowAssigner, WindowAssigner
from millstream.api.window_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.api.windows import TimeWindow, Window
from millstream.checkpoint.manifest import StoreState
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.errors import (
    InvalidArgument,
    MissingTimestamp,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.graph.operators import Key, WindowOp
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.store import StateStore
from millstream.runtime.windows.operator import WindowOperator
from millstream.runtime.wire.keys import canonical, original_key
from millstream.storage.storage import LocalStorage

FIRE, CONTINUE = TriggerResult.FIRE, TriggerResult.CONTINUE
MAX = MAX_TIME
_names = itertools.count()


class FakeTimers:
    """Timers in two dictionaries, fired in order of time."""

    def __init__(self, keys):
        self.keys = keys
        self.watermark = NO_TIME
        self.clock = 0
        self.event, self.processing = {}, {}

    def now(self):
        return self.clock

    def register_event(self, namespace, timestamp):
        self.event[timestamp, self.keys.canon, namespace] = None

    def delete_event(self, namespace, timestamp):
        self.event.pop((timestamp, self.keys.canon, namespace), None)

    def register_processing(self, namespace, timestamp):
        self.processing[timestamp, self.keys.canon, namespace] = None

    def delete_processing(self, namespace, timestamp):
        self.processing.pop((timestamp, self.keys.canon, namespace), None)

    def fire(self, timers, until, call):
        while due := [timer for timer in timers if timer[0] <= until]:
            at, canon, namespace = timer = min(due, key=lambda one: one[0])
            del timers[timer]
            self.keys.key, self.keys.canon = original_key(canon), canon
            call(at, namespace)
        self.keys.leave()


class Bench:
    """A window operator with everything around it, in epochs over one folder."""

    def __init__(self, folder, assigner, **given_settings):
        self.storage = LocalStorage(str(folder))
        self.epoch, self.segments = 0, []
        self.settings = {
            "key": Key(),
            "assigner": assigner,
            "trigger": assigner.get_default_trigger(None),
            "evictor": None,
            "lateness": 0,
            "late_tag": None,
            "kind": "list",
            "incremental": None,
            "function": None,
            "all_windows": False,
        }
        self.late_output = given_settings.pop("late_output", True)
        self.settings.update(given_settings)
        if self.settings["function"] is None and self.settings["kind"] == "list":
            self.settings["function"] = Collect() if self.settings["incremental"] is None else None
        self.keys = KeyContext()
        self.timers = FakeTimers(self.keys)
        self.out, self.late = [], []
        self.build()

    def build(self):
        self.store = StateStore(self.storage, "op/0", operators=["op"])
        self.store.open(
            StoreState(
                subtask=0,
                parallelism=1,
                max_parallelism=128,
                operators=["op"],
                segments=list(self.segments),
                parents=[],
                attempt="",
            )
        )
        states = KeyedStates(self.store, "op", "Window", self.keys)
        self.context = RuntimeContext("Window", 0, 1, 128, keyed=states)
        self.operator = WindowOperator(
            WindowOp(**self.settings),
            "Window",
            "op",
            self.keys,
            self.store,
            self.timers,
            states,
            self.context,
            lambda value, at: self.out.append((value, at)),
            (lambda value, at: self.late.append((value, at))) if self.late_output else None,
        )
        for function in self.operator.functions:
            function.open(self.context)

    def restart(self):
        """An epoch ends and another process goes on; timers are not in this store."""
        self.epoch += 1
        file = self.store.snapshot(self.epoch, f"a{next(_names)}")
        if file is not None:
            self.segments.append(file)
        self.build()

    def add(self, value, timestamp=NO_TIME, key="k"):
        self.keys.key, self.keys.canon = key, canonical(key)
        self.operator.process(value, timestamp)
        self.keys.leave()
        return self.taken()

    def advance(self, watermark):
        self.timers.watermark = watermark
        self.timers.fire(self.timers.event, watermark, self.operator.on_event_time)
        return self.taken()

    def advance_clock(self, clock):
        self.timers.clock = clock
        self.timers.fire(self.timers.processing, clock, self.operator.on_processing_time)
        return self.taken()

    def taken(self):
        taken, self.out = self.out, []
        return taken

    def left(self):
        """The states that have anything in them."""
        return sorted(
            name.removeprefix("op/") for name, table in self.store.tables.items() if [*table.keys()]
        )


class Collect(WindowFunction):
    def apply(self, key, window, inputs):
        return [list(inputs)]


class WithKey(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, repr(window), list(inputs))]


class Sum(AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return tuple(accumulator)

    def merge(self, acc_a, acc_b):
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


@pytest.fixture
def bench(tmp_path):
    def make(assigner, **settings):
        return Bench(tmp_path / f"{next(_names)}", assigner, **settings)

    return make


tumbling = TumblingEventTimeWindows.of(10)
sessions = EventTimeSessionWindows.with_gap(10)
everything = GlobalWindows.create()


# -- time windows ------------------------------------------------------------------------------------------


def test_tumbling(bench):
    b = bench(tumbling)
    for n in (1, 9, 10, -1):
        assert b.add(n, n) == []
    b.add("other", 3, key="x")
    assert b.advance(8) == [([-1], -1)]
    assert sorted(b.advance(9), key=str) == [(["other"], 9), ([1, 9], 9)]
    assert b.advance(MAX) == [([10], 19)]
    assert b.left() == []
    assert b.timers.event == {}


def test_reduce_and_aggregate(bench):
    class Add(ReduceFunction):
        def reduce(self, value1, value2):
            return value1 + value2

    for function in (Add(), lambda a, b: a + b):
        b = bench(tumbling, kind="reduce", incremental=function)
        for n in (1, 2, 3):
            b.add(n, n)
        assert b.advance(9) == [(6, 9)]
    b = bench(tumbling, kind="aggregate", incremental=Sum(), function=WithKey())
    for n in (1, 2, 3):
        b.add(n, n)
    assert b.advance(9) == [(("k", "TimeWindow(start=0, end=10)", [(6, 3)]), 9)]
    assert b.left() == []


def test_reduce_shares_nothing(bench):
    record = {"n": 1}
    b = bench(
        tumbling,
        kind="reduce",
        incremental=lambda a, b: {"n": a["n"] + b["n"]},
        trigger=CountTrigger.of(1),
    )
    ((first, _),) = b.add(record, 1)
    record["n"] = first["n"] = 100
    assert b.add({"n": 2}, 2) == [({"n": 3}, 9)]


def test_sliding(bench):
    b = bench(SlidingEventTimeWindows.of(10, 5))
    b.add("a", 3)
    b.add("b", 7)
    assert b.advance(4) == [(["a"], 4)]
    assert b.advance(9) == [(["a", "b"], 9)]
    assert b.advance(14) == [(["b"], 14)]


def test_a_record_that_is_late_for_some_windows_is_not_late(bench):
    b = bench(SlidingEventTimeWindows.of(10, 5))
    b.advance(9)
    b.add("half", 7)
    b.add("gone", -1)
    assert b.late == [("gone", -1)]
    assert b.advance(14) == [(["half"], 14)]


def test_late_records_are_counted_without_an_output(bench):
    b = bench(tumbling, late_output=False)
    b.advance(9)
    b.add("late", 9)
    b.add("fine", 10)
    assert b.operator.dropped_late == 1
    assert bench(tumbling).operator.dropped_late == 0


def test_lateness_fires_again_with_everything(bench):
    b = bench(tumbling, lateness=5)
    b.add(1, 1)
    assert b.advance(9) == [([1], 9)]
    assert b.left() == ["window-records"]
    assert b.add(2, 2) == [([1, 2], 9)]
    assert b.advance(13) == []
    assert b.add(3, 3) == [([1, 2, 3], 9)]
    assert b.advance(14) == []
    assert b.left() == []
    assert b.add(4, 4) == []
    assert b.late == [(4, 4)]


def test_endless_lateness_has_no_cleanup(bench):
    b = bench(tumbling, lateness=MAX)
    b.add(1, 1)
    assert [timer[0] for timer in b.timers.event] == [9]
    assert b.advance(MAX) == [([1], 9)]
    assert b.left() == ["window-records"]


def test_a_record_without_timestamp(bench):
    with pytest.raises(MissingTimestamp):
        bench(tumbling).add("a")


def test_processing_time(bench):
    b = bench(TumblingProcessingTimeWindows.of(10), lateness=100)
    b.add(1)
    b.advance_clock(5)
    b.add(2)
    assert b.advance(MAX) == []
    assert b.advance_clock(9) == [([1, 2], 9)]
    assert b.left() == []
    assert b.timers.processing == {}
    b.advance_clock(25)
    b.add(3)
    assert b.advance_clock(29) == [([3], 29)]


# -- merging windows -----------------------------------------------------------------------------------------


def test_sessions_merge_when_they_touch(bench):
    b = bench(sessions, function=WithKey())
    b.add("a", 0)
    b.add("b", 10)
    b.add("c", 21)
    assert b.advance(20) == [(("k", "TimeWindow(start=0, end=20)", ["a", "b"]), 19)]
    assert b.advance(MAX) == [(("k", "TimeWindow(start=21, end=31)", ["c"]), 30)]
    assert b.left() == []
    assert b.timers.event == {}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "list"}, [1, 4, 2]),
        ({"kind": "reduce", "incremental": lambda a, b: a + b}, 7),
        ({"kind": "aggregate", "incremental": Sum()}, (7, 3)),
        ({"kind": "list", "evictor": CountEvictor.of(9)}, [1, 4, 2]),
    ],
)
def test_a_record_bridges_two_sessions(bench, settings, expected):
    b = bench(sessions, **settings)
    b.add(1, 0)
    b.add(4, 16)
    b.add(2, 8)
    assert [timer[0] for timer in b.timers.event] == [25]
    assert b.advance(24) == []
    assert b.advance(25) == [(expected, 25)]
    assert b.left() == []


def test_sessions_of_keys_are_apart(bench):
    b = bench(sessions)
    b.add(1, 0, key="x")
    b.add(2, 5, key=("y", 1))
    b.add(3, 8, key="x")
    assert b.advance(14) == [([2], 14)]
    assert b.advance(17) == [([1, 3], 17)]


def test_a_session_inside_another_changes_nothing(bench):
    b = bench(EventTimeSessionWindows.with_dynamic_gap(lambda value: value))
    b.add(5, 0)
    b.add(5, 5)
    b.add(10, 0)  # the very window that the two have become
    b.add(1, 3)
    assert b.advance(MAX) == [([5, 5, 10, 1], 9)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-60, 60), min_size=1, max_size=30))
def test_sessions_are_what_hangs_together(times):
    """In whatever order the records come, and however often sessions merge on the way."""
    expected, group = [], []
    for at in sorted(times):
        if group and at - group[-1] > 10:
            expected.append((group, group[-1] + 9))
            group = []
        group.append(at)
    expected.append((group, group[-1] + 9))
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(folder, sessions)
        for at in times:
            b.add(at, at)
        assert len(b.timers.event) == len(expected)
        assert [(sorted(values), at) for values, at in b.advance(MAX)] == expected
        assert b.left() == []


def test_late_records_of_sessions(bench):
    b = bench(sessions)
    b.add("a", 20)
    b.advance(22)
    b.add("joins", 12)
    assert b.late == []
    b.add("late", 1)
    assert b.late == [("late", 1)]
    assert len(b.timers.event) == 1
    assert b.advance(MAX) == [(["a", "joins"], 29)]
    assert b.left() == []


def test_late_sessions_fire_again(bench):
    b = bench(sessions, lateness=100)
    b.add("a", 0)
    b.add("c", 16)
    assert b.advance(50) == [(["a"], 9), (["c"], 25)]
    assert b.add("b", 8) == [(["a", "c", "b"], 25)]
    b.advance(125)
    assert b.left() == []


def test_count_trigger_on_sessions_adds_the_counts(bench):
    b = bench(sessions, trigger=CountTrigger.of(3))
    assert b.add("a", 0) == []
    assert b.add("c", 16) == []
    assert b.add("b", 8) == [(["a", "c", "b"], 25)]
    assert b.left() == ["window-records", "window-set"]
    b.advance(25)
    assert b.left() == []


def test_continuous_trigger_on_sessions(bench):
    b = bench(sessions, trigger=ContinuousEventTimeTrigger.of(4))
    b.add("a", 1)
    b.add("c", 12)
    b.add("b", 5)
    assert b.advance(4) == [(["a", "c", "b"], 21)]
    assert len(b.advance(21)) == 5
    assert b.left() == []
    assert b.timers.event == {}


def test_processing_time_sessions(bench):
    b = bench(ProcessingTimeSessionWindows.with_gap(10))
    b.add(1)
    b.advance_clock(9 - 1)
    b.add(2)
    assert b.advance_clock(16) == []
    assert b.advance_clock(17) == [([1, 2], 17)]
    assert b.left() == []


class KeepsTooMuch(ProcessWindowFunction):
    def process(self, key, context, elements):
        seen = context.global_state().get_state(ValueStateDescriptor("seen"))
        seen.update((seen.value() or 0) + 1)
        yield seen.value()
        if "bad" in elements:
            context.window_state().get_state(ValueStateDescriptor("seen"))


def test_sessions_have_global_state_but_none_of_their_own(bench):
    b = bench(sessions, function=KeepsTooMuch())
    b.add("a", 0)
    b.add("b", 50)
    assert b.advance(60) == [(1, 9), (2, 59)]
    b.add("bad", 100)
    with pytest.raises(UnsupportedOperation, match="windows that merge"):
        b.advance(200)


def test_merging_trigger_state(bench):
    """All that can be merged is merged, and what cannot says so."""
    count = AggregatingStateDescriptor("count", Sum())
    names = ListStateDescriptor("names")

    class Notes(EventTimeTrigger):
        def on_element(self, element, timestamp, window, ctx):
            ctx.get_partitioned_state(count).add(timestamp)
            ctx.get_partitioned_state(names).add(element)
            seen.append(
                (ctx.get_partitioned_state(count).get(), [*ctx.get_partitioned_state(names).get()])
            )
            return super().on_element(element, timestamp, window, ctx)

        def on_merge(self, window, ctx):
            super().on_merge(window, ctx)
            ctx.merge_partitioned_state(count)
            ctx.merge_partitioned_state(names)

        def clear(self, window, ctx):
            super().clear(window, ctx)
            ctx.get_partitioned_state(count).clear()
            ctx.get_partitioned_state(names).clear()

    seen = []
    b = bench(sessions, trigger=Notes())
    b.add("a", 0)
    b.add("c", 16)
    b.add("b", 8)
    assert seen[-1] == ((24, 3), ["a", "c", "b"])
    b.advance(MAX)
    assert b.left() == []

    class Wrong(EventTimeTrigger):
        def on_merge(self, window, ctx):
            ctx.merge_partitioned_state(ValueStateDescriptor("n"))

    b = bench(sessions, trigger=Wrong())
    b.add("a", 0)
    with pytest.raises(InvalidArgument, match="'n' of a trigger cannot be merged"):
        b.add("b", 5)


def test_a_merge_that_ends_in_the_past(bench):
    class Shrinks(EventTimeSessionWindows):
        def merge_windows(self, windows, callback):
            windows = list(windows)
            if len(windows) > 1:
                callback.merge(windows, TimeWindow(0, 5))

    b = bench(Shrinks(10))
    b.add("a", 10)
    b.advance(15)
    with pytest.raises(UserFunctionError, match="over already") as error:
        b.add("b", 16)
    assert error.value.evidence["window"] == "TimeWindow(start=0, end=5)"
    assert error.value.evidence["watermark"] == 15


# -- triggers ------------------------------------------------------------------------------------------------


def test_count_trigger_keeps_the_contents(bench):
    b = bench(everything, trigger=CountTrigger.of(2))
    fired = [b.add(n) for n in range(6)]
    assert [len(one[0][0]) for one in fired if one] == [2, 4, 6]
    assert fired[1] == [([0, 1], MAX)]
    assert b.advance(MAX) == []


def test_purging_count_trigger(bench):
    b = bench(everything, trigger=PurgingTrigger.of(CountTrigger.of(2)))
    fired = [b.add(n) for n in range(5)]
    assert [one[0][0] for one in fired if one] == [[0, 1], [2, 3]]


def test_count_windows(bench):
    b = bench(CountTumblingWindowAssigner.of(2))
    assert [one[0][0] for n in range(5) if (one := b.add(n))] == [[0, 1], [2, 3]]
    b = bench(CountSlidingWindowAssigner.of(3, 2), function=WithKey())
    fired = [one[0][0] for n in range(6) if (one := b.add(n))]
    assert [values for _, _, values in fired] == [[0, 1, 2], [2, 3, 4]]


def test_continuous_event_time_trigger(bench):
    b = bench(TumblingEventTimeWindows.of(100), trigger=ContinuousEventTimeTrigger.of(40))
    b.add("a", 5)
    assert b.advance(39) == []
    assert b.advance(40) == [(["a"], 99)]
    b.add("b", 50)
    assert b.advance(80) == [(["a", "b"], 99)]
    assert b.advance(99) == [(["a", "b"], 99)]
    assert b.left() == []
    assert b.timers.event == {}


def test_continuous_processing_time_trigger(bench):
    b = bench(everything, trigger=ContinuousProcessingTimeTrigger.of(10))
    b.advance_clock(3)
    b.add("a")
    assert b.advance_clock(10) == [(["a"], MAX)]
    b.add("b")
    assert b.advance_clock(20) == [(["a", "b"], MAX)]


def test_delta_trigger_opens_its_function(bench):
    class Distance(DeltaFunction):
        def open(self, runtime_context):
            self.factor = 1

        def get_delta(self, old_data_point, new_data_point):
            return self.factor * (new_data_point - old_data_point)

    b = bench(everything, trigger=PurgingTrigger.of(DeltaTrigger.of(5, Distance())))
    assert [type(one) for one in b.operator.functions] == [Distance, Collect]
    assert [b.add(n) for n in (1, 4, 6)] == [[], [], []]
    assert b.add(7) == [([1, 4, 6, 7], MAX)]
    assert b.add(12) == []
    assert b.add(13) == [([12, 13], MAX)]


class Every(Trigger):
    """Says what it is told to."""

    def __init__(self, result):
        self.result = result
        self.cleared = []

    def on_element(self, element, timestamp, window, ctx):
        return self.result

    def on_event_time(self, time, window, ctx):
        return CONTINUE

    def on_processing_time(self, time, window, ctx):
        return CONTINUE

    def clear(self, window, ctx):
        self.cleared.append(window)


def test_purge_alone_and_firing_nothing(bench):
    trigger = Every(TriggerResult.PURGE)
    b = bench(tumbling, trigger=trigger)
    assert b.add(1, 1) == []
    assert b.left() == []
    trigger.on_event_time = lambda time, window, ctx: FIRE
    assert b.advance(9) == []
    assert trigger.cleared == [TimeWindow(0, 10)]


@pytest.mark.parametrize("result", [None, True, "FIRE"])
def test_a_trigger_that_returns_something_else(bench, result):
    with pytest.raises(UserFunctionError, match="trigger of 'Window' did not return") as error:
        bench(tumbling, trigger=Every(result)).add(1, 1)
    assert repr(result) in error.value.evidence["got"]


def test_timers_of_a_users_trigger(bench):
    class Both(Every):
        def on_element(self, element, timestamp, window, ctx):
            ctx.register_processing_time_timer(ctx.get_current_processing_time() + 5)
            ctx.register_event_time_timer(timestamp + 2)
            ctx.delete_event_time_timer(77)
            if element == "drop":
                ctx.delete_processing_time_timer(ctx.get_current_processing_time() + 5)
                ctx.delete_event_time_timer(timestamp + 2)
            assert ctx.get_current_watermark() == NO_TIME
            return CONTINUE

        def on_event_time(self, time, window, ctx):
            return FIRE if time != window.max_timestamp() else CONTINUE

        on_processing_time = on_event_time

    b = bench(tumbling, trigger=Both(None))
    b.add("a", 1)
    b.add("drop", 4)
    b.add("b", 5)
    assert b.advance_clock(5) == [(["a", "drop", "b"], 9)]
    assert b.advance(20) == [(["a", "drop", "b"], 9)] * 2
    with pytest.raises(InvalidArgument, match="whole number"):
        b.operator._trigger_context.register_event_time_timer(1.5)


def test_trigger_window_and_global_state_may_share_a_name(bench):
    descriptor = ReducingStateDescriptor("count", lambda a, b: a + b)

    class Counts(ProcessWindowFunction):
        def process(self, key, context, elements):
            stores = context.window_state(), context.global_state()
            states = [store.get_reducing_state(descriptor) for store in stores]
            for state in states:
                state.add(1)
            return [tuple(state.get() for state in states)]

        def clear(self, context):
            context.window_state().get_reducing_state(descriptor).clear()

    b = bench(tumbling, trigger=CountTrigger.of(2), function=Counts())
    fired = [one[0][0] for n in (1, 2, 3, 4, 11, 12) if (one := b.add(n, n))]
    assert fired == [(1, 1), (2, 2), (1, 3)]
    assert b.left() == ["count", "window-records", "window:count"]
    b.advance(MAX)
    assert b.left() == ["count"]


# -- window functions ----------------------------------------------------------------------------------------


class Firings(ProcessWindowFunction):
    """Counts the firings of each window in each kind of state, and tells when it is cleared."""

    log: list

    def process(self, key, context, elements):
        store = context.window_state()
        value = store.get_state(ValueStateDescriptor("n"))
        value.update((value.value() or 0) + 1)
        store.get_list_state(ListStateDescriptor("l")).add(value.value())
        store.get_map_state(MapStateDescriptor("m"))[value.value()] = key
        store.get_aggregating_state(AggregatingStateDescriptor("a", Sum())).add(1)
        yield (
            value.value(),
            [*store.get_list_state(ListStateDescriptor("l")).get()],
            context.window(),
            context.current_watermark(),
            context.current_processing_time(),
        )

    def clear(self, context):
        store = context.window_state()
        self.log.append((context.window(), store.get_state(ValueStateDescriptor("n")).value()))
        store.get_state(ValueStateDescriptor("n")).clear()
        store.get_list_state(ListStateDescriptor("l")).clear()
        store.get_map_state(MapStateDescriptor("m")).clear()
        store.get_aggregating_state(AggregatingStateDescriptor("a", Sum())).clear()


def test_window_state_lasts_until_cleanup(bench):
    function = Firings()
    function.log = []
    window = TimeWindow(0, 10)
    b = bench(tumbling, lateness=5, function=function)
    b.add("a", 1)
    b.add("b", 11)
    assert b.advance(9) == [((1, [1], window, 9, 0), 9)]
    assert b.add("c", 2) == [((2, [1, 2], window, 9, 0), 9)]
    assert function.log == []
    b.advance(14)
    assert function.log == [(window, 2)]
    b.advance(MAX)
    assert function.log == [(window, 2), (TimeWindow(10, 20), 1)]
    assert b.left() == []


def test_functions_without_key(bench):
    class Apply(AllWindowFunction):
        def apply(self, window, inputs):
            return [(window, list(inputs))]

    class Process(ProcessAllWindowFunction):
        def process(self, context, elements):
            yield context.window(), list(elements)

    for function in (Apply(), Process()):
        b = bench(tumbling, function=function, all_windows=True)
        b.add("a", 1)
        assert b.advance(9) == [((TimeWindow(0, 10), ["a"]), 9)]


def test_a_function_may_return_nothing(bench):
    class Quiet(WindowFunction):
        def apply(self, key, window, inputs):
            return None

    b = bench(tumbling, function=Quiet())
    b.add("a", 1)
    assert b.advance(9) == []
    assert b.left() == []


def test_functions_get_records_of_their_own(bench):
    class Spoils(WindowFunction):
        def apply(self, key, window, inputs):
            (one,) = inputs
            one.append("spoilt")
            return [one]

    b = bench(tumbling, function=Spoils(), lateness=5)
    b.settings["trigger"] = Every(FIRE)
    b.build()
    assert b.add(["a"], 1) == [(["a", "spoilt"], 9)]
    b.operator._contents.clear(("k", (0, 10)))
    assert b.add(["b"], 1) == [(["b", "spoilt"], 9)]


def test_a_record_whose_function_fails_leaves_no_orphan(bench):
    class Fails(WindowFunction):
        def apply(self, key, window, inputs):
            raise ValueError

    b = bench(tumbling, function=Fails(), trigger=Every(FIRE))
    with pytest.raises(ValueError):
        b.add("a", 1)
    b.keys.leave()
    b.advance(9)
    assert b.left() == []


def test_an_aggregate_function_that_returns_nothing(bench):
    class Forgets(Sum):
        def merge(self, acc_a, acc_b):
            """Not written."""

    b = bench(sessions, kind="aggregate", incremental=Forgets())
    b.add(1, 0)
    b.add(1, 15)
    with pytest.raises(UserFunctionError, match="merge of the aggregate function"):
        b.add(1, 8)


# -- evictors ------------------------------------------------------------------------------------------------


def test_count_evictor(bench):
    b = bench(everything, trigger=CountTrigger.of(2), evictor=CountEvictor.of(3))
    fired = [one[0][0] for n in range(6) if (one := b.add(n))]
    assert fired == [[0, 1], [1, 2, 3], [3, 4, 5]]
    assert b.operator._contents.raw(("k", 0)) == [(n, NO_TIME) for n in (3, 4, 5)]


def test_evicting_afterwards(bench):
    b = bench(everything, trigger=CountTrigger.of(2), evictor=CountEvictor.of(1, True))
    fired = [one[0][0] for n in range(6) if (one := b.add(n))]
    assert fired == [[0, 1], [1, 2, 3], [3, 4, 5]]


def test_evicting_everything(bench):
    b = bench(everything, trigger=CountTrigger.of(2), evictor=CountEvictor.of(0))
    assert [one[0][0] for n in range(4) if (one := b.add(n))] == [[], []]
    assert "window-timed-records" not in b.left()


def test_time_and_delta_evictors(bench):
    b = bench(tumbling, evictor=TimeEvictor.of(3))
    for n in (1, 4, 6, 5):
        b.add(n, n)
    assert b.advance(9) == [([4, 6, 5], 9)]
    near = DeltaEvictor.of(3, lambda old, new: abs(new - old))
    b = bench(tumbling, evictor=near)
    for n in (1, 4, 9, 5):
        b.add(n, n)
    assert b.advance(9) == [([4, 5], 9)]


def test_evictors_and_incremental_functions(bench):
    for incremental, expected in ((lambda a, b: a + b, [3, 6]), (Sum(), [(3, 2), (6, 2)])):
        b = bench(
            everything,
            trigger=CountTrigger.of(2),
            evictor=CountEvictor.of(2),
            incremental=incremental,
        )
        fired = [one[0][0] for n in (1, 2, 0, 6) if (one := b.add(n))]
        assert fired == expected
    # Of nothing a reduce function makes nothing, an aggregate function its empty result.
    for incremental, expected in ((lambda a, b: a + b, []), (Sum(), [((0, 0), MAX)])):
        b = bench(
            everything,
            trigger=CountTrigger.of(1),
            evictor=CountEvictor.of(0),
            incremental=incremental,
        )
        assert b.add(1) == expected


class Odd(Evictor):
    """In place, as in Java; or wrong."""

    def __init__(self, answer=None):
        self.answer = answer

    def evict_before(self, elements, size, window, ctx):
        assert size == len(elements)
        assert ctx.get_current_watermark() == NO_TIME
        assert ctx.get_current_processing_time() == 0
        del elements[0]
        return self.answer

    def evict_after(self, elements, size, window, ctx):
        return elements


def test_a_users_evictor(bench):
    b = bench(everything, trigger=CountTrigger.of(2), evictor=Odd())
    assert [one[0][0] for n in range(4) if (one := b.add(n))] == [[1], [2, 3]]
    for wrong in (7, [7]):
        b = bench(everything, trigger=CountTrigger.of(1), evictor=Odd(wrong))
        with pytest.raises(UserFunctionError, match="evictor of 'Window'"):
            b.add(1)


# -- assigners of the user's own -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Shelf(Window):
    name: str
    end: int

    def max_timestamp(self):
        return self.end


class Shelves(WindowAssigner):
    """A window by the first letter, to which each record says how long it lasts."""

    def assign_windows(self, element, timestamp, context):
        if element == "none":
            return []
        if element == "bad":
            return None
        if element == "worse":
            return [(0, 10)]
        assert context.get_current_processing_time() == 0
        assert context.get_runtime_context().get_task_name() == "Window"
        return (Shelf(element[0], 100),)

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def is_event_time(self):
        return True


def test_windows_of_the_users_own(bench):
    b = bench(Shelves(), function=WithKey())
    for value in ("ab", "ac", "bc"):
        b.add(value, 1)
    b.add("ad", 1, key="other")
    b.restart()
    b.add("az", 1)
    fired = sorted(b.advance(100))
    assert [(key, values) for (key, _, values), _ in fired] == [
        ("k", ["ab", "ac", "az"]),
        ("k", ["bc"]),
        ("other", ["ad"]),
    ]
    assert fired[0][0][1] == "Shelf(name='a', end=100)"
    assert b.left() == []


def test_assigners_that_return_something_else(bench):
    b = bench(Shelves())
    for value, text in (("bad", "did not return a list"), ("worse", "is not a window")):
        with pytest.raises(UserFunctionError, match=f"assigner of 'Window' .*{text}"):
            b.add(value, 1)
    b.keys.leave()
    assert b.add("none", 1) == []
    assert b.late == []
    b.advance(5)
    b.add("none", 1)
    assert b.late == [("none", 1)]


class Growing(MergingWindowAssigner):
    """Shelves of a name become one, which lasts as long as the longest."""

    def assign_windows(self, element, timestamp, context):
        return [Shelf(element[0], timestamp + 10)]

    def merge_windows(self, windows, callback):
        for _, group in itertools.groupby(
            sorted(windows, key=lambda one: one.name), lambda one: one.name
        ):
            together = list(group)
            if len(together) > 1:
                callback.merge(together, max(together, key=lambda one: one.end))

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def is_event_time(self):
        return True


def test_merging_windows_of_the_users_own(bench):
    b = bench(Growing(), function=WithKey())
    b.add("a1", 1)
    b.add("b1", 2)
    b.restart()
    b.add("a2", 5)
    b.add("a3", 3)
    fired = b.advance(12)
    assert fired == [(("k", "Shelf(name='b', end=12)", ["b1"]), 12)]
    assert b.advance(15) == [(("k", "Shelf(name='a', end=15)", ["a1", "a2", "a3"]), 15)]
    assert b.left() == []


# -- over epochs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"assigner": tumbling},
        {"assigner": sessions},
        {"assigner": SlidingEventTimeWindows.of(20, 10), "lateness": 7},
        {"assigner": tumbling, "kind": "aggregate", "incremental": Sum()},
        {"assigner": sessions, "kind": "aggregate", "incremental": Sum()},
        {"assigner": tumbling, "kind": "reduce", "incremental": lambda a, b: a + b},
        {"assigner": sessions, "evictor": CountEvictor.of(2, True), "lateness": 30},
        {"assigner": tumbling, "trigger": CountTrigger.of(3)},
        {"assigner": sessions, "trigger": ContinuousEventTimeTrigger.of(6)},
        {"assigner": everything, "trigger": CountTrigger.of(3), "evictor": CountEvictor.of(4)},
        {"assigner": CountSlidingWindowAssigner.of(4, 3)},
    ],
)
def test_results_do_not_depend_on_where_epochs_end(bench, settings):
    records = [(n * 7 % 13, n * 11 % 40 + n) for n in range(40)]
    results = []
    for every in (1000, 7, 1):
        b, out = bench(**settings), []
        for n, (value, at) in enumerate(records):
            out += b.add(value, at, key="ab"[value % 2])
            if n % 5 == 4:
                out += b.advance(n)
            if n % every == every - 1:
                b.restart()
        results.append((out + b.advance(MAX), b.late, b.left()))
    assert results[0][0]
    assert results[1] == results[0]
    assert results[2] == results[0]


def test_a_window_within_an_epoch_leaves_nothing_to_write(bench):
    b = bench(tumbling)
    b.add("a", 1)
    b.advance(9)
    assert not any(table.changes for table in b.store.tables.values())


def test_processing_time_trigger_on_event_time_windows(bench):
    """The trigger's clock is not that of the cleanup."""
    b = bench(tumbling, trigger=ProcessingTimeTrigger.create())
    b.add("a", 1)
    assert b.advance_clock(9) == [(["a"], 9)]
    assert b.left() == ["window-records"]
    assert b.advance(9) == []
    assert b.left() == []
