"""Requests to a running job: stop with and without drain, cancel and savepoints, at every moment of the driver."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import uuid

import msgspec
import pytest
from click.testing import CliRunner

from millstream.api.functions import MapFunction
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.checkpoint import lease as lease_module
from millstream.checkpoint.lease import LeaseRecord, read_lease
from millstream.cli import main
from millstream.common.job_status import JobStatus
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobError
from millstream.graph.operators import CollectOp
from millstream.runtime.driver import epochs, savepoints
from millstream.runtime.driver.requests import (
    ControlAnswer,
    ControlRequest,
    answer_name,
    ask_driver,
    read_requests,
)
from millstream.storage.storage import LocalStorage
from tests.support import environment
from tests.waiting import until


class Live(Source):
    """A source that always has more: position n is the number n at n ms, in two splits."""

    def boundedness(self):
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        return _LiveSplits()

    def create_reader(self):
        return _LiveReader()


class _LiveSplits(SplitEnumerator):
    def discover(self):
        return ["a", "b"]

    def available(self, split, position):
        return position + 40

    def finished(self, split, position):
        return False


class _LiveReader(SourceReader):
    def read(self, split, start, end):
        return [(split, n) for n in range(start, end)]


class BySecondField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def start(folder, windows, records, **options):
    return live_job(environment(2, epoch=40), folder, windows, records, **options)


def live_job(env, folder, windows, records, *, path=None, config=(), name="live"):
    """Counts of each second of event time; nothing fires before the end, so great a disorder is allowed."""
    settings = env.get_configuration()
    settings.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
    settings.set_string("execution.checkpointing.savepoint-dir", str(folder / "savepoints"))
    if path is not None:
        settings.set_string("execution.state-recovery.path", path)
    for key, value in dict(config).items():
        settings.set_string(key, value)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("1000 d")
    strategy = strategy.with_timestamp_assigner(BySecondField())
    numbers = env.from_source(Live(), strategy, "live").uid("live")
    numbers._sink("records", CollectOp(records.extend))
    counted = numbers.map(lambda v: (v[0], 1)).key_by(lambda v: v[0])
    counted = counted.window(TumblingEventTimeWindows.of("1 s"))
    counted.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("w")._sink("w", CollectOp(windows.extend))
    return env.execute_async(name)


def command(verb, *words, folder):
    return CliRunner().invoke(main, [verb, *words, "--dir", str(folder / "checkpoints")])


def check_drained(windows, records):
    """Every record that was read is in a window that has fired."""
    assert sum(count for _, count in windows) == len(records) > 0


# -- drain, at every moment --------------------------------------------------------------------------------------


def lease_of(folder, name="live"):
    return read_lease(LocalStorage(str(folder / "checkpoints" / name)))


def file_request(folder, action, *, owner=None, name="live", valid_for=600.0, ago=0.0, **what):
    """Leave a request as another process does; the name of its file."""
    storage = LocalStorage(str(folder / "checkpoints" / name))
    owner = owner or read_lease(storage).owner
    ticket = f"control/{uuid.uuid4().hex}.json"
    request = ControlRequest(
        action=action, owner=owner, asked_at=time.time() - ago, valid_for=valid_for, **what
    )
    storage.write(ticket, msgspec.json.encode(request))
    return ticket


def answer_to(folder, ticket, name="live", seconds=20.0):
    storage = LocalStorage(str(folder / "checkpoints" / name))
    until(lambda: storage.exists(answer_name(ticket)), seconds)
    return msgspec.json.decode(storage.read(answer_name(ticket)), type=ControlAnswer)


class At:
    """Does something the n-th time the driver comes to a place."""

    def __init__(self, monkeypatch, place, visit, call):
        self._place, self._left, self._call = place, visit, call
        self.came = threading.Event()
        for module in (epochs, savepoints):
            monkeypatch.setattr(module, "reached", self._reached)

    def _reached(self, place):
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                self._call()
                self.came.set()


PLACES = [
    "restore",
    "source read",
    "before manifest",
    "after manifest",
    "after commit",
    "cleaning up",
]


@pytest.mark.parametrize("seen", ["at once", "later"])
@pytest.mark.parametrize("before", ["new", "resumed"])
@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_a_job_is_drained_whenever_that_is_asked(tmp_path, monkeypatch, place, visit, before, seen):
    if place == "restore" and visit == 2:
        pytest.skip("a job that does not fail is restored once")
    windows, records = [], []
    if before == "resumed":
        # Cancelled in the middle: the windows are open in its last checkpoint.
        client = start(tmp_path, windows, records)
        until(lambda: len(records) > 100)
        client.cancel().result(20)
    looks = []

    def ask():
        tickets.append(file_request(tmp_path, "stop", drain=True))
        if seen == "at once":
            looks[0]()

    tickets = []
    original = savepoints.SavepointRequests.watch
    monkeypatch.setattr(
        savepoints.SavepointRequests,
        "watch",
        lambda self: (looks.append(self._look), original(self)),
    )
    At(monkeypatch, place, visit, ask)
    client = start(tmp_path, windows, records)
    client.get_job_execution_result().result(30)
    assert answer_to(tmp_path, tickets[0]).error is None
    assert sum(count for _, count in windows) == len(records)
    # A new job may be drained before it has read anything.
    assert records or (place, before) == ("restore", "new")


def test_a_source_that_is_never_idle_is_drained_from_the_command_line(tmp_path):
    windows, records = [], []
    client = start(tmp_path, windows, records)
    until(lambda: len(records) > 200)
    done = command("stop", "-d", "live", folder=tmp_path)
    assert done.exit_code == 0, done.output
    # The command comes back when the job is over, and may be started again at once.
    assert lease_of(tmp_path) is None
    client.get_job_execution_result().result(20)
    check_drained(windows, records)
    path = done.output.split("Path: ")[1].strip()
    # Nothing is left in the savepoint of what has been fired.
    more, rest = [], []
    client = start(tmp_path, more, rest, path=path)
    until(lambda: len(rest) > 100)
    client.stop_with_savepoint(True).result(20)
    check_drained(more, rest)


@pytest.mark.parametrize("place", ["source read", "before manifest", "after manifest"])
def test_a_drain_that_fails_is_drained_again(tmp_path, monkeypatch, place):
    """The epoch that ends all input fails once, before or after its manifest is there."""
    windows, records = [], []
    failed = threading.Event()

    def fail(where):
        if where == place and client_driver and client_driver[0]._draining and not failed.is_set():
            failed.set()
            raise OSError(5, "Input/output error")

    client_driver = []
    monkeypatch.setattr(epochs, "reached", fail)
    original = epochs.EpochDriver.begin
    monkeypatch.setattr(
        epochs.EpochDriver,
        "begin",
        lambda self: (client_driver.append(self), original(self))[1],
    )
    client = start(
        tmp_path,
        windows,
        records,
        config={
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    until(lambda: len(records) > 100)
    client.stop_with_savepoint(True).result(20)
    assert failed.is_set()
    assert client.get_job_status().result() is JobStatus.FINISHED
    if place == "after manifest":
        # What was to be delivered to this process after the manifest is lost with the attempt.
        assert sum(count for _, count in windows) <= len(records)
    else:
        check_drained(windows, records)


# -- several requests --------------------------------------------------------------------------------------------


def together(tmp_path, monkeypatch, *requests):
    """Requests that the driver sees at the same moment, in this order."""
    windows, records, tickets = [], [], []

    def ask():
        for ago, (action, drain) in enumerate(reversed(requests)):
            tickets.insert(0, file_request(tmp_path, action, drain=drain, ago=float(ago)))

    At(monkeypatch, "before manifest", 3, ask)
    client = start(tmp_path, windows, records)
    until(lambda: client.get_job_status().result().is_terminal_state())
    return client, windows, records, [answer_to(tmp_path, ticket) for ticket in tickets]


def test_two_stops_at_once_both_get_a_savepoint(tmp_path, monkeypatch):
    client, _, _, (one, two) = together(tmp_path, monkeypatch, ("stop", False), ("stop", False))
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert one.error is two.error is None
    assert one.path != two.path


def test_who_asked_first_decides_whether_the_job_is_drained(tmp_path, monkeypatch):
    _, windows, records, (one, two) = together(
        tmp_path, monkeypatch, ("stop", True), ("stop", False)
    )
    assert one.error is None
    assert "ended before" in two.error
    check_drained(windows, records)


def test_a_stop_before_a_drain_does_not_drain(tmp_path, monkeypatch):
    _, windows, records, (one, two) = together(
        tmp_path, monkeypatch, ("stop", False), ("stop", True)
    )
    assert one.error is None
    assert "ended before" in two.error
    assert records
    assert not windows


def test_a_savepoint_asked_with_a_drain_is_not_drained(tmp_path, monkeypatch):
    _, windows, records, (one, two) = together(
        tmp_path, monkeypatch, ("stop", True), ("savepoint", False)
    )
    assert one.error is two.error is None
    check_drained(windows, records)
    more, rest = [], []
    client = start(tmp_path, more, rest, path=two.path)
    until(lambda: len(rest) > 100)
    client.stop_with_savepoint(True).result(20)
    # All windows were still open in it.
    assert sum(count for _, count in more) > len(rest)


def test_a_cancel_goes_before_a_stop(tmp_path, monkeypatch):
    client, windows, _, (one, two) = together(
        tmp_path, monkeypatch, ("stop", True), ("cancel", False)
    )
    assert two.error is None
    assert client.get_job_status().result() is JobStatus.CANCELED or one.error is None
    assert (one.error is None) == bool(windows)


# -- the driver that is meant, or nobody ---------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["stop", "cancel", "savepoint"])
def test_a_request_that_a_dead_driver_left_unheard_does_not_reach_the_next_one(
    tmp_path, action, monkeypatch
):
    looks = []

    def looking(storage):
        looks.append(storage)
        return read_requests(storage)

    monkeypatch.setattr(savepoints, "read_requests", looking)
    left = file_request(tmp_path, action, owner="somebody who died")
    windows, records = [], []
    client = start(tmp_path, windows, records)
    until(lambda: len(records) > 100)
    seen = len(records)
    # Once to sweep, then to hear.
    until(lambda: len(looks) >= 4)
    until(lambda: len(records) > seen)
    assert not client.get_job_status().result().is_terminal_state()
    client.cancel().result(20)
    storage = LocalStorage(str(tmp_path / "checkpoints" / "live"))
    assert not storage.exists(answer_name(left))
    assert not (tmp_path / "savepoints").exists()


def test_a_request_that_is_too_old_is_refused_and_said_so(tmp_path):
    windows, records = [], []
    client = start(tmp_path, windows, records)
    until(lambda: len(records) > 40)
    ticket = file_request(tmp_path, "cancel", ago=30.0, valid_for=20.0)
    assert "was not carried out" in answer_to(tmp_path, ticket).error
    assert not client.get_job_status().result().is_terminal_state()
    client.cancel().result(20)


def test_a_request_that_was_taken_back_is_not_carried_out(tmp_path, monkeypatch):
    """The driver has seen it, and is busy; who asked presses Ctrl-C; then the epoch ends."""
    windows, records, tickets, looks = [], [], [], []
    original = savepoints.SavepointRequests.watch
    monkeypatch.setattr(
        savepoints.SavepointRequests,
        "watch",
        lambda self: (looks.append(self._look), original(self)),
    )

    def ask_and_take_back():
        ticket = file_request(tmp_path, "stop", drain=True)
        looks[0]()
        assert LocalStorage(str(tmp_path / "checkpoints" / "live")).take(ticket)
        tickets.append(ticket)

    at = At(monkeypatch, "source read", 3, ask_and_take_back)
    client = start(tmp_path, windows, records)
    at.came.wait(20)
    seen = len(records)
    until(lambda: len(records) > seen + 200)
    assert not windows
    client.cancel().result(20)
    storage = LocalStorage(str(tmp_path / "checkpoints" / "live"))
    assert not storage.exists(answer_name(tickets[0]))


def test_a_job_that_waits_for_its_restart_is_cancelled_at_once(tmp_path):
    class Fails(MapFunction):
        def map(self, value):
            raise OSError(5, "Input/output error")

    env = environment(1, epoch=40)
    settings = env.get_configuration()
    settings.set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    settings.set_string("restart-strategy.type", "fixed-delay")
    settings.set_string("restart-strategy.fixed-delay.delay", "1 h")
    env.from_source(Live(), WatermarkStrategy.no_watermarks(), "live").map(Fails())._sink(
        "out", CollectOp(lambda rows: None)
    )
    client = env.execute_async("live")
    until(lambda: client.get_job_status().result() is JobStatus.RESTARTING)
    done = command("cancel", "live", folder=tmp_path)
    assert done.exit_code == 0, done.output
    until(lambda: client.get_job_status().result() is JobStatus.CANCELED)


KILLED = """
import sys
from pathlib import Path
from tests.inprocess.test_control import start
start(Path(sys.argv[1]), [], []).get_job_execution_result().result()
"""


def test_a_job_whose_driver_was_killed_is_not_asked_and_goes_on_untouched(tmp_path):
    driver = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    try:
        made = tmp_path / "checkpoints" / "live"
        until(lambda: any(int(p.name[4:]) >= 3 for p in made.glob("chk-*")), 60)
    finally:
        driver.kill()
        driver.wait()
    began = time.monotonic()
    for words in (["stop", "live"], ["stop", "-d", "live"], ["cancel", "live"]):
        done = command(*words, folder=tmp_path)
        assert done.exit_code != 0
        assert "has died" in done.output
    assert time.monotonic() - began < 5
    windows, records = [], []
    client = start(tmp_path, windows, records)
    until(lambda: len(records) > 200)
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result(20)


# -- who asks ----------------------------------------------------------------------------------------------------------


class Scripted:
    """A clock that only sleeping moves, and a driver that does something after each sleep."""

    def __init__(self, folder, *steps):
        self.storage = LocalStorage(str(folder))
        self.now, self.said, self._steps = 0.0, [], list(steps)
        self.lease = self.write_lease()

    def write_lease(self, owner="the driver", counter=0):
        lease = LeaseRecord(
            owner=owner, host="elsewhere", pid=1, process_start=1, job_name="j", counter=counter,
            expires_at=time.time() + 10, ttl=10.0, machine="another",
        )  # fmt: skip
        self.storage.write("lease.json", msgspec.json.encode(lease))
        return lease

    def requests(self):
        return [n for n in self.storage.list("control") if not n.endswith(".done.json")]

    def sleep(self, seconds):
        self.now += seconds
        if self._steps:
            step = self._steps.pop(0)
            if step is not None:
                step(self)

    def ask(self, action="stop", **options):
        return ask_driver(
            self.storage, self.lease, "j", action,
            say=self.said.append, clock=lambda: self.now, sleep=self.sleep, **options,
        )  # fmt: skip


def refuses(world, match, **options):
    with pytest.raises(JobError, match=match):
        world.ask(**options)
    assert world.storage.list("control") == []


def test_a_driver_whose_process_is_gone_is_not_asked(tmp_path):
    world = Scripted(tmp_path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    world.lease = msgspec.structs.replace(
        world.lease, host=socket.gethostname(), machine=lease_module._machine(), pid=ended.pid
    )
    world.storage.write("lease.json", msgspec.json.encode(world.lease))
    refuses(world, "has died")
    assert world.now == 0


def test_a_driver_that_does_not_renew_its_lease_is_given_up(tmp_path):
    world = Scripted(tmp_path)
    refuses(world, "has not renewed its lease")
    assert 10 <= world.now < 11
    assert any("taken back" in line for line in world.said)


def test_a_driver_that_renews_is_waited_for_until_the_time_is_over(tmp_path):
    renew = [lambda w, n=n: w.write_lease(counter=n) for n in range(1000)]
    world = Scripted(tmp_path, *renew)
    refuses(world, "has not answered in 60 s", timeout=60.0)
    assert 60 <= world.now < 61
    assert any("between two epochs" in line for line in world.said)


def test_a_driver_that_ends_before_it_has_answered(tmp_path):
    world = Scripted(tmp_path, None, lambda w: w.storage.delete("lease.json"))
    refuses(world, "it has ended")


def test_a_driver_that_answered_as_it_ended(tmp_path):
    def end(world):
        (name,) = world.requests()
        world.storage.take(f"control/{name}")
        answer = ControlAnswer(path="/s/1", at=time.time())
        world.storage.write(answer_name(f"control/{name}"), msgspec.json.encode(answer))
        world.storage.delete("lease.json")

    world = Scripted(tmp_path, None, end)
    assert world.ask() == "/s/1"
    assert world.storage.list("control") == []


def test_a_request_does_not_go_to_the_driver_that_takes_over(tmp_path):
    world = Scripted(tmp_path, None, lambda w: w.write_lease(owner="another"))
    refuses(world, "another driver has taken over(.|\n)*the job goes on there: ask again")


def test_an_interrupted_request_is_taken_back(tmp_path):
    def interrupt(world):
        raise KeyboardInterrupt

    world = Scripted(tmp_path, None, interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.ask()
    assert world.storage.list("control") == []
    assert world.said == ["the request has been taken back"]


def test_who_interrupts_too_late_is_told_so(tmp_path):
    def begin(world):
        (name,) = world.requests()
        world.storage.take(f"control/{name}")

    def interrupt(world):
        raise KeyboardInterrupt

    world = Scripted(tmp_path, begin, interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.ask()
    assert "already begun" in world.said[0]


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_a_dead_driver_is_not_listed_as_running(tmp_path):
    folder = tmp_path / "checkpoints"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = {"host": socket.gethostname(), "machine": lease_module._machine()}
    leases = {
        "alive": {**here, "pid": os.getpid(), "expires_at": time.time() + 10},
        "killed": {**here, "pid": ended.pid, "expires_at": time.time() + 10},
        "paused": {**here, "pid": os.getpid(), "expires_at": time.time() - 5},
        "far": {"host": "far", "machine": "m", "pid": 1, "expires_at": time.time() + 10},
        "lost": {"host": "far", "machine": "m", "pid": 1, "expires_at": time.time() - 3600},
    }
    for name, facts in leases.items():
        lease = LeaseRecord(
            owner=name, process_start=0, job_name=name, counter=1, ttl=10.0, **facts
        )
        LocalStorage(str(folder / name)).write("lease.json", msgspec.json.encode(lease))
    shown = json.loads(command("list", "--json", folder=tmp_path).output)
    assert {row["name"]: row["state"] for row in shown} == {
        "alive": "running", "killed": "dead", "paused": "silent", "far": "running",
        "lost": "silent",
    }  # fmt: skip
    assert {row["name"] for row in shown if row["driver"]} == {"alive", "far"}
    lines = {line.split()[1]: line for line in command("list", folder=tmp_path).output.splitlines()}
    assert "not running" in lines["killed"]
    assert "has died" in lines["killed"]
    assert "does not renew" in lines["lost"]


def test_a_lease_that_cannot_be_read_does_not_hide_the_other_jobs(tmp_path):
    windows, records = [], []
    client = start(tmp_path, windows, records)
    until(lambda: len(records) > 40)
    LocalStorage(str(tmp_path / "checkpoints" / "broken")).write("lease.json", b"{")
    shown = command("list", folder=tmp_path).output
    assert "live" in shown
    client.cancel().result(20)


# -- the job's own client ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_that_was_stopped_has_ended_when_its_savepoint_is_there(tmp_path, drain):
    for _ in range(5):
        windows, records = [], []
        client = start(tmp_path, windows, records)
        until(lambda records=records: len(records) > 40)
        client.stop_with_savepoint(drain).result(20)
        assert client.get_job_status().result() is JobStatus.FINISHED


def test_a_job_that_fails_while_it_stops_says_where_its_savepoint_is(tmp_path, monkeypatch):
    windows, records = [], []
    client = start(tmp_path, windows, records)
    until(lambda: len(records) > 40)

    def fail(self):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(epochs.JobOutputs, "close", fail)
    with pytest.raises(JobError, match="failed while it stopped") as caught:
        client.stop_with_savepoint(False).result(20)
    assert (pathlib.Path(caught.value.evidence["savepoint"]) / "_metadata").exists()
