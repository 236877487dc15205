"""The programs whose savepoints are kept in `tests/compat/savepoints` and restored by every later version.

`python -m tests.compat.programs <version>` writes the savepoints of this version; they are committed once and never
changed.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.configuration import Configuration
from millstream.common.time import Time
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.graph.operators import CollectOp
from tests.waiting import until

SAVEPOINTS = Path(__file__).with_name("savepoints")
FIRST, SECOND = 200, 300
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Numbers(Source):
    """The numbers below `count` in two splits, and no end."""

    def __init__(self, count):
        self.count = count

    def boundedness(self):
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        return _Splits(self.count)

    def create_reader(self):
        return _Reader()


class _Splits(SplitEnumerator):
    def __init__(self, count):
        self._count = count

    def discover(self):
        return ["even", "odd"]

    def available(self, split, position):
        return self._count // 2


class _Reader(SourceReader):
    def read(self, split, start, end):
        return [2 * n + (split == "odd") for n in range(start, end)]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


@dataclasses.dataclass
class Profile:
    visits: int
    name: str = "?"


class Everything(KeyedProcessFunction):
    """Every kind of keyed state, typed and not."""

    def open(self, ctx):
        row = Types.ROW_NAMED(["n", "last"], [Types.LONG(), Types.LONG()])
        kept = StateTtlConfig.new_builder(Time.days(100_000)).build()
        timed = ValueStateDescriptor("timed", Types.LONG())
        timed.enable_time_to_live(kept)
        self.count = ctx.get_state(ValueStateDescriptor("count"))
        self.row = ctx.get_state(ValueStateDescriptor("row", row))
        self.profile = ctx.get_state(ValueStateDescriptor("profile", Profile))
        self.timed = ctx.get_state(timed)
        self.list = ctx.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = ctx.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.sum = ctx.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.mean = ctx.get_aggregating_state(AggregatingStateDescriptor("mean", Mean()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.row.update(Row(n=count, last=value))
        self.profile.update(Profile(count, f"user {ctx.get_current_key()}"))
        self.timed.update((self.timed.value() or 0) + 1)
        self.list.update([*self.list.get(), value][-2:])
        self.map.put(str(value % 3), value)
        self.sum.add(value)
        self.mean.add(value)
        yield (
            ctx.get_current_key(),
            count,
            tuple(self.row.value()),
            dataclasses.astuple(self.profile.value()),
            self.timed.value(),
            tuple(self.list.get()),
            tuple(sorted(self.map.items())),
            self.sum.get(),
            self.mean.get(),
        )


class Numbering(MapFunction, CheckpointedFunction):
    """Counts the records of all its subtasks in a list, and keeps the sum in a union list."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.counts = store.get_list_state(ListStateDescriptor("counts"))
        self.sums = store.get_union_list_state(ListStateDescriptor("sums"))
        self.count = sum(self.counts.get())
        self.before = sum(self.sums.get())

    def snapshot_state(self, context):
        self.counts.update([self.count])
        self.sums.update([self.count])

    def map(self, value):
        self.count += 1
        return value


class Rules(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield ("rule", ctx.get_broadcast_state(RULES).get("factor"))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put("factor", value)


def key_of(n):
    """Keys of several kinds; each key's numbers come from one split."""
    kind = n % 6
    return (f"k{kind}", kind, (kind, "x"), float(kind), [kind], b"k%d" % kind)[kind]


def start(count, out, parallelism, path=None):
    """Run the program over the numbers below `count`; results are appended to `out`."""
    config = Configuration().set_string("execution.target", "in-process")
    config.set_string("millstream.epoch.records", "23")
    if path is not None:
        config.set_string("execution.state-recovery.path", str(path))
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    numbers = env.from_source(Numbers(count), None, "numbers").uid("numbers")
    numbers = numbers.map(Numbering()).uid("numbering")
    every = numbers.key_by(key_of).process(Everything()).uid("everything")
    rolled = numbers.map(lambda n: (n % 4, n)).key_by(0).sum(1).uid("rolling")
    reduced = numbers.map(lambda n: (n % 4, n)).key_by(0)
    reduced = reduced.reduce(lambda a, b: (a[0], max(a[1], b[1]))).uid("reducing")
    factors = env.from_source(Numbers(2), None, "factors").uid("factors").broadcast(RULES)
    ruled = numbers.connect(factors).process(Rules()).uid("rules")
    for kind, stream in (
        ("every", every),
        ("rolled", rolled),
        ("reduced", reduced),
        ("ruled", ruled),
    ):
        named = stream.map(lambda value, kind=kind: (kind, value))  # type: ignore[misc]
        named._sink(kind, CollectOp(out.extend))
    return env.execute_async("compatibility")


def wait_for(out, count):
    """Until every branch has given `count` results."""
    until(lambda: len(out) >= 4 * count, saying=lambda: f"{len(out)} of {4 * count} results")


def write(version: str) -> None:
    """Write the savepoint of this version, at parallelism 2, with chains of several files."""
    out: list[object] = []
    client = start(FIRST, out, 2)
    wait_for(out, FIRST)
    with tempfile.TemporaryDirectory() as folder:
        path = client.stop_with_savepoint(False, folder).result(60)
        shutil.move(path, SAVEPOINTS / version)


if __name__ == "__main__":
    write(sys.argv[1])
