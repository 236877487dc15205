import pickle
import threading
from concurrent.futures import CancelledError, Future
from datetime import timedelta

import pytest

from millstream.common import options
from millstream.common.completable_future import CompletableFuture
from millstream.common.configuration import Configuration
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millstream.errors import InvalidArgument


def test_job_id():
    job_id = JobID()
    assert len(str(job_id)) == 32
    assert JobID(str(job_id).upper()) == job_id
    assert len({job_id, JobID(str(job_id)), JobID()}) == 2
    assert pickle.loads(pickle.dumps(job_id)) == job_id
    for bad in ("", "0" * 31, "g" * 32, "0" * 33):
        with pytest.raises(InvalidArgument):
            JobID(bad)


def test_job_status():
    terminal = {status.name for status in JobStatus if status.is_terminal_state()}
    assert terminal == {"FAILED", "CANCELED", "FINISHED", "SUSPENDED"}
    globally = {status.name for status in JobStatus if status.is_globally_terminal_state()}
    assert globally == {"FAILED", "CANCELED", "FINISHED"}
    assert JobStatus["RUNNING"].value == 1


def test_job_execution_result():
    job_id = JobID()
    result = JobExecutionResult(job_id, 12, {"n": 3})
    assert result.get_job_id() is job_id
    assert result.get_job_execution_result() is result
    assert result.get_all_accumulator_results() == {"n": 3}
    assert str(result).splitlines() == [
        f"Job with JobID {job_id} has finished.",
        "Job Runtime: 12 ms",
        "- n: 3",
    ]


def test_future_is_completed_once():
    future = CompletableFuture()
    assert not future.done()
    assert future.set_result(1)
    assert not future.set_result(2)
    assert not future.set_exception(ValueError())
    assert not future.cancel()
    assert future.done()
    assert future.result() == 1
    assert future.exception() is None


def test_future_with_an_error():
    future = CompletableFuture()
    error = ValueError("no")
    future.set_exception(error)
    assert future.exception() is error
    with pytest.raises(ValueError, match="no"):
        future.result()


def test_future_cancelled():
    future = CompletableFuture()
    assert future.cancel()
    assert future.cancelled()
    assert not future.set_result(1)
    with pytest.raises(CancelledError):
        future.result()


def test_future_from_another_thread():
    future = CompletableFuture()
    seen = []
    future.add_done_callback(lambda done: seen.append(done))
    thread = threading.Thread(target=future.set_result, args=(5,))
    thread.start()
    assert future.result(timeout=5) == 5
    thread.join()
    assert seen == [future]
    with pytest.raises(TimeoutError):
        CompletableFuture().result(timeout=0)


def test_future_over_a_given_one():
    inner = Future()
    future = CompletableFuture(inner)
    inner.set_result("x")
    assert future.result() == "x"


def test_future_repr():
    failed, cancelled, done = CompletableFuture(), CompletableFuture(), CompletableFuture()
    failed.set_exception(ValueError())
    cancelled.cancel()
    done.set_result(1)
    states = [repr(future) for future in (CompletableFuture(), failed, cancelled, done)]
    assert states == [
        "<CompletableFuture not done>",
        "<CompletableFuture failed>",
        "<CompletableFuture cancelled>",
        "<CompletableFuture done>",
    ]


def test_fixed_delay():
    for delay in (1000, "1 s", timedelta(seconds=1)):
        strategy = RestartStrategies.fixed_delay_restart(3, delay)
        assert strategy.get_restart_attempts() == 3
        assert strategy.get_delay_between_attempts_interval() == timedelta(seconds=1)
    assert isinstance(strategy, RestartStrategies.FixedDelayRestartStrategyConfiguration)
    assert isinstance(strategy, RestartStrategyConfiguration)
    config = strategy.to_configuration()
    assert options.get(config, options.RESTART_STRATEGY) == "fixed-delay"
    assert options.get(config, options.RESTART_FIXED_ATTEMPTS) == 3
    assert options.get(config, options.RESTART_FIXED_DELAY) == 1000


def test_failure_rate():
    strategy = RestartStrategies.failure_rate_restart(3, "1 min", "1 s")
    assert strategy.get_max_failure_rate() == 3
    assert strategy.get_failure_interval() == timedelta(minutes=1)
    assert strategy.get_delay_between_attempts_interval() == timedelta(seconds=1)
    config = strategy.to_configuration()
    assert options.get(config, options.RESTART_RATE_FAILURES) == 3
    assert options.get(config, options.RESTART_RATE_INTERVAL) == 60_000
    assert options.get(config, options.RESTART_RATE_DELAY) == 1000
    assert options.check_known(config) == []


def test_other_strategies():
    assert RestartStrategies.fall_back_restart().to_configuration() == Configuration()
    none = RestartStrategies.no_restart()
    assert options.get(none.to_configuration(), options.RESTART_STRATEGY) == "none"
    assert none == RestartStrategies.no_restart()
    assert none != RestartStrategies.fall_back_restart()  # type: ignore[comparison-overlap]
    assert hash(none) == hash(RestartStrategies.no_restart())


def test_bad_strategies():
    with pytest.raises(InvalidArgument):
        RestartStrategies.fixed_delay_restart(-1, 0)
    with pytest.raises(InvalidArgument):
        RestartStrategies.fixed_delay_restart(1, "later")
