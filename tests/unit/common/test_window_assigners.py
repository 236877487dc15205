"""Which windows a record gets (rules 9, 18, 19, 23, 29, 30)."""

from datetime import timedelta

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.window_assigner import MergingWindowAssigner, WindowAssigner
from millstream.api.window_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.common.time import Duration, Time
from millstream.errors import InvalidArgument, MissingTimestamp

MIN = -(2**63)


class Value:
    def __init__(self):
        self.kept = None

    def value(self):
        return self.kept

    def update(self, value):
        self.kept = value


class Context(WindowAssigner.WindowAssignerContext):
    """A clock, and one key's state."""

    def __init__(self, now=0):
        self.now = now
        self.states = {}

    def get_current_processing_time(self):
        return self.now

    def get_runtime_context(self):
        return self

    def get_state(self, descriptor):
        return self.states.setdefault(descriptor.name, Value())


def assigned(assigner, timestamp, now=0):
    windows = assigner.assign_windows("record", timestamp, Context(now))
    return [(window.start, window.end) for window in windows]


def ids(assigner, records):
    context = Context()
    return [
        [window.id for window in assigner.assign_windows("record", MIN, context)]
        for _ in range(records)
    ]


class Fixed(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return len(element)


# -- tumbling ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "window"),
    [
        (0, (0, 10)),
        (9, (0, 10)),
        (10, (10, 20)),
        (-1, (-10, 0)),
        (-10, (-10, 0)),
        (-11, (-20, -10)),
    ],
)
def test_tumbling(timestamp, window):
    assert assigned(TumblingEventTimeWindows.of(10), timestamp) == [window]
    assert assigned(TumblingProcessingTimeWindows.of(10), MIN, now=timestamp) == [window]


@pytest.mark.parametrize(
    ("offset", "timestamp", "window"),
    [(3, 0, (-7, 3)), (3, 3, (3, 13)), (-3, 6, (-3, 7)), (-3, 7, (7, 17)), (9, 8, (-1, 9))],
)
def test_tumbling_with_an_offset(offset, timestamp, window):
    assert assigned(TumblingEventTimeWindows.of(10, offset), timestamp) == [window]
    assert assigned(TumblingProcessingTimeWindows.of(10, offset), MIN, now=timestamp) == [window]


@pytest.mark.parametrize(
    "size", ["10 s", timedelta(seconds=10), Time.seconds(10), Duration.of_seconds(10), 10_000]
)
def test_a_size_may_be_any_duration(size):
    assigner = TumblingEventTimeWindows.of(size, Time.hours(0))
    assert (assigner.size, assigner.offset) == (10_000, 0)
    assert SlidingEventTimeWindows.of(size, size).slide == 10_000
    assert EventTimeSessionWindows.with_gap(size).gap == 10_000


# -- sliding -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "windows"),
    [
        (12, [(10, 20), (5, 15)]),
        (10, [(10, 20), (5, 15)]),
        (9, [(5, 15), (0, 10)]),
        (0, [(0, 10), (-5, 5)]),
        (-1, [(-5, 5), (-10, 0)]),
    ],
)
def test_sliding(timestamp, windows):
    assert assigned(SlidingEventTimeWindows.of(10, 5), timestamp) == windows
    assert assigned(SlidingProcessingTimeWindows.of(10, 5), MIN, now=timestamp) == windows


def test_sliding_is_aligned_to_the_slide():
    assert assigned(SlidingEventTimeWindows.of(10, 4), 12) == [(12, 22), (8, 18), (4, 14)]
    assert assigned(SlidingEventTimeWindows.of(10, 5, 2), 12) == [(12, 22), (7, 17)]
    assert assigned(SlidingEventTimeWindows.of(10, 5, -2), 12) == [(8, 18), (3, 13)]


def test_a_slide_of_more_than_the_size_leaves_gaps():
    assigner = SlidingEventTimeWindows.of(5, 10)
    assert assigned(assigner, 4) == [(0, 5)]
    assert assigned(assigner, 5) == []
    assert assigned(assigner, -6) == [(-10, -5)]


@given(st.integers(-(10**6), 10**6), st.integers(1, 50), st.integers(1, 50), st.data())
def test_sliding_gives_exactly_the_windows_that_hold_the_time(time, size, slide, data):
    offset = data.draw(st.integers(1 - slide, slide - 1))
    found = assigned(SlidingEventTimeWindows.of(size, slide, offset), time)
    starts = range(time - size + 1, time + 1)
    expected = [(s, s + size) for s in starts if (s - offset) % slide == 0]
    assert sorted(found) == expected
    assert found == sorted(found, reverse=True)


# -- sessions ------------------------------------------------------------------------------------------


def test_sessions():
    assert assigned(EventTimeSessionWindows.with_gap(10), 7) == [(7, 17)]
    assert assigned(ProcessingTimeSessionWindows.with_gap(10), MIN, now=7) == [(7, 17)]
    assert assigned(EventTimeSessionWindows.with_dynamic_gap(Fixed()), 7) == [(7, 13)]
    assert assigned(ProcessingTimeSessionWindows.with_dynamic_gap(len), MIN, now=7) == [(7, 13)]
    assert isinstance(EventTimeSessionWindows.with_gap(10), MergingWindowAssigner)


@pytest.mark.parametrize("gap", [0, -1, None, 1.5, True])
@pytest.mark.parametrize(
    "kind", [DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows]
)
def test_a_gap_that_makes_no_session(kind, gap):
    with pytest.raises(InvalidArgument, match="milliseconds above 0") as caught:
        kind(lambda element: gap).assign_windows("record", 0, Context())
    assert caught.value.evidence["got"] == repr(gap)


# -- by count, and everything --------------------------------------------------------------------------


def test_count_windows():
    assert ids(CountTumblingWindowAssigner.of(2), 5) == [[0], [0], [1], [1], [2]]
    assert ids(CountSlidingWindowAssigner.of(3, 1), 5) == [
        [0],
        [1, 0],
        [2, 1, 0],
        [3, 2, 1],
        [4, 3, 2],
    ]
    assert ids(CountSlidingWindowAssigner.of(4, 2), 6) == [[0], [0], [1, 0], [1, 0], [2, 1], [2, 1]]
    assert ids(CountSlidingWindowAssigner.of(1, 3), 5) == [[0], [], [], [1], []]


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 40))
def test_sliding_count_windows_hold_what_they_say(size, slide, records):
    found = ids(CountSlidingWindowAssigner.of(size, slide), records)
    assert len(found) == records
    for number, windows in enumerate(found):
        wanted = [i for i in range(number + 1) if i * slide <= number < i * slide + size]
        assert windows == wanted[::-1]


def test_a_full_count_window_is_dropped():
    trigger = CountSlidingWindowAssigner.of(3, 1).get_default_trigger(None)
    assert repr(trigger) == "PurgingTrigger(CountTrigger(3))"


def test_everything_in_one_window():
    assigner = GlobalWindows.create()
    assert len(assigner.assign_windows("record", MIN, Context())) == 1
    assert not assigner.is_event_time()
    assert isinstance(assigner.get_default_trigger(None), GlobalWindows.NeverTrigger)


# -- what all have in common ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(10),
        SlidingEventTimeWindows.of(10, 5),
        EventTimeSessionWindows.with_gap(10),
        DynamicEventTimeSessionWindows(len),
    ],
)
def test_event_time_needs_timestamps(assigner):
    assert assigner.is_event_time()
    assert repr(assigner.get_default_trigger(None)) == "EventTimeTrigger()"
    with pytest.raises(MissingTimestamp, match="without a timestamp") as caught:
        assigner.assign_windows("record", MIN, Context())
    assert caught.value.code == "MISSING_TIMESTAMP"
    assert "assign_timestamps_and_watermarks" in caught.value.hint
    assert type(assigner).__name__ in caught.value.evidence["windows"]


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingProcessingTimeWindows.of(10),
        SlidingProcessingTimeWindows.of(10, 5),
        ProcessingTimeSessionWindows.with_gap(10),
        DynamicProcessingTimeSessionWindows(len),
    ],
)
def test_processing_time_needs_none(assigner):
    assert not assigner.is_event_time()
    assert repr(assigner.get_default_trigger(None)) == "ProcessingTimeTrigger()"
    assert assigner.assign_windows("record", MIN, Context(5))


@pytest.mark.parametrize(
    "build",
    [
        lambda: TumblingEventTimeWindows.of(0),
        lambda: TumblingProcessingTimeWindows.of("-1 s"),
        lambda: TumblingEventTimeWindows.of("100 us"),
        lambda: TumblingEventTimeWindows.of(None),
        lambda: TumblingEventTimeWindows.of(10, 10),
        lambda: TumblingEventTimeWindows.of(10, -10),
        lambda: SlidingEventTimeWindows.of(0, 5),
        lambda: SlidingEventTimeWindows.of(10, 0),
        lambda: SlidingProcessingTimeWindows.of(10, -5),
        lambda: SlidingEventTimeWindows.of(10, 5, 5),
        lambda: EventTimeSessionWindows.with_gap(0),
        lambda: ProcessingTimeSessionWindows.with_gap("-1 s"),
        lambda: EventTimeSessionWindows.with_dynamic_gap(5),
        lambda: EventTimeSessionWindows.with_dynamic_gap(Fixed),
        lambda: CountTumblingWindowAssigner.of(0),
        lambda: CountTumblingWindowAssigner.of(1.5),
        lambda: CountTumblingWindowAssigner.of(True),
        lambda: CountSlidingWindowAssigner.of(3, 0),
        lambda: CountSlidingWindowAssigner.of(-3, 1),
    ],
)
def test_what_cannot_be_a_window(build):
    with pytest.raises(InvalidArgument) as caught:
        build()
    assert caught.value.evidence["got"]


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of("1 h", "15 min"),
        SlidingProcessingTimeWindows.of("10 s", "5 s"),
        EventTimeSessionWindows.with_gap("10 s"),
        EventTimeSessionWindows.with_dynamic_gap(lambda element: 5),
        GlobalWindows.create(),
        CountSlidingWindowAssigner.of(3, 1),
    ],
)
def test_assigners_travel(assigner):
    assert repr(cloudpickle.loads(cloudpickle.dumps(assigner))) == repr(assigner)


def test_how_assigners_are_shown():
    assert repr(TumblingEventTimeWindows.of("1 s")) == "TumblingEventTimeWindows(1000)"
    shown = "SlidingEventTimeWindows(1000, 500, offset=-100)"
    assert repr(SlidingEventTimeWindows.of("1 s", "500 ms", "-100 ms")) == shown
    assert repr(EventTimeSessionWindows.with_gap(5)) == "EventTimeSessionWindows(5)"
    assert repr(GlobalWindows.create()) == "GlobalWindows()"
    assert TumblingEventTimeWindows.of(1).get_window_serializer() is None
