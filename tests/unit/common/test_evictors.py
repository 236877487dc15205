"""Which records evictors leave in a window (rule 34)."""

import pytest

from millstream.api.evictor import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    TimeEvictor,
    TimestampedValue,
)
from millstream.api.triggers import DeltaFunction
from millstream.errors import InvalidArgument, UnsupportedOperation


class Distance(DeltaFunction):
    def get_delta(self, old_data_point, new_data_point):
        return abs(new_data_point - old_data_point)


def records(*values):
    """Records whose timestamps are their values."""
    return [TimestampedValue(value, value) for value in values]


def before(evictor, elements):
    return [one.value for one in evictor.evict_before(elements, len(elements), None, None)]


def after(evictor, elements):
    return [one.value for one in evictor.evict_after(elements, len(elements), None, None)]


@pytest.mark.parametrize(
    ("evictor", "kept"),
    [
        (CountEvictor.of(2), [9, 7]),
        (CountEvictor.of(0), []),
        (CountEvictor.of(4), [1, 3, 9, 7]),
        (CountEvictor.of(5), [1, 3, 9, 7]),
        (TimeEvictor.of(6), [9, 7]),  # exactly 6 older than the newest one is too old
        (TimeEvictor.of(7), [3, 9, 7]),
        (TimeEvictor.of("1 s"), [1, 3, 9, 7]),
        (DeltaEvictor.of(4, Distance()), [9, 7]),  # a distance of exactly the threshold is too far
        (DeltaEvictor.of(5, lambda old, new: abs(new - old)), [3, 9, 7]),
        (DeltaEvictor.of(100, Distance()), [1, 3, 9, 7]),
    ],
)
def test_what_stays(evictor, kept):
    elements = records(1, 3, 9, 7)
    assert before(evictor, elements) == kept
    assert after(evictor, elements) == [1, 3, 9, 7]
    assert elements == records(1, 3, 9, 7)
    evictor.do_evict_after = True
    assert before(evictor, elements) == [1, 3, 9, 7]
    assert after(evictor, elements) == kept


def test_evicting_afterwards_is_asked_for_by_name():
    assert CountEvictor.of(1, do_evict_after=True).do_evict_after
    assert TimeEvictor.of(1, do_evict_after=True).do_evict_after
    assert DeltaEvictor.of(1, max, do_evict_after=True).do_evict_after


@pytest.mark.parametrize(
    "evictor", [CountEvictor.of(1), TimeEvictor.of(1), DeltaEvictor.of(1, Distance())]
)
def test_an_empty_window(evictor):
    assert before(evictor, []) == []


def test_without_timestamps_time_evicts_nothing():
    elements = [TimestampedValue(value) for value in (1, 2, 3)]
    assert not elements[0].has_timestamp()
    assert before(TimeEvictor.of(0), elements) == [1, 2, 3]


def test_a_record_as_evictors_see_it():
    record = TimestampedValue("a", 5)
    assert (record.get_value(), record.get_timestamp(), record.has_timestamp()) == ("a", 5, True)
    assert record == ("a", 5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: CountEvictor.of(-1),
        lambda: CountEvictor.of("1"),
        lambda: TimeEvictor.of("-1 s"),
        lambda: TimeEvictor.of(None),
        lambda: DeltaEvictor.of(1, None),
        lambda: DeltaEvictor.of(1, Distance),
    ],
)
def test_what_cannot_be_an_evictor(build):
    with pytest.raises(InvalidArgument) as caught:
        build()
    assert caught.value.evidence["got"]


def test_a_context_of_ones_own_has_no_metrics():
    class Context(Evictor.EvictorContext):
        def get_current_processing_time(self):
            return 0

        def get_current_watermark(self):
            return 0

    with pytest.raises(UnsupportedOperation):
        Context().get_metric_group()


def test_how_evictors_are_shown():
    shown = [
        repr(one) for one in (CountEvictor.of(1), TimeEvictor.of("1 s"), DeltaEvictor.of(2, max))
    ]
    assert shown == ["CountEvictor(1)", "TimeEvictor(1000)", "DeltaEvictor(2)"]
