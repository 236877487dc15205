"""Keyed and operator state through whole programs: epochs, restarts, savepoints, other parallelisms."""

from __future__ import annotations

import os

import pytest

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.configuration import Configuration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import MillstreamError, NoCurrentKey, UnsupportedOperation
from millstream.graph.operators import CollectOp
from tests.waiting import until


def environment(parallelism=2, **options):
    config = Configuration()
    config.set_string("execution.target", "in-process")
    for key, value in options.items():
        config.set_string(key.replace("__", "-").replace("_", "."), str(value))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    return env


class Numbers(Source):
    """0..count-1 in two splits; refuses to give more than `limit` so that a run can end in the middle."""

    def __init__(self, count, unbounded=False):
        self.count = count
        self.unbounded = unbounded

    def boundedness(self):
        kind = Boundedness
        return kind.CONTINUOUS_UNBOUNDED if self.unbounded else kind.BOUNDED

    def create_enumerator(self, parallelism):
        return _Splits(self)

    def create_reader(self):
        return _Reader()


class _Splits(SplitEnumerator):
    def __init__(self, source):
        self._source = source

    def discover(self):
        return ["even", "odd"]

    def available(self, split, position):
        return self._source.count // 2

    def finished(self, split, position):
        return not self._source.unbounded and position == self._source.count // 2


class _Reader(SourceReader):
    def read(self, split, start, end):
        return [2 * n + (split == "odd") for n in range(start, end)]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, acc):
        acc[0] += value
        acc[1] += 1
        return acc

    def get_result(self, acc):
        return acc[0] / acc[1]

    def merge(self, a, b):
        return [a[0] + b[0], a[1] + b[1]]


class Everything(KeyedProcessFunction):
    """Uses every kind of keyed state; emits what they say after each record."""

    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count"))
        self.last = ctx.get_list_state(ListStateDescriptor("last"))
        self.seen = ctx.get_map_state(MapStateDescriptor("seen"))
        self.total = ctx.get_reducing_state(ReducingStateDescriptor("total", lambda a, b: a + b))
        self.mean = ctx.get_aggregating_state(AggregatingStateDescriptor("mean", Mean()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        self.last.add(value)
        if len(list(self.last.get())) > 3:
            self.last.update(list(self.last.get())[-3:])
        self.seen.put((value % 4,), (self.seen.get((value % 4,)) or 0) + 1)
        if value % 50 == 49:
            self.seen.remove((3,))
        if value % 70 == 69:
            self.seen.clear()
        self.total.add(value)
        self.mean.add(value)
        yield (
            ctx.get_current_key(),
            self.count.value(),
            tuple(self.last.get()),
            tuple(sorted(self.seen.items())),
            self.total.get(),
            self.mean.get(),
        )


KEYS = {
    "text": lambda n: f"k{n % 5}",
    "tuple": lambda n: (n % 5, "x"),
    "list": lambda n: [n % 5],
    "float": lambda n: (n % 5) / 2,
}


# A key's records all come from one split, so their order is known.
BY_SPLIT = lambda n: f"k{n % 6}"  # noqa: E731


def expected(count, key=KEYS["text"]):
    """What `Everything` emits, by a dictionary per key."""
    states, out = {}, []
    for value in range(count):
        k = key(value)
        s = states.setdefault(repr(k), {"count": 0, "last": [], "seen": {}, "all": []})
        s["count"] += 1
        s["last"] = [*s["last"], value][-3:]
        s["seen"][(value % 4,)] = s["seen"].get((value % 4,), 0) + 1
        if value % 50 == 49:
            s["seen"].pop((3,), None)
        if value % 70 == 69:
            s["seen"] = {}
        s["all"].append(value)
        mean = sum(s["all"]) / len(s["all"])
        seen = tuple(sorted(s["seen"].items()))
        out.append((k, s["count"], tuple(s["last"]), seen, sum(s["all"]), mean))
    return sorted(out, key=repr)


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("epoch", [1, 7, 1000])
@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_keyed_state(backend, epoch, kind):
    env = environment(millstream_epoch_records=epoch, state_backend_type=backend)
    stream = env.from_collection(list(range(200)))
    results = stream.key_by(KEYS[kind]).process(Everything()).execute_and_collect()
    assert sorted(results, key=repr) == expected(200, KEYS[kind])


def run_to(env, count, out, *, unbounded=True, uid=True, **kwargs):
    """Start the job; results are appended to `out`."""
    stream = env.from_source(
        Numbers(count, unbounded), WatermarkStrategy.no_watermarks(), "numbers"
    )
    stream.uid("numbers")
    results = stream.key_by(BY_SPLIT).process(Everything(), **kwargs).uid("everything")
    results.set_parallelism(env.get_parallelism())
    results._sink("out", CollectOp(out.extend))
    return env.execute_async("numbers")


def wait_for(out, count):
    until(lambda: len(out) >= count, saying=lambda: len(out))


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_rescaling_by_savepoint(tmp_path, backend):
    """1 -> 4 -> 2 -> 3, each from the savepoint of the last, equal to the run without."""
    path, count, out = None, 0, []
    for parallelism in (1, 4, 2, 3):
        count += 100
        options = {"execution.state-recovery.path": path} if path else {}
        env = environment(parallelism, millstream_epoch_records=17, state_backend_type=backend)
        for key, value in options.items():
            env.get_configuration().set_string(key, value)
        client = run_to(env, count, out)
        wait_for(out, count)
        path = client.stop_with_savepoint(False, str(tmp_path)).result(30)
        client.get_job_execution_result().result(30)
    assert sorted(out, key=repr) == expected(400, BY_SPLIT)


def test_resume_by_name_and_rescale_from_the_checkpoint(tmp_path):
    out = []
    for parallelism, count in ((2, 100), (3, 200), (1, 300), (1, 400)):
        env = environment(parallelism, millstream_epoch_records=30)
        env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path))
        client = run_to(env, count, out)
        wait_for(out, count)
        client.cancel().result(30)
    assert sorted(out, key=repr) == expected(400, BY_SPLIT)
    names = os.listdir(tmp_path / "numbers")
    assert "lease.json" not in names
    assert sum(name.startswith("chk-") for name in names) == 2


class Buffering(MapFunction, CheckpointedFunction):
    """Numbers the records of its subtask, with an attribute that only operator state makes durable."""

    def __init__(self):
        self.count = None

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n"))
        union = context.get_operator_state_store().get_union_list_state(ListStateDescriptor("u"))
        self.union = union
        self.everywhere = sorted(union.get())
        self.count = sum(self.state.get())

    def snapshot_state(self, context):
        self.state.update([self.count])
        self.union.update([self.count])

    def map(self, value):
        self.count += 1
        return value, self.count, self.everywhere


@pytest.mark.parametrize("epoch", [1, 10, 1000])
def test_operator_state_within_a_job(epoch):
    env = environment(1, millstream_epoch_records=epoch)
    results = list(env.from_collection(list(range(50))).map(Buffering()).execute_and_collect())
    assert [(value, count) for value, count, _ in results] == [(n, n + 1) for n in range(50)]


def test_keyed_state_needs_a_key():
    class Wrong(MapFunction):
        def open(self, ctx):
            ctx.get_state(ValueStateDescriptor("x"))

        def map(self, value):
            return value

    with pytest.raises(UnsupportedOperation, match="has no key"):
        list(environment().from_collection([1]).map(Wrong()).execute_and_collect())


def test_keyed_state_in_open_raises():
    class Wrong(KeyedProcessFunction):
        def open(self, ctx):
            ctx.get_state(ValueStateDescriptor("x")).value()

        def process_element(self, value, ctx):
            yield value

    stream = environment().from_collection([1]).key_by(lambda n: n)
    with pytest.raises(MillstreamError) as caught:
        list(stream.process(Wrong()).execute_and_collect())
    assert NoCurrentKey.code in str(caught.value)


RULES = MapStateDescriptor("rules")


class Match(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        yield value, state.get("factor"), state.contains("factor")

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES)["factor"] = value
        yield "rule", value


def test_broadcast_state_reaches_every_subtask():
    env = environment(3, millstream_epoch_records=2)
    rules = env.from_collection([5]).broadcast(RULES)
    numbers = env.from_collection(list(range(12))).rebalance()
    results = list(numbers.connect(rules).process(Match()).execute_and_collect())
    assert sorted(r for r in results if r[0] == "rule") == [("rule", 5)] * 3
    late = [r for r in results if r[0] != "rule" and r[0] >= 6]
    assert late
    assert all(r[1:] == (5, True) for r in late)


def test_the_other_side_of_broadcast_state_is_read_only():
    class Writes(Match):
        def process_element(self, value, ctx):
            ctx.get_broadcast_state(RULES).put("factor", 1)
            yield value

    env = environment()
    stream = env.from_collection([1]).connect(env.from_collection([5]).broadcast(RULES))
    with pytest.raises(MillstreamError, match="read-only"):
        list(stream.process(Writes()).execute_and_collect())


class Thresholds(KeyedBroadcastProcessFunction):
    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()

    def process_broadcast_element(self, value, ctx):
        if value == "reset":
            ctx.apply_to_keyed_state(
                ValueStateDescriptor("count"), lambda key, state: state.clear()
            )
        else:
            with pytest.raises(NoCurrentKey):
                self.count.value()
        return
        yield


def test_keyed_broadcast_and_all_keys_at_once():
    env = environment(1, millstream_epoch_records=1)
    commands = env.from_collection(["look", "look", "look", "reset"]).broadcast(RULES)
    keyed = env.from_collection(["a", "b", "a", "b", "a", "b", "a"]).key_by(lambda k: k)
    results = list(keyed.connect(commands).process(Thresholds()).execute_and_collect())
    counts = [count for _, count in results]
    assert counts.count(1) == 4
    assert max(counts) == 2
