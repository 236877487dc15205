"""Every option of the catalogue does what it says, or says that it does nothing.

An effect is shown here by one small program that behaves otherwise with the option than without it, or by a test
elsewhere that is named here. An option that has neither, and is not among those that warn, fails the last test but one.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.api.functions import (
    AggregateFunction,
    MapFunction,
    ProcessFunction,
    RuntimeContext,
)
from millstream.checkpoint.manifest import list_epochs
from millstream.common import Configuration, Time, WatermarkStrategy, options
from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import strategy_of
from millstream.datastream import CheckpointingMode, StreamExecutionEnvironment
from millstream.datastream.progress import progress_of
from millstream.datastream.settings import job_settings
from millstream.datastream.window import SlidingEventTimeWindows
from millstream.errors import CheckpointFailed, InvalidArgument, JobError, StateMismatch
from millstream.graph.operators import CollectOp
from millstream.ha import services
from millstream.runtime.driver import epochs
from millstream.runtime.driver.planner import EpochPlanner
from millstream.runtime.driver.restart import Restarts
from millstream.storage.storage import LocalStorage
from tests.columns import ColumnSource, _Reader
from tests.inprocess.test_damage import Numbers
from tests.support import collect
from tests.waiting import until

ROOT = Path(__file__).parents[2]
NONE = WatermarkStrategy.no_watermarks()

EFFECTS: dict[str, Callable[..., None]] = {}

# Effects that other tests show.
ELSEWHERE = {
    "execution.mode": (
        "tests/inprocess/test_pipelined.py::test_a_sink_function_sees_records_before_any_checkpoint"
    ),
    "execution.buffer-timeout.interval": (
        "tests/inprocess/test_pipelined.py::test_a_record_waits_in_its_buffer"
    ),
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": (
        "tests/inprocess/test_reactive.py::test_slots_have_to_settle"
    ),
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": (
        "tests/inprocess/test_reactive.py::test_slots_have_to_settle"
    ),
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": (
        "tests/inprocess/test_reactive.py::test_a_job_waits_for_its_first_slot"
    ),
    "millstream.environment.packages": (
        "tests/unit/runtime/test_environment.py::test_what_is_named_is_shipped_with_what_it_needs"
    ),
    "millstream.environment.ship": (
        "tests/integration/test_bare_python.py::test_a_job_with_requirements_runs_from_one_command"
    ),
    "millstream.session.history-size": "tests/inprocess/test_sessions.py::test_the_oldest_logs_go_with_the_oldest_jobs",
    "millstream.session.log-size": "tests/unit/session/test_files.py::test_a_log_has_an_end",
    "millstream.session.programs": (
        "tests/inprocess/test_sessions.py::test_programs_that_are_named_are_started_over_rest"
    ),
    "millstream.session.rest-submit": "tests/inprocess/test_sessions.py::test_starting_over_rest_is_off",
    "millstream.java.class-archive": "tests/unit/spark/test_class_archive.py::test_the_option_turns_it_off",
    "millstream.slots.enabled": "tests/integration/test_slots.py::test_slots",
    "millstream.slots.per-query": "tests/unit/spark/test_slots.py::test_more_subtasks_than_processes_share_them",
    "scheduler-mode": "tests/inprocess/test_reactive.py::test_a_job_follows_its_slots",
    "execution.state-recovery.claim-mode": (
        "tests/inprocess/test_crash_points.py::"
        "test_a_checkpoint_that_is_not_claimed_keeps_what_it_has_to_commit"
    ),
    "millstream.state.hmac-key-file": (
        "tests/inprocess/test_signing.py::"
        "test_what_is_not_signed_is_refused_until_somebody_signs_it"
    ),
    "metrics.reporters": (
        "tests/inprocess/test_reporters.py::test_prometheus_says_what_the_driver_knows"
    ),
    "python.files": "tests/inprocess/test_dependencies.py::test_a_python_file",
    "python.archives": (
        "tests/inprocess/test_dependencies.py::test_an_archive_is_found_by_a_relative_path"
    ),
    "python.requirements": (
        "tests/inprocess/test_dependencies.py::test_requirements_from_a_folder_of_packages"
    ),
    "python.executable": "tests/integration/test_dependencies.py::test_local",
    "pipeline.cached-files": "tests/inprocess/test_dependencies.py::test_cached_files",
    "pipeline.jars": "tests/inprocess/test_dependencies.py::test_jars_reach_spark",
    "pipeline.classpaths": "tests/inprocess/test_dependencies.py::test_jars_reach_spark",
    "rest.port": "tests/inprocess/test_rest.py::test_without_any_port_a_job_runs_if_nobody_wanted_to_see_it",
    "rest.bind-address": "tests/inprocess/test_rest.py::test_who_would_let_anybody_in_does_not_start",
    "rest.authentication.token-file": "tests/inprocess/test_rest.py::test_a_token_is_read_from_its_file",
    "web.refresh-interval": "tests/inprocess/test_rest.py::test_settings_reach_the_server",
    "millstream.rest.enabled": (
        "tests/inprocess/test_rest.py::test_on_spark_jobs_are_shown_unless_somebody_forbids_it"
    ),
    "millstream.rest.allowed-hosts": "tests/inprocess/test_rest.py::test_settings_reach_the_server",
    "millstream.rest.any-savepoint-dir": (
        "tests/inprocess/test_rest.py::test_settings_reach_the_server"
    ),
    "millstream.rest.flink-page": "tests/inprocess/test_rest.py::test_settings_reach_the_server",
}


def effect_of(*keys: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def mark(test: Callable[..., None]) -> Callable[..., None]:
        EFFECTS.update(dict.fromkeys(keys, test))
        return test

    return mark


def env_with(settings: dict[str, Any] | None = None) -> StreamExecutionEnvironment:
    config = Configuration.from_dict({"execution.target": "in-process", **(settings or {})})
    return StreamExecutionEnvironment.get_execution_environment(config)


def settings_with(settings: dict[str, Any]) -> Any:
    return job_settings(Configuration.from_dict(settings), None)


class Context(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def map(self, value):
        return (
            self.context.get_number_of_parallel_subtasks(),
            self.context.get_max_number_of_parallel_subtasks(),
            self.context.get_job_parameter("limit", "none"),
        )


# -- the job as a whole --------------------------------------------------------------------------------------


@effect_of("execution.target")
def test_target():
    assert collect(env_with().from_collection([1]).map(lambda _: os.getpid())) == [os.getpid()]


@effect_of("execution.runtime-mode")
def test_runtime_mode():
    def counts(mode):
        env = env_with({"execution.runtime-mode": mode})
        return collect(env.from_collection([("a", 1), ("a", 1)]).key_by(0).sum(1))

    assert counts("STREAMING") == [("a", 1), ("a", 2)]
    assert counts("BATCH") == [("a", 2)]


@effect_of("pipeline.name")
def test_pipeline_name():
    env = env_with({"pipeline.name": "clicks"})
    env.from_collection([1])._sink("out", CollectOp(lambda rows: None))
    assert env.execute_async()._run.job.settings.name == "clicks"


@effect_of("parallelism.default", "pipeline.max-parallelism", "pipeline.global-job-parameters")
def test_what_functions_see():
    settings = {
        "parallelism.default": 3,
        "pipeline.max-parallelism": 48,
        "pipeline.global-job-parameters": "limit:5",
    }
    assert collect(env_with(settings).from_collection([1]).rebalance().map(Context())) == [
        (3, 48, "5")
    ]


class Watermarks(ProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.timer_service().current_watermark()


@effect_of("pipeline.auto-watermark-interval")
def test_auto_watermark_interval():
    def last(interval):
        env = env_with(
            {"pipeline.auto-watermark-interval": interval, "millstream.epoch.records": 1}
        )
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamp())
        stream = env.from_collection([10, 20, 30]).assign_timestamps_and_watermarks(strategy)
        return collect(stream.process(Watermarks()))[-1]

    assert last("200 ms") == 19
    assert last("0 ms") < 0


class _Stamp:
    def extract_timestamp(self, value, record_timestamp):
        return value


@effect_of("pipeline.operator-chaining.enabled")
def test_chaining():
    def vertices(chaining):
        env = env_with({"pipeline.operator-chaining.enabled": chaining})
        env.from_collection([1]).map(str)._sink("out", CollectOp(lambda rows: None))
        return len(env._take_job(None).plan.vertices)

    assert vertices(True) == 1
    assert vertices(False) == 3


@effect_of("pipeline.auto-generate-uids")
def test_auto_generate_uids():
    env = env_with({"pipeline.auto-generate-uids": False})
    stream = env.from_collection([1]).uid("source").map(str).name("Text")
    stream.print().uid("print")
    with pytest.raises(
        InvalidArgument,
        match="Auto generated UIDs have been disabled but no UID or hash has been assigned to operator Text",
    ):
        env.execute()
    stream.uid("text")
    env.execute()
    assert collect(env.from_collection([1]).uid("other")) == [1]


@effect_of("pipeline.object-reuse")
def test_object_reuse():
    """One object goes down both branches, or each has its own."""

    def second_branch(reuse):
        env = env_with({"pipeline.object-reuse": reuse})
        stream = env.from_collection([[1]])
        changed = stream.map(lambda record: record.append(2) or record)
        seen: list[list[int]] = []
        changed._sink("first", CollectOp(lambda rows: None))
        stream.map(list)._sink("second", CollectOp(seen.extend))
        env.execute()
        return seen

    assert second_branch(True) == [[1, 2]]
    assert second_branch(False) == [[1]]


# -- checkpoints -----------------------------------------------------------------------------------------------


def run_epochs(tmp_path, settings=None):
    """A job of six epochs with checkpoints, cancelled after that."""
    env = env_with(
        {
            "millstream.epoch.records": 10,
            "execution.checkpointing.interval": "1 ms",
            "execution.checkpointing.dir": str(tmp_path),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            **(settings or {}),
        }
    )
    env.from_source(Numbers(60, False), NONE, "numbers")._sink("out", CollectOp(lambda rows: None))
    client = env.execute_async("job")
    wait_for_epoch(client, 5)
    stop(client)


def wait_for_epoch(client, number=0):
    run = client._run
    until(lambda: run.done or (run.metrics is not None and run.metrics.epoch >= number))


def stop(client):
    client.cancel().result(30)
    client._run._thread.join(30)


@effect_of("execution.checkpointing.interval", "execution.checkpointing.dir")
def test_checkpoints_are_written(tmp_path):
    run_epochs(tmp_path)
    assert list(tmp_path.rglob("chk-*"))


@effect_of("execution.checkpointing.num-retained")
def test_num_retained(tmp_path):
    left = []
    for number in (2, 4):
        run_epochs(tmp_path / str(number), {"execution.checkpointing.num-retained": number})
        folder = next((tmp_path / str(number)).iterdir())
        left.append(len(list_epochs(LocalStorage(str(folder)))))
    assert left == [2, 4]


@effect_of("execution.checkpointing.mode")
def test_checkpointing_mode(tmp_path):
    """A record that is being processed when a job fails is not processed again under at-most-once."""

    def values(mode):
        failed = tmp_path / f"failed-{mode}"

        def once(value):
            if value == 25 and not failed.exists():
                failed.touch()
                raise ValueError("told to fail")
            return value

        env = env_with(
            {
                "millstream.epoch.records": 10,
                "execution.checkpointing.interval": "1 ms",
                "execution.checkpointing.dir": str(tmp_path / mode),
                "execution.checkpointing.mode": mode,
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.delay": "1 ms",
            }
        )
        return collect(env.from_source(Numbers(60, True), NONE, "numbers").map(once))

    assert values(CheckpointingMode.EXACTLY_ONCE.value) == list(range(60))
    assert values("AT_MOST_ONCE") == [*range(20), *range(30, 60)]


def _is_of_an_epoch(thread):
    return isinstance(thread, threading.Timer) and thread.function.__module__ == epochs.__name__


def outlast_the_checkpoint(value):
    """Return when the timer of the epoch that calls this has struck."""
    until(lambda: not any(_is_of_an_epoch(thread) for thread in threading.enumerate()))
    return value


@effect_of("execution.checkpointing.timeout")
def test_an_epoch_that_takes_too_long(tmp_path):
    slow = {"execution.checkpointing.timeout": "50 ms", "restart-strategy.type": "none"}
    env = env_with(
        {
            **slow,
            "execution.checkpointing.interval": "1 ms",
            "execution.checkpointing.dir": str(tmp_path),
        }
    )
    stream = env.from_collection([1]).map(outlast_the_checkpoint)
    with pytest.raises(CheckpointFailed, match="took longer than a checkpoint may"):
        collect(stream)
    # Unless it is set, an epoch takes what it takes.
    assert settings_with({}).checkpoint_timeout is None


def test_times_that_mean_never(tmp_path):
    """Flink's programs say Long.MAX_VALUE."""
    never = f"{2**63 - 1} ms"
    uncaught: list[Any] = []
    hook, threading.excepthook = threading.excepthook, uncaught.append
    try:
        env = env_with(
            {
                "execution.checkpointing.timeout": never,
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.delay": never,
            }
        )
        assert collect(env.from_collection([1, 2])) == [1, 2]
        env.from_collection([0]).map(lambda n: 1 // n).print()
        client = env.execute_async()
        until(lambda: client.get_job_status().result() is JobStatus.RESTARTING)
        assert not client.get_job_execution_result().done()
        client.cancel().result(30)
    finally:
        threading.excepthook = hook
    assert not uncaught


@effect_of("execution.checkpointing.tolerable-failed-checkpoints")
def test_tolerable_failed_checkpoints(tmp_path):
    def run(tolerable, fail):
        attempts: list[int] = []

        def slow(value):
            attempts.append(value)
            return outlast_the_checkpoint(value) if len(attempts) <= fail else value

        env = env_with(
            {
                "execution.checkpointing.timeout": "100 ms",
                "execution.checkpointing.interval": "1 ms",
                "execution.checkpointing.dir": str(tmp_path / f"{tolerable}-{fail}"),
                "execution.checkpointing.tolerable-failed-checkpoints": tolerable,
                "restart-strategy.type": "none",
            }
        )
        _calls[:] = [slow]
        return collect(env.from_collection([1]).map(call))

    assert run(2, 2) == [1]
    with pytest.raises(CheckpointFailed):
        run(2, 3)


_calls: list[Callable[[Any], Any]] = []


def call(value):
    """Functions are copied, this module is not."""
    return _calls[0](value)


def test_failed_checkpoints_are_counted_in_a_row():
    decide = Restarts(None, checkpointing=False, tolerable=1)
    error = CheckpointFailed("late")
    assert decide.pause(error, 3) == 0
    assert decide.pause(error, 3) is None
    assert decide.pause(error, 4) == 0
    assert decide.pause(JobError("other"), 5) is None


@effect_of("execution.checkpointing.min-pause")
def test_min_pause():
    """The next epoch waits until the pause is over, and reads as much as takes so long."""
    settings = settings_with(
        {"execution.checkpointing.interval": "1 s", "execution.checkpointing.min-pause": "5 s"}
    )
    assert settings.epoch_interval == settings.min_pause == 5
    # Without checkpoints there is nothing to keep apart.
    assert settings_with({"execution.checkpointing.min-pause": "5 s"}).min_pause == 0

    env = env_with(
        {"execution.checkpointing.interval": "1 ms", "execution.checkpointing.min-pause": "200 ms"}
    )
    source = Numbers(1, False)
    env.from_source(source, NONE, "numbers")._sink("out", CollectOp(lambda rows: None))
    job = env._take_job("job")
    now = 0.0

    class Never(threading.Event):
        """Whoever waits for it finds that the time has passed."""

        def wait(self, timeout=None):
            nonlocal now
            now += timeout
            return False

    planner = EpochPlanner(job, lambda: now)
    try:
        assert planner.plan(Never())
        now += 50
        planner.done()
        job.split_sources[0].source.count = 2
        assert planner.plan(Never())
        assert now == pytest.approx(50.2)
    finally:
        planner.close()


@effect_of("execution.checkpointing.externalized-checkpoint-retention")
def test_retention_when_cancelled(tmp_path):
    def left(retention):
        env = env_with(
            {
                "execution.checkpointing.interval": "1 ms",
                "execution.checkpointing.dir": str(tmp_path / retention),
                "execution.checkpointing.externalized-checkpoint-retention": retention,
            }
        )
        env.from_source(Numbers(10, False), NONE, "numbers")._sink(
            "out", CollectOp(lambda rows: None)
        )
        client = env.execute_async("job")
        wait_for_epoch(client)
        stop(client)
        return bool(list((tmp_path / retention).rglob("chk-*")))

    assert left("RETAIN_ON_CANCELLATION")
    assert not left("DELETE_ON_CANCELLATION")


def sums(tmp_path, settings, stop_at=None, name="job"):
    """Sums of the numbers so far, from a job that is cancelled or ends at its savepoint."""
    env = env_with(
        {
            "execution.checkpointing.interval": "1 ms",
            "execution.checkpointing.dir": str(tmp_path),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            **settings,
        }
    )
    out: list[Any] = []
    source = env.from_source(Numbers(4, False), NONE, "numbers").uid("numbers")
    summed = source.map(lambda n: (0, 1)).uid("ones").key_by(0).sum(1).uid(settings_uid(settings))
    summed._sink("out", CollectOp(out.extend))
    client = env.execute_async(name)
    wait_for_epoch(client)
    path = None
    if stop_at is not None:
        path = client.stop_with_savepoint(False, stop_at or None).result(30)
    elif client._run.error is None:
        stop(client)
    if client._run.error is not None:
        raise client._run.error
    return out, path


def settings_uid(settings):
    return "other" if "execution.state-recovery.ignore-unclaimed-state" in settings else "sum"


@effect_of("millstream.recovery.resume")
def test_resume(tmp_path):
    assert sums(tmp_path, {})[0] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    # The last checkpoint has read everything.
    assert sums(tmp_path, {"millstream.recovery.resume": "auto"})[0] == []
    assert len(sums(tmp_path, {"millstream.recovery.resume": "never"})[0]) == 4


@effect_of(
    "execution.checkpointing.savepoint-dir",
    "execution.state-recovery.path",
    "execution.state-recovery.ignore-unclaimed-state",
)
def test_savepoints(tmp_path):
    saved = tmp_path / "saved"
    settings = {"execution.checkpointing.savepoint-dir": str(saved)}
    _, path = sums(tmp_path / "a", settings, stop_at="")
    assert Path(path).parent == saved
    again = {"execution.state-recovery.path": path}
    assert sums(tmp_path / "b", again)[0] == []
    ignore = {**again, "execution.state-recovery.ignore-unclaimed-state": True}
    assert sums(tmp_path / "c", ignore)[0] == []
    ignore["execution.state-recovery.ignore-unclaimed-state"] = False
    with pytest.raises(StateMismatch):
        sums(tmp_path / "d", ignore)


@effect_of("millstream.state.dir", "state.backend.type")
def test_state_on_disk(tmp_path):
    pytest.importorskip("lmdb")
    seen: dict[str, bool] = {}
    for backend in ("hashmap", "lmdb"):
        local = tmp_path / backend

        def look(value, backend=backend, local=local):
            seen[backend] = local.exists() and any(local.iterdir())
            return value

        _calls[:] = [look]
        env = env_with({"millstream.state.dir": str(local), "state.backend.type": backend})
        collect(env.from_collection([("a", 1)]).key_by(0).sum(1).map(call))
    assert seen == {"hashmap": False, "lmdb": True}


# -- failures --------------------------------------------------------------------------------------------------


def pauses(settings: dict[str, Any], moments: list[float]) -> list[float | None]:
    """What a strategy says when a job fails at these moments."""
    prefix = f"restart-strategy.{settings['type']}."
    named = {
        (f"restart-strategy.{key}" if key == "type" else prefix + key): value
        for key, value in settings.items()
    }
    now = [0.0]
    strategy = strategy_of(Configuration.from_dict(named))
    decide = Restarts(strategy, checkpointing=True, clock=lambda: now[0], jitter=lambda: 1.0)
    found = []
    for moment in moments:
        now[0] = moment
        found.append(decide.pause(JobError("x"), 0))
    return found


@effect_of(
    "restart-strategy.type",
    "restart-strategy.fixed-delay.attempts",
    "restart-strategy.fixed-delay.delay",
)
def test_fixed_delay():
    assert pauses({"type": "none"}, [0]) == [None]
    assert pauses({"type": "fixed-delay", "attempts": 2, "delay": "7 s"}, [0, 1, 2]) == [7, 7, None]


@effect_of(
    "restart-strategy.failure-rate.max-failures-per-interval",
    "restart-strategy.failure-rate.failure-rate-interval",
    "restart-strategy.failure-rate.delay",
)
def test_failure_rate():
    settings = {
        "type": "failure-rate",
        "max-failures-per-interval": 2,
        "failure-rate-interval": "10 s",
        "delay": "3 s",
    }
    assert pauses(settings, [0, 1, 2]) == [3, 3, None]
    assert pauses(settings, [0, 1, 12]) == [3, 3, 3]


@effect_of(
    "restart-strategy.exponential-delay.initial-backoff",
    "restart-strategy.exponential-delay.max-backoff",
    "restart-strategy.exponential-delay.backoff-multiplier",
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    "restart-strategy.exponential-delay.jitter-factor",
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
)
def test_exponential_delay():
    settings = {
        "type": "exponential-delay",
        "initial-backoff": "2 s",
        "max-backoff": "15 s",
        "backoff-multiplier": 3,
        "reset-backoff-threshold": "1 min",
        "jitter-factor": 0,
    }
    assert pauses(settings, [0, 1, 2, 3]) == [2, 6, 15, 15]
    assert pauses(settings, [0, 1, 1000]) == [2, 6, 2]
    few = {**settings, "attempts-before-reset-backoff": 1}
    assert pauses(few, [0, 1]) == [2, None]
    assert pauses({**settings, "jitter-factor": 0.5}, [0]) != [2]


# -- watching a job ---------------------------------------------------------------------------------------------


@effect_of("metrics.latency.interval")
def test_latency_interval():
    counts = []
    for interval in ("1 ms", "1 h", "0 ms"):
        env = env_with({"metrics.latency.interval": interval, "millstream.epoch.records": 1})
        stream = env.from_collection(range(4)).map(_late_by_a_moment)
        stream.add_sink(lambda value: None).uid("out")
        client = env.execute_async("job")
        client.get_job_execution_result().result(30)
        found = client.get_metrics().latency
        counts.append(found["out"].count if found else None)
    assert counts == [4, 1, None]


def _late_by_a_moment(value):
    time.sleep(0.002)
    return value


# -- our own ---------------------------------------------------------------------------------------------------


@effect_of("millstream.epoch.interval")
def test_epoch_interval():
    assert settings_with({"millstream.epoch.interval": "250 ms"}).epoch_interval == 0.25


@effect_of("millstream.epoch.records")
def test_epoch_records():
    env = env_with({"millstream.epoch.records": 4})
    env.from_source(Numbers(10, True), NONE, "n")._sink("out", CollectOp(lambda rows: None))
    client = env.execute_async("job")
    client.get_job_execution_result().result(30)
    assert client.get_metrics().epoch == 2


@effect_of("millstream.buffer.bytes", "millstream.buffer.records")
def test_buffers(monkeypatch):
    from millstream.runtime.driver import local

    def buffers(settings):
        rows: list[Any] = []
        original = local.run_epoch

        def counted(*args):
            for batch in args[2]:
                rows.extend(local._rows(local._source_task(args[0], args[1], batch)))
            return original(*args)

        monkeypatch.setattr(local, "run_epoch", counted)
        env = env_with({"parallelism.default": 2, **settings})
        collect(env.from_collection(["x" * 100] * 4000).rebalance().map(len))
        monkeypatch.undo()
        return len(rows)

    many = buffers({})
    assert buffers({"millstream.buffer.records": 10}) > many
    assert buffers({"millstream.buffer.bytes": "1 kb"}) > many


class Adding(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        call(value)
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


@effect_of("millstream.windows.share-panes")
def test_share_panes():
    added = []
    for share in (True, False):
        calls: list[Any] = []
        _calls[:] = [calls.append]
        env = env_with({"millstream.windows.share-panes": share})
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamp())
        stream = env.from_collection([10, 20, 30]).assign_timestamps_and_watermarks(strategy)
        windows = SlidingEventTimeWindows.of(Time.milliseconds(40), Time.milliseconds(10))
        collect(stream.key_by(lambda _: 0).window(windows).aggregate(Adding()))
        added.append(len(calls))
    # Each record once, or once for each of the four windows that it is in.
    assert added == [3, 12]


@effect_of("millstream.columns")
def test_columns(monkeypatch):
    read = []
    for way in ("read", "read_columns"):
        original = getattr(_Reader, way)

        def noted(self, *args, way=way, original=original):
            read.append(way)
            return original(self, *args)

        monkeypatch.setattr(_Reader, way, noted)
    first = []
    for columns in (True, False):
        read.clear()
        env = env_with({"millstream.columns": columns})
        source = ColumnSource([pa.RecordBatch.from_pydict({"n": [1, 2]})])
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "columns")
        collect(stream.map_batches(lambda table: table, batch_format="arrow"))
        first.append(read[0])
    assert first == ["read_columns", "read"]


@effect_of("millstream.sort.memory")
def test_sort_memory(monkeypatch):
    from millstream.runtime.wire import input as inputs

    opened: list[Any] = []
    original = tempfile.TemporaryFile

    def noted(*args, **kwargs):
        opened.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(inputs.tempfile, "TemporaryFile", noted)
    spilled = []
    for memory in ("64 mb", "1 kb"):
        opened.clear()
        env = env_with({"millstream.sort.memory": memory, "parallelism.default": 2})
        collect(env.from_collection(["x" * 100] * 4000).rebalance().map(len))
        spilled.append(bool(opened))
    assert spilled == [False, True]


@effect_of("millstream.print.generated-code")
def test_print_generated_code(capsys):
    env = env_with({"millstream.print.generated-code": True})
    collect(env.from_collection([1]).map(str))
    assert "def input_0" in capsys.readouterr().out


@effect_of("millstream.progress")
def test_progress(capsys):
    for setting, shown in (("true", True), ("false", False)):
        env = env_with({"millstream.progress": setting, "pipeline.name": "a job"})
        env.from_collection([1])._sink("out", CollectOp(lambda rows: None))
        run = env.execute_async()._run
        with progress_of(run):
            run.result()
        assert ("a job" in capsys.readouterr().err) is shown


@effect_of(
    "high-availability.type",
    "high-availability.cluster-id",
    "high-availability.zookeeper.quorum",
    "high-availability.zookeeper.path.root",
    "high-availability.zookeeper.client.session-timeout",
    "millstream.high-availability.watch-process",
)
def test_election_by_zookeeper(tmp_path, monkeypatch):
    class Joined(Exception):
        pass

    def join(*where, **how):
        raise Joined(where, how)

    monkeypatch.setattr(services, "ZooKeeperElection", join)
    env = env_with(
        {
            "execution.checkpointing.dir": str(tmp_path),
            "high-availability.type": "zookeeper",
            "high-availability.cluster-id": "blue",
            "high-availability.zookeeper.quorum": "one:2181,two:2181",
            "high-availability.zookeeper.path.root": "/mills",
            "high-availability.zookeeper.client.session-timeout": "7 s",
            "millstream.high-availability.watch-process": "false",
        }
    )
    env.from_collection([1]).print()
    with pytest.raises(Joined) as caught:
        env.execute("grind")
    where, how = caught.value.args
    assert where == ("one:2181,two:2181", "/mills/blue/grind", "grind")
    assert how == {"session_timeout": 7.0, "watch_process": False}


@effect_of(
    "high-availability.storageDir",
    "millstream.high-availability.standby",
    "millstream.high-availability.lease-timeout",
)
def test_election_by_a_file(tmp_path):
    env = env_with(
        {
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "high-availability.storageDir": str(tmp_path / "ha"),
            "millstream.high-availability.standby": "true",
            "millstream.high-availability.lease-timeout": "7 s",
        }
    )
    env.from_collection([1]).print()
    run = env.execute_async("grind")._run
    run.result()
    term = json.loads(next((tmp_path / "ha/default/grind/leader/terms").iterdir()).read_text())
    assert (term["job_name"], term["ttl"]) == ("grind", 7.0)


@effect_of("millstream.high-availability.optional")
def test_jobs_that_cannot_take_part():
    settings = {"high-availability.type": "file", "millstream.high-availability.optional": "true"}
    env = env_with(settings)
    env.from_collection([1]).print()
    run = env.execute_async()._run
    run.result()
    assert run.leading is None


# -- the whole catalogue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(options.ALL))
def test_every_option_has_an_effect_or_says_that_it_has_none(key):
    ways = [key in EFFECTS, key in ELSEWHERE, key in options.NO_EFFECT]
    assert ways.count(True) == 1, f"{key} needs a test of its effect, or a reason why it has none"
    if key in ELSEWHERE:
        path, _, name = ELSEWHERE[key].partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def other_value(option: Any) -> str:
    """A value that is not the default."""
    if option.type_name == "boolean":
        return str(not option.parse(option.default or False)).lower()
    if option.type_name == "enum":
        return next(c for c in option.parse.choices if c != option.default)
    return {"duration": "17 s", "int": "17", "memory": "17 mb"}.get(option.type_name, "other")


@pytest.mark.parametrize("key", sorted(options.NO_EFFECT))
def test_an_option_without_effect_warns_by_name_once(key):
    name = key + "x.y" if key.endswith(".") else key
    option = options.ALL.get(key)
    value = "other" if option is None else other_value(option)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = env_with({name: value})
        collect(env.from_collection([1]))
        collect(env.from_collection([1]))
    assert [str(one.message).partition(": ")[0] for one in caught] == [
        f"the configuration key '{name}' has no effect"
    ]
    assert caught[0].filename == __file__
    if option is not None and option.has_default_value():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env_with({name: option.default})


def test_a_setting_without_effect_warns_when_it_is_made_by_a_call():
    env = env_with()
    env.get_checkpoint_config().enable_unaligned_checkpoints()
    env.get_config().set_task_cancellation_timeout("1 s")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        collect(env.from_collection([1]))
    assert sorted(str(one.message).split("'")[1] for one in caught) == [
        "execution.checkpointing.unaligned.enabled",
        "task.cancellation.timeout",
    ]


def test_no_extra_without_code_behind_it():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # A kernel is what a notebook runs in; the program asks IPython for it.
    modules = {"confluent-kafka": "confluent_kafka", "ipykernel": "IPython"}
    sources = "\n".join(path.read_text() for path in (ROOT / "millstream").rglob("*.py"))
    assert project["optional-dependencies"]
    for extra, wanted in project["optional-dependencies"].items():
        for requirement in wanted if extra != "dev" else []:
            name = requirement.partition(">")[0].partition("[")[0]
            module = modules.get(name, name)
            # s3fs is what fsspec opens s3:// with.
            module = "fsspec" if module == "s3fs" else module
            assert re.search(rf"^ *(import|from) {module}\b", sources, re.MULTILINE), name
