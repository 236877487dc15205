"""At both ends of time no record is just gone, in any kind of window or join: it is in a result, late, or counted."""

from collections import Counter

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from millstream.api.functions import ProcessFunction
from millstream.common.configuration import Configuration
from millstream.common.time import Time
from millstream.datastream import OutputTag, ProcessJoinFunction
from millstream.errors import MillstreamError
from millstream.testing import OperatorHarness
from tests.properties import time_reference as ref
from tests.properties.test_time_programs import LATE, VALUES, Style, windowed
from tests.properties.test_time_programs import windows as drawn_windows

MIN, MAX = ref.MIN, ref.MAX
NEAR = st.integers(0, 25)
PLAIN = Style("text", next(iter(VALUES)), mutable=False)
TIMES = st.one_of(
    NEAR.map(lambda n: MAX - n),
    NEAR.map(lambda n: MIN + 1 + n),
    NEAR,
    st.just(MAX),
    st.just(MIN + 1),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("ab"), st.integers(0, 9), TIMES, st.none()),
        TIMES.map(ref.Mark),
    ),
    max_size=10,
)


class Stamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def fed(harness, steps):
    """Feed records and watermarks; what comes out, with timestamps, and what was late."""
    for step in steps:
        if isinstance(step, ref.Mark):
            harness.process_watermark(step.time)
        else:
            harness.process_element(step, step[2])
    harness.end_input()
    return (
        Counter(harness.extract_output_with_timestamps()),
        Counter(harness.get_side_output_with_timestamps(LATE)),
    )


def interpreted(spec, steps):
    """The same by the rules."""
    windows = ref.Windows(spec)
    watermark, results = MIN, []
    for step in [*steps, ref.Mark(MAX)]:
        if not isinstance(step, ref.Mark):
            results += windows.feed(ref.Rec(step, step[2]))
        elif step.time > watermark:
            watermark = step.time
            results += windows.feed(step)
    found = [(one.value, one.timestamp) for one in results if isinstance(one, ref.Rec)]
    return Counter(found), Counter((one.value, one.timestamp) for one in windows.late)


@given(drawn_windows(exact=True), STEPS, st.sampled_from(["hashmap", "lmdb"]), st.booleans())
def test_windows_at_both_ends_of_time(spec, steps, backend, panes):
    assume(spec.assigner[0] != "global")
    config = Configuration().set_string("millstream.windows.share-panes", str(panes))
    event(f"{spec.assigner[0]} {spec.function} {'default' if spec.trigger is None else 'trigger'}")
    with OperatorHarness(
        lambda stream: windowed(stream, spec, PLAIN),
        side_outputs=[LATE],
        state_backend=backend,
        configuration=config,
    ) as harness:
        assert fed(harness, steps) == interpreted(spec, steps)


@given(
    drawn_windows(exact=True),
    st.lists(TIMES, max_size=4),
    st.none() | TIMES,
    st.booleans(),
)
def test_a_record_without_a_timestamp_is_never_taken_for_an_old_one(spec, times, mark, panes):
    assume(spec.assigner[0] != "global")
    config = Configuration().set_string("millstream.windows.share-panes", str(panes))
    with OperatorHarness(
        lambda stream: windowed(stream, spec, PLAIN), configuration=config
    ) as harness:
        for time in times:
            harness.process_element(("a", 1, time, None), time)
        if mark is not None:
            harness.process_watermark(mark)
        with pytest.raises(MillstreamError, match="without a timestamp"):
            harness.process_element(("a", 1, MIN, None))


class Pairs(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right, ctx.get_left_timestamp(), ctx.get_right_timestamp()


LEFT, RIGHT = OutputTag("left"), OutputTag("right")


@given(
    st.integers(-6, 6),
    st.integers(0, 6),
    st.lists(st.tuples(st.sampled_from(["left", "right", "mark"]), TIMES), max_size=12),
)
def test_interval_joins_at_both_ends_of_time(lower, width, steps):
    upper = lower + width
    # How long after its own time a record is kept: Flink forgets it when the watermark has come as far.
    stays = {"left": max(upper, 0), "right": max(-lower, 0)}
    kept: dict = {"left": [], "right": []}
    late: dict = {"left": [], "right": []}
    watermark, pairs = MIN, []
    for number, (kind, time) in enumerate(steps):
        if kind == "mark":
            watermark = max(watermark, time)
            for side, found in kept.items():
                found[:] = [one for one in found if one[1] + stays[side] > watermark]
        elif time < watermark:
            late[kind].append((number, time))
        else:
            kept[kind].append((number, time))
            for other, u in kept["right" if kind == "left" else "left"]:
                left, right = ((number, time), (other, u))[:: 1 if kind == "left" else -1]
                if lower <= right[1] - left[1] <= upper:
                    pairs.append(((left[0], right[0], left[1], right[1]), max(time, u)))

    def joined(one, two):
        join = one.key_by(lambda n: 0).interval_join(two.key_by(lambda n: 0))
        join = join.between(Time.milliseconds(lower), Time.milliseconds(upper))
        join = join.side_output_left_late_data(LEFT).side_output_right_late_data(RIGHT)
        return join.process(Pairs())

    with OperatorHarness(joined, side_outputs=[LEFT, RIGHT]) as harness:
        for number, (kind, time) in enumerate(steps):
            if kind == "mark":
                harness.process_watermark1(time)
                harness.process_watermark2(time)
            elif kind == "left":
                harness.process_element1(number, time)
            else:
                harness.process_element2(number, time)
        harness.end_input1()
        harness.end_input2()
        assert Counter(harness.extract_output_with_timestamps()) == Counter(pairs)
        assert harness.get_side_output_with_timestamps(LEFT) == late["left"]
        assert harness.get_side_output_with_timestamps(RIGHT) == late["right"]
