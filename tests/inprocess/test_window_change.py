"""A savepoint with open windows, and a program whose windows are others: each change that people make, by name."""

from __future__ import annotations

import pytest

from millstream.common.configuration import Configuration
from millstream.datastream import AggregateFunction, JoinFunction, OutputTag
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
)
from millstream.errors import StateMismatch
from millstream.testing import OperatorHarness

LATE = OutputTag("late")
tumbling, sliding = TumblingEventTimeWindows.of, SlidingEventTimeWindows.of
session = EventTimeSessionWindows.with_gap


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Bounds(ProcessWindowFunction):
    """Shows a window and its sum."""

    def process(self, key, context, elements):
        window = context.window()
        yield window.start, window.end, sum(elements)


class OnlyClear(Bounds):
    """The same, with a `clear` of its own, so that the general operator runs it."""

    def clear(self, context):
        pass


def summed(assigner, *, lateness=0, trigger=None, evictor=None, kind="aggregate", show=Bounds):
    """A program that sums up what is in its windows."""

    def pipeline(stream):
        windows = stream.key_by(lambda n: "k").window(assigner)
        if trigger is not None:
            windows = windows.trigger(trigger)
        if evictor is not None:
            windows = windows.evictor(evictor)
        windows = windows.allowed_lateness(lateness).side_output_late_data(LATE)
        if kind == "aggregate":
            result = windows.aggregate(Total(), show())
        elif kind == "reduce":
            result = windows.reduce(lambda a, b: a + b, show())
        else:
            result = windows.process(show())
        return result.uid("windows")

    return pipeline


def run(harness, *steps):
    """Records as (value, time), watermarks as numbers; what has come out."""
    for step in steps:
        if isinstance(step, tuple):
            harness.process_element(*step)
        else:
            harness.process_watermark(step)
    found = harness.extract_output()
    harness.clear_output()
    return found


CHANGES = {
    "size": (summed(tumbling(10)), summed(tumbling(7))),
    "a size in which the old one fits": (summed(tumbling(10)), summed(tumbling(20))),
    "offset": (summed(tumbling(10)), summed(tumbling(10, 3))),
    "trigger added": (
        summed(tumbling(10)),
        summed(tumbling(7), trigger=PurgingTrigger.of(EventTimeTrigger.create())),
    ),
    "trigger removed": (
        summed(tumbling(10), trigger=CountTrigger.of(99)),
        summed(tumbling(7)),
    ),
    "trigger removed, lateness too": (
        summed(tumbling(10), trigger=CountTrigger.of(99), lateness=5),
        summed(tumbling(7), show=OnlyClear),
    ),
    "lateness added": (summed(tumbling(10)), summed(tumbling(7), lateness=5)),
    "lateness removed": (summed(tumbling(10), lateness=5), summed(tumbling(7))),
    "a clear added": (summed(tumbling(10)), summed(tumbling(7), show=OnlyClear)),
    "a clear removed": (summed(tumbling(10), show=OnlyClear), summed(tumbling(7))),
    "tumbling to sliding": (summed(tumbling(10)), summed(sliding(6, 3))),
    "tumbling to session": (summed(tumbling(10)), summed(session(3))),
    "tumbling to session, general": (summed(tumbling(10)), summed(session(3), show=OnlyClear)),
    "reduce": (summed(tumbling(10), kind="reduce"), summed(tumbling(7), kind="reduce")),
    "records to reduce": (summed(tumbling(10), kind="list"), summed(tumbling(7), kind="reduce")),
    "evictor removed": (
        summed(tumbling(10), kind="list", evictor=CountEvictor.of(9)),
        summed(tumbling(7), kind="list"),
    ),
}


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_an_open_window_ends_as_it_began(change, parallelism, backend):
    old, new = CHANGES[change]
    with OperatorHarness(old, state_backend=backend) as harness:
        assert run(harness, (1, 11), (2, 19), 12) == []
        snapshot = harness.snapshot()
    with OperatorHarness.restore(new, snapshot, parallelism=parallelism) as harness:
        fired = run(harness, 18, 19, (100, 40), 1000)
        # What the new assigner would make of it comes beside it, never in its place.
        assert fired[0] == (10, 20, 3)
        assert [one for one in fired if one[:2] == (10, 20)] == [(10, 20, 3)]
        assert not harness.num_event_time_timers()
        again = harness.snapshot()
    # And nothing is left of it.
    with OperatorHarness.restore(new, again) as harness:
        harness.end_input()
        assert harness.extract_output() == []


def bare(assigner, kind):
    """A program whose windows have no function beside the one that sums up."""

    def pipeline(stream):
        windows = stream.key_by(lambda n: "k").window(assigner)
        if kind == "reduce":
            return windows.reduce(lambda a, b: a + b).uid("windows")
        return windows.aggregate(Total()).uid("windows")

    return pipeline


@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
@pytest.mark.parametrize("new", [tumbling(7), sliding(6, 3), session(3)], ids=str)
def test_an_open_window_without_a_function_ends_as_it_began(new, kind):
    with OperatorHarness(bare(tumbling(10), kind)) as harness:
        assert run(harness, (1, 11), (2, 19), 12) == []
        snapshot = harness.snapshot()
    with OperatorHarness.restore(bare(new, kind), snapshot) as harness:
        assert run(harness, 18) == []
        assert run(harness, 19) == [3]
        assert run(harness, (100, 40), 1000)[:1] == [100]


class OnlyEven(Bounds):
    """Gives nothing at all, not even an empty list, for an odd sum."""

    def process(self, key, context, elements):
        (total,) = elements
        return None if total % 2 else [total]


@pytest.mark.parametrize("assigner", [tumbling(10), sliding(10, 10), session(3)], ids=str)
@pytest.mark.parametrize("kind", ["aggregate", "reduce"])
def test_a_window_function_may_give_none(assigner, kind):
    with OperatorHarness(summed(assigner, kind=kind, show=OnlyEven)) as harness:
        assert run(harness, (1, 1), 15, (2, 21), 35, (3, 41), 55) == [2]


def test_new_records_go_to_new_windows_and_those_of_the_same_bounds_are_one():
    with OperatorHarness(summed(sliding(10, 5))) as harness:
        run(harness, (1, 12), 3)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(sliding(10, 2)), snapshot) as harness:
        # [10, 20) is a window of both; [5, 15) of the old one only.
        found = run(harness, (10, 13), 1000)
    assert (5, 15, 1) in found
    assert [one for one in found if one[:2] == (10, 20)] == [(10, 20, 11)]
    assert [one for one in found if one[0] % 2 == 0 and one[0] != 10] == [
        (start, start + 10, 10) for start in (4, 6, 8, 12)
    ]


@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_a_window_that_has_fired_does_not_fire_again(show):
    with OperatorHarness(summed(tumbling(10), lateness=100)) as harness:
        assert run(harness, (1, 11), 30) == [(10, 20, 1)]
        snapshot = harness.snapshot()
    changed = summed(tumbling(7), lateness=50, show=show)
    with OperatorHarness.restore(changed, snapshot) as harness:
        assert run(harness, 40, (5, 12)) == [(7, 14, 5)]
        kept = harness.snapshot()
    # Under its own size it is there, and takes late records.
    with OperatorHarness.restore(summed(tumbling(10), lateness=50), kept) as harness:
        assert run(harness, (2, 13)) == [(10, 20, 3)]


@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_a_window_past_the_new_lateness_is_gone(show):
    with OperatorHarness(summed(tumbling(10), lateness=100)) as harness:
        assert run(harness, (1, 11), 30) == [(10, 20, 1)]
        snapshot = harness.snapshot()
    with OperatorHarness.restore(
        summed(tumbling(10), show=show), snapshot, side_outputs=[LATE]
    ) as harness:
        harness.process_element(2, 12)
        assert harness.get_side_output(LATE) == [2]
        assert run(harness, 1000) == []
        assert not harness.num_event_time_timers()


@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_open_windows_of_event_time_fire_by_the_clock_if_the_new_ones_are_of_processing_time(show):
    with OperatorHarness(summed(tumbling(10), show=show)) as harness:
        run(harness, (1, 11), 12)
        snapshot = harness.snapshot()
    changed = summed(TumblingProcessingTimeWindows.of(7))
    with OperatorHarness.restore(changed, snapshot) as harness:
        assert run(harness, 1000) == []
        harness.set_processing_time(18)
        assert harness.extract_output() == []
        harness.set_processing_time(19)
        assert harness.extract_output() == [(10, 20, 1)]


@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_open_windows_of_processing_time_wait_for_the_watermark_if_the_new_ones_are_of_event_time(
    show,
):
    with OperatorHarness(summed(TumblingProcessingTimeWindows.of(10))) as harness:
        harness.set_processing_time(3)
        harness.process_element(1)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(tumbling(7), show=show), snapshot) as harness:
        harness.set_processing_time(1000)
        assert harness.extract_output() == []
        assert run(harness, 8) == []
        assert run(harness, 9) == [(0, 10, 1)]


@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_a_session_goes_on_under_another_gap(show):
    with OperatorHarness(summed(session(5))) as harness:
        run(harness, (1, 10), 0)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(session(20), show=show), snapshot) as harness:
        # Its end stays until a record joins it.
        assert run(harness, (2, 12), 31, 32) == [(10, 32, 3)]


@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_a_session_does_not_take_up_a_window_that_was_none(show):
    with OperatorHarness(summed(tumbling(10))) as harness:
        run(harness, (1, 10), 0)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(session(10), show=show), snapshot) as harness:
        # The very bounds of the old window at first, and then more.
        assert run(harness, (5, 10), (6, 15), 1000) == [(10, 20, 1), (10, 25, 11)]


REFUSED = {
    "evictor added": (
        summed(tumbling(10)),
        summed(tumbling(10), kind="list", evictor=CountEvictor.of(1)),
    ),
    "evictor added to records": (
        summed(tumbling(10), kind="list"),
        summed(tumbling(10), kind="list", evictor=CountEvictor.of(1)),
    ),
    "aggregate to records": (summed(tumbling(10)), summed(tumbling(10), kind="list")),
    "sessions to records": (summed(session(10)), summed(session(10), kind="list")),
    "aggregate to reduce": (summed(tumbling(10)), summed(tumbling(10), kind="reduce")),
    "time to count": (
        summed(tumbling(10)),
        summed(GlobalWindows.create(), trigger=CountTrigger.of(2)),
    ),
    "count to time": (
        summed(GlobalWindows.create(), trigger=CountTrigger.of(2)),
        summed(tumbling(10)),
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_what_cannot_be_converted_is_refused_while_windows_are_open(change, monkeypatch):
    old, new = REFUSED[change]
    if "count" in change:
        monkeypatch.setattr(Bounds, "process", lambda self, key, context, elements: [*elements])
    with OperatorHarness(old) as harness:
        nothing_open = harness.snapshot()
        run(harness, (1, 11))
        snapshot = harness.snapshot()
    with pytest.raises(StateMismatch, match=r"open windows of .* cannot go on with") as caught:
        OperatorHarness.restore(new, snapshot)
    assert "windows" in str(caught.value)
    with OperatorHarness.restore(new, nothing_open):
        pass


class Stretch(Window):
    """A window of a class of one's own."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def max_timestamp(self):
        return self.end - 1

    def __eq__(self, other):
        return isinstance(other, Stretch) and (self.start, self.end) == (other.start, other.end)

    def __hash__(self):
        return hash((self.start, self.end))


class Hanging(MergingWindowAssigner):
    """Sessions of that class."""

    def assign_windows(self, element, timestamp, context):
        return [Stretch(timestamp, timestamp + 5)]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        raise NotImplementedError

    def is_event_time(self):
        return True

    def merge_windows(self, windows, callback):
        ordered = sorted(windows, key=lambda one: one.start)
        if len(ordered) > 1 and ordered[1].start <= ordered[0].end:
            whole = Stretch(ordered[0].start, max(one.end for one in ordered[:2]))
            callback.merge(ordered[:2], whole)


def test_windows_of_your_own_class_that_merge_go_on():
    with OperatorHarness(summed(Hanging())) as harness:
        run(harness, (1, 10), 0)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(Hanging(), lateness=3), snapshot) as harness:
        assert run(harness, (2, 12), 16) == [(10, 17, 3)]


class Sum(JoinFunction):
    def join(self, first, second):
        return first + second


def joined(size):
    def pipeline(one, two):
        join = one.join(two).where(lambda n: "k").equal_to(lambda n: "k")
        return join.window(tumbling(size)).apply(Sum()).uid("join")

    return pipeline


def test_a_window_join_of_another_size():
    with OperatorHarness(joined(10)) as harness:
        harness.process_element1(1, 11)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(joined(7), snapshot) as harness:
        harness.process_element2(10, 12)
        harness.process_element2(20, 13)
        harness.process_element1(5, 12)
        harness.end_input1()
        harness.end_input2()
        # The open window [10, 20) has met nobody; [7, 14) is a window of the new records.
        assert sorted(harness.extract_output()) == [15, 25]


def test_without_a_change_nothing_is_looked_at(monkeypatch):
    from millstream.runtime.windows.change import Former

    def never(*args):
        raise AssertionError("nothing has changed")

    for program in (summed(tumbling(10)), summed(session(3)), summed(tumbling(10), show=OnlyClear)):
        with OperatorHarness(program) as harness:
            run(harness, (1, 11))
            snapshot = harness.snapshot()
        with monkeypatch.context() as patched:
            patched.setattr(Former, "take", never)
            with OperatorHarness.restore(program, snapshot, parallelism=2) as harness:
                assert len(run(harness, 1000)) == 1


def test_panes_turned_off():
    config = Configuration().set_string("millstream.windows.share-panes", "false")
    with OperatorHarness(summed(sliding(10, 5))) as harness:
        run(harness, (1, 12), (2, 17), 13)
        snapshot = harness.snapshot()
    for configuration in (config, None):
        with OperatorHarness.restore(
            summed(sliding(10, 5)), snapshot, configuration=configuration
        ) as harness:
            assert run(harness, (4, 16), 1000) == [(5, 15, 1), (10, 20, 7), (15, 25, 6)]


@pytest.mark.parametrize("lateness", [0, 5])
@pytest.mark.parametrize("assigner", [tumbling(10), sliding(10, 5), session(3)], ids=str)
def test_nothing_is_kept_of_windows_that_are_over(assigner, lateness):
    with OperatorHarness(summed(assigner, lateness=lateness)) as harness:
        # Two windows at once, one of which ends before the other; then one in another epoch.
        run(harness, (1, 1), (2, 14), (3, 27), 16)
        assert harness.num_keyed_state_entries() > 0
        run(harness, 200)
        assert harness.num_keyed_state_entries() == 0
        again = harness.snapshot()
    with OperatorHarness.restore(summed(assigner, lateness=lateness), again) as harness:
        run(harness, (4, 301))
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(assigner, lateness=lateness), snapshot) as harness:
        assert run(harness, 400)[0][2] == 4
        assert harness.num_keyed_state_entries() == 0


@pytest.mark.parametrize("assigner", [tumbling(3, 1), sliding(3, 3, 1), session(3)], ids=str)
@pytest.mark.parametrize("show", [Bounds, OnlyClear])
def test_windows_of_both_programs_fire_in_the_order_of_their_ends(assigner, show):
    with OperatorHarness(summed(tumbling(10))) as harness:
        run(harness, (1, 11), 12)
        snapshot = harness.snapshot()
    with OperatorHarness.restore(summed(assigner, show=show), snapshot) as harness:
        # One ends just before [10, 20) does, the other after it.
        found = run(harness, (100, 16), (200, 23), 50)
        assert [one[2] for one in found] == [100, 1, 200]
        assert [one[1] for one in found[:2]] == [19, 20]
