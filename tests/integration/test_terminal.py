"""What `millstream run` shows on a terminal while a job runs."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.processes import MILLSTREAM, quick_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

PACED = """
from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda n: n, 300, 100)
stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
stream.filter(lambda n: n == 299).print()
env.execute("paced")
"""


def script(folder: Path) -> str:
    path = folder / "paced.py"
    path.write_text(PACED)
    return str(path)


def on_a_terminal(*arguments: str, piped: bool = False) -> tuple[str, str]:
    """What a command shows on a terminal, and what it writes into a pipe if its output goes to one."""
    ours, theirs = pty.openpty()
    environment = quick_environment(TERM="xterm", COLUMNS="120")
    shown, written = b"", ""
    with subprocess.Popen(
        [*MILLSTREAM, *arguments],
        stdout=subprocess.PIPE if piped else theirs,
        stderr=theirs,
        env=environment,
        text=True,
    ) as process:
        os.close(theirs)
        # The terminal is gone when the last process has closed it; Linux calls that an error.
        with contextlib.suppress(OSError):
            while data := os.read(ours, 4096):
                shown += data
        if process.stdout is not None:
            written = process.stdout.read()
        assert process.wait(60) == 0
    os.close(ours)
    return shown.decode(), written


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    text, _ = on_a_terminal("run", "-Dspark.master=local[2]", script(tmp_path))
    assert "paced: starting" in text
    assert re.search(r"paced: epoch [0-9]+, [0-9]+ records, [0-9,]+/s", text)
    assert re.search(r"paced: epoch [0-9]+, 300 records, [0-9,]+/s, [0-9.]+ s", text)
    # Results and progress share the terminal, each on lines of its own.
    assert re.search(r"(\x1b\[2K|\n)299\r\n", text), text


def test_results_in_a_pipe_and_progress_on_the_terminal(tmp_path: Path) -> None:
    here = "-Dexecution.target=in-process"
    text, written = on_a_terminal("run", here, script(tmp_path), piped=True)
    assert "paced: epoch" in text
    assert written == "299\n"
