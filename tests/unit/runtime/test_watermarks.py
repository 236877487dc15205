"""The stage that makes watermarks: when it makes one, when it is idle, and what it goes on from."""

import logging

import pytest

from millstream.checkpoint.manifest import GeneratorState
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from millstream.errors import InvalidArgument, UserFunctionError
from millstream.runtime.base import clock
from millstream.runtime.time.watermarks import WatermarkStage

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness("10 ms")
NONE = WatermarkStrategy.no_watermarks()
IDLE = BOUNDED.with_idleness("100 ms")


class Remembers(WatermarkGenerator):
    """A generator of a user: says what it was told to say."""

    def __init__(self):
        self.next = None

    def on_periodic_emit(self, output):
        if self.next is not None:
            output.emit_watermark(self.next)


def stage_of(strategy, name="clicks"):
    """A stage, and what came out of it."""
    stage = WatermarkStage(strategy, name)
    out = []
    stage.forward = out.append
    stage.forward_idle = lambda idle: out.append("idle" if idle else "active")
    return stage, out


def test_what_a_stage_begins_with():
    stage, out = stage_of(IDLE)
    assert (stage.max, stage.emitted, stage.idle) == (NO_TIME, NO_TIME, False)
    assert (stage.quiet, stage.quiet_since, stage.generator, out) == (True, None, None, [])


def test_before_the_chain_is_built_watermarks_go_nowhere():
    stage = WatermarkStage(MONOTONOUS, "clicks")
    stage.emit_watermark(5)
    stage.mark_idle()
    assert (stage.emitted, stage.idle) == (5, True)


# -- watermarks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "largest", "expected"),
    [
        # No record, no watermark.
        (MONOTONOUS, [NO_TIME], []),
        (BOUNDED, [NO_TIME], []),
        # One less than the largest: another record of the same time may come.
        (MONOTONOUS, [5], [4]),
        (MONOTONOUS, [0], [-1]),
        (BOUNDED, [100], [89]),
        (BOUNDED, [5], [-6]),
        # They only grow.
        (MONOTONOUS, [5, 5, 6, 9], [4, 5, 8]),
        # And do not fall out of 64 bits.
        (BOUNDED, [NO_TIME + 3], []),
        (BOUNDED, [NO_TIME + 12], [NO_TIME + 1]),
        (MONOTONOUS, [MAX_TIME], [MAX_TIME - 1]),
    ],
)
def test_a_stage_is_asked_for_the_watermark_of_the_largest_timestamp(strategy, largest, expected):
    stage, out = stage_of(strategy)
    for timestamp in largest:
        stage.max = timestamp
        stage.periodic()
    assert out == expected
    assert stage.emitted == (expected[-1] if expected else NO_TIME)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([5], [5]),
        ([5, 5], [5]),
        ([5, 4, 6], [5, 6]),
        ([NO_TIME], []),
        ([MAX_TIME], [MAX_TIME]),
        ([True], [1]),
    ],
)
def test_a_watermark_that_is_not_larger_than_the_last_changes_nothing(given, expected):
    stage, out = stage_of(MONOTONOUS)
    for watermark in given:
        stage.emit_watermark(watermark)
    assert out == expected
    assert stage.emitted == (expected[-1] if expected else NO_TIME)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (1.5, "emit_watermark needs a whole number of milliseconds"),
        (None, "emit_watermark needs a whole number of milliseconds"),
        (MAX_TIME + 1, "emit_watermark: the timestamp does not fit into 64 bits"),
    ],
)
def test_what_is_no_watermark_is_refused_and_goes_nowhere(given, words):
    stage, out = stage_of(MONOTONOUS)
    stage.mark_idle()
    out.clear()
    with pytest.raises(InvalidArgument, match=words):
        stage.emit_watermark(given)
    assert (out, stage.emitted, stage.idle) == ([], NO_TIME, True)


@pytest.mark.parametrize(
    ("strategy", "largest", "watermark", "expected"),
    [
        # Watermarks from further up end at the stage,
        (MONOTONOUS, 5, 100, []),
        (MONOTONOUS, 5, MAX_TIME - 1, []),
        # except the last, before which comes what the stage has still to say.
        (MONOTONOUS, 5, MAX_TIME, [4, MAX_TIME]),
        (MONOTONOUS, NO_TIME, MAX_TIME, [MAX_TIME]),
        (NONE, NO_TIME, MAX_TIME, [MAX_TIME]),
    ],
)
def test_watermarks_from_further_up(strategy, largest, watermark, expected):
    stage, out = stage_of(strategy)
    stage.max = largest
    stage.upstream(watermark)
    assert out == expected


@pytest.mark.parametrize(
    ("strategy", "makes"),
    [
        (MONOTONOUS, True),
        (BOUNDED, True),
        (NONE, False),
        (WatermarkStrategy.for_generator(Remembers), True),
    ],
)
def test_which_strategies_make_watermarks(strategy, makes):
    assert WatermarkStage(strategy, "clicks").makes_watermarks is makes


# -- a generator of the user's own -----------------------------------------------------------------------------------


def test_a_generator_of_ones_own_is_asked_and_the_largest_timestamp_is_not():
    stage, out = stage_of(WatermarkStrategy.for_generator(Remembers))
    stage.max = 1000
    stage.periodic()
    assert out == []
    stage.generator.next = 7
    stage.periodic()
    assert out == [7]


def test_a_supplier_that_gives_no_generator_is_named():
    with pytest.raises(
        InvalidArgument, match="'clicks' made something that is not a gen"
    ) as failure:
        WatermarkStage(WatermarkStrategy.for_generator(dict), "clicks")
    assert failure.value.evidence["got"] == "dict"


@pytest.mark.parametrize(
    ("strategy", "given", "warnings"),
    [
        (WatermarkStrategy.for_generator(Remembers), [5, 4, 3], 1),
        (WatermarkStrategy.for_generator(Remembers), [5, 5, 6], 0),
        # Who has written none cannot have made a mistake in it.
        (MONOTONOUS, [5, 4], 0),
    ],
)
def test_a_generator_that_goes_back_is_told_of_once(strategy, given, warnings, caplog):
    stage, _ = stage_of(strategy)
    with caplog.at_level(logging.WARNING, "millstream.job"):
        for watermark in given:
            stage.emit_watermark(watermark)
    found = [one.getMessage() for one in caplog.records if "went back" in one.getMessage()]
    assert len(found) == warnings
    if warnings:
        assert "'clicks' went back from 5 to 4" in found[0]


# -- idleness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (["mark_idle"], ["idle"]),
        (["mark_idle", "mark_idle"], ["idle"]),
        (["mark_active"], []),
        (["mark_idle", "mark_active", "mark_active"], ["idle", "active"]),
        (["mark_idle", "heard"], ["idle", "active"]),
        (["heard"], []),
    ],
)
def test_only_changes_of_status_are_told(calls, expected):
    stage, out = stage_of(MONOTONOUS)
    for call in calls:
        getattr(stage, call)()
    assert out == expected
    assert stage.idle is (bool(expected) and expected[-1] == "idle")


def test_a_watermark_wakes_the_stream_before_it_goes_on():
    stage, out = stage_of(MONOTONOUS)
    stage.mark_idle()
    stage.emit_watermark(5)
    assert out == ["idle", "active", 5]


def test_a_watermark_without_effect_does_not_wake_the_stream():
    stage, out = stage_of(MONOTONOUS)
    stage.emit_watermark(5)
    stage.mark_idle()
    stage.emit_watermark(5)
    stage.emit_watermark(4)
    assert out == [5, "idle"]


@pytest.mark.parametrize(
    ("strategy", "quiet", "idle"),
    [(IDLE, 99, False), (IDLE, 100, True), (IDLE, 101, True), (BOUNDED, 10**9, False)],
)
def test_a_split_without_records_for_so_long_is_idle(strategy, quiet, idle):
    stage, out = stage_of(strategy)
    stage.fallen_silent(quiet)
    assert (stage.idle, out) == (idle, ["idle"] if idle else [])


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # Silence is counted from the first look that has heard nothing.
        ([(1000, "probe")], [1100]),
        ([(1000, "probe"), (1099, "probe")], [1100, 1100]),
        ([(1000, "probe"), (1100, "probe")], [1100, "idle"]),
        ([(1000, "probe"), (1200, "probe")], [1100, "idle"]),
        # Who is idle need not be looked at until it says something.
        ([(1000, "probe"), (1100, "probe"), (1300, "probe")], [1100, "idle", None]),
        # A record since the last look: silence has not begun.
        ([(1000, "heard"), (1050, "probe")], [1150]),
        ([(1000, "heard"), (1050, "probe"), (1150, "probe")], [1150, 1250]),
        (
            [(1000, "heard"), (1050, "probe"), (1150, "probe"), (1250, "probe")],
            [1150, 1250, "idle"],
        ),
        ([(1000, "probe"), (1090, "heard"), (1100, "probe"), (1150, "probe")], [1100, 1200, 1250]),
        (
            [(1000, "probe"), (1100, "probe"), (1150, "heard"), (1160, "probe")],
            [1100, "idle", 1260],
        ),
    ],
)
def test_when_a_subtask_is_idle_and_when_to_look_again(steps, expected, monkeypatch):
    stage, _ = stage_of(IDLE)
    seen = []
    for now, call in steps:
        monkeypatch.setattr(clock, "now", lambda now=now: now)
        was = stage.idle
        again = getattr(stage, call)()
        if call == "probe":
            seen.append("idle" if stage.idle and not was else again)
    assert seen == expected


def test_a_stream_without_a_timeout_is_never_idle(monkeypatch):
    monkeypatch.setattr(clock, "now", lambda: pytest.fail("nobody has to look"))
    stage, out = stage_of(BOUNDED)
    assert stage.probe() is None
    assert out == []


# -- state -----------------------------------------------------------------------------------------------------------


def test_it_goes_on_as_it_was_saved():
    stage, _ = stage_of(BOUNDED)
    stage.max = 100
    stage.periodic()
    stage.mark_idle()
    saved = stage.save()
    assert saved == GeneratorState(100, 89, idle=True)
    other, out = stage_of(BOUNDED)
    other.quiet = False
    other.load(saved)
    assert (other.max, other.emitted, other.idle, other.quiet) == (100, 89, True, True)
    other.periodic()
    assert out == []


def test_nothing_saved_is_the_beginning():
    stage, _ = stage_of(BOUNDED)
    stage.max = 100
    stage.periodic()
    stage.mark_idle()
    stage.load(None)
    assert (stage.max, stage.emitted, stage.idle) == (NO_TIME, NO_TIME, False)


def test_a_generator_of_ones_own_is_saved_whole_and_made_anew_where_there_is_none():
    strategy = WatermarkStrategy.for_generator(Remembers)
    stage, _ = stage_of(strategy)
    first = stage.generator
    first.next = 7
    saved = stage.save()
    other, out = stage_of(strategy)
    other.load(saved)
    assert other.generator is not first
    other.periodic()
    assert out == [7]
    other.load(None)
    assert other.generator.next is None
    other.load(GeneratorState(1, 2))
    assert other.generator.next is None


def test_a_strategy_that_has_no_generator_of_its_own_takes_none_from_what_was_saved():
    saved = stage_of(WatermarkStrategy.for_generator(Remembers))[0].save()
    stage, _ = stage_of(BOUNDED)
    stage.load(saved)
    assert stage.generator is None


def test_a_generator_that_cannot_be_saved_is_named():
    stage, _ = stage_of(WatermarkStrategy.for_generator(Remembers))
    stage.generator.next = (one for one in [])
    with pytest.raises(UserFunctionError, match="generator of 'clicks' cannot be saved") as failure:
        stage.save()
    assert failure.value.evidence["operator"] == "clicks"
    assert "generator" in failure.value.evidence["cause"]
    assert isinstance(failure.value.__cause__, TypeError)
