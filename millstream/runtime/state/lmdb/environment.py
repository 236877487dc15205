"""LMDB environments on the worker's own disk: where they are, who made them, when they go.

```
<local folder>/<job id>/in-use              held (flock) by every process that has one of the job's stores open
<local folder>/<job id>/<uid>/<subtask>/    one store
    current                                 "<generation> <boot id>", replaced atomically
    g-<random>/data.mdb, lock.mdb           a generation
```

They are a cache of what the checkpoint's files hold. So nothing waits for the disk, and what a machine wrote before it
was started last is not trusted. A store that must start anew gets a new generation; the old one is unlinked, and stays
as it is for those who still read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from millstream.errors import ConfigurationError, StateError

__all__ = ["Environment", "LocalFolder", "current_environment", "new_environment", "publish"]

# Address space only: the file has holes until it is written.
_MAP_SIZES = (1 << 40, 64 << 30, 4 << 30)
_READERS = 512
# What must stay free on the disk. Writing goes through the map, and a full disk would end the process without a word.
_SPARE = 8 << 20
_POINTER = "current"
_UNUSED_SECONDS = 7 * 86400.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_lock = threading.Lock()
# By process, because an environment does not survive a fork. LMDB allows one handle for each environment.
_open: weakref.WeakValueDictionary[tuple[int, str], Environment] = weakref.WeakValueDictionary()
_jobs: weakref.WeakValueDictionary[tuple[int, str], LocalFolder] = weakref.WeakValueDictionary()


class Environment:
    """An open generation, shared by all stores of this process that read it."""

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        self.env = _open_lmdb(path, create)
        weakref.finalize(self, self.env.close)
        # Of processes that were killed; what they read could not be used again.
        self.env.reader_check()

    def write(self, expected: int) -> Any:
        """A write transaction for about so many bytes."""
        free = shutil.disk_usage(self.path if self.path.exists() else self.path.anchor).free
        if free < _SPARE + expected:
            msg = "there is no room on the worker's disk for the job's state"
            raise StateError(
                msg,
                folder=str(self.path),
                free=f"{free >> 20} MiB",
                hint="free space, or set millstream.state.dir to a folder on a larger disk",
            )
        return self.env.begin(write=True)


def _open_lmdb(path: Path, create: bool) -> Any:
    try:
        import lmdb
    except ImportError:
        msg = "the state backend 'lmdb' needs the package lmdb, which is not installed"
        raise ConfigurationError(msg, hint="pip install 'millstream[lmdb]'") from None
    for number, size in enumerate(_MAP_SIZES):
        try:
            return lmdb.open(
                str(path),
                map_size=size,
                create=create,
                mode=0o600,
                sync=False,
                metasync=False,
                # Pages that a transaction has changed stay in the file's map, where the system can take them
                # back, and not in the process's memory.
                writemap=True,
                map_async=True,
                meminit=False,
                readahead=False,
                max_readers=_READERS,
                max_dbs=0,
            )
        except (lmdb.MemoryError, lmdb.DiskError, lmdb.InvalidParameterError, OSError):
            if number == len(_MAP_SIZES) - 1:
                raise
    raise AssertionError


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


def _shared(path: Path, *, create: bool) -> Environment:
    key = os.getpid(), str(path)
    with _lock:
        known = _open.get(key)
        if known is None:
            known = _open[key] = Environment(path, create=create)
        return known


def _pointed(folder: Path) -> str | None:
    try:
        generation, boot = (folder / _POINTER).read_text().split()
    except (OSError, ValueError):
        return None
    return generation if boot == _boot_id() else None


def current_environment(folder: Path, known: Environment | None) -> Environment | None:
    """The store's generation, `known` if it still is; None if there is none."""
    for _ in range(3):
        generation = _pointed(folder)
        if generation is None:
            return None
        path = folder / generation
        if known is not None and known.path == path:
            return known
        try:
            return _shared(path, create=False)
        except ConfigurationError:
            raise
        except Exception:
            # Replaced and unlinked since the pointer was read, or unreadable: then a new one is made.
            continue
    return None


def new_environment(folder: Path) -> Environment:
    """An empty generation that nobody else knows of."""
    path = folder / f"g-{secrets.token_hex(8)}"
    _make_folder(path)
    return _shared(path, create=True)


def publish(folder: Path, made: Environment) -> None:
    """Put a generation in the place of the current one. Of two made at the same time the later stays."""
    before = _pointed(folder)
    fresh = folder / f".{made.path.name}"
    fresh.write_text(f"{made.path.name} {_boot_id()}")
    fresh.replace(folder / _POINTER)
    for path in folder.glob("g-*"):
        # One that was never published has no pointer to it: its maker died, or is about to publish it.
        if path.name != made.path.name and (path.name == before or _age(path) > _UNUSED_SECONDS):
            shutil.rmtree(path, ignore_errors=True)


class LocalFolder:
    """The folder of a job's stores on this machine, held as long as this process has one of them open."""

    def __init__(self, folder: Path, state_dir: str) -> None:
        self.path = folder
        _make_folder(folder.parent)
        for other in folder.parent.iterdir():
            if other.name != folder.name:
                _remove_unused(other)
        descriptor = _hold(folder)
        os.pwrite(descriptor, state_dir.encode(), 0)
        os.utime(descriptor)
        weakref.finalize(self, _release, descriptor, folder, os.getpid())

    @staticmethod
    def of(local_dir: str | None, job_id: str, state_dir: str) -> LocalFolder:
        """The same object for all stores of a job."""
        folder = Path(os.path.abspath(local_dir or _own_temporary_folder())) / job_id
        key = os.getpid(), str(folder)
        with _lock:
            known = _jobs.get(key)
            if known is None:
                known = _jobs[key] = LocalFolder(folder, state_dir)
            return known

    def store(self, name: str) -> Path:
        """The folder of one store."""
        path = self.path / name
        _make_folder(path)
        return path


def _make_folder(path: Path) -> None:
    # Not `mkdir(parents=True)`: that gives the parents the permissions of the umask.
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def _own_temporary_folder() -> str:
    """A folder with a name that others can guess: what they have put there is not read."""
    path = os.path.join(tempfile.gettempdir(), f"millstream-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        msg = f"{path} is not a folder that only this user can write to"
        raise ConfigurationError(msg, hint="remove it, or set millstream.state.dir")
    return path


def _hold(folder: Path) -> int:
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "in-use"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            # Whoever removes the folder holds the lock meanwhile, and leaves this file without a name.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)


def _release(descriptor: int, folder: Path, process: int) -> None:
    if process == os.getpid():
        os.utime(descriptor)
        os.close(descriptor)
        _remove_unused(folder)


def _remove_unused(folder: Path) -> None:
    """Remove the folder of a job whose checkpoints are gone, or that has not been used for long."""
    try:
        descriptor = os.open(folder / "in-use", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        state_dir = os.pread(descriptor, 4096, 0).decode()
        gone = state_dir.startswith("/") and not os.path.exists(state_dir)
        if gone or _age(folder / "in-use") > _UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # In use.
    finally:
        os.close(descriptor)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
