"""Sessions that stand by for each other, without Spark: one is elected, and goes on with what another has left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager

import pytest

from millstream.errors import ConfigurationError
from tests.sessions import COUNTING, IN_PROCESS, SHORT, InThread, in_folder, millstream
from tests.waiting import eventually, until

pytestmark = pytest.mark.timeout(180)

# Writes each number once, wherever it was interrupted.
NUMBERS = """
import sys
from millstream.common import WatermarkStrategy
from millstream.common.serialization import Encoder
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()
numbers = DataGeneratorSource(lambda n: n, 3000, 500.0)
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build()
env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").sink_to(sink)
env.execute("numbers")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    programs = {"short.py": SHORT, "counting.py": COUNTING, "each_once.py": NUMBERS}
    return in_folder(tmp_path, monkeypatch, programs)


def keys(folder):
    return {
        "high-availability.type": "file",
        "high-availability.storageDir": str(folder / "shared"),
        "millstream.high-availability.lease-timeout": "1 s",
    }


def checkpoints(folder):
    return (
        f"-Dexecution.checkpointing.dir={folder / 'c'}",
        "-Dexecution.checkpointing.interval=50 ms",
    )


@contextmanager
def in_a_process(folder, name):
    """A session that can be killed and paused."""
    settings = [f"-D{key}={value}" for key, value in keys(folder).items()]
    command = [sys.executable, "-m", "millstream", "session", "start", "--name", name]
    process = subprocess.Popen(
        [*command, IN_PROCESS, "-Drest.port=0", *settings], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        process.stdout.close()


def submit(session, *words):
    done = millstream("run", "-d", "--session", session, IN_PROCESS, *words)
    assert done.exit_code == 0, done.output
    return done


def written(folder):
    found = Counter()
    for path in (folder / "out").rglob("*"):
        if path.is_file() and not path.name.startswith((".", "_")):
            found.update(int(line) for line in path.read_text().split())
    return found


def jobs(name):
    done = millstream("list", "--session", name, "--json")
    return {job["name"]: job for job in json.loads(done.stdout)} if done.exit_code == 0 else {}


def test_the_jobs_of_a_session_that_is_killed_go_on_in_another(folder):
    with in_a_process(folder, "first") as first, InThread("second", keys=keys(folder)) as second:
        assert second.facts.standing_by is not None
        assert str(first.pid) in second.facts.standing_by
        states = {row["name"]: row["state"] for row in session_list()}
        assert states == {"first": "running", "second": "standing by"}
        refused = millstream("run", "-d", "--session", "second", IN_PROCESS, "short.py")
        assert refused.exit_code == 1
        assert "the session 'second' stands by for another" in refused.stderr
        assert f"leader: {second.facts.standing_by}" in refused.stderr
        submit("first", *checkpoints(folder), "each_once.py", str(folder / "out"))
        until(lambda: jobs("first")["numbers"]["checkpoint"] > 3)
        id_ = jobs("first")["numbers"]["id"]
        first.kill()
        first.wait()
        until(lambda: "numbers" in jobs("second"))
        assert second.until_status("numbers", "FINISHED")["id"] == id_
        assert "numbers  FINISHED" in millstream("history", "--session", "second").output
    # Also when the sessions are gone, of whichever it was.
    assert "numbers  FINISHED" in millstream("history", "--session", "first").output
    assert written(folder) == Counter(range(3000))


def session_list():
    return json.loads(millstream("session", "list", "--json").stdout)


def test_a_session_that_was_paused_ends_what_it_runs(folder):
    with in_a_process(folder, "first") as first, InThread("second", keys=keys(folder)) as second:
        submit("first", *checkpoints(folder), "each_once.py", str(folder / "out"))
        until(lambda: jobs("first")["numbers"]["checkpoint"] > 3)
        os.kill(first.pid, signal.SIGSTOP)
        # Its job runs on: that of the second waits.
        until(lambda: any("is started again" in text for text in second.said))
        log = second.folder.logs
        until(lambda: any("standing by" in path.read_text() for path in log.iterdir()))
        os.kill(first.pid, signal.SIGCONT)
        until(lambda: any(row["state"] == "standing by" for row in session_list()))
        second.until_status("numbers", "FINISHED")
        assert written(folder) == Counter(range(3000))
        # It stands by again, and takes over in its turn.
        second._session.end()
        second.wait()
        until(lambda: jobs("first").get("numbers", {}).get("status") == "FINISHED")


def test_who_leaves_leaves_the_jobs_to_others_and_who_is_stopped_does_not(folder):
    with InThread("first", keys=keys(folder)) as first:
        submit("first", *checkpoints(folder), "counting.py", "counting")
        until(lambda: first.jobs()["counting"]["checkpoint"] > 3)
        reached = first.jobs()["counting"]["checkpoint"]
    assert not any("is cancelled" in text for text in first.said)
    with InThread("second", keys=keys(folder)) as second:
        until(lambda: second.jobs().get("counting", {}).get("checkpoint", -1) > reached)
        assert millstream("session", "stop", "second").exit_code == 0
        second.wait()
    assert any("is cancelled" in text for text in second.said)
    with InThread("first", keys=keys(folder)) as first:
        assert first.jobs()["counting"]["status"] == "CANCELED"


def test_jobs_that_nobody_could_go_on_with_run_all_the_same(folder):
    with InThread("first", keys=keys(folder)) as first:
        submit("first", "short.py", "without checkpoints")
        first.until_status("without checkpoints", "FINISHED")
        submit("first", *checkpoints(folder), "-Dexecution.runtime-mode=BATCH", "short.py", "batch")
        first.until_status("batch", "FINISHED")


def test_a_job_that_runs_is_not_run_twice(folder):
    with InThread("first", keys=keys(folder)):
        submit("first", *checkpoints(folder), "counting.py", "counting")
        words = (*checkpoints(folder), "counting.py", "counting")
        done = millstream("run", "-d", "--session", "first", IN_PROCESS, *words)
        assert done.exit_code == 1
        assert "is running already" in done.stderr


def test_sessions_that_share_nothing_cannot_stand_by(folder):
    settings = {"millstream.high-availability.standby": "true"}
    with (
        pytest.raises(ConfigurationError, match="need a folder that all of them can see"),
        InThread("first", keys=settings),
    ):
        pass


def test_an_engine_that_dies_while_its_session_stands_by(folder):
    from tests.inprocess.test_sessions import Dying

    engine = Dying()
    with in_a_process(folder, "first"), InThread("second", engine, keys=keys(folder)) as second:
        engine.lives = False
        second.wait()
        assert "has died" in str(second.error)


def test_a_session_that_stands_by_is_stopped(folder):
    with in_a_process(folder, "first"), in_the_background(folder, "second"):
        done = millstream("session", "stop", "--name", "second")
        assert done.exit_code == 0, done.output
        assert "which stood by, has ended" in done.output
        assert {row["name"]: row["state"] for row in session_list()}["second"] == "stopped"


@contextmanager
def in_the_background(folder, name):
    settings = [f"-D{key}={value}" for key, value in keys(folder).items()]
    words = ("session", "start", "-d", "--name", name, IN_PROCESS, "-Drest.port=0", *settings)
    done = millstream(*words)
    assert done.exit_code == 0, done.output
    assert f"The session '{name}' stands by" in done.output
    try:
        yield
    finally:
        millstream("session", "stop", "--name", name)


def test_nobody_leads_in_a_folder_that_is_not_the_one_that_it_was(folder):
    with in_a_process(folder, "first") as first, InThread("second", keys=keys(folder)):
        submit("first", *checkpoints(folder), "each_once.py", str(folder / "out"))
        until(lambda: jobs("first")["numbers"]["checkpoint"] > 3)
        (folder / "shared").rename(folder / "away")
        first.kill()
        first.wait()
        # Long enough for somebody who would take over.
        assert not eventually(lambda: jobs("second"), 4)
        shutil.rmtree(folder / "shared", ignore_errors=True)
        (folder / "away").rename(folder / "shared")
        until(lambda: jobs("second").get("numbers", {}).get("status") == "FINISHED")
    assert written(folder) == Counter(range(3000))


def test_a_program_whose_folder_is_gone_is_not_run_elsewhere(folder, caplog):
    place = folder / "place"
    place.mkdir()
    with in_a_process(folder, "first") as first, InThread("second", keys=keys(folder)) as second:
        with contextlib.chdir(place):
            words = ("-Dexecution.checkpointing.dir=c", "-Dexecution.checkpointing.interval=50 ms")
            submit("first", *words, str(folder / "each_once.py"), "out")
        until(lambda: jobs("first")["numbers"]["checkpoint"] > 3)
        place.rename(folder / "elsewhere")
        first.kill()
        first.wait()
        until(lambda: "is not here" in caplog.text)
        assert not second.jobs()
        # Once it is there again a session that begins to lead goes on.
        (folder / "elsewhere").rename(place)
    with InThread("third", keys=keys(folder)) as third:
        third.until_status("numbers", "FINISHED")
    (folder / "out").symlink_to(place / "out")
    assert written(folder) == Counter(range(3000))


def test_what_was_an_upgrade_is_not_one_again(folder):
    with in_a_process(folder, "first") as first, InThread("second", keys=keys(folder)) as second:
        submit("first", *checkpoints(folder), "counting.py", "counting")
        until(lambda: jobs("first")["counting"]["checkpoint"] > 3)
        submit("first", *checkpoints(folder), "--upgrade", "counting.py", "counting")
        first.kill()
        first.wait()
        until(lambda: jobs("second").get("counting", {}).get("status") == "RUNNING")
        said = "".join(log.read_text() for log in second.folder.logs.iterdir())
        assert "hand over" not in said
        assert "ordinary start" not in said
