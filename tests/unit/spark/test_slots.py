"""The daemon that keeps subtasks in their processes, driven over its sockets as Spark's JVM does it, without one."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.serializers import SpecialLengths

from millstream.spark.slots import process
from millstream.spark.slots.head import INCOMPLETE, PEEK_BYTES, ROUND, UNKNOWN, Head, read_head
from millstream.spark.slots.placement import Placement
from millstream.spark.slots.usable import workers_import_us
from tests.waiting import until

ROOT = Path(__file__).parents[3]
SECRET = "s3cret-of-the-factory"

# Reads an initial message and then orders, one to a line; PySpark's daemon imports a module only if it is named so.
WORKER = """
import os, struct, sys, time

def main(infile, outfile):
    mark, length = struct.unpack("!ii", infile.read(8))
    infile.read(length)
    while True:
        order = infile.readline().decode().strip()
        if order == "pid":
            outfile.write(f"{os.getpid()}\\n".encode())
            outfile.flush()
        elif order == "crash":
            os.abort()
        elif order == "exit":
            sys.exit(3)
        elif order == "over":
            from millstream.spark.slots.process import stay_while
            stay_while(lambda: False)
            outfile.write(b"yes\\n")
            outfile.flush()
        elif order == "sleep":
            time.sleep(3600)
        else:
            outfile.write(b"done\\n")
            return
"""


# Spark never gives the number of an attempt twice.
attempts = itertools.count(1000)


def message(
    query: str | None, split: int, attempt: int = 0, mark: int | None = None, told: str = ""
) -> bytes:
    """What the JVM sends first."""
    properties = {"spark.job.tags": "x"}
    if query is not None:
        properties |= {"sql.streaming.queryId": query, "streaming.sql.batchId": "7"}
    if told:
        properties[ROUND] = told
    context = json.dumps({"taskAttemptId": attempt, "localProperties": properties}).encode()
    body = struct.pack("!i", split) + struct.pack("!i", 4) + b"3.11"
    body += struct.pack("!i", len(context)) + context
    first = SpecialLengths.START_OF_INIT_MESSAGE if mark is None else mark
    return struct.pack("!ii", first, len(body)) + body


class Client:
    """One of the JVM's connections."""

    def __init__(self, address: str | int, secret: str | None = None) -> None:
        if isinstance(address, str):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(address)
        else:
            self.sock = socket.create_connection(("127.0.0.1", address))
        self.sock.settimeout(30)
        self.read = self.sock.makefile("rb")
        (self.handle,) = struct.unpack("!i", self.read.read(4))
        if secret is not None:
            self.sock.sendall(struct.pack("!i", len(secret)) + secret.encode())

    def begin(self, query: str | None, split: int, attempt: int | None = None) -> Client:
        self.sock.sendall(message(query, split, attempt or next(attempts)))
        return self

    def order(self, text: str) -> str:
        self.sock.sendall(f"{text}\n".encode())
        return self.read.readline().decode().strip()

    def pid(self) -> int:
        return int(self.order("pid"))

    def run(self, query: str | None, split: int, attempt: int | None = None) -> int:
        """A whole task; the process that ran it."""
        pid = self.begin(query, split, attempt).pid()
        assert self.order("end") == "done"
        return pid

    def ended(self) -> bool:
        try:
            return self.read.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.read.close()
        self.sock.close()


class Running:
    """A daemon."""

    def __init__(self, process: subprocess.Popen[bytes], address: str | int) -> None:
        self.process, self.address = process, address
        self.clients: list[Client] = []
        self.sockets = Path()

    def connect(self, secret: str | None = None) -> Client:
        self.clients.append(Client(self.address, secret))
        return self.clients[-1]

    def kill(self, pid: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack("!i", pid))
        self.process.stdin.flush()

    def children(self) -> set[int]:
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return set(map(int, tasks.split()))


@contextlib.contextmanager
def daemon(folder: Path, *, unix: bool = True, **environment: str) -> Iterator[Running]:
    (folder / "pyspark_orders.py").write_text(WORKER)
    # The path of a socket has room for a hundred characters only.
    sockets = tempfile.mkdtemp(prefix="slots-")
    started = subprocess.Popen(
        [sys.executable, "-m", "millstream.spark.slots.daemon", "pyspark_orders"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "SPARK_REUSE_WORKER": "1",
            "PYTHON_UNIX_DOMAIN_ENABLED": str(unix).lower(),
            "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            **environment,
        },
        cwd=folder,
    )
    assert started.stdout is not None
    (number,) = struct.unpack("!i", started.stdout.read(4))
    running = Running(started, started.stdout.read(number).decode() if unix else number)
    running.sockets = Path(sockets)
    try:
        yield running
    finally:
        for client in running.clients:
            client.close()
        with contextlib.suppress(OSError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait(30)
        for pipe in (started.stdin, started.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        shutil.rmtree(sockets)


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[Running]:
    with daemon(tmp_path) as running:
        yield running


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# -- whose task it is ---------------------------------------------------------------------------------------


def test_the_head_of_an_epochs_task() -> None:
    assert read_head(message("q", 3, 9)) == Head("q", 3, 9)
    assert read_head(message("q", 3, 9) + b"and what follows") == Head("q", 3, 9)


def test_the_driver_says_which_run_a_task_is_of() -> None:
    assert read_head(message("q", 3, 9, told="a run 4 0 1")) == Head("a run", 3, 9)
    assert read_head(message(None, 3, 9, told="a run 4 0 1")) == Head("a run", 3, 9)


def test_the_head_of_any_other_task() -> None:
    assert read_head(message(None, 3, 9)) == Head("", 3, 9)


def test_a_head_may_come_in_pieces() -> None:
    whole = message("q", 3, 9)
    assert all(read_head(whole[:n]) is INCOMPLETE for n in range(len(whole)))


@pytest.mark.parametrize(
    "data",
    [
        message("q", 3, mark=5),
        message("q", -1),
        b"\xff" * 64,
        message("q", 3).replace(b"localProperties", b"otherProperties"),
        message("q", 3).replace(b'{"task', b'["task'),
        message("q" * PEEK_BYTES, 3),
    ],
)
def test_what_looks_different_is_unknown(data: bytes) -> None:
    assert read_head(data) is UNKNOWN


# -- which process runs it -----------------------------------------------------------------------------------


def test_subtasks_are_spread_over_the_processes_there_may_be() -> None:
    placement = Placement(most=3)
    assert [placement.home(Head("q", split, 0)) for split in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [placement.home(Head("r", split, 0)) for split in (5, 0)] == [0, 1]


def test_who_finds_its_home_busy_waits_a_moment_and_goes_elsewhere_then() -> None:
    placement = Placement(most=2)
    task, other = Head("q", 0, 1), Head("q", 0, 2)
    assert placement.choose(task, {}, waited=False) == 0
    assert placement.choose(other, {0: task}, waited=False) is None
    assert placement.choose(other, {0: task}, waited=True) == 2
    assert placement.choose(other, {0: task, 1: None}, waited=True) == 1


def test_two_functions_of_one_task_never_wait_for_each_other() -> None:
    placement = Placement(most=2)
    task = Head("q", 0, 1)
    assert placement.choose(task, {0: task}, waited=False) == 2


def test_what_is_no_epoch_takes_any_process_of_the_pool() -> None:
    placement = Placement(most=2)
    task = Head("", 4, 1)
    assert placement.choose(task, {}, waited=False) == 0
    assert placement.choose(task, {0: task, 1: task}, waited=False) == 2
    assert placement.choose(task, {0: task, 1: None}, waited=False) == 1


# -- the daemon ------------------------------------------------------------------------------------------------


def test_a_subtask_stays_in_its_process_whatever_connection_brings_it(slots: Running) -> None:
    first, second = slots.connect(), slots.connect()
    pids = {split: first.run("q", split) for split in range(4)}
    assert len(set(pids.values())) == 4
    for _ in range(3):
        for split in (2, 0, 3, 1):
            assert second.run("q", split) == pids[split]
            assert first.run("q", split) == pids[split]
    assert slots.connect().run("other", 0) not in pids.values()


def test_the_pid_that_the_jvm_knows_is_of_a_process_of_its_own(slots: Running) -> None:
    client = slots.connect()
    ran = client.run("q", 0)
    assert client.handle != ran
    assert alive(client.handle)
    client.close()
    until(lambda: not alive(client.handle))
    assert alive(ran)
    assert slots.connect().run("q", 0) == ran


def test_more_subtasks_than_processes_share_them(tmp_path: Path) -> None:
    with daemon(tmp_path, MILLSTREAM_SLOTS_PER_QUERY="2") as slots:
        client = slots.connect()
        pids = [client.run("q", split) for split in range(5)]
        assert len(set(pids)) == 2
        assert [client.run("q", split) for split in range(5)] == pids


def test_a_second_attempt_runs_elsewhere_after_a_moment(slots: Running) -> None:
    first, second = slots.connect(), slots.connect()
    home = first.begin("q", 0, attempt=1).pid()
    assert second.run("q", 0, attempt=2) != home
    assert first.order("end") == "done"
    assert second.run("q", 0, attempt=3) == home


def test_two_functions_of_one_task_run_side_by_side(slots: Running) -> None:
    first, second = slots.connect(), slots.connect()
    home = first.begin("q", 0, attempt=1).pid()
    assert second.begin("q", 0, attempt=1).pid() != home


def test_ordinary_tasks_run_in_a_pool(slots: Running) -> None:
    first, second = slots.connect(), slots.connect()
    one, two = first.begin(None, 0).pid(), second.begin(None, 0).pid()
    assert one != two
    assert first.order("end") == second.order("end") == "done"
    assert slots.connect().run(None, 77) in (one, two)
    assert slots.connect().run("q", 0) not in (one, two)


def test_a_task_that_nobody_understands_runs_too(slots: Running) -> None:
    client = slots.connect()
    body = b"\0" * 40
    client.sock.sendall(struct.pack("!ii", 12, len(body)) + body)
    assert client.pid() > 0


def test_a_head_in_pieces_finds_its_process(slots: Running) -> None:
    home = slots.connect().run("q", 3)
    client, whole = slots.connect(), message("q", 3)
    for begin in range(0, len(whole), 9):
        client.sock.sendall(whole[begin : begin + 9])
    assert client.pid() == home


def test_a_killed_handle_takes_the_process_that_runs_its_task_along(slots: Running) -> None:
    client, other = slots.connect(), slots.connect()
    keeps = other.run("q", 1)
    pid = client.begin("q", 0).pid()
    slots.kill(client.handle)
    assert client.ended()
    until(lambda: not alive(pid))
    assert not alive(client.handle)
    assert slots.connect().run("q", 0) not in (pid, keeps)
    assert other.run("q", 1) == keeps


def test_a_handle_that_is_idle_may_be_killed_for_itself(slots: Running) -> None:
    client = slots.connect()
    pid = client.run("q", 0)
    # Nobody is told when the daemon knows that a task is over; it does once the next one of that subtask has begun.
    assert slots.connect().run("q", 0) == pid
    os.kill(client.handle, signal.SIGKILL)
    assert client.ended()
    assert slots.connect().run("q", 0) == pid


@pytest.mark.parametrize("order", ["crash", "exit", "killed"])
def test_a_process_that_dies_costs_its_own_task_only(slots: Running, order: str) -> None:
    client, other = slots.connect(), slots.connect()
    keeps = other.begin("q", 1).pid()
    pid = client.begin("q", 0).pid()
    if order == "killed":
        os.kill(pid, signal.SIGKILL)
    else:
        client.sock.sendall(f"{order}\n".encode())
        if order == "exit":
            # As Spark does, whoever reads the end closes.
            client.sock.shutdown(socket.SHUT_WR)
    assert client.ended()
    until(lambda: not alive(client.handle))
    assert other.pid() == keeps
    assert other.order("end") == "done"
    assert slots.connect().run("q", 0) != pid


def test_a_task_that_the_jvm_lets_go_of_ends(slots: Running) -> None:
    client = slots.connect()
    pid = client.begin("q", 0).pid()
    client.sock.sendall(b"sleep\n")
    client.close()
    until(lambda: not alive(pid), 20)
    assert slots.connect().run("q", 0) != pid


def test_a_task_that_nobody_reads_from_any_more_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spark closes its end when a job is cancelled; a stack of Python's own is no news to who has cancelled it."""

    def given_up(connection: socket.socket, reuse: bool) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(process, "run_task", given_up)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spark, connection = socket.socketpair()
    with ours, theirs, spark, connection:
        socket.send_fds(ours, [b"T"], [connection.fileno()])
        assert process.live(theirs) == 1
    assert capfd.readouterr() == ("", "")


def test_who_waits_for_its_home_may_give_up(slots: Running) -> None:
    first, second = slots.connect(), slots.connect()
    home = first.begin("q", 0, attempt=1).pid()
    second.begin("q", 0, attempt=2).close()
    # A handle ends with its connection.
    until(lambda: not alive(second.handle))
    assert first.order("end") == "done"
    assert slots.connect().run("q", 0, attempt=3) == home


def test_a_process_that_takes_the_place_of_another_has_imported_everything(slots: Running) -> None:
    client = slots.connect()
    pid = client.run("q", 0)
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in slots.children())
    again = slots.connect().begin("q", 0)
    assert "libarrow" in Path(f"/proc/{again.pid()}/maps").read_text()


def test_a_process_whose_job_is_over_is_there_for_the_next(slots: Running) -> None:
    client = slots.connect()
    assert client.begin("q", 0).order("over") == "yes"
    home = client.pid()
    assert client.order("end") == "done"
    names = (f"another-{n}" for n in itertools.count())
    name = until(
        lambda: (name := next(names), slots.connect().run(name, 3))[1] == home and name, 30
    )
    # It stays with that one.
    assert client.run("q", 0) != home
    assert slots.connect().run(name, 3) == home


def test_over_tcp_the_secret_is_asked_for(tmp_path: Path) -> None:
    with daemon(tmp_path, unix=False) as slots:
        stranger = slots.connect("not the secret")
        assert stranger.read.read(7) == struct.pack("!i", 3) + b"err"
        assert stranger.ended()
        client = slots.connect(SECRET)
        assert client.read.read(6) == struct.pack("!i", 2) + b"ok"
        home = client.run("q", 0)
        again = slots.connect(SECRET)
        assert again.read.read(6) == struct.pack("!i", 2) + b"ok"
        assert again.run("q", 0) == home


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGKILL"])
def test_everything_ends_with_the_daemon(tmp_path: Path, how: str) -> None:
    with daemon(tmp_path) as slots:
        client = slots.connect()
        pid = client.begin("q", 0).pid()
        if how == "end of input":
            assert slots.process.stdin is not None
            slots.process.stdin.close()
        else:
            slots.process.send_signal(getattr(signal, how))
        slots.process.wait(30)
        if how == "SIGKILL":
            # Whoever runs a task finds out when it is done; the JVM closes what belongs to a dead daemon.
            client.close()
        until(lambda: not alive(client.handle))
        if how != "SIGKILL":
            until(lambda: not alive(pid))
            assert not list(slots.sockets.iterdir())


def test_where_workers_are_not_reused_it_is_pysparks_own(tmp_path: Path) -> None:
    with daemon(tmp_path, SPARK_REUSE_WORKER="") as slots:
        client = slots.connect()
        assert client.begin("q", 0).pid() == client.handle


def test_workers_of_another_environment_do_not_find_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual environments of one Python are not each other's."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert workers_import_us(None)
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.symlink_to(os.path.realpath(sys.executable))
    assert not workers_import_us(str(other))
    assert not workers_import_us("no-such-python")
    monkeypatch.setenv("PYSPARK_PYTHON", str(other))
    assert not workers_import_us(None)
