"""Behind a graph of any shape every subtask's event time follows the splits that are read, whatever the parallelism.

Random shapes: forward, rescaling and other exchanges, unions and connections of a stream with another one and with
itself, side outputs, changes of parallelism; sources with fewer splits than subtasks; splits that are found later or
end while their source goes on; jobs that fail and go on, at the same parallelism or another one.

Every split announces watermark 1000 early on and then has no end, except one, whose last records look at the
watermark when everything else has long been read: it has to be 1000 in every subtask.
"""

import itertools
import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from millstream.api.source import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
    Timestamped,
    Watermark,
)
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import (
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)
from millstream.errors import UserFunctionError
from millstream.graph.operators import CollectOp
from tests.support import environment

TIME = 1000
FILLERS = 60
PROBES = 12
SIDE = OutputTag("side")


# -- sources ---------------------------------------------------------------------------------------


@dataclass
class World:
    """What all sources of a program know; functions and sources are copied, this module is not."""

    commits: int = 0
    over: bool = False
    left: int = 0


_numbers = itertools.count()
_worlds: dict[int, World] = {}


@dataclass(frozen=True)
class Split:
    """`after` so many commits it is found; if it `ends`, it does when it is read, else with the job."""

    after: int = 0
    ends: bool = False


class Scripts(Source):
    """The first split of the main source has the fillers and the probes."""

    def __init__(self, world: int, splits: tuple[Split, ...], *, main: bool) -> None:
        self.world = world
        self.splits = {f"s{n}": split for n, split in enumerate(splits)}
        self.main = main

    def script(self, split):
        own = [Timestamped((-1, "before"), 5), Watermark(10), Watermark(TIME)]
        if self.main and split == "s0":
            own += [Timestamped((-1, "filler"), 2000)] * FILLERS
            own += [Timestamped((n, "probe"), 2000) for n in range(PROBES)]
        return own

    def boundedness(self):
        return Boundedness.BOUNDED

    def paced(self):
        return True

    def stamped(self):
        return True

    def create_enumerator(self, parallelism):
        return _Enumerator(self)

    def create_reader(self):
        return _Reader(self)


class _Enumerator(SplitEnumerator):
    def __init__(self, source):
        self.source = source
        self.found: list[str] = []

    def restored(self, positions):
        self.found = list(positions)

    def discover(self):
        world = _worlds[self.source.world]
        for name, split in self.source.splits.items():
            if name not in self.found and (split.after <= world.commits or world.over):
                self.found.append(name)
        return list(self.found)

    def available(self, split, position):
        return len(self.source.script(split))

    def finished(self, split, position):
        over = _worlds[self.source.world].over
        script = self.source.script(split)
        main = len(script) > FILLERS
        ends = self.source.splits[split].ends and not main
        return position == len(script) and (over or ends)

    def exhausted(self):
        return _worlds[self.source.world].over

    def commit(self, split, position):
        world = _worlds[self.source.world]
        world.commits += 1
        if self.source.main and split == "s0" and position == len(self.source.script(split)):
            world.over = True


class _Reader(SourceReader):
    def __init__(self, source):
        self.source = source

    def read(self, split, start, end):
        return self.source.script(split)[start:end]


# -- programs --------------------------------------------------------------------------------------


class Pass(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


class Sides(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield SIDE, value


class Look(KeyedProcessFunction):
    def process_element(self, value, ctx):
        if value[1] == "probe":
            yield value[0], ctx.timer_service().current_watermark()


class FailsOnce(MapFunction):
    def __init__(self, world):
        self.world = world

    def map(self, value):
        world = _worlds[self.world]
        world.left -= 1
        if world.left == 0:
            raise ValueError("once")
        return value


def same(value):
    return value


STEPS = {
    "chained": lambda s, other: s.map(same),
    "forward": lambda s, other: s.map(same).start_new_chain(),
    "rebalance": lambda s, other: s.rebalance().map(same),
    "rescale": lambda s, other: s.rescale().map(same),
    "shuffle": lambda s, other: s.shuffle().map(same),
    "keyed": lambda s, other: s.key_by(lambda v: v[0]).map(same),
    "narrow": lambda s, other: s.rescale().map(same).set_parallelism(1),
    "wide": lambda s, other: s.rescale().map(same).set_parallelism(4),
    "twice": lambda s, other: s.union(s).map(same),
    "twice keyed": lambda s, other: s.union(s).key_by(lambda v: v[0]).map(same),
    "with itself": lambda s, other: s.connect(s).map(Pass()),
    "with its side": lambda s, other: both(s.process(Sides())),
    "union": lambda s, other: s.union(other()).map(same),
    "connect": lambda s, other: s.connect(other()).map(Pass()),
}


def both(stream):
    return stream.union(stream.get_side_output(SIDE)).map(same)


@dataclass
class Shape:
    main: tuple[Split, ...]
    others: list[tuple[Split, ...]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)


def build(env, world, shape):
    strategy = WatermarkStrategy.no_watermarks()
    others = itertools.count()

    def other():
        number = next(others)
        source = Scripts(world, shape.others[number], main=False)
        return env.from_source(source, strategy, f"other {number}").uid(f"other {number}")

    stream = env.from_source(Scripts(world, shape.main, main=True), strategy, "main").uid("main")
    for number, step in enumerate(shape.steps):
        stream = STEPS[step](stream, other).uid(f"step {number}")
        if number == len(shape.steps) // 2:
            stream = stream.map(FailsOnce(world)).uid("fails")
    return stream.key_by(lambda v: v[0]).process(Look()).uid("look")


@st.composite
def shapes(draw):
    steps = draw(st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=4))
    splits = st.builds(Split, st.sampled_from([0, 0, 0, 3]), st.booleans())
    # Something has to be there from the start, and to look at the end.
    main = (Split(), *draw(st.lists(splits, max_size=2)))
    count = sum(step in ("union", "connect") for step in steps)
    others = [tuple(draw(st.lists(splits, min_size=1, max_size=3))) for _ in range(count)]
    return Shape(main, others, steps)


def execute(world, shape, parallelism, epoch, folder, restart):
    env = environment(parallelism, epoch, execution__checkpointing__dir=folder)
    for key, value in restart.to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    found: list = []
    build(env, world, shape)._sink("found", CollectOp(found.extend))
    env.execute("job")
    return found


@pytest.mark.timeout(1800)
@given(
    shapes(),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([6, 20]),
    st.none() | st.tuples(st.integers(1, 60), st.sampled_from([None, 1, 2, 3])),
)
def test_event_time_follows_the_splits_behind_any_shape(shape, parallelism, epoch, crash):
    world = next(_numbers)
    _worlds[world] = World(left=0 if crash is None else crash[0])
    note(f"parallelism {parallelism}, epochs of {epoch}, crash {crash}")
    with tempfile.TemporaryDirectory() as folder:
        if crash is None or crash[1] is None:
            restart = RestartStrategies.fixed_delay_restart(3, 0)
            found = execute(world, shape, parallelism, epoch, folder, restart)
        else:
            no_restart = RestartStrategies.no_restart()
            try:
                found = execute(world, shape, parallelism, epoch, folder, no_restart)
            except UserFunctionError:
                event(f"taken up again: {parallelism} to {crash[1]}")
                found = execute(world, shape, crash[1], epoch, folder, no_restart)
    if crash is not None:
        event(f"crashed: {_worlds[world].left < 1}")
    del _worlds[world]
    assert {key for key, _ in found} == set(range(PROBES))
    assert {watermark for _, watermark in found} == {TIME}
