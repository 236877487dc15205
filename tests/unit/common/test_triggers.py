"""When windows fire (rules 24, 26, 27, 28, 31)."""

import cloudpickle
import pytest

from millstream.api.trigger import Trigger, TriggerResult
from millstream.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaFunction,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from millstream.api.windows import GlobalWindow, TimeWindow
from millstream.errors import InvalidArgument, UnsupportedOperation

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
FIRE_AND_PURGE, PURGE = TriggerResult.FIRE_AND_PURGE, TriggerResult.PURGE
MAX = 2**63 - 1


class Cell:
    """Value and reducing state in one."""

    def __init__(self, descriptor):
        self.kept = None
        if descriptor.kind == "reducing":
            self.reduce = descriptor.get_reduce_function().reduce

    def value(self):
        return self.kept

    get = value

    def update(self, value):
        self.kept = value

    def add(self, value):
        self.kept = value if self.kept is None else self.reduce(self.kept, value)

    def clear(self):
        self.kept = None


class Context(Trigger.OnMergeContext):
    """One key's window: timers, state, and a watermark and a clock to move."""

    def __init__(self, *merged):
        self.watermark = -(2**63)
        self.now = 0
        self.event, self.processing = set(), set()
        self.cells = {}
        self.merged = merged

    def get_current_processing_time(self):
        return self.now

    def get_current_watermark(self):
        return self.watermark

    def register_processing_time_timer(self, time):
        self.processing.add(time)

    def register_event_time_timer(self, time):
        self.event.add(time)

    def delete_processing_time_timer(self, time):
        self.processing.discard(time)

    def delete_event_time_timer(self, time):
        self.event.discard(time)

    def get_partitioned_state(self, state_descriptor):
        return self.cells.setdefault(state_descriptor.name, Cell(state_descriptor))

    def merge_partitioned_state(self, state_descriptor):
        own = self.get_partitioned_state(state_descriptor)
        for other in self.merged:
            cell = other.cells.pop(state_descriptor.name, None)
            if cell is not None and cell.kept is not None:
                own.add(cell.kept)

    def empty(self):
        return (
            not self.event
            and not self.processing
            and all(cell.kept is None for cell in self.cells.values())
        )

    def advance(self, trigger, window, watermark):
        """Move the watermark; what the trigger said for each timer, in order."""
        self.watermark = watermark
        said = []
        while due := sorted(time for time in self.event if time <= watermark):
            self.event.discard(due[0])
            said.append((due[0], trigger.on_event_time(due[0], window, self)))
        return said

    def tick(self, trigger, window, now):
        """The same for the clock."""
        self.now = now
        said = []
        while due := sorted(time for time in self.processing if time <= now):
            self.processing.discard(due[0])
            said.append((due[0], trigger.on_processing_time(due[0], window, self)))
        return said


WINDOW = TimeWindow(0, 100)


def test_what_results_mean():
    assert [(r.is_fire(), r.is_purge()) for r in (CONTINUE, FIRE, FIRE_AND_PURGE, PURGE)] == [
        (False, False),
        (True, False),
        (True, True),
        (False, True),
    ]
    assert TriggerResult.FIRE_AND_PURGE is cloudpickle.loads(cloudpickle.dumps(FIRE_AND_PURGE))


# -- at the end ----------------------------------------------------------------------------------------


def test_event_time():
    trigger, ctx = EventTimeTrigger.create(), Context()
    assert trigger.on_element("a", 5, WINDOW, ctx) is CONTINUE
    assert ctx.event == {99}
    assert ctx.advance(trigger, WINDOW, 98) == []
    assert ctx.advance(trigger, WINDOW, 99) == [(99, FIRE)]
    assert trigger.on_element("late", 5, WINDOW, ctx) is FIRE
    assert ctx.event == set()
    assert trigger.on_event_time(150, WINDOW, ctx) is CONTINUE  # the cleanup of allowed lateness
    assert trigger.on_processing_time(99, WINDOW, ctx) is CONTINUE


def test_event_time_merging():
    trigger, ctx = EventTimeTrigger.create(), Context()
    assert trigger.can_merge()
    ctx.watermark = 98
    trigger.on_merge(WINDOW, ctx)
    assert ctx.event == {99}
    trigger.clear(WINDOW, ctx)
    assert ctx.event == set()
    ctx.watermark = 99
    trigger.on_merge(WINDOW, ctx)
    assert ctx.event == set()


def test_processing_time():
    trigger, ctx = ProcessingTimeTrigger.create(), Context()
    ctx.watermark = MAX  # which does not matter here
    assert trigger.on_element("a", 5, WINDOW, ctx) is CONTINUE
    assert trigger.on_event_time(99, WINDOW, ctx) is CONTINUE
    assert ctx.tick(trigger, WINDOW, 99) == [(99, FIRE)]
    trigger.on_merge(WINDOW, ctx)
    assert ctx.processing == set()
    ctx.now = 98
    trigger.on_merge(WINDOW, ctx)
    assert ctx.processing == {99}
    trigger.clear(WINDOW, ctx)
    assert ctx.empty()
    assert trigger.can_merge()


def test_never():
    trigger, ctx = NeverTrigger(), Context()
    assert trigger.on_element("a", 5, GlobalWindow.get(), ctx) is CONTINUE
    assert trigger.on_event_time(MAX, GlobalWindow.get(), ctx) is CONTINUE
    assert trigger.on_processing_time(MAX, GlobalWindow.get(), ctx) is CONTINUE
    trigger.on_merge(GlobalWindow.get(), ctx)
    trigger.clear(GlobalWindow.get(), ctx)
    assert ctx.empty()


# -- again and again -----------------------------------------------------------------------------------


def test_continuous_event_time_is_aligned_and_ends_with_the_window():
    trigger, ctx = ContinuousEventTimeTrigger.of(40), Context()
    assert trigger.on_element("a", 50, WINDOW, ctx) is CONTINUE
    assert ctx.event == {80, 99}
    assert trigger.on_element("b", 5, WINDOW, ctx) is CONTINUE  # what is waited for stays
    assert ctx.event == {80, 99}
    assert ctx.advance(trigger, WINDOW, 85) == [(80, FIRE)]
    assert ctx.event == {99}
    assert ctx.advance(trigger, WINDOW, 200) == [(99, FIRE)]
    assert trigger.on_element("late", 5, WINDOW, ctx) is FIRE
    trigger.clear(WINDOW, ctx)
    assert ctx.empty()


def test_continuous_event_time_catches_up():
    trigger, ctx = ContinuousEventTimeTrigger.of(30), Context()
    trigger.on_element("a", 5, WINDOW, ctx)
    said = ctx.advance(trigger, WINDOW, MAX)
    assert said == [(30, FIRE), (60, FIRE), (90, FIRE), (99, FIRE)]


def test_continuous_event_time_before_1970():
    trigger, ctx, window = ContinuousEventTimeTrigger.of(10), Context(), TimeWindow(-100, 0)
    trigger.on_element("a", -25, window, ctx)
    assert ctx.event == {-20, -1}


def test_continuous_event_time_clears_what_it_waits_for():
    trigger, ctx = ContinuousEventTimeTrigger.of(30), Context()
    trigger.on_element("a", 5, WINDOW, ctx)
    trigger.clear(WINDOW, ctx)
    assert ctx.empty()


def test_continuous_event_time_in_a_window_without_end_ends_with_the_input():
    trigger, ctx, window = ContinuousEventTimeTrigger.of(10), Context(), GlobalWindow.get()
    trigger.on_element("a", 5, window, ctx)
    assert ctx.advance(trigger, window, 25) == [(10, FIRE), (20, FIRE)]
    assert ctx.advance(trigger, window, MAX) == [(30, FIRE), (MAX, FIRE)]


def test_continuous_event_time_merging_goes_on_with_the_earliest():
    trigger = ContinuousEventTimeTrigger.of(10)
    one, two = Context(), Context()
    trigger.on_element("a", 5, TimeWindow(5, 25), one)
    trigger.on_element("b", 21, TimeWindow(21, 41), two)
    both = Context(one, two)
    trigger.on_merge(TimeWindow(5, 41), both)
    assert both.event == {10}
    assert trigger.on_event_time(10, TimeWindow(5, 41), both) is FIRE
    assert both.event == {10, 20}
    nothing = Context(Context())
    trigger.on_merge(TimeWindow(5, 41), nothing)
    assert nothing.empty()
    assert trigger.can_merge()


def test_continuous_processing_time():
    trigger, ctx = ContinuousProcessingTimeTrigger.of(40), Context()
    ctx.now = 10
    assert trigger.on_element("a", -(2**63), WINDOW, ctx) is CONTINUE
    assert trigger.on_element("b", -(2**63), WINDOW, ctx) is CONTINUE
    assert ctx.processing == {40}
    assert trigger.on_processing_time(39, WINDOW, ctx) is CONTINUE
    assert trigger.on_event_time(40, WINDOW, ctx) is CONTINUE
    assert ctx.tick(trigger, WINDOW, 85) == [(40, FIRE), (80, FIRE)]
    assert ctx.tick(trigger, WINDOW, 500) == [(99, FIRE)]
    assert ctx.empty()


def test_continuous_processing_time_merging_and_clearing():
    trigger = ContinuousProcessingTimeTrigger.of(40)
    one = Context()
    trigger.on_element("a", 0, WINDOW, one)
    both = Context(one)
    trigger.on_merge(WINDOW, both)
    assert both.processing == {40}
    trigger.clear(WINDOW, both)
    assert both.empty()
    trigger.clear(WINDOW, both)
    trigger.on_merge(WINDOW, Context())
    assert trigger.can_merge()


# -- by count, by distance, and around others ----------------------------------------------------------


def test_count():
    trigger, ctx = CountTrigger.of(3), Context()
    said = [trigger.on_element(n, n, WINDOW, ctx) for n in range(7)]
    assert said == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
    assert trigger.on_event_time(99, WINDOW, ctx) is CONTINUE
    assert trigger.on_processing_time(99, WINDOW, ctx) is CONTINUE
    trigger.clear(WINDOW, ctx)
    assert ctx.empty()


def test_count_merging_adds_up():
    trigger, one, two = CountTrigger.of(3), Context(), Context()
    trigger.on_element("a", 1, WINDOW, one)
    trigger.on_element("b", 1, WINDOW, two)
    both = Context(one, two)
    trigger.on_merge(WINDOW, both)
    assert trigger.on_element("c", 1, WINDOW, both) is FIRE
    assert trigger.can_merge()


def test_purging():
    trigger, ctx = PurgingTrigger.of(CountTrigger.of(2)), Context()
    said = [trigger.on_element(n, n, WINDOW, ctx) for n in range(4)]
    assert said == [CONTINUE, FIRE_AND_PURGE, CONTINUE, FIRE_AND_PURGE]
    trigger.on_element("a", 1, WINDOW, ctx)
    trigger.clear(WINDOW, ctx)
    assert ctx.empty()
    ends = PurgingTrigger.of(EventTimeTrigger.create())
    ends.on_merge(WINDOW, ctx)
    assert ctx.advance(ends, WINDOW, 99) == [(99, FIRE_AND_PURGE)]
    clock = PurgingTrigger.of(ProcessingTimeTrigger.create())
    assert clock.on_processing_time(99, WINDOW, ctx) is FIRE_AND_PURGE
    assert ends.can_merge()
    assert not PurgingTrigger.of(DeltaTrigger.of(1, max)).can_merge()


class Distance(DeltaFunction):
    def get_delta(self, old_data_point, new_data_point):
        return new_data_point - old_data_point


@pytest.mark.parametrize("function", [Distance(), lambda old, new: new - old])
def test_delta(function):
    trigger, ctx = DeltaTrigger.of(10, function), Context()
    said = [trigger.on_element(n, 0, WINDOW, ctx) for n in (0, 10, 11, 15, 21, 22)]
    assert said == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE]
    trigger.clear(WINDOW, ctx)
    assert ctx.empty()
    assert not trigger.can_merge()


# -- what is wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda: CountTrigger.of(0),
        lambda: CountTrigger.of("3"),
        lambda: ContinuousEventTimeTrigger.of(0),
        lambda: ContinuousProcessingTimeTrigger.of("-1 s"),
        lambda: PurgingTrigger.of(CountTrigger),
        lambda: PurgingTrigger.of(None),
        lambda: DeltaTrigger.of(1, 2),
        lambda: DeltaTrigger.of(1, Distance),
    ],
)
def test_what_cannot_be_a_trigger(build):
    with pytest.raises(InvalidArgument) as caught:
        build()
    assert caught.value.evidence["got"]


def test_a_trigger_that_was_not_written_for_merging_says_so():
    with pytest.raises(UnsupportedOperation, match="DeltaTrigger cannot follow"):
        DeltaTrigger.of(1, max).on_merge(WINDOW, Context())


def test_a_context_of_ones_own_has_no_metrics():
    with pytest.raises(UnsupportedOperation):
        Context().get_metric_group()


@pytest.mark.parametrize(
    "trigger",
    [
        EventTimeTrigger.create(),
        PurgingTrigger.of(ContinuousEventTimeTrigger.of("5 s")),
        CountTrigger.of(3),
        DeltaTrigger.of(2, lambda old, new: new - old),
        DeltaTrigger.of(2, Distance()),
    ],
)
def test_triggers_travel(trigger):
    again = cloudpickle.loads(cloudpickle.dumps(trigger))
    assert repr(again) == repr(trigger)
    assert again.on_element(1, 1, WINDOW, Context()) is CONTINUE
