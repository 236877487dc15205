"""One driver at a time in a job's folder."""

import os
import socket
import subprocess
import sys
import uuid
from types import SimpleNamespace

import msgspec
import pytest

from millstream.checkpoint import lease as lease_module
from millstream.checkpoint.lease import LEASE_NAME, Lease, LeaseRecord
from millstream.errors import JobLocked, StorageAway
from millstream.storage.open import open_storage
from millstream.storage.storage import LocalStorage
from tests.waiting import until


class Time:
    """A clock that only sleeping moves; `at` maps times to what others do then."""

    def __init__(self):
        self.now = 1_000.0
        self.events = []

    def at(self, seconds, event):
        self.events.append((1_000.0 + seconds, event))

    def every(self, seconds, event, until=100):
        for number in range(1, int(until / seconds)):
            self.at(number * seconds, event)

    def clock(self):
        return self.now

    def sleep(self, seconds):
        end = self.now + seconds
        for due, event in sorted((e for e in self.events if e[0] <= end), key=lambda e: e[0]):
            self.events.remove((due, event))
            self.now = max(self.now, due)
            event()
        self.now = end

    @property
    def passed(self):
        return self.now - 1_000.0


@pytest.fixture
def world():
    return Time()


@pytest.fixture(params=["local", "arrow", "memory"])
def storage(request, tmp_path):
    if request.param == "memory":
        pytest.importorskip("fsspec")
    storage = open_storage(
        {
            "local": str(tmp_path / "job"),
            "arrow": f"arrow+file://{tmp_path}/job",
            "memory": f"memory://{uuid.uuid4().hex}",
        }[request.param]
    )
    yield storage
    storage.delete_tree("")


def acquire(storage, world, name="wordcount", ttl=10.0):
    return Lease.acquire(storage, name, ttl=ttl, clock=world.clock, sleep=world.sleep)


def in_file(storage):
    return msgspec.json.decode(storage.read(LEASE_NAME), type=LeaseRecord)


def foreign(storage, ttl=10.0, **changes):
    """The lease of a driver on another machine."""
    record = LeaseRecord(
        owner="f" * 32,
        host="elsewhere",
        pid=4711,
        process_start=1,
        job_name="wordcount",
        counter=5,
        expires_at=0.0,
        ttl=ttl,
    )
    record = msgspec.structs.replace(record, **changes)
    storage.write(LEASE_NAME, msgspec.json.encode(record))
    return Lease(storage, record)


def dead_pid():
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def here(**changes):
    """What marks a lease as one of this machine."""
    return {"host": socket.gethostname(), "machine": lease_module._machine(), **changes}


def test_a_free_folder(storage, world):
    lease = acquire(storage, world)
    record = in_file(storage)
    assert record == lease.record
    assert record.host == socket.gethostname()
    assert record.pid == os.getpid()
    assert record.job_name == "wordcount"
    assert (record.counter, record.ttl) == (0, 10.0)
    assert record.expires_at == pytest.approx(world.now + 10, abs=1)
    assert world.passed == (0 if storage.exclusive_publish else 1)
    lease.check()


def test_the_start_of_this_process_is_known(storage, world):
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("no /proc")
    assert acquire(storage, world).record.process_start > 0


def test_release_and_take_again(storage, world):
    first = acquire(storage, world)
    first.release()
    assert not storage.exists(LEASE_NAME)
    second = acquire(storage, world)
    first.release()  # twice, and when another has it: nothing happens
    second.check()
    assert world.passed <= 2


def test_renew(storage, world):
    lease = acquire(storage, world)
    before = world.now
    world.sleep(2.5)
    lease.renew()
    lease.renew()
    assert in_file(storage).counter == 2
    assert in_file(storage).owner == lease.record.owner
    assert in_file(storage).expires_at == before + 2.5 + 10


def test_a_live_holder_refuses(storage, world):
    holder = acquire(storage, world)
    start = world.now
    world.every(2.5, holder.renew)
    with pytest.raises(JobLocked) as caught:
        acquire(storage, world)
    assert world.now - start < 5
    assert caught.value.code == "JOB_LOCKED"
    assert caught.value.evidence == {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "folder": storage.root,
    }
    assert "wordcount" in caught.value.what
    assert "stop that driver" in caught.value.hint
    holder.check()


def test_a_live_holder_elsewhere_refuses_whatever_its_clock_says(storage, world):
    for expires_at in (0.0, 1e12):
        holder = foreign(storage, expires_at=expires_at)
        world.at(world.passed + 2.4, holder.renew)
        with pytest.raises(JobLocked, match="elsewhere"):
            acquire(storage, world)
    holder.check()


def test_the_holder_says_how_often_it_renews(storage, world):
    holder = foreign(storage, ttl=100.0)
    world.at(99, holder.renew)
    with pytest.raises(JobLocked):
        acquire(storage, world, ttl=1.0)


def test_a_dead_process_on_this_machine_is_replaced_at_once(storage, world):
    old = foreign(storage, **here(pid=dead_pid(), process_start=77))
    lease = acquire(storage, world)
    assert world.passed <= 1
    assert in_file(storage) == lease.record
    with pytest.raises(JobLocked):
        old.check()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")
def test_another_process_with_the_same_pid_is_not_the_holder(storage, world):
    foreign(storage, **here(pid=os.getpid(), process_start=77))
    acquire(storage, world)
    assert world.passed <= 1


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")
def test_a_process_nobody_has_waited_for_is_dead(storage, world):
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        foreign(storage, **here(pid=process.pid, process_start=0))
        acquire(storage, world)
        assert world.passed <= 1
    finally:
        process.wait()


def test_a_dead_pid_says_nothing_about_another_machine(storage, world):
    """Two containers may have one host name, and do not see each other's processes."""
    holder = foreign(storage, **here(pid=dead_pid(), machine="another"))
    world.every(2.5, holder.renew)
    with pytest.raises(JobLocked):
        acquire(storage, world)


def test_a_holder_that_dies_while_it_is_watched(storage, world):
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        foreign(storage, **here(pid=process.pid, process_start=0))
        world.at(1.2, lambda: (process.kill(), process.wait()))
        acquire(storage, world)
        assert 1.2 <= world.passed <= 3
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def test_an_expired_lease_of_another_machine_is_taken_over(storage, world):
    old = foreign(storage, expires_at=1e12)
    lease = acquire(storage, world)
    assert 10 <= world.passed <= 11.1
    assert in_file(storage) == lease.record
    with pytest.raises(JobLocked, match="another driver has taken it"):
        old.renew()
    assert in_file(storage) == lease.record


def test_a_lease_that_is_released_while_it_is_watched(storage, world):
    holder = foreign(storage)
    world.at(1.0, holder.release)
    acquire(storage, world).check()
    assert world.passed <= 2.6


def test_a_file_that_cannot_be_read_is_watched_too(storage, world):
    storage.write(LEASE_NAME, b"")
    acquire(storage, world).check()
    assert 10 <= world.passed <= 11.1
    storage.write(LEASE_NAME, b"{")
    world.at(world.passed + 1, lambda: foreign(storage))
    with pytest.raises(JobLocked):
        acquire(storage, world)


def test_of_two_that_take_over_the_last_to_write_has_it(storage, world):
    foreign(storage)
    # Writes just after the one under test has: it must notice, and find the other alive.
    other = []
    world.at(10.001, lambda: other.append(foreign(storage, owner="e" * 32)))
    world.at(12, lambda: other[0].renew())
    with pytest.raises(JobLocked):
        acquire(storage, world)


def test_somebody_is_quicker_with_the_first_lease(storage, world, monkeypatch):
    publish = type(storage).publish

    def late(self, name, data):
        monkeypatch.setattr(type(storage), "publish", publish)
        holder = foreign(storage)
        world.at(2.5, holder.renew)
        publish(self, name, data)

    monkeypatch.setattr(type(storage), "publish", late)
    with pytest.raises(JobLocked):
        acquire(storage, world)
    assert in_file(storage).owner == "f" * 32


def test_a_loss_is_noticed_and_remembered(storage, world):
    lease = acquire(storage, world)
    assert lease.lost is None
    foreign(storage)
    for call in (lease.check, lease.renew, lease.check):
        with pytest.raises(JobLocked) as caught:
            call()
        assert lease.lost is caught.value
    assert lease.lost.evidence == {"host": "elsewhere", "pid": 4711, "folder": storage.root}
    lease.release()
    assert in_file(storage).owner == "f" * 32


def test_a_file_that_is_gone_is_a_loss(storage, world):
    lease = acquire(storage, world)
    storage.delete(LEASE_NAME)
    with pytest.raises(JobLocked, match="its file is gone"):
        lease.check()
    assert not storage.exists(LEASE_NAME)


def test_keep_renews_until_release(tmp_path):
    storage = LocalStorage(str(tmp_path))
    lease = Lease.acquire(storage, "wordcount", ttl=0.2)
    lease.keep()
    lease.keep()
    until(lambda: in_file(storage).counter >= 2)
    lease.check()
    lease.release()
    assert lease.lost is None
    assert not lease._thread.is_alive()
    assert storage.list("") == []


def test_keep_notices_a_loss(tmp_path):
    storage = LocalStorage(str(tmp_path))
    lease = Lease.acquire(storage, "wordcount", ttl=0.2)
    foreign(storage)
    lease.keep()
    until(lambda: lease.lost is not None)
    with pytest.raises(JobLocked):
        lease.check()
    lease.release()
    assert in_file(storage).owner == "f" * 32


class Trouble:
    """Writing that fails; a renewal takes the time of its turn, however busy the machine is."""

    def __init__(self, monkeypatch, works):
        self.writes = 0
        self.works = works
        write = LocalStorage.write

        def trouble(storage, name, data):
            self.writes += 1
            if not self.works(self.writes):
                raise OSError("no route to host")
            write(storage, name, data)

        monkeypatch.setattr(LocalStorage, "write", trouble)
        clock = SimpleNamespace(monotonic=lambda: self.writes * 0.15)
        monkeypatch.setattr(lease_module, "time", clock)


def test_keep_outlives_short_trouble_and_says_so_after_a_ttl(tmp_path, monkeypatch):
    storage = LocalStorage(str(tmp_path))
    lease = Lease.acquire(storage, "wordcount", ttl=0.4)
    trouble = Trouble(monkeypatch, lambda write: write == 2 or write > 8)
    lease.keep()
    until(lambda: lease.away is not None)
    assert in_file(storage).counter == 1
    assert trouble.writes >= 5
    with pytest.raises(StorageAway, match="no route to host"):
        lease.check()
    # Nobody has taken it meanwhile.
    until(lambda: lease.away is None)
    lease.check()
    lease.release()
    assert lease.lost is None
    assert storage.list("") == []


def test_who_was_away_finds_that_another_has_taken_it(tmp_path, monkeypatch):
    storage = LocalStorage(str(tmp_path))
    lease = Lease.acquire(storage, "wordcount", ttl=0.4)
    trouble = Trouble(monkeypatch, lambda write: False)
    lease.keep()
    until(lambda: lease.away is not None)
    trouble.works = lambda write: True
    foreign(storage)
    until(lambda: lease.lost is not None)
    with pytest.raises(JobLocked, match="another driver has taken it"):
        lease.check()
    lease.release()
    assert in_file(storage).owner == "f" * 32


def test_a_folder_that_is_gone_is_no_loss(tmp_path):
    storage = LocalStorage(str(tmp_path / "job"))
    lease = Lease.acquire(storage, "wordcount", ttl=0.4)
    storage.expect()
    lease.keep()
    (tmp_path / "job").rename(tmp_path / "away")
    with pytest.raises(StorageAway):
        lease.check()
    until(lambda: lease.away is not None)
    assert not (tmp_path / "job").exists()
    (tmp_path / "away").rename(tmp_path / "job")
    until(lambda: lease.away is None)
    lease.check()
    lease.release()
    assert lease.lost is None
