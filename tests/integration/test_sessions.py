"""Sessions on a real Spark: jobs side by side in one JVM, killed, failing, with modules of the same names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import MARK, MILLSTREAM, Program, quick_environment
from tests.waiting import eventually, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNTING = """
import os, sys
from millstream.common import Encoder, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink
import helpers

name, folder = sys.argv[1], sys.argv[2]
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
numbers = DataGeneratorSource(lambda n: n, None, 400.0)
counts = (
    env.from_source(numbers, WatermarkStrategy.no_watermarks(), "n")
    .map(lambda n: helpers.work(n, folder))
    .key_by(lambda pair: pair[0])
    .sum(1)
)
sink = FileSink.for_row_format(folder + "/out", Encoder.simple_string_encoder()).build()
counts.map(lambda pair: f"{helpers.NAME} {pair[0]} {pair[1]}").sink_to(sink)
env.execute(name)
"""
HELPERS = """
import os

NAME = {name!r}

def work(n, folder):
    if os.path.exists(folder + "/now"):
        {fault}
    return (n % 7, 1)
"""
FRAMES = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(3).createOrReplaceTempView("mine")
print("rows", spark.sql("select count(*) from mine").collect()[0][0])
spark.stop()
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["after stop"]).print()
env.execute("frames")
"""


class OnSpark:
    """A session with a Spark, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "s"
        self.environment = {"MILLSTREAM_SESSIONS_DIR": str(self.place)}
        command = [*MILLSTREAM, "session", "start", "-Dspark.master=local[2,3]", "-Drest.port=0"]
        self.program = Program(command, folder, **self.environment)
        self.program.wait_for("is ready", 300)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MILLSTREAM, *words],
            cwd=self.folder,
            # The processes of jobs have the caller's environment, and so the mark.
            env=quick_environment(**self.environment, **{MARK: self.program.mark}),
            capture_output=True,
            text=True,
            timeout=120,
        )

    def submit(self, *words: str) -> str:
        done = self.run("run", "-d", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split()[-1]

    def jobs(self) -> dict[str, dict[str, Any]]:
        done = self.run("list", "--json")
        assert done.returncode == 0, done.stderr
        return {job["name"]: job for job in json.loads(done.stdout)}

    def until_status(self, name: str, *statuses: str) -> dict[str, Any]:
        until(lambda: self.jobs()[name]["status"] in statuses, 200, saying=self.jobs)
        return self.jobs()[name]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnSpark]:
    session = OnSpark(tmp_path_factory.mktemp("sessions"))
    with session.program:
        yield session
        assert session.run("session", "stop").returncode == 0
        assert session.program.end() == 0
        session.program.assert_gone()
        # What was temporary is gone with it, and so is its socket.
        assert eventually(lambda: not list(session.program.temporary.glob("millstream-*")), 30)
        assert not (session.place / "default" / "socket").exists()


def counting(session: OnSpark, name: str, fault: str = "pass") -> Path:
    """Start a job that counts; its folder."""
    place = session.folder / name
    place.mkdir()
    (place / "job.py").write_text(COUNTING)
    (place / "helpers.py").write_text(HELPERS.format(name=name, fault=fault))
    session.submit(
        f"-Dexecution.checkpointing.dir={session.folder / 'checkpoints'}",
        "-Dexecution.checkpointing.interval=500 ms",
        "-Drestart-strategy.type=none",
        str(place / "job.py"),
        name,
        str(place),
    )
    return place


def process_of(session: OnSpark, name: str) -> int:
    submission = session.jobs()[name]["submission"]
    for pid in session.program.family():
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if b"MILLSTREAM_JOB_FOLDER=" in environment and submission.encode() in environment:
            return pid
    raise AssertionError(f"no process has {name}")


def results(place: Path) -> dict[str, list[int]]:
    """What a job has committed, by key."""
    found: dict[str, list[int]] = {}
    for file in (place / "out").rglob("*"):
        if file.is_file() and not file.name.startswith((".", "_")):
            for line in file.read_text().splitlines():
                name, key, count = line.rsplit(" ", 2)
                assert name == place.name
                found.setdefault(key, []).append(int(count))
    return found


def test_three_of_five_fail_and_the_others_are_exact(session: OnSpark) -> None:
    places = {
        name: counting(session, name, fault)
        for name, fault in {
            "first": "pass",
            "killed": "pass",
            "raising": "raise ValueError('as told')",
            "exiting": "os._exit(3)",
            "second": "pass",
        }.items()
    }

    def all_have_checkpoints() -> bool:
        return all(job["checkpoint"] >= 1 for job in session.jobs().values())

    until(all_have_checkpoints, 200, saying=session.jobs)
    (places["raising"] / "now").touch()
    (places["exiting"] / "now").touch()
    os.kill(process_of(session, "killed"), signal.SIGKILL)
    assert "SIGKILL" in session.until_status("killed", "FAILED")["error"]
    raised = session.until_status("raising", "FAILED")["error"]
    assert "ValueError: as told" in raised
    # The user's own file, not the copy that has run.
    assert str(places["raising"] / "helpers.py") in raised
    session.until_status("exiting", "FAILED")
    before = {name: session.jobs()[name]["checkpoint"] for name in ("first", "second")}
    for name in before:
        until(lambda name=name: session.jobs()[name]["checkpoint"] > before[name] + 1, 200)
        stopped = session.run("stop", name, "-p", "savepoints")
        assert stopped.returncode == 0, stopped.stderr
    for name, place in places.items():
        counts = results(place)
        assert len(counts) == 7, name
        for found in counts.values():
            assert Counter(found) == Counter(range(1, len(found) + 1)), name


def test_the_killed_job_goes_on_where_it_was(session: OnSpark) -> None:
    place = counting(session, "again")
    until(lambda: session.jobs()["again"]["checkpoint"] >= 1, 200)
    os.kill(process_of(session, "again"), signal.SIGKILL)
    session.until_status("again", "FAILED")
    session.submit(
        f"-Dexecution.checkpointing.dir={session.folder / 'checkpoints'}",
        "-Dexecution.checkpointing.interval=500 ms",
        str(place / "job.py"),
        "again",
        str(place),
    )
    session.until_status("again", "RUNNING")
    records = session.jobs()["again"]["checkpoint"]
    until(lambda: session.jobs()["again"]["checkpoint"] > records, 200)
    assert session.run("stop", "again", "-p", "savepoints").returncode == 0
    for found in results(place).values():
        assert Counter(found) == Counter(range(1, len(found) + 1))


def test_a_program_cannot_stop_everybodys_spark(session: OnSpark) -> None:
    (session.folder / "frames.py").write_text(FRAMES)
    session.submit("frames.py")
    session.until_status("frames", "FINISHED")
    log = session.run("logs", "frames").stdout
    assert "rows 3" in log
    assert "after stop" in log
    assert "belongs to the session" in log


def test_nothing_is_left_of_jobs_that_have_ended(session: OnSpark) -> None:
    for name in list(session.jobs()):
        if session.jobs()[name]["status"] == "RUNNING":
            session.run("cancel", name)
    until(lambda: all(j["status"] != "RUNNING" for j in session.jobs().values()))
    assert not [line for line in session.program.family().values() if "attached" in line]
    (temporary,) = session.program.temporary.glob("millstream-session-*")
    assert eventually(lambda: not any(temporary.iterdir()), 30), list(temporary.rglob("*"))
    state = session.place / "default"
    assert not any((state / "programs").iterdir())
    assert not any((state / "packages").iterdir())
    assert not any((state / "submitted").iterdir())
