"""Sessions without Spark: programs in processes of their own, what becomes of them, and of the session."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from millstream.cli.session_option import submit
from millstream.errors import ConfigurationError, SessionError
from millstream.session import server as server_module
from millstream.session.client import SessionClient
from millstream.session.engine import NoEngine
from millstream.session.programs import pack
from tests.sessions import COUNTING, IN_PROCESS, SHORT, InThread, ask, in_folder, millstream
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)

WAITS = """
import os, sys
from tests.waiting import until

open(sys.argv[1], "w").close()
until(lambda: False, 100)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    programs = {"short.py": SHORT, "counting.py": COUNTING, "waits.py": WAITS}
    return in_folder(tmp_path, monkeypatch, programs)


@pytest.fixture
def session(folder):
    with InThread() as session:
        yield session


def gone(pid):
    return not Path(f"/proc/{pid}").exists()


def process_of(session, name):
    """The process of a job of a session in this process."""
    id_ = session.jobs()[name]["submission"]
    mark = f"/{id_}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if b"MILLSTREAM_JOB_FOLDER=" in environment and mark in environment:
                return int(entry.name)
    raise AssertionError(name)


# -- programs --------------------------------------------------------------------------------------------


def test_a_job_is_submitted_runs_and_is_remembered(session, folder):
    id_ = session.submit(folder / "short.py", "a job")
    job = session.until_status("a job", "FINISHED")
    assert job["id"] == id_
    assert job["records"] == 3
    logs = millstream("logs", "a job")
    until(lambda: "the program has ended" in millstream("logs", id_[:8]).output)
    assert "10\n" in logs.output
    assert "FINISHED" in millstream("history").output
    # Nothing is left of it but that, once the session has put its things away, one after the other.
    for kept in (
        session.folder.path / "submitted",
        session.folder.path / "packages",
        session.folder.programs,
    ):
        until(lambda kept=kept: not any(kept.iterdir()))


def test_programs_run_where_the_session_does(folder):
    with InThread(execution_target="in-process") as session:
        done = millstream("run", "-d", "short.py", "as it is")
        assert done.exit_code == 0, done.output
        session.until_status("as it is", "FINISHED")
        assert "Spark" not in millstream("logs", "as it is").output


def test_the_callers_files_may_vanish(session, folder, tmp_path):
    place = tmp_path / "program"
    place.mkdir()
    (place / "later.py").write_text("text = 'it was here'")
    (place / "job.py").write_text(
        SHORT + "from tests.waiting import until\nimport os\n"
        f"until(lambda: os.path.exists({str(tmp_path / 'go')!r}))\nimport later\nprint(later.text)\n"
    )
    session.submit(place / "job.py", "vanishing")
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    (tmp_path / "go").touch()
    until(lambda: "it was here" in millstream("logs", "vanishing").output)


def test_arguments_and_environment_are_the_callers(session, folder, monkeypatch):
    (folder / "shows.py").write_text(
        "import os, sys\nprint(len(sys.argv[2]), os.environ['OF_THE_CALLER'], os.getcwd())\n"
        + SHORT
    )
    monkeypatch.setenv("OF_THE_CALLER", "yes\nand more")
    session.submit(folder / "shows.py", "shows", "x" * 300_000)
    until(lambda: "300000 yes\nand more " + str(folder) in millstream("logs", "shows").output)


def test_several_jobs_of_one_program(session, folder):
    (folder / "two.py").write_text(
        SHORT + "env.from_collection([1]).print()\nenv.execute('second')\n"
    )
    session.submit(folder / "two.py", "first")
    session.until_status("second", "FINISHED")
    assert session.jobs()["first"]["submission"] == session.jobs()["second"]["submission"]


def test_a_program_that_does_not_wait_for_its_job(session, folder):
    (folder / "async.py").write_text(COUNTING.replace("env.execute(", "env.execute_async("))
    session.submit(folder / "async.py", "async")
    until(lambda: session.jobs()["async"]["records"] > 100)
    assert millstream("cancel", "async").exit_code == 0
    session.until_status("async", "CANCELED")


def test_names_with_odd_characters(session, folder):
    name = "Ström \"'$x\n4f2a"
    session.submit(folder / "counting.py", name)
    lines = [line for line in millstream("list").output.splitlines() if "4f2a" in line]
    assert len(lines) == 1
    assert millstream("cancel", name).exit_code == 0


# -- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f():\n    raise ValueError('too early')\nf()", "ValueError: too early"),
        ("print('hello')", "EMPTY_PROGRAM"),
        ("import sys\nsys.exit(3)", "exit code 3"),
        ("import sys\nsys.exit('no input')", "no input"),
        ("import os\nos._exit(0)", "exit code 0, without a word"),
        ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
        ("x = ", "SyntaxError"),
    ],
)
def test_a_program_that_comes_to_no_job(session, folder, text, said):
    (folder / "bad.py").write_text(text)
    done = millstream("run", "-d", IN_PROCESS, "bad.py")
    assert done.exit_code == 1
    assert said in done.stderr
    assert "millstream logs" in done.stderr
    # The caller's own file, not the copy.
    assert str(session.folder.programs) not in done.stderr
    assert [job["status"] for job in session.jobs().values()] == ["FAILED"]
    assert millstream("logs", done.stderr.split()[-1]).exit_code == 0


def test_a_job_that_fails_is_told_of_as_in_the_foreground(session, folder):
    (folder / "divide.py").write_text(SHORT.replace("n * 10", "1 // (n - 1)"))
    done = millstream("run", "-d", IN_PROCESS, "divide.py")
    job = session.until_status("short", "FAILED")
    assert "USER_FUNCTION_FAILED" in job["error"]
    assert f"{folder / 'divide.py'}:6" in job["error"]
    # It may have failed before or after it was known to run.
    assert done.exit_code in (0, 1)


def test_a_name_is_taken(session, folder):
    checkpoints = f"-Dexecution.checkpointing.dir={folder / 'c'}"
    first = millstream("run", "-d", IN_PROCESS, checkpoints, "counting.py", "same")
    assert first.exit_code == 0, first.output
    second = millstream("run", "-d", IN_PROCESS, checkpoints, "counting.py", "same")
    assert second.exit_code == 1
    assert "JOB_LOCKED" in second.stderr
    records = session.jobs()["same"]["records"]
    running = json.loads(millstream("list", "--json").stdout)
    assert [job["status"] for job in running] == ["FAILED", "RUNNING"]
    until(lambda: next(j for j in json.loads(millstream("list", "--json").stdout)
                       if j["status"] == "RUNNING")["records"] > records)  # fmt: skip


def test_a_program_that_may_not_take_over_is_told_why_and_ends(session, folder):
    kept = ("-Dexecution.checkpointing.dir=ck", "-Dexecution.checkpointing.interval=100 ms")
    first = millstream("run", "-d", IN_PROCESS, *kept, "counting.py", "job")
    assert first.exit_code == 0, first.output
    until(lambda: session.jobs()["job"]["checkpoint"] >= 1)
    changed = COUNTING.replace(".key_by(lambda p: p[0]).sum(1)", "")
    (folder / "changed.py").write_text(changed)
    done = millstream("run", "-d", "--upgrade", IN_PROCESS, *kept, "changed.py", "job")
    assert done.exit_code == 1
    assert "STATE_MISMATCH" in done.output
    assert "upgrade: not done; the running job goes on" in done.output
    (ended,) = json.loads(millstream("history", "--json").stdout)
    assert ended["status"] == "FAILED"
    assert "STATE_MISMATCH" in ended["error"]
    assert millstream("cancel", first.output.split()[-1]).exit_code == 0


def test_a_job_that_is_refused_at_its_start(session, folder):
    done = millstream("run", "-d", IN_PROCESS, "-Dscheduler-mode=reactive", "counting.py", "job")
    assert done.exit_code == 1
    assert "reactive" in done.output
    assert session.until_status("job", "FAILED")["error"] in done.output


def test_arguments_that_are_no_text(session, folder):
    """Bytes that are not of the charset come from Python as surrogates."""
    for words in (("run", "-d", IN_PROCESS, "short.py", "caf\udce9"), ("cancel", "caf\udce9")):
        done = millstream(*words)
        assert done.exit_code == 1
        assert done.output.startswith("[SESSION_FAILED] what is sent to a session has to be text")
        assert "caf\\udce9" in done.output
    assert not session.jobs()


def test_one_that_is_killed_does_not_touch_another(session, folder):
    session.submit(folder / "counting.py", "victim")
    session.submit(folder / "counting.py", "other")
    pid = process_of(session, "victim")
    os.kill(pid, signal.SIGKILL)
    job = session.until_status("victim", "FAILED")
    assert "SIGKILL" in job["error"]
    before = session.jobs()["other"]["records"]
    until(lambda: session.jobs()["other"]["records"] > before + 200)


def test_a_process_that_does_not_hear_is_ended_by_force(session, folder, monkeypatch):
    monkeypatch.setattr("millstream.session.dispatcher._FORCE_AFTER", 1.0)
    session.submit(folder / "counting.py", "deaf")
    pid = process_of(session, "deaf")
    os.kill(pid, signal.SIGSTOP)
    assert millstream("cancel", "deaf").exit_code == 0
    session.until_status("deaf", "CANCELED")
    assert gone(pid)


def test_a_client_that_goes_takes_its_program_along(session, folder):
    packed = pack(script="waits.py", module=None, arguments=(str(folder / "began"),))
    client = SessionClient("default")
    channel = client._connect()
    channel.send({"do": "submit", "program": packed.program, "bytes": len(packed.package)})
    channel.connection.sendall(packed.package)
    until((folder / "began").exists)
    assert len(session.jobs()) == 1
    channel.close()
    until(lambda: [job["status"] for job in session.jobs().values()] == ["CANCELED"])


def test_a_client_that_goes_in_the_middle_of_its_program(session, folder):
    channel = SessionClient("default")._connect()
    channel.send({"do": "submit", "program": {"name": "x"}, "bytes": 1000})
    channel.connection.sendall(b"half")
    channel.close()
    session.submit(folder / "short.py")
    session.until_status("short", "FINISHED")
    assert list(session.jobs()) == ["short"]


def test_several_clients_at_once(session, folder):
    names, done = ("one", "two", "three"), []

    def run(name):
        packed = pack(
            script="short.py",
            module=None,
            arguments=(name,),
            overrides={"execution.target": "in-process"},
        )
        done.append(SessionClient("default").submit(packed)["job"])

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 3
    assert {session.until_status(name, "FINISHED")["id"] for name in names} == set(done)


def test_only_its_user_is_answered(session, folder, monkeypatch):
    assert os.stat(session.folder.socket).st_mode & 0o777 == 0o600
    monkeypatch.setattr(server_module, "peer_uid", lambda connection: os.geteuid() + 1)
    with pytest.raises(SessionError, match="has not answered"):
        SessionClient("default").ask("status")


@pytest.mark.parametrize("sent", [b"nonsense\n", b"[1]\n", b'{"do": "dance"}\n', b"\xff\n", b"x"])
def test_nonsense_harms_nobody(session, sent):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(session.folder.socket))
        connection.sendall(sent)
    assert SessionClient("default").ask("status")["jobs"] == 0


# -- asking ----------------------------------------------------------------------------------------------


def test_savepoint_stop_and_go_on(session, folder):
    session.submit(folder / "counting.py", "counting")
    taken = millstream("savepoint", "trigger", "counting", "savepoints")
    assert taken.exit_code == 0, taken.output
    # The path is the caller's.
    assert f"Savepoint completed. Path: {folder / 'savepoints'}" in taken.output
    stopped = millstream("stop", "counting", "-p", "savepoints")
    assert stopped.exit_code == 0, stopped.output
    job = session.until_status("counting", "FINISHED")
    path = stopped.output.split()[-1]
    again = millstream("run", "-d", IN_PROCESS, "-s", path, "counting.py", "again")
    assert again.exit_code == 0, again.output
    counts = millstream("logs", "counting").output.split("\n")[:-1]
    until(lambda: session.jobs()["again"]["records"] > 50)
    first = millstream("logs", "again").output.split("\n")[0]
    assert first not in counts
    assert job["records"] == len(counts)


def test_the_answer_comes_before_the_end_of_the_program(session, folder):
    """The program ends as soon as its job has, and with it the threads that answer."""
    (folder / "slow.py").write_text(
        "import threading, time\n"
        "from millstream.session.messages import Channel\n"
        "send = Channel.send\n"
        "def late(self, message):\n"
        "    if message.get('event') == 'answer':\n"
        "        time.sleep(1)\n"
        "    send(self, message)\n"
        "Channel.send = late\n" + COUNTING
    )
    session.submit(folder / "slow.py", "slow")
    stopped = millstream("stop", "slow", "-p", "savepoints")
    assert stopped.exit_code == 0, stopped.output
    assert "Savepoint completed" in stopped.output


@pytest.mark.parametrize(
    "words",
    [
        ("savepoint", "trigger", "slow", "sp"),
        ("rescale", "slow", "-p", "2"),
        ("stop", "slow", "-p", "sp"),
    ],
)
def test_a_request_that_is_not_answered_in_time_is_taken_back(session, folder, words):
    slow = COUNTING.replace("counts.print()", "counts.map(wait).print()").replace("200.0)", "1.0)")
    wait = """
import os, time
def wait(record):
    open("waits", "w").close()
    while os.path.exists("waits") and not os.path.exists("go"):
        time.sleep(0.02)
    return record
"""
    (folder / "slow.py").write_text(wait + slow)
    kept = ("-Dexecution.checkpointing.dir=ck", "-Dexecution.checkpointing.interval=100 ms")
    done = millstream("run", "-d", "-p", "1", IN_PROCESS, *kept, "slow.py", "slow")
    assert done.exit_code == 0, done.output
    until((folder / "waits").exists)
    done = millstream(*words, "--timeout", "0.2")
    assert done.exit_code == 1
    assert "request: taken back" in done.output
    (folder / "go").touch()
    before = session.jobs()["slow"]["checkpoint"]
    until(lambda: session.jobs()["slow"]["checkpoint"] > before + 2)
    assert not (folder / "sp").exists()
    assert session.jobs()["slow"]["status"] == "RUNNING"
    if words[0] == "rescale":
        assert "from 1 to 3" in millstream("rescale", "slow", "-p", "3").output
    done = millstream("cancel", "slow")
    assert done.exit_code == 0, done.output


def test_what_is_not_there_is_said(session, folder):
    session.submit(folder / "short.py", "over")
    session.until_status("over", "FINISHED")
    assert "it is FINISHED" in millstream("cancel", "over").stderr
    assert "has no job 'nobody'" in millstream("cancel", "nobody").stderr
    assert "has no job 'nobody'" in millstream("logs", "nobody").stderr


def test_a_log_that_is_not_there_is_no_empty_log(folder):
    assert "no log of a session 'nightly'" in millstream("session", "log", "nightly").stderr
    (folder / "s/default").mkdir(parents=True)
    (folder / "s/default/session.log").write_text("first\nlast\n")
    assert millstream("session", "log").output == "first\nlast\n"
    assert millstream("session", "log", "default", "-n", "1").output == "last\n"
    misspelt = millstream("session", "log", "defualt")
    assert misspelt.exit_code == 1
    assert "logs: default" in misspelt.stderr
    odd = millstream("session", "log", "../default")
    assert "no name for a session" in odd.stderr
    assert isinstance(odd.exception, SystemExit)


@pytest.mark.parametrize("word", ["stop", "log"])
def test_two_names_are_one_too_many(folder, monkeypatch, word):
    done = millstream("session", word, "first", "--name", "second")
    assert (done.exit_code, "'first' or 'second'" in done.stderr) == (2, True)
    # A variable is only what is meant if nothing is said.
    monkeypatch.setenv("MILLSTREAM_SESSION", "second")
    assert "'first'" in millstream("session", word, "first").stderr


def test_without_a_session_or_a_folder(folder):
    for words in (("list",), ("cancel", "x"), ("stop", "x"), ("savepoint", "trigger", "x")):
        done = millstream(*words)
        assert done.exit_code == 1
        assert "--dir" in done.stderr
        assert "millstream session start -d" in done.stderr
    assert millstream("history").output == "no jobs\n"
    assert millstream("session", "list").output == "no sessions\n"


def test_the_oldest_logs_go_with_the_oldest_jobs(folder):
    with InThread(**{"millstream_session_history-size": "2"}) as session:
        for name in ("a", "b", "c"):
            session.submit(folder / "short.py", name)
            session.until_status(name, "FINISHED")
        # A job is counted as finished before it is filed away.
        until(lambda: set(session.jobs()) == {"b", "c"})
        until(lambda: len(list(session.folder.logs.iterdir())) == 2)


def test_a_log_of_a_job_that_is_forgotten_at_its_end_is_followed_to_it(folder):
    with InThread(**{"millstream_session_history-size": "0"}) as session:
        session.submit(folder / "counting.py", "counting")
        until(lambda: session.jobs()["counting"]["records"] > 10)
        command = [sys.executable, "-m", "millstream", "logs", "-f", "counting"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            assert following.stdout.readline()
            assert millstream("cancel", "counting").exit_code == 0
            following.stdout.read()
        assert following.returncode == 0


def test_whoever_reads_a_log_may_stop_reading(session, folder):
    session.submit(folder / "counting.py", "counting")
    command = f"{sys.executable} -m millstream logs -f counting | head -n 3"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr


def test_a_name_with_what_a_terminal_obeys(session, folder):
    session.submit(folder / "counting.py", "red \x1b[31m job")
    assert millstream("cancel", "red \x1b[31m job").exit_code == 0


# -- the session itself ----------------------------------------------------------------------------------


def test_a_token_that_cannot_be_read_is_said_before_the_engine_is_started(folder):
    started = []

    class Engine(NoEngine):
        def __init__(self):
            started.append(1)

    with (
        pytest.raises(ConfigurationError, match="token of the REST API"),
        InThread(make_engine=Engine, **{"rest.authentication.token-file": "missing"}),
    ):
        pass
    assert not started


def test_keys_that_nobody_reads_are_told_of_at_the_start_of_a_session(folder):
    words = ("-Dmillstream.session.rest-submit=true", "-Drest.authentication.token=secret")
    done = millstream("session", "start", IN_PROCESS, *words)
    assert done.exit_code == 1
    assert "unknown configuration key 'rest.authentication.token'" in done.output
    assert "secret" not in done.output


def test_one_session_of_a_name(session):
    with pytest.raises(SessionError, match="already"), InThread():
        pass
    with InThread("other") as other:
        assert other.jobs() == {}
    done = millstream("session", "list", "--json")
    states = {row["name"]: row["state"] for row in json.loads(done.stdout)}
    assert states == {"default": "running", "other": "stopped"}


def test_its_end_cancels_its_jobs_and_says_so(folder):
    with InThread() as session:
        session.submit(folder / "counting.py", "counting")
        pid = process_of(session, "counting")
        stopped = millstream("session", "stop")
        assert stopped.exit_code == 0, stopped.output
        session.wait()
    assert any("'counting'" in text and "is cancelled" in text for text in session.said)
    assert gone(pid)
    assert not session.folder.socket.exists()
    history = json.loads(millstream("history", "--json").stdout)
    assert [job["status"] for job in history] == ["CANCELED"]
    # And its log is there too.
    assert millstream("logs", "counting", "-n", "1").output


def test_killed_with_all_its_processes_and_recovered(folder):
    (folder / "run.sh").write_text("")
    environment = {**os.environ, "MILLSTREAM_CHECKPOINT_DIR": str(folder / "c")}
    environment.pop("MILLSTREAM_CHECKPOINT_DIR")
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "session", "start", IN_PROCESS, "-Drest.port=0"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "is ready" in process.stdout.readline()
        flags = (f"-Dexecution.checkpointing.dir={folder / 'c'}",)
        flags += ("-Dexecution.checkpointing.interval=50 ms", "--fresh")
        done = millstream("run", "-d", IN_PROCESS, *flags, "counting.py", "counting")
        assert done.exit_code == 0, done.output

        def jobs():
            return {job["name"]: job for job in json.loads(millstream("list", "--json").stdout)}

        until(lambda: jobs()["counting"]["checkpoint"] > 3)
        checkpoint, submission = jobs()["counting"]["checkpoint"], jobs()["counting"]["submission"]
        children = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and parent(entry) == process.pid
        ]
        assert len(children) == 1
        process.kill()
        process.wait()
        until(lambda: all(map(gone, children)), 30)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    died = millstream("list")
    assert "has died" in died.stderr
    assert "--recover" in died.stderr
    with InThread(recover=True) as session:
        # From its own checkpoints, although it was told to begin anew.
        until(lambda: session.jobs().get("counting", {}).get("checkpoint", -1) > checkpoint)
        assert session.jobs()["counting"]["submission"] == submission
        log = session.folder.logs / f"{submission}.log"
        until(lambda: log.exists() and log.read_text())
        assert log.read_text().split("\n")[0] not in ("(0, 1)", "1> (0, 1)")


def parent(entry):
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_what_is_not_recovered_is_named(folder):
    with InThread() as session:
        session.submit(folder / "counting.py", "counting")
        (submitted,) = (session.folder.path / "submitted").iterdir()
        kept = submitted.read_bytes()
    submitted.write_bytes(kept)
    with InThread() as session:
        assert any("is not started again" in text for text in session.said)
        assert session.jobs()["counting"]["status"] == "CANCELED"
        assert not submitted.exists()


class Dying:
    """An engine that dies when it is told to."""

    def __init__(self):
        self.lives = True
        self.closed = []

    def facts(self):
        return {"name": "dying"}

    def open(self):
        return type("Job", (), {"environment": {"OF_THE_ENGINE": "yes"}})()

    def close(self, job, ids, held):
        self.closed.append(list(ids))

    def alive(self):
        return self.lives

    def stop(self):
        pass


def test_what_was_opened_for_a_process_is_closed(folder):
    engine = Dying()
    with InThread(engine=engine) as session:
        for name in ("a", "b", "c"):
            id_ = session.submit(folder / "short.py", name)
            session.until_status(name, "FINISHED")
            until(lambda id_=id_: any(id_ in ids for ids in engine.closed))
        assert len(engine.closed) == 3


def test_a_process_that_cannot_be_started_holds_nothing(folder, monkeypatch):
    engine = Dying()
    monkeypatch.setattr("tests.sessions.COMMAND", ("/no/such/python",))
    with InThread(engine=engine) as session:
        done = millstream("run", "-d", IN_PROCESS, "short.py")
        assert done.exit_code == 1
        assert "/no/such/python" in done.stderr
        assert len(engine.closed) == 1
        assert session.jobs() == {}
        assert not any((session.folder.path / "submitted").iterdir())


def test_with_its_engine_a_session_dies_and_leaves_its_jobs_to_the_next(folder):
    engine = Dying()
    with InThread(engine=engine) as session:
        session.submit(folder / "counting.py", "counting")
        engine.lives = False
        session.wait()
    assert isinstance(session.error, SessionError)
    assert "--recover" in str(session.error)
    assert len(list((session.folder.path / "submitted").iterdir())) == 1
    with InThread(recover=True) as session:
        session.until_status("counting", "RUNNING")


# -- REST ------------------------------------------------------------------------------------------------


def test_one_address_shows_all_jobs(session, folder):
    short = session.submit(folder / "short.py", "short one")
    session.until_status("short one", "FINISHED")
    first = session.submit(folder / "counting.py", "first")
    second = session.submit(folder / "counting.py", "second")
    until(lambda: {row["id"] for row in session.get("/jobs")[1]["jobs"]} == {short, first, second})
    names = {row["name"]: row["state"] for row in session.get("/jobs/overview")[1]["jobs"]}
    assert names == {"short one": "FINISHED", "first": "RUNNING", "second": "RUNNING"}
    overview = session.get("/overview")[1]
    assert (overview["jobs-running"], overview["jobs-finished"]) == (2, 1)
    assert {row["jid"] for row in session.get("/millstream/jobs")[1]["jobs"]} == {
        short,
        first,
        second,
    }
    # One that runs answers itself; what one that has ended answered is kept.
    for id_, name in ((first, "first"), (short, "short one")):
        for path in (f"/jobs/{id_}", f"/v1/jobs/{id_}", f"/millstream/jobs/{id_}"):
            assert session.get(path)[1]["name"] == name
        assert session.get(f"/jobs/{id_}/checkpoints")[0] == 200
    vertex = session.get(f"/jobs/{short}")[1]["vertices"][0]["id"]
    assert session.get(f"/jobs/{short}/vertices/{vertex}")[1]["id"] == vertex
    assert session.get(f"/jobs/{'0' * 32}")[0] == 404
    total = session.get("/jobs/metrics?get=numRecordsIn&agg=sum")
    assert total[0] == 200
    assert session.get(f"/jobs/{first}", method="PATCH")[0] == 202
    session.until_status("first", "CANCELED")
    assert session.get(f"/jobs/{first}", method="PATCH")[0] == 409
    assert session.jobs()["second"]["status"] == "RUNNING"


def test_the_rules_of_the_server_hold_for_all(session, folder):
    id_ = session.submit(folder / "counting.py", "counting")
    until(lambda: session.get(f"/jobs/{id_}")[0] == 200)
    other = {"Origin": "http://evil.example"}
    assert session.get(f"/jobs/{id_}", method="PATCH", headers=other)[0] == 403
    assert session.get("/jobs", headers={"Host": "evil.example"})[0] == 403
    for path in (
        "/jobs/../jobs",
        f"/jobs/{id_}/%2e%2e/x",
        f"/jobs/{id_}/%0d%0aX-Other:1",
        "/jobs/%00",
    ):
        assert session.get(path)[0] in (400, 404)
    assert session.jobs()["counting"]["status"] == "RUNNING"
    # The process's own server answers its session alone.
    engine = session.get(f"/millstream/jobs/{id_}")[1]
    assert engine["name"] == "counting"
    ports = own_ports(process_of(session, "counting"))
    assert ports
    for port in ports:
        assert ask(f"http://127.0.0.1:{port}/jobs")[0] == 401


def own_ports(pid):
    """The ports on which a process listens."""
    sockets = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    found = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            found.append(int(fields[1].split(":")[1], 16))
    return found


def test_starting_over_rest_is_off(session, folder):
    status, _ = session.get("/jars/short/run", method="POST", body={})
    assert status == 404
    assert session.jobs() == {}


def test_starting_over_rest_needs_a_token(folder):
    with (
        pytest.raises(ConfigurationError, match="who may"),
        InThread(**{"millstream_session_rest-submit": "true"}),
    ):
        pass


def test_programs_that_are_named_are_started_over_rest(folder):
    token = secrets.token_urlsafe(32)
    descriptor = os.open(folder / "token", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    (folder / "rest.py").write_text(
        SHORT.replace("get_execution_environment()", "get_execution_environment(C)").replace(
            "import sys\n",
            "import sys\nfrom millstream.common import Configuration\n"
            "C = Configuration.from_dict({'execution.target': 'in-process'})\n",
        )
    )
    settings = {
        "millstream_session_rest-submit": "true",
        "millstream_session_programs": f"orders={folder / 'rest.py'}",
        "rest_authentication_token-file": str(folder / "token"),
    }
    with InThread(**settings) as session:
        allowed = {"Authorization": f"Bearer {token}"}
        started = {"method": "POST", "body": {"programArgsList": ["over REST"]}}
        assert session.get("/jars/orders/run", **started)[0] == 401
        wrong = {"Authorization": f"Bearer {'x' * 43}"}
        assert session.get("/jars/orders/run", **started, headers=wrong)[0] == 401
        for name in ("other", "..%2fshort.py", "short.py"):
            assert session.get(f"/jars/{name}/run", **started, headers=allowed)[0] == 404
        for body in ({"code": "x"}, {"programArgsList": [1]}, {"parallelism": 0}, [1], "x"):
            answer = session.get("/jars/orders/run", method="POST", body=body, headers=allowed)
            assert answer[0] == 400
        assert session.jobs() == {}
        names = session.get("/jars", headers=allowed)[1]["files"]
        assert [file["id"] for file in names] == ["orders"]
        status, answer = session.get("/jars/orders/run", **started, headers=allowed)
        assert status == 200
        job = session.until_status("over REST", "FINISHED")
        assert job["id"] == answer["jobid"]


def test_submit_takes_the_programs_own_error(session, folder, capsys):
    from millstream.cli.program import Program

    (folder / "bad.py").write_text("1 / 0")
    with pytest.raises(SystemExit) as ended:
        submit(Program(script="bad.py"), "default", traceback_wanted=False)
    assert ended.value.code == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
