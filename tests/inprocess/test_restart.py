"""Restart strategies, in a unit with a clock of its own and through whole jobs, and two drivers in one folder."""

from __future__ import annotations

import itertools
import time

import pytest

from millstream.api.functions import MapFunction
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.checkpoint.lease import Lease
from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.progress import describe
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import (
    ExecutorUnusable,
    InvalidArgument,
    JobError,
    JobLocked,
    MillstreamError,
    SinkError,
    StateDamaged,
    StateMismatch,
    StateNotFound,
    UserFunctionError,
)
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.restart import Restarts
from millstream.storage.storage import LocalStorage
from tests.inprocess.test_damage import Numbers, Tally, expected, wait_for
from tests.support import environment
from tests.waiting import until

TROUBLE = OSError(5, "Input/output error")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Growing(Source):
    """One split of as many records as a function says."""

    def __init__(self, available):
        self.available = available

    def boundedness(self):
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        available = self.available

        class Splits(SplitEnumerator):
            def discover(self):
                return ["a"]

            def available(self, split, position):
                return max(position, available())

            def finished(self, split, position):
                return False

        return Splits()

    def create_reader(self):
        class Reader(SourceReader):
            def read(self, split, start, end):
                return [(split, n) for n in range(start, end)]

        return Reader()


def restarts(strategy=None, *, checkpointing=True, clock=None, jitter=0.5):
    return Restarts(
        strategy, checkpointing=checkpointing, clock=clock or Clock(), jitter=lambda: jitter
    )


# -- the decision ----------------------------------------------------------------------------------------------


def test_no_restart():
    assert restarts(RestartStrategies.no_restart()).pause(TROUBLE, 0) is None


def test_fixed_delay():
    decide = restarts(RestartStrategies.fixed_delay_restart(3, 1500))
    assert [decide.pause(TROUBLE, n) for n in range(5)] == [1.5, 1.5, 1.5, None, None]
    assert decide.count == 3


def test_failure_rate():
    clock = Clock()
    decide = restarts(RestartStrategies.failure_rate_restart(2, 10_000, 500), clock=clock)
    assert decide.pause(TROUBLE, 0) == 0.5
    clock.now += 1
    assert decide.pause(TROUBLE, 0) == 0.5
    clock.now += 10.5
    # The first two are too long ago, or nearly.
    assert decide.pause(TROUBLE, 0) == 0.5
    clock.now += 1
    assert decide.pause(TROUBLE, 0) == 0.5
    clock.now += 1
    assert decide.pause(TROUBLE, 0) is None


def exponential(**options):
    defaults = {
        "initial_backoff": 1000, "max_backoff": 8000, "backoff_multiplier": 2.0,
        "reset_backoff_threshold": 60_000, "jitter_factor": 0.0,
    }  # fmt: skip
    return RestartStrategies.exponential_delay_restart(**{**defaults, **options})


def test_exponential_delay_grows_to_its_limit():
    clock = Clock()
    decide = restarts(exponential(), clock=clock)
    pauses = []
    for _ in range(6):
        pauses.append(decide.pause(TROUBLE, 0))
        clock.now += pauses[-1] + 1
    assert pauses == [1, 2, 4, 8, 8, 8]


def test_exponential_delay_begins_again_after_a_quiet_time():
    clock = Clock()
    decide = restarts(exponential(), clock=clock)
    assert [decide.pause(TROUBLE, 0) for _ in range(3)] == [1, 2, 4]
    clock.now += 63.9
    assert decide.pause(TROUBLE, 0) == 8
    clock.now += 68
    assert decide.pause(TROUBLE, 0) == 1


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.9), (0.5, 1.0), (1.0, 1.1)])
def test_exponential_delay_is_spread(chance, pause):
    decide = restarts(exponential(jitter_factor=0.1), jitter=chance)
    assert decide.pause(TROUBLE, 0) == pytest.approx(pause)


def test_without_checkpoints_there_is_no_restart():
    assert restarts(checkpointing=False).pause(TROUBLE, 0) is None


def test_a_host_that_does_not_fit_ends_a_job_only_at_its_start():
    assert restarts().pause(ExecutorUnusable("no packages there"), -1) is None
    assert restarts().pause(ExecutorUnusable("no packages there"), 0) is not None


def test_with_checkpoints_there_are_restarts_without_end():
    clock = Clock()
    decide = restarts(clock=clock)
    pauses = []
    for _ in range(200):
        pauses.append(decide.pause(TROUBLE, 3))
        clock.now += 1
    assert None not in pauses
    assert pauses == sorted(pauses)


@pytest.mark.parametrize("final", [JobLocked, StateDamaged, StateMismatch, StateNotFound])
def test_what_another_try_cannot_help(final):
    assert restarts().pause(final("no"), 0) is None
    chosen = RestartStrategies.fixed_delay_restart(100, 0)
    assert restarts(chosen).pause(final("no"), 0) is None


@pytest.mark.parametrize("exit_of", [KeyboardInterrupt(), SystemExit(1)])
def test_an_exit_is_no_failure(exit_of):
    assert restarts().pause(exit_of, 0) is None


def test_the_users_error_is_given_up_at_the_third_time():
    decide = restarts()
    error = UserFunctionError("division by zero")
    assert decide.pause(error, 7) is not None
    assert decide.pause(error, 7) is not None
    assert decide.pause(error, 7) is None


def test_the_users_error_in_another_epoch_is_another_one():
    decide = restarts()
    error = UserFunctionError("division by zero")
    assert all(decide.pause(error, epoch) is not None for epoch in (1, 1, 2, 2, 3, 3))
    assert all(decide.pause(UserFunctionError(str(n)), 3) is not None for n in range(9))


def test_a_strategy_that_was_chosen_holds_for_the_users_errors_too():
    decide = restarts(RestartStrategies.fixed_delay_restart(5, 0))
    error = UserFunctionError("division by zero")
    assert [decide.pause(error, 7) for _ in range(6)] == [0, 0, 0, 0, 0, None]


def test_a_sinks_failure_is_borne():
    decide = restarts()
    assert all(decide.pause(SinkError("no reply"), 7) is not None for _ in range(9))


def test_fallback_is_the_default():
    decide = restarts(RestartStrategies.fall_back_restart())
    assert decide.pause(TROUBLE, 0) is not None
    error = UserFunctionError("division by zero")
    assert [decide.pause(error, 1) is None for _ in range(3)] == [False, False, True]


# -- whole jobs ----------------------------------------------------------------------------------------------

_numbers = itertools.count()
_failures: dict[int, int] = {}


class Fails(MapFunction):
    """Fails at one record, so many times."""

    def __init__(self, at, times):
        self.at = at
        self.number = next(_numbers)
        _failures[self.number] = times

    def map(self, value):
        if value == self.at and _failures[self.number] > 0:
            _failures[self.number] -= 1
            raise ValueError(f"failure {_failures[self.number]}")
        return value


def run(folder, fails, out, strategy=None, **options):
    env = environment(1, 10, execution__checkpointing__dir=folder, **options)
    if strategy is not None:
        for key, value in strategy.to_configuration().to_dict().items():
            env.get_configuration().set_string(key, value)
    source = Numbers(50, True)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    results = numbers.map(fails).key_by(lambda n: n % 3).process(Tally()).uid("tally")
    results._sink("out", CollectOp(out.extend))
    return env.execute_async("job")


def test_a_job_goes_on_after_failures(tmp_path):
    out: list = []
    strategy = RestartStrategies.fixed_delay_restart(3, 0)
    run(tmp_path, Fails(25, 3), out, strategy).get_job_execution_result().result(30)
    assert sorted(out) == sorted(expected(50))


def test_a_job_is_given_up_and_can_be_taken_up_again(tmp_path):
    out: list = []
    fails = Fails(25, 4)
    strategy = RestartStrategies.fixed_delay_restart(3, 0)
    with pytest.raises(MillstreamError, match="failure 0"):
        run(tmp_path, fails, out, strategy).get_job_execution_result().result(30)
    assert len(out) == 20
    run(tmp_path, fails, out).get_job_execution_result().result(30)
    assert sorted(out) == sorted(expected(50))


def test_no_restart_of_a_job(tmp_path):
    out: list = []
    strategy = RestartStrategies.no_restart()
    with pytest.raises(MillstreamError, match="failure 0"):
        run(tmp_path, Fails(25, 1), out, strategy).get_job_execution_result().result(30)


def test_a_job_with_checkpoints_gives_up_a_bug(tmp_path):
    out: list = []
    strategy = {
        "execution__checkpointing__interval": "1 ms",
        "restart_strategy__exponential_delay__initial_backoff": "1 ms",
    }

    class Bug(MapFunction):
        def map(self, value):
            return value // (value - 25)

    with pytest.raises(MillstreamError, match="ZeroDivisionError"):
        run(tmp_path, Bug(), out, **strategy).get_job_execution_result().result(60)


def test_a_job_without_checkpoints_is_not_restarted(tmp_path):
    out: list = []
    with pytest.raises(MillstreamError, match="failure 0"):
        run(tmp_path, Fails(5, 1), out).get_job_execution_result().result(30)
    assert out == []


class Late(KeyedProcessFunction):
    """Asks for its state with the first record, so that a subtask without keys has nothing to keep."""

    def open(self, ctx):
        self.context = ctx
        self.state = None

    def process_element(self, value, ctx):
        if self.state is None:
            self.state = self.context.get_state(ValueStateDescriptor("count"))
        count = (self.state.value() or 0) + 1
        self.state.update(count)
        yield ctx.get_current_key(), count


def test_late_state_and_several_changes_of_parallelism(tmp_path):
    out: list = []
    for parallelism, count in ((2, 20), (3, 40), (2, 60), (4, 80), (1, 100)):
        env = environment(parallelism, 10, execution__checkpointing__dir=tmp_path)
        source = Numbers(count, False)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        results = numbers.uid("numbers").key_by(lambda n: n % 2).process(Late()).uid("late")
        results._sink("out", CollectOp(out.extend))
        client = env.execute_async("job")
        wait_for(out, count)
        client.cancel().result(30)
    assert sorted(out) == sorted((key, n) for key in (0, 1) for n in range(1, 51))


# -- two drivers -----------------------------------------------------------------------------------------------


def test_a_second_driver_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(Lease.acquire.__func__.__kwdefaults__, "ttl", 0.4)
    first: list = []
    env = environment(1, 10, execution__checkpointing__dir=tmp_path)
    source = Numbers(20, False)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers._sink("out", CollectOp(first.extend))
    client = env.execute_async("job")
    wait_for(first, 20)
    began = time.monotonic()
    second: list = []
    with pytest.raises(JobLocked) as caught:
        run(tmp_path, Fails(0, 0), second).get_job_execution_result().result(30)
    assert time.monotonic() - began < 5
    assert caught.value.code == "JOB_LOCKED"
    assert str(tmp_path) in str(caught.value)
    assert second == []
    client.cancel().result(30)
    # The folder is free again.
    storage = LocalStorage(str(tmp_path / "job"))
    Lease.acquire(storage, "job").release()


def test_a_driver_that_has_lost_its_lease_stops(tmp_path):
    out: list = []
    env = environment(1, 10, execution__checkpointing__dir=tmp_path)
    source = Numbers(20, False)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers._sink("out", CollectOp(out.extend))
    client = env.execute_async("job")
    wait_for(out, 20)
    (tmp_path / "job" / "lease.json").unlink()
    with pytest.raises((JobError, JobLocked, InvalidArgument)):
        client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(30)
    with pytest.raises(JobLocked):
        client.get_job_execution_result().result(30)
    assert not list((tmp_path / "job").glob("chk-9*"))


# -- the same failure again --------------------------------------------------------------------------------------------


def failure(**facts):
    return UserFunctionError(
        "the function of 'Map' raised ValueError: no",
        **{"operator": "Map", "line": "job.py:3 in f: raise", "record": "'x'", **facts},
    )


def test_failures_are_the_same_whatever_the_position():
    decide = restarts()
    errors = [failure(position=f"split a, position {n}, of {n + 7}") for n in (3, 5, 9)]
    assert [decide.pause(error, 4) is None for error in errors] == [False, False, True]


def test_failures_are_the_same_whatever_the_address_of_a_record():
    decide = restarts()
    errors = [failure(record=f"<Event object at 0x7f{n:06x}>") for n in (3, 5, 9)]
    assert [decide.pause(error, 4) is None for error in errors] == [False, False, True]


@pytest.mark.parametrize(
    "other", [{"operator": "Filter"}, {"line": "job.py:9 in g: raise"}, {"record": "'y'"}]
)
def test_other_failures_are_counted_apart(other):
    decide = restarts()
    errors = [failure(), failure(**other), failure(), failure(**other), failure()]
    assert all(decide.pause(error, 4) is not None for error in errors)


def test_a_bad_record_of_a_live_source_ends_the_job(tmp_path):
    """The input goes on while the job is down, so the epoch that fails is longer every time."""

    class Bad(MapFunction):
        def map(self, value):
            if value[1] == 120:
                raise ValueError("no")
            return value

    env = environment(2)
    config = env.get_configuration()
    config.set_string("execution.checkpointing.dir", str(tmp_path))
    config.set_string("execution.checkpointing.interval", "20 ms")
    config.set_string("restart-strategy.exponential-delay.initial-backoff", "50 ms")
    started = time.monotonic()
    source = Growing(lambda: int((time.monotonic() - started) * 500))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "live").map(Bad())._sink(
        "out", CollectOp(lambda rows: None)
    )
    client = env.execute_async("live")
    with pytest.raises(UserFunctionError, match="ValueError: no"):
        client.get_job_execution_result().result(30)
    assert client.get_metrics().restarts >= 2


def test_the_progress_line_says_that_a_job_restarts(tmp_path):
    class Bad(MapFunction):
        def map(self, value):
            raise ValueError("no")

    env = environment(1, epoch=10)
    env.get_configuration().set_string("restart-strategy.type", "fixed-delay")
    env.get_configuration().set_string("restart-strategy.fixed-delay.delay", "1 h")
    env.from_source(Growing(lambda: 100), WatermarkStrategy.no_watermarks(), "s").map(Bad())._sink(
        "out", CollectOp(lambda rows: None)
    )
    client = env.execute_async("trouble")
    until(lambda: client.get_job_status().result() is JobStatus.RESTARTING)
    line = describe(client._run)
    assert line.startswith("trouble: restarting in 3")
    assert "attempt 2" in line
    assert "[USER_FUNCTION_FAILED] the function of 'Map' raised ValueError: no" in line
    client.cancel().result(20)
