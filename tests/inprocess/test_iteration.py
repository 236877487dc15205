"""Iterations: fixed points, their end, exactly once through failures, savepoints, event time, and what is refused."""

from __future__ import annotations

import heapq
import json
import random
import threading
from collections import Counter

import pytest
from click.testing import CliRunner

import millstream.state
from millstream.api.functions import FlatMapFunction
from millstream.checkpoint.manifest import decode_manifest, list_epochs, read_manifest
from millstream.cli import main
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.time import Time
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, OutputTag, ProcessFunction
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import (
    InvalidArgument,
    MillstreamError,
    StateDamaged,
    StateMismatch,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.graph.operators import CollectOp
from millstream.runtime.driver import epochs
from millstream.storage.storage import LocalStorage
from tests.inprocess.test_damage import Numbers, Once, committed
from tests.support import collect, environment
from tests.waiting import until

NEWS = OutputTag("news")


def roads(count, seed=7):
    """A random graph: for each node, what it leads to and how far that is."""
    rng = random.Random(seed)
    return {n: [(rng.randrange(count), rng.randint(1, 50)) for _ in range(3)] for n in range(count)}


def dijkstra(graph):
    best, queue = {}, [(0, 0)]
    while queue:
        distance, node = heapq.heappop(queue)
        if node not in best:
            best[node] = distance
            for other, length in graph[node]:
                heapq.heappush(queue, (distance + length, other))
    return best


class Relax(KeyedProcessFunction):
    def __init__(self, graph):
        self.graph = graph

    def open(self, ctx):
        self.best = ctx.get_state(ValueStateDescriptor("best", Types.LONG()))

    def process_element(self, value, ctx):
        node, distance = value
        known = self.best.value()
        if known is None or distance < known:
            self.best.update(distance)
            yield node, distance
            for other, length in self.graph[node]:
                yield NEWS, (other, distance + length)


def shortest(env, graph):
    loop = env.from_collection([(0, 0)]).iterate().uid("loop")
    improved = loop.key_by(0).process(Relax(graph)).uid("relax")
    loop.close_with(improved.get_side_output(NEWS))
    return improved


class Countdown(FlatMapFunction):
    """(name, n) to (name, n - 1); fails once, at a given record."""

    failed = threading.Event()

    def __init__(self, at=None):
        self.at = at

    def flat_map(self, value):
        if value == self.at and not Countdown.failed.is_set():
            Countdown.failed.set()
            raise ValueError("once")
        name, left = value
        if left > 0:
            yield name, left - 1


def rounds(stream, at=None):
    """Each (name, n) goes round n times; the records that come out of the loop's body."""
    loop = stream.iterate().uid("loop")
    steps = loop.flat_map(Countdown(at)).uid("steps")
    loop.close_with(steps)
    return steps


def expected(count):
    return Counter((n, left) for n in range(count) for left in range(n % 7))


def numbered(env, count):
    return env.from_collection([(n, n % 7) for n in range(count)])


# -- results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("epoch", [None, 1, 1000])
def test_the_fixed_point(parallelism, epoch):
    graph = roads(60)
    results = collect(shortest(environment(parallelism, epoch), graph))
    best = {}
    for node, distance in results:
        assert distance < best.get(node, 1 << 60)
        best[node] = distance
    assert best == dijkstra(graph)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epoch", [None, 3, 100])
def test_every_record_goes_round_as_often_as_it_should(parallelism, epoch):
    env = environment(parallelism, epoch)
    assert Counter(collect(rounds(numbered(env, 50)))) == expected(50)


def test_what_is_fed_back_is_processed_in_the_following_epoch():
    seen = []
    env = environment(1)
    loop = env.from_collection([3, 5]).iterate()
    less = loop.map(lambda n: n - 1)
    loop.close_with(less.filter(lambda n: n > 0))
    less._sink("out", CollectOp(seen.append))
    env.execute()
    # The driver is handed a list per epoch.
    assert seen == [[2, 4], [1, 3], [0, 2], [1], [0]]


def test_more_records_than_a_block():
    env = environment(2)
    assert len(collect(rounds(env.from_collection([(n, 2) for n in range(5000)])))) == 10_000


def test_a_loop_that_feeds_nothing_back():
    env = environment(2)
    loop = env.from_collection([1, 2]).iterate()
    loop.close_with(loop.filter(lambda n: n > 100))
    assert sorted(collect(loop.map(lambda n: n))) == [1, 2]


def test_an_empty_input():
    assert collect(rounds(environment(2).from_collection([]))) == []


def test_two_loops_one_inside_the_other():
    env = environment(2)
    outer = env.from_collection([(0, 3)]).iterate()
    inner = outer.iterate()
    steps = inner.map(lambda v: (v[0] + 1, v[1]))
    inner.close_with(steps.filter(lambda v: v[0] % 5))
    rounds_done = steps.filter(lambda v: v[0] % 5 == 0).map(lambda v: (v[0], v[1] - 1))
    outer.close_with(rounds_done.filter(lambda v: v[1] > 0))
    assert collect(rounds_done) == [(5, 2), (10, 1), (15, 0)]


def test_the_loop_of_an_unbounded_stream_turns_while_nothing_comes():
    out = []
    env = environment(2)
    env.enable_checkpointing("1 h")
    numbers = env.from_source(Numbers(30, bounded=False), None, "numbers")
    rounds(numbers.map(lambda n: (n, n % 7)))._sink("out", CollectOp(out.extend))
    client = env.execute_async()
    wait_for(out, 30)
    assert not client.get_job_status().result().is_terminal_state()
    client.cancel().result(30)
    assert Counter(out) == expected(30)


def wait_for(out, count):
    until(lambda: len(out) >= sum(expected(count).values()), saying=lambda: len(out))


def test_the_end_does_not_wait_for_a_checkpoint():
    env = environment(1)
    env.enable_checkpointing("1 h")
    assert Counter(collect(rounds(numbered(env, 20)))) == expected(20)


def test_automatic_mode_is_streaming_mode():
    env = environment(2).set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    assert Counter(collect(rounds(numbered(env, 20)))) == expected(20)


# -- failures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [(6, 6), (6, 3), (48, 1)])
@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
def test_a_function_that_fails_once(tmp_path, at, mode):
    Countdown.failed.clear()
    committed.clear()
    env = environment(
        2,
        10,
        execution__checkpointing__dir=tmp_path,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__delay="1 ms",
    )
    env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode[mode])
    rounds(numbered(env, 50), at).sink_to(Once())
    env.execute("rounds")
    assert Countdown.failed.is_set()
    assert output() == expected(50)
    assert not list(tmp_path.rglob("*feedback*"))


def output():
    return Counter(tuple(record) for _, made in committed for record in json.loads(made))


class Killed(BaseException):
    """The driver is gone."""


@pytest.mark.parametrize(
    "place",
    ["source read", "before manifest", "after manifest", "after commit", "cleaning up"],
)
@pytest.mark.parametrize("epoch", [1, 3, 6])
@pytest.mark.parametrize("by", ["name", "path", "path of another job"])
def test_a_lost_driver(tmp_path, monkeypatch, place, epoch, by):
    def run(parallelism=2, name="rounds", **options):
        env = environment(parallelism, 30, execution__checkpointing__dir=tmp_path, **options)
        rounds(numbered(env, 50)).sink_to(Once()).uid("once")
        env.execute(name)

    committed.clear()
    times = 0

    def reached(where):
        nonlocal times
        times += where == place
        if times == epoch:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "reached", reached)
        with pytest.raises(MillstreamError):
            run()
    assert sum(output().values()) < sum(expected(50).values()) or epoch == 6
    # The next one may have another parallelism, and start in another way.
    if by == "name" or not list_epochs(LocalStorage(str(tmp_path / "rounds"))):
        run(3)
    else:
        name = "rounds" if by == "path" else "other"
        run(3, name, execution__state_recovery__path=str(tmp_path / "rounds"))
    assert output() == expected(50)


def test_at_most_once_feeds_nothing_back_twice(tmp_path, monkeypatch):
    def run():
        out = []
        env = environment(1, 30, execution__checkpointing__dir=tmp_path)
        env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.AT_MOST_ONCE)
        rounds(numbered(env, 20))._sink("out", CollectOp(out.extend))
        try:
            env.execute("rounds")
        except MillstreamError:
            return out
        return out

    times = 0

    def reached(where):
        nonlocal times
        times += where == "before manifest"
        if times == 3:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "reached", reached)
        out = run()
    assert Counter(out) == Counter((n, x) for n in range(20) for x in range(n % 7) if x > n % 7 - 3)
    # What the lost epoch was about to read is gone with it.
    assert run() == []


def test_files_are_removed_as_the_loop_turns(tmp_path, monkeypatch):
    most = 0
    remove = epochs.EpochDriver._remove

    def watching(driver, *args):
        nonlocal most
        cleaned = remove(driver, *args)
        most = max(most, len(list(tmp_path.rglob("*-feedback"))))
        return cleaned

    monkeypatch.setattr(epochs.EpochDriver, "_remove", watching)
    env = environment(2, execution__checkpointing__dir=tmp_path)
    collect(rounds(env.from_collection([(n, 30) for n in range(4)])))
    # Two checkpoints are kept; each names a file of each subtask.
    assert 0 < most <= 4


def test_a_damaged_file_is_noticed(tmp_path, monkeypatch):
    def run():
        env = environment(1, execution__checkpointing__dir=tmp_path)
        rounds(numbered(env, 20)).sink_to(Once())
        env.execute("rounds")

    times = 0

    def reached(where):
        nonlocal times
        times += where == "after manifest"
        if times == 3:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(epochs, "reached", reached)
        with pytest.raises(MillstreamError):
            run()
    storage = LocalStorage(str(tmp_path / "rounds"))
    manifest = read_manifest(storage, list_epochs(storage)[-1])
    (file,) = manifest.feedback["loop"]
    assert file.records == sum(n % 7 > 2 for n in range(20))
    path = tmp_path / "rounds" / file.name
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with pytest.raises(StateDamaged) as caught:
        run()
    assert file.name in str(caught.value)
    path.unlink()
    with pytest.raises(StateDamaged, match="missing"):
        run()


# -- savepoints ------------------------------------------------------------------------------------------------


def endless(env, out, uid="loop"):
    """A loop that never ends: each record goes round for ever, counting."""
    loop = (
        env.from_source(Numbers(4, bounded=False), None, "numbers")
        .uid("numbers")
        .map(lambda n: (n, 0))
    )
    loop = loop.uid("pairs").iterate().uid(uid)
    steps = loop.map(lambda v: (v[0], v[1] + 1)).uid("steps")
    loop.close_with(steps)
    steps._sink("out", CollectOp(out.extend))
    return env.execute_async("endless")


@pytest.mark.parametrize("drain", [False, True])
def test_a_savepoint_holds_what_is_between_two_rounds(tmp_path, drain):
    out = []
    client = endless(environment(2), out)
    until(lambda: len(out) >= 40)
    path = client.stop_with_savepoint(drain, str(tmp_path / "s")).result(30)
    client.get_job_execution_result().result(30)
    assert Counter(out) == Counter((n, x + 1) for n in range(4) for x in range(len(out) // 4))
    edited = millstream.state.edit(path).write(str(tmp_path / "edited"))
    for start, parallelism in ((path, 1), (path, 3), (edited, 2)):
        more = []
        env = environment(parallelism, execution__state_recovery__path=start)
        client = endless(env, more)
        until(lambda more=more: len(more) >= 40)
        client.cancel().result(30)
        both = Counter(out + more)
        assert both == Counter((n, x + 1) for n in range(4) for x in range(len(out + more) // 4))
    env = environment(1, execution__state_recovery__path=path)
    refused = endless(env, [], uid="other").get_job_execution_result()
    with pytest.raises(StateMismatch):
        refused.result(30)
    shown = CliRunner().invoke(main, ["savepoint", "show", path]).output
    assert "4 records fed back" in shown
    manifest = decode_manifest(path, (tmp_path / "s").glob("*/_metadata").__next__().read_bytes())
    assert sum(file.records for file in manifest.feedback["loop"]) == 4


# -- time ------------------------------------------------------------------------------------------------------


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Stamps(ProcessFunction):
    def process_element(self, value, ctx):
        yield *value, ctx.timestamp()


STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())


@pytest.mark.parametrize("epoch", [None, 1])
def test_timestamps_go_round(epoch):
    env = environment(1, epoch)
    stream = env.from_collection([("a", 1, 3), ("b", 2, 2)])
    loop = stream.assign_timestamps_and_watermarks(STRATEGY).iterate()
    steps = loop.map(lambda v: (v[0], v[1], v[2] - 1))
    loop.close_with(steps.filter(lambda v: v[2] > 0))
    stamped = [(name, left, stamp) for name, _, left, stamp in collect(steps.process(Stamps()))]
    assert Counter(stamped) == Counter(
        [("a", 2, 1000), ("a", 1, 1000), ("a", 0, 1000), ("b", 1, 2000), ("b", 0, 2000)]
    )


def test_no_timestamps_without_time():
    env = environment(1)
    loop = env.from_collection([("a", 1)]).iterate()
    steps = loop.map(lambda v: (v[0], v[1] - 1))
    loop.close_with(steps.filter(lambda v: v[1] >= 0))
    assert collect(steps.process(Stamps())) == [("a", 0, None), ("a", -1, None)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_after_a_loop_wait_for_its_end(parallelism):
    """Event time does not end with the sources but with the loop: nothing that goes round comes too late for it."""
    env = environment(parallelism)
    stream = env.from_collection([("a", 1, 4), ("b", 2, 2), ("a", 3, 1)])
    loop = stream.assign_timestamps_and_watermarks(STRATEGY).iterate()
    steps = loop.map(lambda v: (v[0], v[1], v[2] - 1))
    loop.close_with(steps.filter(lambda v: v[2] > 0))
    counted = (
        steps.map(lambda v: (v[0], 1))
        .key_by(0)
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .sum(1)
    )
    assert sorted(collect(counted)) == [("a", 5), ("b", 2)]


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_windows_in_a_loop_fire_at_the_end_and_feed_back(backend):
    """A window's result goes round and comes into the next window, until it is 300 or more."""
    env = environment(1, state__backend__type=backend)
    stream = env.from_collection([("a", 1, 30), ("a", 2, 20)])
    loop = stream.assign_timestamps_and_watermarks(STRATEGY).iterate()
    sums = (
        loop.key_by(0)
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda x, y: (x[0], 0, x[2] + y[2]))
        .map(lambda v: (v[0], 0, v[2] * 2))
    )
    loop.close_with(sums.filter(lambda v: v[2] < 300))
    assert [v[2] for v in collect(sums)] == [100, 200, 400]


# -- what is refused -------------------------------------------------------------------------------------------


def test_a_loop_must_be_closed():
    env = environment()
    env.from_collection([1]).iterate().map(lambda n: n).print()
    with pytest.raises(InvalidArgument, match="not closed") as caught:
        env.execute()
    assert "iterate()" in str(caught.value)


def test_a_loop_is_closed_once():
    loop = environment().from_collection([1]).iterate()
    loop.close_with(loop.map(lambda n: n))
    with pytest.raises(InvalidArgument, match="twice"):
        loop.close_with(loop.map(lambda n: n))


def test_what_is_fed_back_comes_from_the_loop():
    env = environment()
    stream = env.from_collection([1])
    loop = stream.iterate()
    with pytest.raises(InvalidArgument, match="does not come from"):
        loop.close_with(stream.map(lambda n: n))
    with pytest.raises(InvalidArgument, match="another environment"):
        loop.close_with(environment().from_collection([1]))
    with pytest.raises(InvalidArgument, match="takes a stream"):
        loop.close_with([1])


def test_what_is_fed_back_has_the_type_of_the_loop():
    loop = environment().from_collection([1], Types.LONG()).iterate()
    with pytest.raises(InvalidArgument, match="another type"):
        loop.close_with(loop.map(str, Types.STRING()))
    loop.close_with(loop.map(lambda n: n - 1, Types.LONG()).filter(lambda n: n > 0))


def test_batch_mode_has_no_loops():
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    with pytest.raises(UnsupportedOperation, match="BATCH"):
        collect(rounds(numbered(env, 5)))


def test_a_record_that_cannot_be_written():
    env = environment()
    env.get_config().enable_object_reuse()  # or its copy would fail first
    loop = env.from_collection([1]).iterate()
    steps = loop.map(lambda n: threading.Lock())
    loop.close_with(steps)
    steps.add_sink(lambda value: None)
    with pytest.raises(MillstreamError, match="IterationSink"):
        env.execute()


def test_a_failure_names_where_the_record_came_from():
    env = environment()
    loop = env.from_collection([(3, 0)]).iterate()
    steps = loop.map(lambda v: (v[0] - 1, 1 // (v[0] - 1)))
    loop.close_with(steps)
    with pytest.raises(UserFunctionError, match="division"):
        collect(steps)


def test_a_loop_has_no_side_outputs():
    loop = environment().from_collection([1]).iterate()
    with pytest.raises(UnsupportedOperation, match="get_side_output"):
        loop.get_side_output(NEWS)
    with pytest.raises(UnsupportedOperation, match="on_error"):
        loop.on_error("skip")


def test_the_plan_shows_both_ends():
    env = environment()
    rounds(numbered(env, 5)).print()
    nodes = {node["type"]: node["pact"] for node in json.loads(env.get_execution_plan())["nodes"]}
    heads = [name for name in nodes if name.startswith("Iteration")]
    assert len(heads) == 2
    assert nodes[heads[0]] == "Data Source"
