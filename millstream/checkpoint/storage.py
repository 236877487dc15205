"""Where state files and manifests are kept: a folder with six operations.

Names are relative, with `/` between parts. A file is written under a name of its own and then renamed, so a
reader sees all of it or nothing.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from pathlib import Path

__all__ = ["LocalStorage", "Storage", "open_storage"]


class Storage(ABC):
    """The interface; implementations must make `write` atomic."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Create a file; a reader never sees a part of it."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A file's bytes; FileNotFoundError if there is none."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """True if the file is there."""

    @abstractmethod
    def list(self, folder: str) -> list[str]:
        """The names directly below a folder, sorted; empty if there is no such folder."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; no error if it is gone."""

    @property
    @abstractmethod
    def root(self) -> str:
        """What to give to `open_storage` to get the same storage elsewhere."""


class LocalStorage(Storage):
    """A folder of a file system that every worker can see."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    @property
    def root(self) -> str:
        return str(self._root)

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(hidden, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(hidden, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        hidden.replace(path)

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def list(self, folder: str) -> list[str]:
        path = self._root / folder
        if not path.is_dir():
            return []
        return sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))

    def delete(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)


def open_storage(root: str) -> Storage:
    """The storage behind a root, in any process."""
    return LocalStorage(root.removeprefix("file://"))
