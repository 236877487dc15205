"""A disk that is full, broken or forbidden at the n-th write: the last checkpoint stands, the job goes on when it can,
results are exact, and nothing is left over."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest

from millstream.checkpoint.manifest import list_epochs, read_manifest
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import JobError
from millstream.graph.operators import CollectOp
from millstream.storage.storage import LocalStorage
from tests.inprocess.test_damage import Numbers, Tally, expected, wait_for
from tests.support import environment
from tests.waiting import until

COUNT, EPOCH = 60, 10

ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO, "forbidden": errno.EACCES}


class Trouble:
    """Fails `times` writes from the n-th on, in the middle of the file or when it is to be placed."""

    def __init__(self, monkeypatch, number, first, times, *, halfway):
        self._number = number
        self._first = first
        self._times = times
        self.writes = 0
        self.struck = 0
        self._lock = threading.Lock()
        original = LocalStorage._placed
        trouble = self

        def placed(storage, name, place):
            def fails(hidden, path):
                raise trouble.error(path)

            return original(storage, name, fails if trouble.strikes(name) else place)

        if halfway:
            self._fail_to_sync(monkeypatch)
        else:
            monkeypatch.setattr(LocalStorage, "_placed", placed)

    def _fail_to_sync(self, monkeypatch):
        original = os.fsync
        trouble = self

        def fsync(descriptor):
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path.is_file() and trouble.strikes(str(path)):
                raise trouble.error(path)
            original(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    def strikes(self, name):
        # Not at the lease, without which there is no job at all.
        if not any(part.startswith(("chk-", "shared")) for part in Path(name).parts):
            return False
        with self._lock:
            self.writes += 1
            now = self._first <= self.writes < self._first + self._times
            self.struck += now
            return now

    def error(self, path):
        return OSError(self._number, os.strerror(self._number), str(path))


def start(folder, out, *, bounded=True, restarts=20, count=COUNT):
    env = environment(2, EPOCH, execution__checkpointing__dir=folder)
    strategy = RestartStrategies.fixed_delay_restart(restarts, 0).to_configuration()
    for key, value in strategy.to_dict().items():
        env.get_configuration().set_string(key, value)
    source = Numbers(count, bounded)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    results = numbers.key_by(lambda n: n % 3).process(Tally()).uid("tally")
    results._sink("out", CollectOp(out.extend))
    return env.execute_async("job")


def left_over(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


@pytest.mark.parametrize("halfway", [False, True], ids=["placing", "syncing"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("first", [1, 2, 3, 5, 8, 13])
def test_a_write_fails(tmp_path, monkeypatch, kind, first, halfway):
    trouble = Trouble(monkeypatch, ERRORS[kind], first, 1, halfway=halfway)
    out: list = []
    start(tmp_path, out).get_job_execution_result().result(60)
    assert trouble.struck == 1
    assert sorted(out) == sorted(expected(COUNT))
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("kind", ERRORS)
def test_room_comes_back_after_a_while(tmp_path, monkeypatch, kind):
    trouble = Trouble(monkeypatch, ERRORS[kind], 7, 6, halfway=False)
    out: list = []
    start(tmp_path, out).get_job_execution_result().result(60)
    assert trouble.struck == 6
    assert sorted(out) == sorted(expected(COUNT))
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("halfway", [False, True], ids=["placing", "syncing"])
@pytest.mark.parametrize("first", [6, 9, 12])
def test_the_last_good_checkpoint_stands(tmp_path, monkeypatch, first, halfway):
    """The disk stays full and the job is given up; with room again it goes on where it was."""
    out: list = []
    with monkeypatch.context() as patch:
        Trouble(patch, errno.ENOSPC, first, 10**9, halfway=halfway)
        with pytest.raises((JobError, OSError)):
            start(tmp_path, out, restarts=3).get_job_execution_result().result(60)
    storage = LocalStorage(str(tmp_path / "job"))
    last = list_epochs(storage)[-1]
    for name in read_manifest(storage, last).files():
        assert storage.exists(name)
    assert 0 < len(out) < COUNT
    assert not [path for path in left_over(tmp_path) if path.name.startswith(".")]
    start(tmp_path, out).get_job_execution_result().result(60)
    assert sorted(out) == sorted(expected(COUNT))
    assert [path for path in left_over(tmp_path) if path.name != "lease.json"] == []


def test_no_orphans_while_the_disk_is_full(tmp_path, monkeypatch):
    """Attempts that fail again and again do not fill it further."""
    out: list = []
    client = start(tmp_path, out, bounded=False)
    wait_for(out, COUNT)
    client.cancel().result(30)
    before = {path.relative_to(tmp_path) for path in left_over(tmp_path)}
    with monkeypatch.context() as patch:
        Trouble(patch, errno.ENOSPC, 3, 10**9, halfway=False)
        client = start(tmp_path, out, restarts=10, count=2 * COUNT)
        with pytest.raises((JobError, OSError)):
            client.get_job_execution_result().result(60)
    after = {path.relative_to(tmp_path) for path in left_over(tmp_path)}
    new = {path for path in after - before if path.name != "lease.json"}
    assert len(new) <= 4
    start(tmp_path, out, count=2 * COUNT).get_job_execution_result().result(60)
    assert sorted(out) == sorted(expected(2 * COUNT))


def test_a_removal_that_fails_does_not_end_the_job(tmp_path, monkeypatch):
    original = LocalStorage.delete
    failed = []

    def delete(storage, name):
        if len(failed) < 5 and name.startswith("shared/"):
            failed.append(name)
            raise PermissionError(errno.EACCES, "no", name)
        original(storage, name)

    monkeypatch.setattr(LocalStorage, "delete", delete)
    monkeypatch.setattr(
        "millstream.runtime.driver.epochs.needs_compaction", lambda segments: len(segments) >= 3
    )
    out: list = []
    start(tmp_path, out).get_job_execution_result().result(60)
    assert failed
    assert sorted(out) == sorted(expected(COUNT))
    assert left_over(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 pages, where mounting one is allowed."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("mounting is not allowed here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, timeout=10)


def test_a_small_disk(small_disk):
    ballast = small_disk / "ballast"
    # Room for the lease and its successor, and for two files more.
    ballast.write_bytes(bytes((64 - 4) * 4096))
    out: list = []
    client = start(small_disk, out, restarts=10**6)
    until(lambda: client.get_metrics() is not None and client.get_metrics().restarts >= 3)
    assert not client.get_job_execution_result().done()
    assert len(out) < COUNT
    ballast.unlink()
    client.get_job_execution_result().result(60)
    assert sorted(out) == sorted(expected(COUNT))
    assert left_over(small_disk) == []
