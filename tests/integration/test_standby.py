"""`millstream run --standby`: who takes over, and how all of them end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli import main
from tests.integration.processes import MILLSTREAM, Program
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

JOB = """
from millstream.common import Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(200)
numbers = env.from_source(
    NumberSequenceSource(1, 100_000_000), WatermarkStrategy.no_watermarks(), "numbers"
)
numbers.key_by(lambda n: n % 5, Types.LONG()).reduce(max).filter(lambda n: False).print()
env.execute("standby")
"""


def start(folder: Path) -> Program:
    settings = {
        "spark.master": "local[2,3]",
        "spark.driver.memory": "512m",
        "millstream.rest.enabled": "false",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "millstream.epoch.records": "1000",
    }
    words = [f"-D{key}={value}" for key, value in settings.items()]
    (folder / "job.py").write_text(JOB)
    return Program([*MILLSTREAM, "run", "--standby", *words, str(folder / "job.py")], folder)


def says(program: Program, text: str) -> None:
    until(lambda: text in program.errors or program.process.poll() is not None, 120)
    assert text in program.errors


def checkpoint(folder: Path) -> int:
    done = CliRunner().invoke(main, ["list", "--json", "--dir", str(folder / "checkpoints")])
    rows = json.loads(done.stdout)
    return -1 if not rows or rows[0]["checkpoint"] is None else rows[0]["checkpoint"]


def test_a_standby_takes_over_from_a_driver_whose_jvm_has_died(tmp_path: Path) -> None:
    with start(tmp_path) as first:
        says(first, "standby: leading, term 1")
        until(lambda: checkpoint(tmp_path) >= 1, 120)
        with start(tmp_path) as second:
            says(second, "standing by, leader is")
            says(second, "ready to take over")
            jvm = next(pid for pid, command in first.family().items() if "SparkSubmit" in command)
            before = checkpoint(tmp_path)
            os.kill(jvm, signal.SIGKILL)
            # Nothing runs in this process any more: that is no end of the job.
            assert first.end() == 1
            says(second, "standby: leading, term 2")
            until(lambda: checkpoint(tmp_path) > before + 2, 120)
            with start(tmp_path) as third:
                says(third, "standing by, leader is")
                done = CliRunner().invoke(
                    main, ["cancel", "standby", "--dir", str(tmp_path / "checkpoints")]
                )
                assert done.exit_code == 0, done.output
                assert (second.end(), third.end()) == (1, 1)
                assert "JOB_CANCELLED" in third.errors
