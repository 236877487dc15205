"""Stop with drain on Spark, asked from the command line of a job whose source is never idle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.common.job_status import JobStatus
from tests.inprocess.test_control import check_drained, lease_of, live_job
from tests.integration.test_cancel import Busy
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_source_that_is_never_idle_is_drained(make_env: Any, tmp_path: Path) -> None:
    windows: list[Any] = []
    records: list[Any] = []
    env = make_env(options={"millstream.epoch.records": "40"})
    client = live_job(env, tmp_path, windows, records)
    assert eventually(lambda: len(records) > 200, 120)
    words = ["stop", "-d", "live", "--dir", str(tmp_path / "checkpoints")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert lease_of(tmp_path) is None
    client.get_job_execution_result().result(60)
    assert client.get_job_status().result() is JobStatus.FINISHED
    check_drained(windows, records)


def test_a_busy_job_is_cancelled_at_once_from_the_command_line(
    make_env: Any, tmp_path: Path
) -> None:
    env = make_env(options={"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    (tmp_path / "busy").mkdir()
    env.from_collection([1, 2]).map(Busy(tmp_path / "busy")).print()
    client = env.execute_async("busy")
    assert eventually(lambda: list((tmp_path / "busy").iterdir()), 60)
    began = time.monotonic()
    done = CliRunner().invoke(main, ["cancel", "busy", "--dir", str(tmp_path / "checkpoints")])
    assert done.exit_code == 0, done.output
    assert time.monotonic() - began < 15
    assert eventually(lambda: client.get_job_status().result() is JobStatus.CANCELED, 5)
