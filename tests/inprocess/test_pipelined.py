"""Pipelined mode: what is seen at once, what waits for the checkpoint, what a failure costs, what is refused."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter

import pytest

from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.time import Time
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    MapFunction,
    SinkFunction,
    SourceFunction,
)
from millstream.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from millstream.errors import MillstreamError, UnsupportedOperation, UserFunctionError
from millstream.runtime.driver.flow import Flow
from millstream.runtime.wire.link import Progress
from millstream.runtime.wire.ranges import SubtaskRanges
from tests.inprocess.test_rounds import Count, World, _there, is_over
from tests.support import collect, environment, keeping
from tests.waiting import until

PIPELINED = {"execution__mode": "pipelined"}
NEVER = 10**9


def pipelined(parallelism=2, epoch=None, **options):
    return environment(parallelism, epoch, **PIPELINED, **options)


def steady(env, function, rate=None):
    """What a function makes of 0, 1, 2 and so on, so many a second."""
    source = DataGeneratorSource(function, None, rate)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


@pytest.fixture
def world(tmp_path):
    made = []

    def make(**options):
        made.append(World(tmp_path, **PIPELINED, **options))
        return made[-1].start()

    yield make
    for each in made:
        if not each.over:
            each.client.cancel().result()


# -- at once, and with the checkpoint ----------------------------------------------------------------------------------


def test_a_sink_function_sees_records_before_any_checkpoint(world):
    job = world().give(25)
    assert len(job.seen) == 25
    assert job.collected == []
    assert not job.written


def test_two_phase_sinks_show_results_with_the_checkpoint(world, tmp_path):
    job = world().give(30)
    job.stop(tmp_path / "savepoints")
    assert Counter(map(str, job.seen)) == job.written
    assert sorted(job.collected) == sorted(job.seen)


def test_records_keep_coming_after_a_savepoint(world, tmp_path):
    job = world().give(10)
    job.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    job.give(40)
    assert Counter(key for key, _ in job.seen) == Counter(n % 10 for n in range(40))
    assert sum(job.written.values()) == 10


def test_a_record_waits_in_its_buffer():
    def buffers(timeout):
        env = pipelined(execution__buffer_timeout__interval=timeout).enable_checkpointing(NEVER)
        with keeping() as kept:
            numbers = steady(env, lambda n: n, 500)
            kept.add("counts", numbers.key_by(lambda n: n % 5).process(Count()))
            client = env.execute_async()
            until(lambda: client.get_metrics() is not None and client.get_metrics().records > 800)
            metrics = client.get_metrics()
            client.cancel().result()
        sent = [
            subtask.buffers_out
            for vertex in metrics.vertices.values()
            for subtask in vertex.subtasks
        ]
        return sum(sent) / metrics.records

    assert buffers("0 ms") > 5 * buffers("-1 ms")


# -- failures ----------------------------------------------------------------------------------------------------------


def test_what_a_failed_epoch_did_is_taken_back(world, tmp_path):
    job = world(fails_at=17).give(10)
    job.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    job.give(40)
    job.stop(tmp_path / "savepoints")
    # Sinks that do not wait have seen some twice; state, and sinks that do, have not.
    expected = Counter(str((n % 10, n // 10 + 1)) for n in range(40))
    assert job.written == expected
    assert Counter(map(str, job.collected)) == expected


def test_a_failure_says_which_record_it_was():
    def fail(value):
        return 1 // (value - 3)

    stream = pipelined().from_collection(range(5)).map(fail)
    with pytest.raises(UserFunctionError) as caught:
        collect(stream)
    assert caught.value.evidence["record"] == "3"
    assert "test_pipelined.py" in str(caught.value.evidence["line"])


@pytest.mark.parametrize("keyed", [False, True])
def test_a_function_that_exits_is_told_of(keyed):
    def leave(value):
        raise SystemExit(3)

    stream = pipelined().from_collection([1])
    stream = stream.key_by(lambda v: v).map(leave) if keyed else stream.map(leave)
    with pytest.raises(MillstreamError, match=r"ended by SystemExit[\s\S]*raise an exception"):
        collect(stream)


def test_an_open_that_fails_ends_the_job():
    class Unopened(MapFunction):
        def open(self, runtime_context):
            raise RuntimeError("no model")

        def map(self, value):
            return value

    stream = pipelined().from_collection([1]).key_by(lambda v: v).map(Unopened())
    with pytest.raises(UserFunctionError, match="no model"):
        collect(stream)


def test_state_that_does_not_fit_is_noticed_before_a_record(world, tmp_path):
    job = world().give(10)
    path = job.stop(tmp_path / "savepoints")
    env = pipelined(execution__state_recovery__path=path)
    read: list[int] = []
    stream = env.from_collection([1, 2]).uid("other")
    with keeping() as kept:
        kept.add("seen", stream.map(lambda v: read.append(v) or v).uid("m"))
        with pytest.raises(MillstreamError, match=r"STATE_UNCLAIMED|cannot|not"):
            env.execute()
        assert kept.values("seen") == []


# -- one mode and the other --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["pipelined", "micro-batch"])
def test_a_savepoint_of_one_mode_is_the_others_beginning(tmp_path, first):
    second = "micro-batch" if first == "pipelined" else "pipelined"
    job = World(tmp_path / "a", execution__mode=first).start().give(30)
    path = job.stop(tmp_path / "savepoints")
    again = World(
        tmp_path / "b", execution__mode=second, execution__state_recovery__path=path
    ).start()
    _there[again.number] = 50
    until(lambda: len(again.seen) >= 20)
    again.client.cancel().result()
    assert Counter(again.seen) == Counter((n % 10, n // 10 + 1) for n in range(30, 50))


def test_a_running_job_is_rescaled(world):
    job = world(parallelism=1).give(10)
    job.client.rescale(3).result()
    job.give(60)
    assert Counter(job.seen) == Counter((n % 10, n // 10 + 1) for n in range(60))


# -- time --------------------------------------------------------------------------------------------------------------


class Later(KeyedProcessFunction):
    def process_element(self, value, ctx):
        now = ctx.timer_service().current_processing_time()
        ctx.timer_service().register_processing_time_timer(now + 50)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), ctx.timer_service().current_processing_time() - timestamp


def test_timers_of_the_clock_fire_in_the_middle_of_an_epoch():
    env = pipelined().enable_checkpointing(NEVER)
    with keeping() as kept:
        slow = steady(env, lambda n: n, 50)
        kept.add("fired", slow.key_by(lambda n: n % 3).process(Later()))
        client = env.execute_async()
        until(lambda: len({key for key, _ in kept.values("fired")}) == 3)
        client.cancel().result()
        assert all(late >= 0 for _, late in kept.values("fired"))


def test_windows_of_the_clock_fire_in_the_middle_of_an_epoch():
    env = pipelined().enable_checkpointing(NEVER)
    with keeping() as kept:
        numbers = steady(env, lambda n: n, 200)
        windows = numbers.key_by(lambda n: n % 2).window(
            TumblingProcessingTimeWindows.of(Time.milliseconds(100))
        )
        kept.add("sums", windows.reduce(lambda a, b: a + b))
        client = env.execute_async()
        until(lambda: len(kept.values("sums")) >= 4)
        client.cancel().result()


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def test_windows_of_event_time_fire_as_watermarks_come():
    env = pipelined().enable_checkpointing(NEVER)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())
    with keeping() as kept:
        events = steady(env, lambda n: (n % 2, n * 10), 500).assign_timestamps_and_watermarks(
            strategy
        )
        windows = events.key_by(lambda v: v[0]).window(
            TumblingEventTimeWindows.of(Time.milliseconds(200))
        )
        kept.add("sums", windows.reduce(lambda a, b: (a[0], a[1] + b[1])))
        client = env.execute_async()
        until(lambda: len(kept.values("sums")) >= 6)
        client.cancel().result()
        sums = kept.values("sums")
    # The first window of each key has the numbers below 20.
    assert (0, sum(range(0, 200, 20))) in sums
    assert (1, sum(range(10, 200, 20))) in sums


def test_a_silent_source_is_left_out():
    _events["silent"] = threading.Event()
    env = pipelined().enable_checkpointing(NEVER)
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(Stamp())
        .with_idleness("200 ms")
    )
    with keeping() as kept:
        silent = env.add_source(_Silent()).assign_timestamps_and_watermarks(strategy)
        busy = steady(env, lambda n: (0, n * 10), 500).assign_timestamps_and_watermarks(strategy)
        windows = (
            busy.union(silent)
            .key_by(lambda v: v[0])
            .window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        )
        kept.add("sums", windows.reduce(lambda a, b: (0, a[1] + b[1])))
        client = env.execute_async()
        until(lambda: len(kept.values("sums")) >= 3)
        client.cancel().result()


_events: dict[str, threading.Event] = {}


class _Silent(SourceFunction):
    """One record, and then nothing for long."""

    def run(self, ctx):
        ctx.collect((0, 5))
        _events["silent"].wait(30)

    def cancel(self):
        _events["silent"].set()


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_bounded_job_ends_with_everything(parallelism):
    counts = (
        pipelined(parallelism)
        .from_collection([n % 7 for n in range(5000)])
        .key_by(lambda n: n)
        .process(Count())
    )
    expected = Counter((n % 7, n // 7 + 1) for n in range(5000))
    assert Counter(collect(counts)) == expected


def test_epochs_are_cut_by_records(tmp_path):
    env = pipelined(1, 100, execution__checkpointing__dir=tmp_path).enable_checkpointing(NEVER)
    with keeping() as kept:
        kept.add("all", env.from_collection(list(range(1000))).map(lambda n: n))
        client = env.execute_async("cut")
        client.get_job_execution_result().result()
        assert kept.values("all") == list(range(1000))
    assert client.get_metrics().checkpoints >= 10


def test_slow_records_are_read_one_by_one():
    """Beside a source that is fast: what is read at a time takes a moment, however slow it is."""
    env = pipelined(1).enable_checkpointing(NEVER)
    with keeping() as kept:
        kept.add("fast", steady(env, lambda n: n))
        slow = steady(env, lambda n: n).map(lambda n: time.sleep(0.05) or n)
        kept.add("slow", slow.rebalance().map(lambda n: n))
        client = env.execute_async()
        until(lambda: len(kept.values("slow")) >= 3)
        first = len(kept.values("slow"))
        client.cancel().result()
    assert first < 20


class _Tells:
    """A hub of no tasks."""

    def __init__(self):
        self.inbox = queue.SimpleQueue()

    def tell(self, task, message):
        pass


def test_who_was_told_twice_has_to_answer_twice():
    hub = _Tells()
    flow = Flow(hub, [[(1, 0)]], lambda: None)
    # News of a split comes to a subtask that still reads.
    flow.send([SubtaskRanges(1, 0, (), False)])
    flow.send([SubtaskRanges(1, 0, (), False)])
    busy = []
    for _ in range(2):
        hub.inbox.put(((0, 1, 0), Progress([], 0.1)))
        flow.listen(0)
        busy.append(flow.busy)
    assert busy == [{(1, 0)}, set()]


def test_who_runs_ahead_waits_for_who_is_being_read():
    env = pipelined(1).enable_checkpointing(NEVER)
    strategy = (
        WatermarkStrategy.for_monotonous_timestamps()
        .with_timestamp_assigner(Stamp())
        .with_watermark_alignment("group", "1 s", "1 ms")
    )

    def aligned(function, rate=None):
        source = DataGeneratorSource(function, None, rate)
        return env.from_source(source, strategy, "numbers")

    with keeping() as kept:
        slow = aligned(lambda n: (0, n * 10)).map(lambda v: time.sleep(0.02) or v)
        kept.add("slow", slow)
        kept.add("fast", aligned(lambda n: (1, n * 10), 5000))
        client = env.execute_async()
        until(lambda: len(kept.values("slow")) >= 30)
        slowest, fastest = kept.values("slow")[-1][1], kept.values("fast")[-1][1]
        client.cancel().result()
    # The drift that is allowed, and what is read at a time.
    assert fastest < slowest + 6000


def test_requests_are_answered(tmp_path):
    class Slowly(AsyncFunction):
        async def async_invoke(self, value):
            import asyncio

            await asyncio.sleep(0.01)
            return [value * 2]

    stream = AsyncDataStream.unordered_wait(
        pipelined().from_collection(list(range(200))), Slowly(), Time.seconds(5), 50
    )
    assert sorted(collect(stream)) == [2 * n for n in range(200)]


class Slow(SinkFunction):
    def invoke(self, value, context):
        time.sleep(0.002)
        _taken.append(value)


class Numbers:
    """Counts what it is asked for."""

    def __call__(self, number):
        _made[0] += 1
        return number, "x" * 1000


_taken: list[int] = []
_made = [0]


def test_a_slow_sink_holds_the_source_back():
    env = pipelined(1).enable_checkpointing(NEVER)
    env.get_configuration().set_string("millstream.buffer.records", "100")
    _taken.clear()
    _made[0] = 0
    steady(env, Numbers()).rebalance().add_sink(Slow())
    client = env.execute_async()
    until(lambda: len(_taken) >= 500)
    first = _made[0] - len(_taken)
    until(lambda: len(_taken) >= 1500)
    second = _made[0] - len(_taken)
    client.cancel().result()
    # What is under way is bounded by buffers and queues, however long it takes.
    assert 0 < first < 20_000
    assert 0 < second < 20_000


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_batch_mode_is_refused():
    env = pipelined().set_runtime_mode(RuntimeExecutionMode.BATCH)
    with pytest.raises(UnsupportedOperation, match="BATCH mode runs one level after the other"):
        collect(env.from_collection([1]).map(lambda v: v))


def test_at_most_once_is_refused():
    env = pipelined(execution__checkpointing__mode="AT_MOST_ONCE").enable_checkpointing(100)
    with pytest.raises(UnsupportedOperation, match="AT_MOST_ONCE"):
        collect(env.from_collection([1]).map(lambda v: v))


def test_an_iteration_is_refused():
    env = pipelined()
    loop = env.from_collection([1, 2]).iterate()
    body = loop.map(lambda v: v - 1)
    loop.close_with(body.filter(lambda v: v > 0))
    with pytest.raises(UnsupportedOperation, match="iteration"):
        collect(body)


def test_a_misspelt_mode_is_refused():
    with pytest.raises(MillstreamError, match="MICRO_BATCH, PIPELINED"):
        pipelined().set_execution_mode("pipeline")


def test_cancelling_ends_all_threads():
    before = tasks()
    env = pipelined().enable_checkpointing(NEVER)
    with keeping() as kept:
        numbers = steady(env, lambda n: n, 1000)
        kept.add("numbers", numbers.key_by(lambda n: n % 5).process(Count()))
        client = env.execute_async()
        until(lambda: len(kept.values("numbers")) > 10)
        client.cancel().result()
    until(lambda: is_over(client))
    until(lambda: not tasks() - before)


def test_nothing_is_left_of_a_job_that_failed_while_records_waited():
    before = tasks()

    def fail(value):
        time.sleep(0.2)
        raise ValueError("boom")

    records = ["x" * 1000] * 4000
    with pytest.raises(UserFunctionError, match="boom"):
        collect(pipelined().from_collection(records).rebalance().map(fail))
    until(lambda: not tasks() - before)


def tasks():
    return {each for each in threading.enumerate() if each.name.startswith("millstream-")}
