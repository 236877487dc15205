"""open() and close() run once for each subtask, however the job ends; jobs do not disturb each other."""

import itertools
import threading
from collections import Counter

import pytest

from millstream.api.functions import MapFunction, RuntimeContext, SourceFunction
from millstream.api.sink import Committer, Sink, SinkWriter
from millstream.common.job_status import JobStatus
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.number_seq import NumberSequenceSource
from millstream.errors import (
    EmptyProgramError,
    InvalidArgument,
    JobCancelled,
    SinkError,
    UserFunctionError,
)
from tests.support import collect, environment, keeping

NONE = WatermarkStrategy.no_watermarks()

# What functions have done, by the name their test gave them. They are copied, this module is not.
DONE: dict[str, Counter] = {}
STARTED: dict[str, threading.Event] = {}
# Jobs that are to be under way at the same time meet here.
MEETING = threading.Barrier(12, timeout=30)


class Noted(MapFunction):
    """Notes each call; fails at a value."""

    def __init__(self, name: str, fail_at: int | None = None) -> None:
        self.name, self.fail_at = name, fail_at
        DONE[name] = Counter()
        STARTED[name] = threading.Event()

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        DONE[self.name]["open", self.subtask] += 1

    def map(self, value):
        DONE[self.name]["map", self.subtask] += 1
        STARTED[self.name].set()
        if value == self.fail_at:
            raise ValueError("told to fail")
        return value

    def close(self) -> None:
        DONE[self.name]["close", self.subtask] += 1


def calls(name):
    """How often each subtask was opened and closed."""
    done = DONE[name]
    subtasks = {subtask for _, subtask in done}
    return {subtask: (done["open", subtask], done["close", subtask]) for subtask in subtasks}


@pytest.mark.parametrize("epoch", [1, 4, None])
@pytest.mark.parametrize("exchange", ["rebalance", "rescale", "shuffle", "broadcast", "global_"])
def test_every_subtask_is_opened_and_closed_once(epoch, exchange):
    env = environment(3, epoch)
    stream = getattr(env.from_collection(range(9)), exchange)().map(Noted("ends"))
    collect(stream)
    assert calls("ends") == {0: (1, 1), 1: (1, 1), 2: (1, 1)}


def test_a_chain_with_a_source_too():
    source = NumberSequenceSource(1, 9)
    collect(environment(3, 2).from_source(source, NONE, "n").map(Noted("source")))
    assert calls("source") == {0: (1, 1), 1: (1, 1), 2: (1, 1)}


@pytest.mark.parametrize("epoch", [2, None])
def test_everything_is_closed_when_a_function_fails(epoch):
    env = environment(2, epoch)
    stream = env.from_collection(range(8)).map(Noted("before")).rebalance()
    with pytest.raises(UserFunctionError, match="told to fail"):
        collect(stream.map(Noted("fails", fail_at=3)).rebalance().map(Noted("after")))
    for name in ("before", "fails", "after"):
        assert all(opened == closed for opened, closed in calls(name).values()), name
    assert calls("before")


class Endless(SourceFunction):
    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: SourceFunction.SourceContext) -> None:
        for number in itertools.count():
            if not (self.running and ctx.is_running()):
                return
            ctx.collect(number)

    def cancel(self) -> None:
        self.running = False


def test_a_cancelled_job_closes_its_functions():
    env = environment(2)
    env.add_source(Endless()).map(Noted("cancelled")).add_sink(lambda v: None)
    client = env.execute_async()
    assert STARTED["cancelled"].wait(20)
    client.cancel()
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCancelled):
        client.get_job_execution_result().result(timeout=20)
    assert calls("cancelled") in ({0: (1, 1)}, {0: (1, 1), 1: (1, 1)})


def test_a_limit_ends_a_job_that_would_not_end():
    env = environment()
    stream = env.add_source(Endless()).map(Noted("limited"))
    assert stream.execute_and_collect(limit=5) == [0, 1, 2, 3, 4]
    assert calls("limited") == {0: (1, 1)}


def test_leaving_the_iterator_ends_the_job():
    env = environment()
    with env.add_source(Endless()).map(Noted("left")).execute_and_collect() as results:
        assert [next(results), results.next()] == [0, 1]
    assert calls("left") == {0: (1, 1)}
    assert list(results) == []


class Counting(MapFunction):
    def __init__(self) -> None:
        self.count = 0

    def map(self, value):
        if value == 5:
            MEETING.wait()
        self.count += 1
        return self.count


def test_many_jobs_at_once_do_not_disturb_each_other():
    with keeping() as kept:
        clients = []
        for number in range(12):
            env = environment(1, epoch=1)
            kept.add(f"{number}", env.from_collection(range(10)).map(Counting()))
            clients.append(env.execute_async(f"job {number}"))
        for client in clients:
            client.get_job_execution_result().result(timeout=60)
        for number in range(12):
            assert kept.values(f"{number}") == list(range(1, 11))


def test_metrics_of_a_job_count_its_records():
    env = environment(2, epoch=3)
    env.from_collection(range(10)).rebalance().map(Noted("metrics")).add_sink(lambda v: None)
    client = env.execute_async()
    client.get_job_execution_result().result(timeout=20)
    metrics = client.get_metrics()
    assert metrics.records == 10
    totals = {v.name: (sum(v.num_records_in), v.parallelism) for v in metrics.vertices.values()}
    assert totals == {"Source: Collection Source": (10, 1), "Map -> Sink: Unnamed": (10, 2)}


class TwoFailures(Sink):
    """Writing fails, and so does cleaning up after that."""

    def create_writer(self, context):
        return TwoFailuresWriter()

    def create_committer(self):
        return TwoFailuresCommitter()


class TwoFailuresWriter(SinkWriter):
    def write(self, value):
        raise ValueError("the first failure")

    def prepare_commit(self):
        return None

    def abort(self):
        raise OSError("the second failure")


class TwoFailuresCommitter(Committer):
    def commit(self, epoch, committables):
        pass


def test_a_writer_that_cannot_clean_up_does_not_hide_the_failure():
    env = environment()
    env.from_collection([1]).sink_to(TwoFailures())
    with pytest.raises(SinkError, match="the first failure"):
        env.execute()


def test_a_program_that_cannot_be_built_leaves_no_sink_behind():
    env = environment()
    stream = env.from_collection([1]).map(str).uid("u").map(str).uid("u")
    with pytest.raises(InvalidArgument, match="uid 'u'"):
        stream.execute_and_collect()
    with pytest.raises(EmptyProgramError):
        env.execute()
