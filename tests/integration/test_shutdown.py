"""However a program ends, nothing of it runs on: no JVM, no Python worker, no file in the temporary folder."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.processes import MILLSTREAM, Program
from tests.waiting import eventually

pytestmark = pytest.mark.spark

ENDLESS = """
import os
import time
from pathlib import Path

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource


def pair(n):
    if n == BUSY_AT:
        Path("busy", os.environ["MILLSTREAM_TEST_MARK"]).touch()
        time.sleep(600)
    return n % 5, 1


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = DataGeneratorSource(pair, None, 100)
stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
stream.key_by(0).sum(1).print()
"""
IDLE = f"BUSY_AT = None\n{ENDLESS}\nenv.execute('endless')\n"
BUSY = f"BUSY_AT = 200\n{ENDLESS}\nenv.execute('endless')\n"
CANCELLING = f"""BUSY_AT = None\n{ENDLESS}
client = env.execute_async("endless")
while client.get_metrics() is None or client.get_metrics().epoch < 1:
    time.sleep(0.05)
client.cancel().result()
print("then", client.get_job_status().result().name)
"""

PYTHON, RUN = [sys.executable], [*MILLSTREAM, "run", "-Dspark.master=local[2]"]
# How long an ending may take; generous, for a machine that does other things too.
SECONDS = 90


@dataclass(frozen=True)
class Ending:
    command: list[str]
    text: str
    signal: int
    code: int


# Python ends itself with the signal if nobody catches KeyboardInterrupt; a shell shows that as 130, too.
ENDINGS = {
    "Ctrl-C in python": Ending(PYTHON, BUSY, signal.SIGINT, -signal.SIGINT),
    "Ctrl-C in millstream run": Ending(RUN, IDLE, signal.SIGINT, 130),
    "SIGTERM": Ending(RUN, IDLE, signal.SIGTERM, -signal.SIGTERM),
    "SIGKILL": Ending(PYTHON, BUSY, signal.SIGKILL, -signal.SIGKILL),
    "cancel and exit": Ending(PYTHON, CANCELLING, 0, 0),
}


@pytest.fixture
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Program]:
    """The program of one ending; one at a time, for each is a Spark of its own."""
    ending = ENDINGS[request.node.callspec.params["name"]]
    (tmp_path / "busy").mkdir()
    script = tmp_path / "job.py"
    script.write_text(ending.text)
    with Program([*ending.command, str(script)], tmp_path) as program:
        yield program


def said(errors: str) -> list[str]:
    """What was written to standard error, without what PySpark's daemon says of a worker whose task was cancelled."""
    lines = errors.splitlines()
    while "BrokenPipeError: [Errno 32] Broken pipe" in lines:
        end = lines.index("BrokenPipeError: [Errno 32] Broken pipe")
        assert all("daemon.py" in line for line in lines[end - 2 : end]), errors
        del lines[end - 3 : end + 1]
    return lines


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left(program: Program, name: str) -> None:
    ending = ENDINGS[name]
    if ending.text is BUSY:
        assert eventually((program.temporary.parent / "busy" / program.mark).exists, 200)
    else:
        program.wait_for("(0, 2)", 200)
    if ending.signal:
        family = " ".join(program.family().values())
        assert "slots.daemon" in family
        assert "java" in family
    before, started = len(program.errors), time.monotonic()
    if ending.signal == signal.SIGINT:
        # As a terminal does, to the whole group.
        os.killpg(program.process.pid, ending.signal)
    elif ending.signal:
        program.process.send_signal(ending.signal)
    assert program.end(SECONDS) == ending.code
    program.assert_gone(SECONDS - (time.monotonic() - started))
    assert list(program.temporary.iterdir()) == []

    words = said(program.errors[before:])
    if name == "Ctrl-C in python":
        assert words[0] == "Traceback (most recent call last):"
        assert words[-1].startswith(
            "KeyboardInterrupt: the job 'endless' is cancelled, and nothing"
        )
        assert sum("Traceback" in line for line in words) == 1
    elif name == "Ctrl-C in millstream run":
        (word,) = words
        assert word.startswith(
            "Interrupted: the job 'endless' is cancelled, and nothing of its state"
        )
    else:
        # A JVM that is told to end in the middle of a micro-batch may say so.
        dying = 'Exception in thread "stream execution thread'
        assert words == [] or (ending.signal and words[0].startswith(dying)), words
    if ending.text is CANCELLING:
        assert program.lines[-1] == "then CANCELED"


@pytest.mark.parametrize("seconds", [0.2, 3])
def test_ctrl_c_while_spark_starts(tmp_path: Path, seconds: float) -> None:
    script = tmp_path / "job.py"
    script.write_text(IDLE)
    with Program([*RUN, str(script)], tmp_path) as program:
        assert eventually(lambda: any("SparkSubmit" in c for c in program.family().values()), 60)
        time.sleep(seconds)
        os.killpg(program.process.pid, signal.SIGINT)
        assert program.end(SECONDS) == 130
        program.assert_gone(SECONDS)
        # Java itself says a word of its incubator.
        assert [w for w in program.errors.splitlines() if "WARNING" not in w] == ["Interrupted."]
