"""Windows that are open when a savepoint is taken end as they began, whatever the windows of the program that goes on.

Everything about the windows may be another then: their size, offset, slide, gap and kind, the trigger, the lateness,
the evictor, the function, and with them which implementation runs them; and the parallelism and the backend.
"""

import tempfile
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, event, given, note
from hypothesis import strategies as st

from millstream.common.configuration import Configuration
from millstream.common.restart_strategy import RestartStrategies
from millstream.errors import StateMismatch, UserFunctionError
from millstream.testing import OperatorHarness
from tests.properties import time_reference as ref
from tests.properties.test_time_programs import LATE, STYLES, announced, execute, label, windowed
from tests.properties.test_time_programs import windows as drawn_windows

TIMES = st.integers(-4, 30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), TIMES, st.none()),
        st.tuples(st.sampled_from("abc"), st.integers(0, 9), TIMES, st.none()),
        TIMES.map(ref.Mark),
    ),
    max_size=12,
)
BACKENDS = st.sampled_from(["hashmap", "hashmap", "lmdb"])

# -- the rule --------------------------------------------------------------------------------------


class Changed(ref.Windows):
    """Windows that go on with those of others. One that does not merge is no session, and is not joined by any: among
    sessions it is `(start, end, "kept")`."""

    def __init__(self, old, spec):
        super().__init__(spec)
        self.timers.watermark = watermark = old.timers.watermark
        self.firings = old.firings
        if innermost(self.trigger).kind == innermost(old.trigger).kind:
            innermost(self.trigger).state = dict(innermost(old.trigger).state)
        if old.merging or not self.merging:
            self.timers.waiting = dict(old.timers.waiting)
        if described(old.spec) == described(spec):
            # A session that has been purged, too: only a change leaves out what has nothing in it.
            self.sessions = {key: set(windows) for key, windows in old.sessions.items()}
        at_the_end = "event" in (self.trigger.kind, old.trigger.kind)
        for (key, window), records in old.contents.items():
            if not records:
                continue
            if self.merging and not old.merging:
                window = (*window, "kept")
            if self._is_late(window):
                self.firings.pop((key, window), None)
                self.trigger.clear(key, window)
                continue
            self.contents[key, window] = list(records)
            if self.merging and old.merging:
                self.sessions.setdefault(key, set()).add(window)
            if at_the_end and self.event_time and ref.last_of(window) > watermark:
                self.timers.add(ref.last_of(window), (key, window))
            if self._cleanup(window) != ref.MAX:
                self.timers.add(self._cleanup(window), (key, window))

    def _time(self, time, key, window):
        if len(window) == 2:
            yield from super()._time(time, key, window)
            return
        merging, self.merging = self.merging, False
        yield from super()._time(time, key, window)
        self.merging = merging

    def _result(self, key, window, contents):
        return super()._result(key, window[:2], contents)


def described(spec):
    """What makes windows others than they were."""
    trigger = spec.trigger or ref.default_trigger(spec.assigner)
    return spec.assigner, trigger, spec.lateness, contents_of(spec)


def innermost(trigger):
    return trigger if trigger.inner is None else innermost(trigger.inner)


def contents_of(spec):
    """What a window keeps: records with or without timestamps, or what a function has made of them."""
    return "timed" if spec.evictor is not None else spec.function


def convertible(old, new):
    """If what is in the old windows can be what is in the new ones: records can become anything, a value only stays."""
    found, wanted = contents_of(old), contents_of(new)
    return found == wanted or found == "timed" or (found == "list" and wanted != "timed")


def interpret(windows, steps, *, last):
    results, watermark = [], windows.timers.watermark
    for step in [*steps, *([ref.Mark(ref.MAX)] if last else [])]:
        if not isinstance(step, ref.Mark):
            results += windows.feed(ref.Rec(step, step[2]))
        elif step.time > watermark:
            watermark = step.time
            results += windows.feed(step)
    found = [(one.value, one.timestamp) for one in results if isinstance(one, ref.Rec)]
    return Counter(found), Counter((one.value, one.timestamp) for one in windows.late)


# -- the engine ------------------------------------------------------------------------------------


def fed(harness, steps, *, last):
    for step in steps:
        if isinstance(step, ref.Mark):
            harness.process_watermark(step.time)
        else:
            harness.process_element(step, step[2])
    if last:
        harness.end_input()
    return (
        Counter(harness.extract_output_with_timestamps()),
        Counter(harness.get_side_output_with_timestamps(LATE)),
    )


def options(panes, backend, parallelism):
    config = Configuration().set_string("millstream.windows.share-panes", str(panes))
    return {
        "configuration": config,
        "state_backend": backend,
        "parallelism": parallelism,
        "side_outputs": [LATE],
    }


RUNS = st.builds(options, st.booleans(), BACKENDS, st.sampled_from([1, 2, 3]))


@st.composite
def changes(draw):
    """Two programs: the second is the first with something changed, or just another."""
    old = draw(drawn_windows(exact=True))
    new = draw(drawn_windows(exact=True))
    if draw(st.booleans()) and old.assigner[0] in ("tumbling", "sliding", "session"):
        numbers = list(old.assigner[1:])
        place = draw(st.integers(0, len(numbers) - 1))
        numbers[place] = draw(st.integers(1, 10))
        if len(numbers) > 1:
            # An offset is smaller than the time between two windows.
            numbers[-1] %= numbers[-2]
        return old, replace(old, assigner=(old.assigner[0], *numbers))
    if draw(st.booleans()):
        names = draw(st.sets(st.sampled_from(["lateness", "function", "shows_window"])))
        return old, replace(old, **{name: getattr(new, name) for name in names})
    return old, new


@pytest.mark.timeout(1800)
@given(changes(), STEPS, STEPS, RUNS, RUNS, STYLES)
def test_open_windows_end_as_they_began(change, first, second, run, other_run, style):
    old, new = change
    assume((old.assigner[0] == "global") == (new.assigner[0] == "global"))
    event(f"{label(old)} to {label(new)}")
    note(f"{run} to {other_run}")
    before = ref.Windows(old)
    with OperatorHarness(lambda s: windowed(s, old, style).uid("windows"), **run) as harness:
        assert fed(harness, first, last=False) == interpret(before, first, last=False)
        snapshot = harness.snapshot()

    def again():
        return OperatorHarness.restore(
            lambda s: windowed(s, new, style).uid("windows"), snapshot, **other_run
        )

    if not convertible(old, new) and any(before.contents.values()):
        event("refused")
        with pytest.raises(StateMismatch, match="cannot go on with"), again():
            pass
        return
    with again() as harness:
        assert fed(harness, second, last=True) == interpret(Changed(before, new), second, last=True)


@pytest.mark.timeout(1800)
@given(changes(), announced(), st.data(), st.booleans(), BACKENDS, STYLES)
def test_a_changed_program_that_is_taken_up_by_its_name(
    change, records, data, panes, backend, style
):
    """The same job goes on in its own folder, where its files are added to and not written anew."""
    old, new = change
    assume(records)
    assume((old.assigner[0] == "global") == (new.assigner[0] == "global"))
    # The record with this number ends the old program, and is the first that the new one sees.
    place = data.draw(st.integers(1, len(records)))
    parallelism = data.draw(st.sampled_from([1, 2]))
    other = data.draw(st.sampled_from([parallelism, parallelism, 3]))
    times = ref.Assign(lambda v: v[2], lambda v: v[3])
    before = ref.Windows(old)
    begun = [e for v in records[: place - 1] for e in times.feed(ref.Rec(v, ref.MIN))]
    expected = [out for e in begun for out in before.feed(e)]
    results, late = [], []
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "execution__checkpointing__dir": folder,
            "state__backend__type": backend,
            "millstream__windows__share_panes": panes,
        }

        def go(spec, parallelism, crash):
            program = ref.Program((records,), None, (), False, spec)
            never = RestartStrategies.no_restart()
            execute(program, parallelism, 1, crash, style, options, never, results, late)

        with pytest.raises(UserFunctionError):
            go(old, parallelism, ("before", place))
        if not convertible(old, new) and any(before.contents.values()):
            with pytest.raises(StateMismatch, match="cannot go on with"):
                go(new, other, ("before", 0))
            return
        go(new, other, ("before", 0))
    after = Changed(before, new)
    rest = [e for v in records[place - 1 :] for e in times.feed(ref.Rec(v, ref.MIN))]
    expected += [out for e in [*rest, ref.Mark(ref.MAX)] for out in after.feed(e)]
    assert Counter(results) == Counter(
        (one.value, one.timestamp) for one in expected if isinstance(one, ref.Rec)
    )
    assert Counter(late) == Counter(
        (one.value, one.timestamp) for one in [*before.late, *after.late]
    )
