"""Windows over two inputs of which one falls silent: on time with idleness, held back without (rules 6 and 8)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.common.job_client import JobClient
from millstream.common.job_status import JobStatus
from millstream.datastream import SourceFunction
from millstream.datastream.window import TumblingEventTimeWindows
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps()
OPTIONS = {"millstream.epoch.interval": "200 ms"}
# Sources run in threads of this process but on copies of their functions, so what they are told is kept here.
speak_again = threading.Event()


class Ticks(SourceFunction):
    """Ticks that are a second of event time apart, and 20 ms of the clock's."""

    def __init__(self, falls_silent: bool) -> None:
        self.falls_silent = falls_silent

    def run(self, ctx: SourceFunction.SourceContext) -> None:
        number = 0
        while ctx.is_running():
            if number < 5 or not self.falls_silent or speak_again.is_set():
                ctx.collect_with_timestamp(1, number * 1000)
                number += 1
            time.sleep(0.02)

    def cancel(self) -> None:
        return


class Counting:
    """A job that counts the ticks of both inputs by ten seconds, and the counts that have come."""

    def __init__(self, env: Any, strategy: WatermarkStrategy, capfd: Any) -> None:
        steady, silent = (
            env.add_source(Ticks(falls_silent), name).assign_timestamps_and_watermarks(strategy)
            for falls_silent, name in ((False, "steady"), (True, "silent"))
        )
        windows = steady.union(silent).window_all(TumblingEventTimeWindows.of("10 s"))
        windows.sum().print("count")
        speak_again.clear()
        self._capfd = capfd
        self._lines: list[str] = []
        self._client: JobClient = env.execute_async("two inputs")

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.cancel().result()

    def runs(self) -> bool:
        return self._client.get_job_status().result() is JobStatus.RUNNING

    def records(self) -> int:
        metrics = self._client.get_metrics()
        return 0 if metrics is None else metrics.records

    def counts(self) -> list[int]:
        lines = self._capfd.readouterr().out.splitlines()
        self._lines += [line for line in lines if line.startswith("count> ")]
        return [int(line.removeprefix("count> ")) for line in self._lines]


def test_with_idleness_results_are_on_time(make_env: Any, capfd: Any) -> None:
    with Counting(
        make_env(parallelism=1, options=OPTIONS), MONOTONOUS.with_idleness("500 ms"), capfd
    ) as job:
        assert eventually(lambda: len(job.counts()) >= 3, 60), job.records()
        assert job.runs()
        # The second input has given five ticks, and is silent to this moment.
        assert job.counts()[:3] == [15, 10, 10]


def test_without_idleness_they_are_held_back(make_env: Any, capfd: Any) -> None:
    with Counting(make_env(parallelism=1, options=OPTIONS), MONOTONOUS, capfd) as job:
        # The first input is many windows ahead, and in none of them has anything been counted.
        assert eventually(lambda: job.records() >= 200, 60)
        assert job.runs()
        assert job.counts() == []
        speak_again.set()
        assert eventually(lambda: len(job.counts()) >= 3, 60), job.records()
        assert job.runs()
        assert job.counts()[:3] == [20, 20, 20]


def test_without_idleness_a_cancelled_job_gives_nothing(make_env: Any, capfd: Any) -> None:
    with Counting(make_env(parallelism=1, options=OPTIONS), MONOTONOUS, capfd) as job:
        assert eventually(lambda: job.records() >= 100, 60)
    assert job.counts() == []
