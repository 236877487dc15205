"""A disk in memory that can lose power, fill up, and stop the machine in the middle of an operation.

It keeps the promises of `Storage` (what `write`, `publish` and `open_write` have returned from is on the disk) and no
more than these: a name that was removed may come back after a loss of power, a file that was being written may be left
behind as a hidden one, cut anywhere, and one that was just placed may or may not be there.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from millstream.storage.storage import Storage, checked_file_name

SCHEME = "sim://"


class Crash(BaseException):
    """The driver's machine is gone; nothing that runs on it goes on."""


class SimDisk:
    """All files, by path. `before` is asked before each step of an operation and may raise `Crash` or `OSError`."""

    def __init__(self, random) -> None:
        self._random = random
        self.files: dict[str, bytes] = {}
        self.before: Callable[[str, str], None] = lambda step, path: None
        self.crashed = False
        # What was there before removals that a loss of power may undo.
        self._removed: dict[str, bytes] = {}
        self._temporary = 0

    # -- faults -------------------------------------------------------------------------------------------

    def step(self, what: str, path: str) -> None:
        if self.crashed:
            raise Crash(what)
        self.before(what, path)

    def lose_power(self) -> None:
        """What was not synced is kept or lost as it comes."""
        for path, data in self._removed.items():
            if path not in self.files and self._random.random() < 0.3:
                self.files[path] = data
        self._removed.clear()
        for path in [p for p in self.files if p.rpartition("/")[2].startswith(".")]:
            if self._random.random() < 0.5:
                del self.files[path]
            else:
                self.files[path] = self.files[path][: self._random.randrange(64)]

    def come_back(self) -> None:
        self.crashed = False

    # -- operations ---------------------------------------------------------------------------------------

    def place(self, path: str, data: bytes, *, new: bool) -> None:
        self.step("open", path)
        self._temporary += 1
        hidden = f"{path.rpartition('/')[0]}/.{self._temporary}"
        self.files[hidden] = data[: self._random.randrange(len(data) + 1)]
        try:
            self.step("write", path)
            self.files[hidden] = data
            self.step("synced", path)
            if new and path in self.files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self.files[path] = data
            self._removed.pop(path, None)
        except Crash:
            raise  # and the hidden file stays
        except BaseException:
            self.files.pop(hidden, None)
            raise
        self.files.pop(hidden, None)
        self.step("placed", path)

    def remove(self, path: str) -> None:
        self.step("remove", path)
        data = self.files.pop(path, None)
        if data is not None:
            self._removed[path] = data


class SimStorage(Storage):
    """A folder of a `SimDisk`."""

    exclusive_publish = True

    def __init__(self, root: str, disk: SimDisk) -> None:
        self._root = root.rstrip("/")
        self._disk = disk

    def folder(self, name: str) -> SimStorage:
        return SimStorage(f"{self._root}/{checked_file_name(name)}", self._disk)

    @property
    def root(self) -> str:
        return self._root

    def _path(self, name: str, *, empty: bool = False) -> str:
        checked = checked_file_name(name, empty=empty)
        return f"{self._root}/{checked}" if checked else self._root

    def write(self, name: str, data: bytes) -> None:
        self._disk.place(self._path(name), data, new=False)

    def publish(self, name: str, data: bytes) -> None:
        self._disk.place(self._path(name), data, new=True)

    @contextlib.contextmanager
    def open_write(self, name: str) -> Iterator[BinaryIO]:
        buffer = io.BytesIO()
        yield buffer
        self._disk.place(self._path(name), buffer.getvalue(), new=False)

    def read(self, name: str) -> bytes:
        self._disk.step("read", self._path(name))
        try:
            return self._disk.files[self._path(name)]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", self._path(name)) from None

    def exists(self, name: str) -> bool:
        return self._path(name) in self._disk.files

    def size(self, name: str) -> int | None:
        data = self._disk.files.get(self._path(name))
        return None if data is None else len(data)

    def list(self, folder: str) -> list[str]:
        start = f"{self._path(folder, empty=True)}/"
        found = {p[len(start) :].split("/", 1)[0] for p in self._disk.files if p.startswith(start)}
        return sorted(name for name in found if not name.startswith("."))

    def delete(self, name: str) -> None:
        self._disk.remove(self._path(name))

    def delete_tree(self, folder: str) -> None:
        start = f"{self._path(folder, empty=True)}/"
        for path in sorted(p for p in self._disk.files if p.startswith(start)):
            self._disk.remove(path)
