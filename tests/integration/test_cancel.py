"""Jobs of one session: each is cancelled at once and alone, whatever it is doing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.common.job_status import JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

in_both_ways = pytest.mark.parametrize(
    "options", [{}, {"millstream.epoch.records": "1"}], ids=["one epoch", "many epochs"]
)
# Not 600, for which the function would go on; not 60, after which Spark gives up waiting.
SOON = 15


class Busy:
    """Says where it runs, then takes its time."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __call__(self, value: Any) -> Any:
        Path(self.folder, str(os.getpid())).touch()
        time.sleep(600)
        return value


def numbers(env: StreamExecutionEnvironment, count: int | None, rate: float | None = None) -> Any:
    source = DataGeneratorSource(lambda n: (n % 3, 1), count, rate)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def cancel(client: Any) -> None:
    started = time.monotonic()
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert time.monotonic() - started < SOON


def alive(pid: int) -> bool:
    try:
        # A process that was killed may stay in the table for a moment.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@in_both_ways
def test_cancel_a_busy_function(make_env: Any, tmp_path: Path, options: dict[str, str]) -> None:
    env = make_env(options=options)
    env.from_collection([1, 2]).map(Busy(tmp_path)).print()
    client = env.execute_async("busy")
    assert eventually(lambda: list(tmp_path.iterdir()), 60)
    cancel(client)
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert eventually(lambda: not any(map(alive, pids)), SOON), pids


@in_both_ways
def test_cancel_at_any_moment(make_env: Any, tmp_path: Path, options: dict[str, str]) -> None:
    for delay in (0, 0.01, 0.05, 0.2, 0.4):
        env = make_env(options=options)
        env.from_collection([1]).map(Busy(tmp_path)).print()
        client = env.execute_async("busy")
        threading.Event().wait(delay)
        cancel(client)


def test_results_closed_early(make_env: Any) -> None:
    results = numbers(make_env(), None, 200).key_by(0).sum(1).execute_and_collect("endless")
    with results:
        seen = [next(results) for _ in range(10)]
    assert len(seen) == 10
    assert results._run.status is JobStatus.CANCELED
    assert list(results) == []

    after = numbers(make_env(), 30).key_by(0).sum(1).execute_and_collect("after")
    assert sorted(after) == [(key, n) for key in range(3) for n in range(1, 11)]


def test_jobs_side_by_side(make_env: Any, capfd: Any) -> None:
    env = make_env(options={"millstream.epoch.records": "50"})
    clients = []
    for name in ("a", "b"):
        numbers(env, 300).key_by(0).sum(1).print(name)
        clients.append(env.execute_async(name))
    numbers(env, None, 100).key_by(0).sum(1).print("endless")
    endless = env.execute_async("endless")
    assert eventually(lambda: endless.get_metrics() and endless.get_metrics().epoch >= 0, 60)
    cancel(endless)
    for client in clients:
        client.get_job_execution_result().result()
        assert client.get_job_status().result() is JobStatus.FINISHED
    lines = capfd.readouterr().out.splitlines()
    for name in ("a", "b"):
        found = [line.partition("> ")[2] for line in lines if line.startswith(f"{name}:")]
        assert sorted(found) == sorted(f"({key}, {n})" for key in range(3) for n in range(1, 101))
