"""A job on Spark, seen over REST without anybody having asked for it."""

from __future__ import annotations

import json
import os
import urllib.request
from typing import Any

import pytest

from millstream.connectors.datagen import DataGeneratorSource
from millstream.rest.start import stop_server
from millstream.runtime.driver.run import JobRun
from tests.waiting import until

pytestmark = pytest.mark.spark


def ask(address: str, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(address + path, method=method, headers={"X-Millstream": "1"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_a_job_on_spark_is_shown_and_cancelled(make_env: Any) -> None:
    stop_server()
    env = make_env(options={"rest.port": "0", "millstream.epoch.interval": "200 ms"})
    source = DataGeneratorSource(lambda n: (n % 7, n), rate_per_second=1000.0, splits=2)
    counted = env.from_source(source, None, "orders").key_by(lambda order: order[0])
    counted.reduce(lambda a, b: (a[0], a[1] + b[1])).filter(lambda order: order[1] < 0).print()
    run = env.execute_async("on Spark")._run
    assert isinstance(run, JobRun)
    try:
        address = run.web_address
        assert address is not None
        assert address.startswith("http://127.0.0.1:")
        until(lambda: run.metrics is not None and run.metrics.records > 500, 120)
        document = ask(address, f"/millstream/jobs/{run.job.id}")
        assert document["engine"]["name"] == "Spark"
        assert document["engine"]["application"].startswith("local-")
        assert {part["pid"] for v in document["vertices"] for part in v["subtasks"]}.isdisjoint(
            {0, os.getpid()}
        )
        processes = ask(address, "/taskmanagers")["taskmanagers"]
        assert sum(process["assignedTasks"] for process in processes) == 4
        ask(address, f"/jobs/{run.job.id}", "PATCH")
        assert run.wait(120)
        assert ask(address, f"/jobs/{run.job.id}/status") == {"status": "CANCELED"}
        # What the engine was is still known.
        assert ask(address, f"/millstream/jobs/{run.job.id}")["engine"]["name"] == "Spark"
    finally:
        run.cancel()
        stop_server()
