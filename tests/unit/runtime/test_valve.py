"""How far event time has come: channels that advance, sleep, wake, come, go and end; what is saved and restored."""

import pytest

from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.runtime.time.valve import NOBODY, InputEdge, Valve


def edge(number=0, index=0, *, splits=False, frame=False, senders=((0, 1),), sources=2, name=None):
    return InputEdge(number, index, name or f"edge {number}", splits, frame, senders, sources)


def valve_of(*edges, inputs=1, subtask=0):
    valve = Valve(inputs)
    for one in edges:
        valve.expect(one, subtask)
    return valve


def at(valve):
    return valve.watermark, valve.idle


TWO = edge()
SOURCE = edge(1, splits=True)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], (NO_TIME, False)),
        ([("advance", 0, 5)], (NO_TIME, False)),
        ([("advance", 0, 5), ("advance", 1, 7)], (5, False)),
        ([("advance", 0, 5), ("advance", 1, 7), ("advance", 0, 3)], (5, False)),
        # Who is idle is left out; who is left decides.
        ([("advance", 0, 5), ("sleep", 1)], (5, False)),
        ([("sleep", 1), ("advance", 0, 5)], (5, False)),
        # What an idle one says is not heard.
        ([("sleep", 1), ("advance", 1, 9), ("sleep", 0)], (NO_TIME, True)),
        # All idle: up to the most that was promised.
        ([("advance", 0, 5), ("advance", 1, 7), ("sleep", 0), ("sleep", 1)], (7, True)),
        ([("advance", 0, 5), ("advance", 1, 7), ("sleep", 1), ("sleep", 0)], (7, True)),
        ([("sleep", 0), ("sleep", 1), ("wake", 0)], (NO_TIME, False)),
        # Who wakes up behind is ignored until it has caught up.
        ([("sleep", 1), ("advance", 0, 5), ("wake", 1), ("advance", 0, 8)], (8, False)),
        (
            [("sleep", 1), ("advance", 0, 5), ("wake", 1), ("advance", 1, 4), ("advance", 0, 8)],
            (8, False),
        ),
        (
            [("sleep", 1), ("advance", 0, 5), ("wake", 1), ("advance", 1, 5), ("advance", 0, 8)],
            (5, False),
        ),
        # Who wakes up where the others are holds them back as before.
        (
            [("advance", 0, 5), ("advance", 1, 5), ("sleep", 1), ("wake", 1), ("advance", 0, 8)],
            (5, False),
        ),
        # Nobody is left who has caught up: nothing moves.
        ([("sleep", 1), ("advance", 0, 5), ("wake", 1), ("sleep", 0)], (5, False)),
        # Who ends says so, also if it was idle.
        ([("sleep", 0), ("sleep", 1), ("end", 0)], (MAX_TIME, False)),
        ([("advance", 0, 5), ("end", 1), ("end", 0)], (MAX_TIME, False)),
        ([("advance", 0, 5), ("end", 1)], (5, False)),
    ],
)
def test_two_channels_of_one_edge(steps, expected):
    valve = valve_of(TWO)
    for call, *arguments in steps:
        getattr(valve, call)(0, 0, *arguments)
    assert at(valve) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Without a split it is idle, from the start.
        ([], (NO_TIME, True)),
        ([("announce", 0)], (NO_TIME, False)),
        ([("announce", 0), ("advance", 0, 5)], (5, False)),
        # One that is found later holds back what has not been promised, and takes nothing back.
        ([("announce", 0), ("advance", 0, 5), ("announce", 1)], (5, False)),
        ([("announce", 0), ("advance", 0, 5), ("announce", 1), ("advance", 0, 9)], (5, False)),
        ([("advance", 0, 5), ("announce", 1), ("advance", 0, 9), ("advance", 1, 7)], (7, False)),
        # Nor does it stop holding back when it is told to be active, which it was.
        (
            [("announce", 0), ("advance", 0, 5), ("announce", 1), ("wake", 1), ("advance", 0, 9)],
            (5, False),
        ),
        # One that has ended holds nothing back.
        ([("advance", 0, 5), ("announce", 1), ("remove", 1), ("advance", 0, 9)], (9, False)),
        ([("advance", 0, 5), ("remove", 0)], (5, True)),
        ([("advance", 0, 5), ("advance", 1, 3), ("remove", 0), ("remove", 1)], (5, True)),
        ([("advance", 0, 5), ("remove", 0), ("announce", 1)], (5, False)),
        ([("advance", 0, 5), ("remove", 0), ("remove", 7)], (5, True)),
        ([("advance", 0, 5), ("advance", 1, 3), ("sleep", 1), ("remove", 0)], (5, True)),
        ([("end", -2)], (MAX_TIME, False)),
    ],
)
def test_the_splits_of_a_source(steps, expected):
    valve = valve_of(SOURCE)
    for call, *arguments in steps:
        getattr(valve, call)(0, 1, *arguments)
    assert at(valve) == expected


def test_a_source_without_splits_holds_no_other_edge_back():
    valve = valve_of(TWO, SOURCE)
    valve.advance(0, 0, 0, 5)
    valve.advance(0, 0, 1, 6)
    assert at(valve) == (5, False)


def test_nor_another_input_and_nor_does_an_input_that_brings_no_watermarks():
    valve = valve_of(TWO, edge(1, 1, splits=True), inputs=3)
    valve.advance(0, 0, 0, 5)
    valve.advance(0, 0, 1, 6)
    assert at(valve) == (5, False)
    valve.announce(1, 1, 0)
    valve.advance(0, 0, 0, 6)
    assert at(valve) == (5, False)
    valve.advance(1, 1, 0, 7)
    assert at(valve) == (6, False)


def test_a_frame_may_still_bring_something():
    frame = edge(1, splits=True, frame=True)
    valve = valve_of(frame)
    assert at(valve) == (NO_TIME, False)
    assert valve.waits_for_rows(frame)
    valve.announce(0, 1, 0)
    assert not valve.waits_for_rows(frame)


def test_before_anything_is_expected_a_valve_is_not_idle():
    assert at(Valve(1)) == (NO_TIME, False)


def test_which_channels_come_to_a_subtask():
    forward = edge(splits=True, senders=((0,), (1,), (2,)), sources=3)
    assert [n for n in range(7) if forward.brings(n, 1)] == [1, 4]
    assert [n for n in (-2, -3, -4, -5) if forward.brings(n, 1)] == [-3]
    assert forward.brings(NOBODY, 2)
    below = edge(senders=((0,), (1,), (2,)), sources=3)
    assert [n for n in range(7) if below.brings(n, 1)] == [1]
    assert edge(splits=True, frame=True, senders=((0,), (1,))).brings(0, 1)


# -- state -------------------------------------------------------------------------------------------------------


def names(*edges):
    return {one.id: one.name for one in edges}


def by_name(*edges):
    return {one.name: one for one in edges}


def test_it_goes_on_as_it_was_saved():
    other = edge(2)
    valve = valve_of(TWO, SOURCE, other)
    for number in (0, 2):
        valve.advance(0, number, 0, 10 + number)
        valve.advance(0, number, 1, 20)
    valve.advance(0, 1, 4, 15)
    valve.sleep(0, 0, 0)
    again = valve_of(TWO, SOURCE, other)
    again.load(valve.save(names(TWO, SOURCE, other)), by_name(TWO, SOURCE, other), 0)
    assert again.save(names(TWO, SOURCE, other)) == valve.save(names(TWO, SOURCE, other))
    assert at(again) == at(valve) == (12, False)
    again.advance(0, 2, 0, 30)
    assert at(again) == (15, False)


def channels(valve, *edges):
    """Of the first input: edge, channel, watermark, active, aligned."""
    return valve.save(names(*edges))[1][0][1]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # While there are other splits, one that ends leaves nothing behind; the last leaves what was promised.
        (
            [("advance", 3, 5), ("advance", 4, 7), ("remove", 3)],
            [["edge 1", 4, 7, True, True]],
        ),
        ([("advance", 3, 5), ("remove", 3)], [["edge 1", NOBODY, 5, False, False]]),
        # What was never there, or has ended before, ends without effect.
        ([("advance", 3, 5), ("remove", 3), ("remove", 4)], [["edge 1", NOBODY, 5, False, False]]),
        ([("remove", 4)], [["edge 1", NOBODY, NO_TIME, False, False]]),
    ],
)
def test_what_is_left_of_splits_that_have_ended(steps, expected):
    valve = valve_of(SOURCE)
    for call, *arguments in steps:
        getattr(valve, call)(0, SOURCE.id, *arguments)
    assert channels(valve, SOURCE) == expected


def test_a_channel_that_has_not_caught_up_is_not_waited_for_after_a_restart_either():
    valve = valve_of(TWO)
    valve.sleep(0, 0, 1)
    valve.advance(0, 0, 0, 5)
    valve.wake(0, 0, 1)
    again = valve_of(TWO)
    again.load(valve.save(names(TWO)), by_name(TWO), 0)
    again.advance(0, 0, 0, 8)
    assert at(again) == (8, False)


def test_who_was_idle_is_so_after_a_restart():
    valve = valve_of(TWO)
    valve.advance(0, 0, 0, 5)
    for channel in (0, 1):
        valve.sleep(0, 0, channel)
    again = valve_of(TWO)
    again.load(valve.save(names(TWO)), by_name(TWO), 0)
    assert at(again) == (5, True)


@pytest.mark.parametrize("restore", ["load", "merge"])
def test_edges_that_a_program_has_no_more_are_forgotten_and_the_others_are_not(restore):
    gone, source = edge(7), edge(1, splits=True)
    valve = valve_of(gone, TWO, source)
    for number in (gone.id, TWO.id):
        valve.advance(0, number, 0, 5)
        valve.advance(0, number, 1, 5)
    valve.advance(0, source.id, 0, 5)
    saved = valve.save(names(gone, TWO, source))
    again = valve_of(TWO, source)
    given = saved if restore == "load" else [saved]
    getattr(again, restore)(given, by_name(TWO, source), 0)
    assert channels(again, TWO, source) == [
        ["edge 0", 0, 5, True, True],
        ["edge 0", 1, 5, True, True],
        ["edge 1", 0, 5, True, True],
    ]


def test_a_split_that_several_subtasks_had_goes_on_with_the_least_and_is_idle_if_one_says_so():
    saved = [
        [9, [[7, [["edge 1", 0, 8, True, True], ["edge 1", 1, 3, True, True]]]]],
        [6, [[6, [["edge 1", 0, 5, False, False], ["edge 1", 1, 4, True, True]]]]],
    ]
    valve = valve_of(SOURCE)
    valve.merge(saved, by_name(SOURCE), 0)
    assert valve.save(names(SOURCE)) == [
        6,
        [[6, [["edge 1", 0, 5, False, False], ["edge 1", 1, 3, True, True]]]],
    ]


def test_a_source_that_had_no_split_is_idle_whatever_was_saved():
    # As it was written before such sources counted as idle.
    saved = [NO_TIME, [[NO_TIME, [["edge 1", NOBODY, 3, True, True]]]]]
    valve = valve_of(SOURCE)
    valve.load(saved, by_name(SOURCE), 0)
    assert at(valve) == (NO_TIME, True)
    assert valve.save(names(SOURCE))[1][0][1] == [["edge 1", NOBODY, 3, False, False]]


def spread(parallelism):
    return edge(
        1,
        splits=True,
        senders=tuple((n,) for n in range(parallelism)),
        sources=parallelism,
    )


def test_splits_that_come_to_another_subtask_now_hold_nothing_back():
    one, two = spread(1), spread(2)
    whole = valve_of(one)
    whole.advance(0, 1, 0, 5)
    whole.advance(0, 1, 1, 8)
    saved = [whole.save(names(one))]
    halves = []
    for subtask in range(2):
        half = valve_of(two, subtask=subtask)
        half.merge(saved, by_name(two), subtask)
        assert at(half) == (5, False)
        half.advance(0, 1, subtask, 9)
        assert at(half) == (9, False)
        halves.append(half.save(names(two)))
    again = valve_of(one)
    again.merge(halves, by_name(one), 0)
    again.advance(0, 1, 1, 20)
    assert at(again) == (9, False)


def test_who_has_a_split_less_than_before_is_idle():
    two, three = spread(2), spread(3)
    saved = []
    for subtask in range(2):
        valve = valve_of(two, subtask=subtask)
        valve.advance(0, 1, subtask, 5)
        saved.append(valve.save(names(two)))
    valve = valve_of(three, subtask=2)
    valve.merge(saved, by_name(three), 2)
    assert at(valve) == (5, True)


def test_senders_that_are_laid_out_anew_begin_with_the_least():
    valve = valve_of(TWO)
    valve.advance(0, 0, 0, 5)
    valve.advance(0, 0, 1, 8)
    three = edge(senders=((0, 1, 2),), sources=3)
    again = valve_of(three)
    again.load(valve.save(names(TWO)), by_name(three), 0)
    assert channels(again, three) == [["edge 0", n, 5, True, True] for n in range(3)]
    for channel in range(3):
        assert at(again) == (5, False)
        again.advance(0, 0, channel, 7)
    assert at(again) == (7, False)
    merged = valve_of(three)
    merged.merge([valve.save(names(TWO))] * 2, by_name(three), 0)
    assert at(merged) == (5, False)
    assert channels(merged, three) == [["edge 0", n, 5, True, True] for n in range(3)]
