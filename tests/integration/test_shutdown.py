"""However a job is ended, its call returns and nothing of it runs on."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.common import WatermarkStrategy
from millstream.common.job_status import JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from tests.integration.processes import MILLSTREAM, Program, eventually

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
WAITING = f"BUSY_AT = None\n{ENDLESS}\nenv.execute('endless')\n"
BUSY = f"BUSY_AT = 200\n{ENDLESS}\nenv.execute('endless')\n"
CANCELLING = f"""BUSY_AT = None\n{ENDLESS}
client = env.execute_async("endless")
while client.get_metrics() is None or client.get_metrics().epoch < 1:
    time.sleep(0.05)
client.cancel().result()
print("then", client.get_job_status().result().name)
"""

PYTHON, RUN = [sys.executable], [*MILLSTREAM, "run", "-Dspark.master=local[2]"]
# name: command, program, signal, exit code. Python ends itself with the signal if nobody catches KeyboardInterrupt;
# a shell shows that as 130, too.
ENDINGS: dict[str, tuple[list[str], str, int, int]] = {
    "Ctrl-C in python": (PYTHON, BUSY, signal.SIGINT, -signal.SIGINT),
    "Ctrl-C in millstream run": (RUN, WAITING, signal.SIGINT, 130),
    "SIGTERM": (RUN, WAITING, signal.SIGTERM, -signal.SIGTERM),
    "SIGKILL": (PYTHON, BUSY, signal.SIGKILL, -signal.SIGKILL),
    "cancel and exit": (PYTHON, CANCELLING, 0, 0),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Program]]:
    """All of them start at once: they spend most of that time waiting for each other's Java."""
    folder = tmp_path_factory.mktemp("shutdown")
    (folder / "busy").mkdir()
    started: dict[str, Program] = {}
    try:
        for number, (name, (command, text, _, _)) in enumerate(ENDINGS.items()):
            script = folder / f"job{number}.py"
            script.write_text(text)
            started[name] = Program([*command, str(script)], folder)
        yield started
    finally:
        for program in started.values():
            program.__exit__()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left(programs: dict[str, Program], name: str) -> None:
    program, (_, text, number, code) = programs[name], ENDINGS[name]
    if text is BUSY:
        assert eventually((program.temporary.parent / "busy" / program.mark).exists, 200)
    else:
        program.wait_for("(0, 2)", 200)
    family = " ".join(program.family().values())
    if number:
        assert "pyspark.daemon" in family
        assert "java" in family
    before = len(program.errors)
    started = time.monotonic()
    if number == signal.SIGINT:
        # As a terminal does, to the whole group.
        os.killpg(program.process.pid, number)
    elif number:
        program.process.send_signal(number)
    assert program.end(30) == code
    program.assert_gone(30 - (time.monotonic() - started))
    assert list(program.temporary.iterdir()) == []

    noise = program.errors[before:].splitlines()
    if name == "Ctrl-C in python":
        assert noise[0] == "Traceback (most recent call last):"
        assert noise[-1] == "KeyboardInterrupt"
        assert sum("Traceback" in line for line in noise) == 1
    elif name == "Ctrl-C in millstream run":
        assert noise == ["Interrupted."]
    elif name == "cancel and exit":
        assert program.lines[-1] == "then CANCELED"
    else:
        assert noise == []


# -- in one session -------------------------------------------------------------------------------------


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


def runs(pid: int) -> bool:
    try:
        # A killed worker may stay in the table for a moment.
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("options", [{}, {"millstream.epoch.records": "1"}], ids=["once", "epochs"])
def test_cancel_a_busy_function(make_env: Any, tmp_path: Path, options: dict[str, str]) -> None:
    env = make_env(options=options)
    env.from_collection([1, 2]).map(Busy(tmp_path)).print()
    client = env.execute_async("busy")
    assert eventually(lambda: list(tmp_path.iterdir()), 60)
    started = time.monotonic()
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert time.monotonic() - started < 15
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert eventually(lambda: not any(map(runs, pids)), 15), pids


@pytest.mark.parametrize("options", [{}, {"millstream.epoch.records": "1"}], ids=["once", "epochs"])
def test_cancel_at_any_moment(make_env: Any, tmp_path: Path, options: dict[str, str]) -> None:
    for delay in (0, 0.01, 0.05, 0.2, 0.4):
        env = make_env(options=options)
        env.from_collection([1]).map(Busy(tmp_path)).print()
        client = env.execute_async("busy")
        threading.Event().wait(delay)
        started = time.monotonic()
        client.cancel().result()
        assert client.get_job_status().result() is JobStatus.CANCELED
        assert time.monotonic() - started < 15


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
    endless.cancel().result()
    for client in clients:
        client.get_job_execution_result().result()
        assert client.get_job_status().result() is JobStatus.FINISHED
    assert endless.get_job_status().result() is JobStatus.CANCELED
    lines = capfd.readouterr().out.splitlines()
    for name in ("a", "b"):
        found = [line.partition("> ")[2] for line in lines if line.startswith(f"{name}:")]
        assert sorted(found) == sorted(f"({key}, {n})" for key in range(3) for n in range(1, 101))
