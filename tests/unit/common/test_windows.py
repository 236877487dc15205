"""Windows: what belongs to them, and which of them hang together."""

import itertools
import operator
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.windows import CountWindow, GlobalWindow, TimeWindow

TIMES = st.integers(-(2**40), 2**40)


class Merges:
    def __init__(self):
        self.seen = []

    def merge(self, to_be_merged, merge_result):
        self.seen.append((list(to_be_merged), merge_result))


def merged(*windows):
    """What `merge_windows` says of these, given as pairs."""
    callback = Merges()
    TimeWindow.merge_windows([TimeWindow(*one) for one in windows], callback)
    return [
        ([(w.start, w.end) for w in group], (whole.start, whole.end))
        for group, whole in callback.seen
    ]


def test_the_last_timestamp_is_before_the_end():
    assert TimeWindow(-10, 0).max_timestamp() == -1
    assert CountWindow(1).max_timestamp() == GlobalWindow().max_timestamp() == 2**63 - 1


@pytest.mark.parametrize(
    ("timestamp", "offset", "size", "start"),
    [
        (0, 0, 10, 0),
        (9, 0, 10, 0),
        (10, 0, 10, 10),
        (-1, 0, 10, -10),
        (-10, 0, 10, -10),
        (-11, 0, 10, -20),
        (4, 5, 10, -5),
        (5, 5, 10, 5),
        (4, -5, 10, -5),
        (5, -5, 10, 5),
        (-5, 5, 10, -5),
        (-6, 5, 10, -15),
    ],
)
def test_where_a_window_starts(timestamp, offset, size, start):
    assert TimeWindow.get_window_start_with_offset(timestamp, offset, size) == start


@given(TIMES, st.integers(1, 10**6), st.data())
def test_every_timestamp_is_in_its_window(timestamp, size, data):
    offset = data.draw(st.integers(-size + 1, size - 1))
    start = TimeWindow.get_window_start_with_offset(timestamp, offset, size)
    assert start <= timestamp < start + size
    assert (start - offset) % size == 0


def test_touching_windows_intersect():
    one = TimeWindow(0, 10)
    assert one.intersects(TimeWindow(10, 20))
    assert TimeWindow(10, 20).intersects(one)
    assert one.intersects(TimeWindow(3, 4))
    assert not one.intersects(TimeWindow(11, 20))
    assert one.cover(TimeWindow(10, 20)) == TimeWindow(0, 20)


def test_merging():
    assert merged() == []
    assert merged((0, 5)) == []
    assert merged((0, 5), (6, 10)) == []
    assert merged((5, 10), (0, 5)) == [([(0, 5), (5, 10)], (0, 10))]
    # A long one keeps the group together although its neighbours in order do not touch.
    assert merged((0, 20), (1, 2), (15, 25), (30, 31)) == [
        ([(0, 20), (1, 2), (15, 25)], (0, 25)),
    ]
    assert merged((0, 5), (3, 8), (20, 25), (25, 30)) == [
        ([(0, 5), (3, 8)], (0, 8)),
        ([(20, 25), (25, 30)], (20, 30)),
    ]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=12))
def test_merged_windows_are_apart(given_windows):
    windows = {TimeWindow(start, start + length) for start, length in given_windows}
    callback = Merges()
    TimeWindow.merge_windows(windows, callback)
    result = set(windows)
    for group, whole in callback.seen:
        result -= set(group)
        assert len(group) > 1
        assert whole.start == min(w.start for w in group)
        assert whole.end == max(w.end for w in group)
    result |= {whole for _, whole in callback.seen}
    ordered = sorted(result)
    assert all(not a.intersects(b) for a, b in itertools.pairwise(ordered))


def test_windows_are_compared_by_what_they_are():
    assert TimeWindow(1, 2) == TimeWindow(1, 2) != TimeWindow(1, 3)
    assert CountWindow(1) == CountWindow(1) != CountWindow(2)
    assert GlobalWindow() == GlobalWindow.get()
    assert len({TimeWindow(1, 2), TimeWindow(1, 2), CountWindow(1), CountWindow(1)}) == 2
    assert TimeWindow(1, 2) != (1, 2)
    assert sorted([TimeWindow(2, 3), TimeWindow(1, 9)]) == [TimeWindow(1, 9), TimeWindow(2, 3)]
    assert sorted([CountWindow(2), CountWindow(1)]) == [CountWindow(1), CountWindow(2)]


@pytest.mark.parametrize("window", [TimeWindow(-5, 5), CountWindow(3), GlobalWindow()])
def test_windows_travel(window):
    assert pickle.loads(pickle.dumps(window)) == window


def test_how_windows_are_shown():
    assert repr(TimeWindow(0, 5)) == "TimeWindow(start=0, end=5)"
    assert repr(CountWindow(7)) == "CountWindow(id=7)"
    assert repr(GlobalWindow()) == "GlobalWindow"


def test_time_windows_are_ordered_by_start_then_end():
    windows = [TimeWindow(1, 2), TimeWindow(0, 9), TimeWindow(0, 3)]
    assert sorted(windows) == [TimeWindow(0, 3), TimeWindow(0, 9), TimeWindow(1, 2)]
    assert max(windows) == TimeWindow(1, 2)
    assert TimeWindow(0, 3) <= TimeWindow(0, 3) >= TimeWindow(0, 3)
    assert TimeWindow(0, 3) < TimeWindow(0, 4)
    assert TimeWindow(1, 2) > TimeWindow(0, 9)
    assert not TimeWindow(0, 3) < TimeWindow(0, 3)


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
@pytest.mark.parametrize("other", [CountWindow(1), (0, 5), None])
def test_a_time_window_has_no_order_with_anything_else(compare, other):
    with pytest.raises(TypeError):
        compare(TimeWindow(0, 5), other)
