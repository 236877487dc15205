"""A job that fails on Spark is replayed without it, by the command that its error names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.integration.processes import MILLSTREAM, ROOT, quick_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import sys

from millstream.common import Types
from millstream.common.configuration import Configuration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.state import ValueStateDescriptor


class Balance(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        account, amount = value.split()
        total = (self.total.value() or 0) + int(amount)
        self.total.update(total)
        yield account, total


config = Configuration()
config.set_string("execution.checkpointing.dir", "checkpoints")
config.set_string("execution.checkpointing.num-retained", "10")
config.set_string("millstream.epoch.records", "40")
env = StreamExecutionEnvironment.get_execution_environment(config)
source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), sys.argv[1]).build()
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").uid("lines")
lines.key_by(lambda line: line[0]).process(Balance()).uid("balance").print().uid("out")
env.execute("balances")
"""


def run(folder: Path, *words: str, keys: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLSTREAM, *words],
        cwd=folder,
        env=quick_environment(PYTHONPATH=str(ROOT), NO_COLOR="1"),
        input=keys,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_job_that_failed_on_spark(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    # Positions in a file are bytes, 40 of them an epoch: the bad line is in a later one.
    lines = [f"{'ab'[n % 2]} {n}" for n in range(30)]
    (tmp_path / "lines.txt").write_text("\n".join([*lines[:20], "a many", *lines[20:]]) + "\n")
    done = run(tmp_path, "run", "-p", "2", "-Dspark.master=local[2]", "job.py", "lines.txt")
    assert done.returncode == 1
    found = re.search(r"^  replay: (millstream replay .*)$", done.stderr, re.MULTILINE)
    assert found is not None, done.stderr
    command = shlex.split(found[1])[1:]
    assert command[:3] == ["replay", "-Dspark.master=local[2]", "-Dparallelism.default=2"]
    assert command[-2:] == ["--", "lines.txt"]
    epoch = int(command[command.index("--epoch") + 1])
    assert epoch > 0

    at = command.index("--")
    again = run(tmp_path, *command[:at], "--pdb", *command[at:], keys="p account, amount\nq\n")
    assert again.returncode == 1
    assert f"epoch {epoch} of 'balances', which goes on from checkpoint {epoch - 1}" in again.stdout
    assert "the epoch fails" in again.stdout
    assert f"> {tmp_path}{os.sep}job.py(" in again.stdout
    assert "(Pdb) ('a', 'many')" in again.stdout
    assert "record: 'a many'" in again.stderr

    # What Spark has completed does the same without it.
    before = run(tmp_path, *command[:3], "job.py", "--epoch", str(epoch - 1), *command[at:])
    assert before.returncode == 0, before.stderr
    assert before.stdout.rstrip().endswith("the same state changes as the first run")
