"""Random programs over event time give the results of the reference: timers, windows, late records, windows of windows.

Two kinds of input can be compared, whatever the parallelism, the epochs and the failures (rule 63): one split whose
records announce its watermarks, where everything is determined, late records and second firings too; and several
streams whose records are late within their bound, where nothing depends on when watermarks come.
"""

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import assume, event, given, note
from hypothesis import strategies as st

from millstream.common.restart_strategy import RestartStrategies
from millstream.common.time import Time
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.connectors.collection import CollectionSource
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowFunction,
)
from millstream.errors import UserFunctionError
from millstream.graph.operators import CollectOp
from tests.in_pipelines import everywhere
from tests.in_rounds import in_rounds
from tests.properties import time_reference as ref
from tests.properties.kinds import KEYS, VALUES
from tests.properties.time_reference import Program, Timers, Window
from tests.support import environment

LATE = OutputTag("late")

# -- the program under test ------------------------------------------------------------------------


class Time1(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Time2(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return ref.second_time(value)


class Announced(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        if event[3] is not None:
            output.emit_watermark(event[3])


class AnnouncedAgain(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        mark = ref.second_mark(event)
        if mark is not None:
            output.emit_watermark(mark)


class Spread(CollectionSource):
    """One split, and any number of subtasks."""

    def max_parallelism(self):
        return None


class Stamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield tuple(value), ctx.timestamp()


class Reuse(MapFunction):
    """Emits one list again and again."""

    def __init__(self):
        self.one = []

    def map(self, value):
        self.one[:] = value
        return self.one


class Spoil(MapFunction):
    """Changes what it is given."""

    def map(self, value):
        value[0], value[1] = "z", -99
        return value


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return ref.gap_of(element)


class Total(AggregateFunction):
    def create_accumulator(self):
        return None, 0, 0

    def add(self, value, accumulator):
        _, total, count = accumulator
        return value[0], total + value[1], count + 1

    def get_result(self, accumulator):
        return (*accumulator, None)

    def merge(self, acc_a, acc_b):
        return acc_a[0], acc_a[1] + acc_b[1], acc_a[2] + acc_b[2]


def bounds(window):
    return (window.start, window.end) if isinstance(window, TimeWindow) else None


class Counter1:
    """Counts in a state, whose values are of some kind."""

    def __init__(self, name, style):
        kind = VALUES[style.values]
        self.kind = kind
        self.descriptor = ValueStateDescriptor(name, kind.type_info)

    def next(self, state):
        value = state.value()
        count = (0 if value is None else self.kind.read(value)) + 1
        state.update(self.kind.put(count))
        return count


class Show(WindowFunction):
    def __init__(self, style):
        self.keys = KEYS[style.keys]

    def apply(self, key, window, inputs):
        return [ref.windowed(self.keys.read(key), bounds(window), list(inputs), None)]


class ShowFirings(ProcessWindowFunction):
    def __init__(self, style):
        self.keys = KEYS[style.keys]
        self.firings = Counter1("firings", style)

    def process(self, key, context, elements):
        firing = self.firings.next(context.window_state().get_state(self.firings.descriptor))
        key = self.keys.read(key)
        yield ref.windowed(key, bounds(context.window()), list(elements), firing)

    def clear(self, context):
        context.window_state().get_state(self.firings.descriptor).clear()


class SetTimers(KeyedProcessFunction):
    def __init__(self, spec, style):
        self.spec = spec
        self.keys = KEYS[style.keys]
        self.counter = Counter1("fired", style)

    def open(self, runtime_context):
        self.fired = runtime_context.get_state(self.counter.descriptor)

    def process_element(self, value, ctx):
        new, gone = ref.timer_set(value, ctx.timestamp(), self.spec)
        ctx.timer_service().register_event_time_timer(new)
        if gone is not None:
            ctx.timer_service().delete_event_time_timer(gone)

    def on_timer(self, timestamp, ctx):
        again = ref.timer_again(timestamp, self.spec)
        if again is not None:
            ctx.timer_service().register_event_time_timer(again)
        fired = self.counter.next(self.fired)
        watermark = ctx.timer_service().current_watermark()
        details = (fired, watermark) if self.spec.counts else None
        yield self.keys.read(ctx.get_current_key()), timestamp, 0, details


_numbers = itertools.count()
_left: dict[int, int] = {}


class FailsOnce(MapFunction):
    """Fails at the record with this number, once; never at 0. Functions are copied, this module is not."""

    def __init__(self, record):
        self.number = next(_numbers)
        _left[self.number] = record

    def map(self, value):
        _left[self.number] -= 1
        if _left[self.number] == 0:
            raise ValueError("once")
        return value


def milliseconds(*numbers):
    return [Time.milliseconds(number) for number in numbers]


def assigner_of(spec):
    kind, *numbers = spec
    match kind:
        case "tumbling":
            return TumblingEventTimeWindows.of(*milliseconds(*numbers))
        case "sliding":
            return SlidingEventTimeWindows.of(*milliseconds(*numbers))
        case "session":
            return EventTimeSessionWindows.with_gap(*milliseconds(*numbers))
        case "dynamic":
            return EventTimeSessionWindows.with_dynamic_gap(Gap())
        case "global":
            return GlobalWindows.create()


def trigger_of(spec):
    match spec[0]:
        case "event":
            return EventTimeTrigger.create()
        case "count":
            return CountTrigger.of(spec[1])
        case "continuous":
            return ContinuousEventTimeTrigger.of(Time.milliseconds(spec[1]))
        case "delta":
            return DeltaTrigger.of(spec[1], ref.distance)
        case "purging":
            return PurgingTrigger.of(trigger_of(spec[1]))
        case "never":
            return NeverTrigger()


def evictor_of(spec):
    kind, number, after = spec
    match kind:
        case "count":
            return CountEvictor.of(number, after)
        case "time":
            return TimeEvictor.of(Time.milliseconds(number), after)
        case "delta":
            return DeltaEvictor.of(number, ref.distance, after)


def key_of(style):
    if style.keys == "text":
        return ref.key_of
    write = KEYS[style.keys].write
    return lambda v: write(v[0])


def windowed(stream, spec, style):
    """A window operator as a user would write it."""
    windows = stream.key_by(key_of(style)).window(assigner_of(spec.assigner))
    if spec.trigger is not None:
        windows = windows.trigger(trigger_of(spec.trigger))
    if spec.evictor is not None:
        windows = windows.evictor(evictor_of(spec.evictor))
    if spec.lateness:
        windows = windows.allowed_lateness(spec.lateness)
    windows = windows.side_output_late_data(LATE)
    show = ShowFirings(style) if spec.counts_firings else Show(style)
    if spec.function == "list":
        return windows.process(show) if spec.counts_firings else windows.apply(show)
    with_window = show if spec.shows_window else None
    if spec.function == "reduce":
        return windows.reduce(ref.reduced, with_window)
    return windows.aggregate(Total(), with_window)


def build(env, program, crash, style):
    """The stream of results, and that of late records."""
    streams = []
    one_split = program.disorder is None
    for number, records in enumerate(program.sources):
        strategy = (
            WatermarkStrategy.for_generator(Announced)
            if one_split
            else WatermarkStrategy.for_bounded_out_of_orderness(Time.milliseconds(program.disorder))
        )
        strategy = strategy.with_timestamp_assigner(Time1())
        if program.spread:
            streams.append(env.from_source(Spread(list(records)), strategy, f"source {number}"))
            streams[-1].uid(f"source {number}")
            continue
        source = env.from_collection(list(records)).uid(f"source {number}")
        stream = source.assign_timestamps_and_watermarks(strategy)
        stream.uid(f"times {number}")
        streams.append(stream.set_parallelism(1) if one_split else stream)

    def laid_out(stream):
        """Where one split announces its watermarks they must not come to be out of order with its records."""
        if program.spread:
            return stream.start_new_chain()
        return stream.set_parallelism(1) if one_split else stream

    stream = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    for place, name in enumerate(program.steps):
        stream = laid_out(step(stream, name, style)).uid(f"step {place}")
    if style.batches is not None:
        size, columns = style.batches
        stream = laid_out(stream.map_batches(lambda batch: batch, size, columns)).uid("same")
    if crash is not None and crash[0] == "before":
        stream = laid_out(fail_once(stream, crash[1], style)).uid("fails")
    if style.mutable:
        stream = laid_out(stream.map(Reuse())).uid("reuse")
        laid_out(stream.map(Spoil())).uid("spoil")._sink("spoilt", CollectOp(_forget))
    if program.twice:
        stream = stream.union(stream)
    if program.assign_again:
        again = WatermarkStrategy.for_generator(AnnouncedAgain).with_timestamp_assigner(Time2())
        stream = stream.assign_timestamps_and_watermarks(again).set_parallelism(1).uid("again")
    late = None
    if isinstance(program.stage, Window):
        stream = windowed(stream, program.stage, style).uid("stage")
        late = stream.get_side_output(LATE).process(Stamp())
    else:
        stream = stream.key_by(key_of(style)).process(SetTimers(program.stage, style))
        stream = stream.uid("stage")
    if program.then is not None:
        stream = windowed(stream, program.then, style).uid("then")
    if crash is not None and crash[0] == "after":
        stream = fail_once(stream, crash[1], style)
    return stream.process(Stamp()), late


def step(stream, name, style):
    """A map or a filter: a call for each record, or for each batch."""
    maps = name in ref.MAPS
    function = (ref.MAPS if maps else ref.FILTERS)[name]
    if style.batches is None:
        return stream.map(function) if maps else stream.filter(function)
    call = stream.map_batches if maps else stream.filter_batches
    return call(lambda batch: [function(v) for v in batch], style.batches[0])


def fail_once(stream, record, style):
    fails = FailsOnce(record)
    if style.batches is None:
        return stream.map(fails)
    return stream.flat_map_batches(lambda batch: [[fails.map(v)] for v in batch], style.batches[0])


def _forget(records):
    """Nobody reads what was spoilt."""


@dataclass(frozen=True)
class Style:
    """What the results must not depend on: what keys and values of states look like, whether records can be changed,
    whether functions take them one by one or in batches (of so many, as such columns)."""

    keys: str
    values: str
    mutable: bool
    batches: tuple[int, str] | None = None


PLAIN = Style("text", "object", mutable=False)
ROUNDS = st.sampled_from([1, 1, 2, 3])
"""How many rounds an epoch has."""

STYLES = st.builds(
    Style,
    st.just("text") | st.sampled_from(list(KEYS)),
    st.sampled_from(list(VALUES)),
    st.booleans(),
    st.none()
    | st.tuples(st.sampled_from([1, 2, 3, 7, 1000]), st.sampled_from(["numpy", "pandas", "arrow"])),
)

# -- drawing programs ------------------------------------------------------------------------------

LETTERS = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(1, 5)


def few_or_many(moves):
    return st.lists(moves, max_size=4) | st.lists(moves, min_size=6, max_size=18)


@st.composite
def announced(draw):
    """One split: time goes on with jumps both ways, some records announce a watermark near it."""
    moves = st.tuples(
        LETTERS,
        st.integers(0, 9),
        st.integers(0, 5),
        st.integers(-12, 3),
        st.none() | st.integers(-6, 2),
    )
    records = []
    time = 0
    for key, number, step, jump, mark in draw(few_or_many(moves)):
        time += step
        records.append((key, number, time + jump, None if mark is None else time + mark))
    return tuple(records)


@st.composite
def within_bound(draw, disorder):
    """Records that are at most so much behind the newest one before them, all at even times."""
    records = []
    newest = draw(st.integers(-5, 5)) * 2
    moves = st.tuples(LETTERS, st.integers(0, 9), st.integers(-disorder // 2, 4))
    for key, number, step in draw(few_or_many(moves)):
        records.append((key, number, newest + 2 * step, None))
        newest = max(newest, newest + 2 * step)
    return tuple(records)


@st.composite
def assigners(draw, kinds=("tumbling", "sliding", "session", "dynamic", "global")):
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "tumbling":
            size = draw(st.integers(1, 10))
            return kind, size, draw(st.integers(1 - size, size - 1))
        case "sliding":
            size, slide = draw(st.integers(1, 10)), draw(st.integers(1, 12))
            return kind, size, slide, draw(st.integers(1 - slide, slide - 1))
        case "session":
            return kind, draw(SMALL)
        case _:
            return (kind,)


@st.composite
def triggers(draw, assigner):
    kinds = ["count"]
    if assigner[0] != "global":
        kinds += ["event", "continuous"]
    if assigner[0] not in ("session", "dynamic"):
        kinds += ["delta", "never"]
    kind = draw(st.sampled_from(kinds))
    if kind in ("event", "never"):
        trigger = (kind,)
    else:
        trigger = kind, draw(st.integers(0, 4)) if kind == "delta" else draw(SMALL)
    return ("purging", trigger) if draw(st.booleans()) else trigger


@st.composite
def evictors(draw, assigner):
    # Sessions may put their records together in any order; only their times count then.
    kinds = ["time"] if assigner[0] in ("session", "dynamic") else ["count", "time", "delta"]
    return draw(st.sampled_from(kinds)), draw(SMALL), draw(st.booleans())


@st.composite
def windows(draw, exact):
    """A window operator; `exact` if the order of records and watermarks is known."""
    assigner = draw(assigners() if exact else assigners(("tumbling", "sliding", "session")))
    if not exact and assigner[0] == "session":
        # Whether a record exactly a gap behind another joins its session depends on whether the watermark comes
        # between the two, though neither is late. With even times and an odd gap there is no such record.
        assigner = "session", 2 * assigner[1] - 1
    evicts = draw(st.integers(0, 3)) == 0
    trigger = draw(triggers(assigner)) if assigner[0] == "global" else None
    merging = assigner[0] in ("session", "dynamic")
    return Window(
        assigner,
        draw(st.none() | triggers(assigner)) if exact and assigner[0] != "global" else trigger,
        draw(evictors(assigner)) if exact and evicts else None,
        draw(st.sampled_from([0, 0, 1, 3, 8])),
        draw(st.sampled_from(["list", "reduce", "aggregate"])),
        draw(st.booleans()),
        not merging and draw(st.booleans()),
    )


@st.composite
def timers(draw, exact):
    if not exact:
        return Timers(draw(st.integers(0, 6)), None, draw(st.none() | SMALL), counts=False)
    return Timers(
        draw(st.integers(-4, 6)),
        draw(st.none() | st.integers(-3, 6)),
        draw(st.none() | st.integers(3, 9)),
    )


@st.composite
def programs(draw):
    """A program and its parallelism."""
    parallelism = draw(st.sampled_from([1, 2, 3]))
    exact = draw(st.integers(0, 3)) > 0
    stage = draw(windows(exact) if draw(st.integers(0, 3)) else timers(exact))
    if exact:
        disorder, sources = None, (draw(announced()),)
    else:
        disorder = draw(st.sampled_from([0, 2, 6, 10]))
        count = draw(st.integers(1, 3))
        sources = tuple(draw(within_bound(disorder)) for _ in range(count))
    program = Program(
        sources,
        disorder,
        tuple(draw(st.lists(st.sampled_from([*ref.MAPS, *ref.FILTERS]), max_size=2))),
        exact and draw(st.integers(0, 4)) == 0,
        stage,
        draw(st.none() | then(stage, exact and parallelism == 1))
        if parallelism == 1 or punctual(stage, exact)
        else None,
        spread=draw(st.booleans()),
        # The second copy of a record comes some time after the first, so nothing may depend on when.
        twice=not exact and draw(st.booleans()),
    )
    return program, parallelism


def punctual(stage, exact):
    """If no result can be late for what follows, even if other subtasks are ahead or behind."""
    return not exact or (isinstance(stage, Window) and stage.lateness == 0)


@st.composite
def then(draw, stage, in_order):
    if isinstance(stage, Window) and stage.assigner[0] == "global":
        return None  # its results are at the end of time
    return Window(
        draw(assigners(("tumbling", "sliding", *(["session"] if in_order else [])))),
        function=draw(st.sampled_from(["list", "reduce", "aggregate"])),
        shows_window=draw(st.booleans()),
    )


CRASHES = st.none() | st.tuples(
    st.sampled_from(["before", "after"]),
    st.integers(1, 12),
    # The job restarts by itself, or is taken up again at another parallelism.
    st.sampled_from([None, 1, 2, 3]),
)


def label(spec):
    parts = [spec.assigner[0], (spec.trigger or ("default",))[0], spec.function]
    return " ".join([*parts, *(["evicting"] if spec.evictor else [])])


def execute(program, parallelism, epoch, crash, style, options, restart, results, late, rounds=1):
    env = environment(parallelism, epoch, **options)
    for key, value in restart.to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    main, side = build(env, program, crash, style)
    # These two are given records once an epoch is done, so that a failed one leaves nothing.
    main._sink("results", CollectOp(results.extend))
    if side is not None:
        side._sink("late", CollectOp(late.extend))
    with in_rounds(rounds):
        env.execute("job")


@pytest.mark.timeout(1800)
@given(
    programs(),
    st.sampled_from([None, 1, 2, 5]),
    CRASHES,
    st.sampled_from(["hashmap", "hashmap", "lmdb"]),
    st.sampled_from([True, True, False]),
    STYLES,
    ROUNDS,
)
def test_programs_over_time_do_what_the_reference_says(
    drawn, epoch, crash, backend, panes, style, rounds
):
    program, parallelism = drawn
    # In pipelined mode what comes on several ways is mixed as it comes, as in Flink: who is late is not determined.
    assume(not everywhere() or (len(program.sources) == 1 and not program.spread))
    expected = ref.run(program)
    note(
        f"parallelism {parallelism}, epochs of {epoch}, crash {crash}, {backend}, panes {panes}, {style}, "
        f"{rounds} rounds"
    )
    event(label(program.stage) if isinstance(program.stage, Window) else "timers")
    event(f"spread: {program.spread}, twice: {program.twice}")
    event(f"late: {bool(expected.late)}, then: {program.then is not None}")

    results: list = []
    late: list = []
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "execution__checkpointing__dir": folder,
            "state__backend__type": backend,
            "millstream__windows__share_panes": panes,
        }
        if crash is None or crash[2] is None:
            restart = RestartStrategies.fixed_delay_restart(3, 0)
            execute(
                program, parallelism, epoch, crash, style, options, restart, results, late, rounds
            )
        else:
            other = crash[2]
            exact = program.disorder is None
            if program.then is not None and not punctual(program.stage, exact):
                other = parallelism  # what follows depends on there being one subtask
            no_restart = RestartStrategies.no_restart()
            try:
                execute(
                    *(program, parallelism, epoch, crash, style, options, no_restart),
                    *(results, late, rounds),
                )
            except UserFunctionError:
                event(f"taken up again: {parallelism} to {other}")
                crash = (crash[0], 0)
                execute(
                    program, other, epoch, crash, style, options, no_restart, results, late, rounds
                )
    if crash is not None and len(crash) == 3:
        event(f"crashed: {crash[0] if _left.popitem()[1] < 1 else 'not'}")
    assert Counter(results) == Counter(expected.results)
    assert Counter(late) == Counter(expected.late)
