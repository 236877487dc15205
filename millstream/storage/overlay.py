"""A storage that is written to without being changed: what is new goes to another one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import BinaryIO

from millstream.storage.storage import Names, Storage

__all__ = ["OverlayStorage"]


class OverlayStorage(Storage):
    """Reads what is in `above`, then what is in `below`; writes to `above` alone. What is only below cannot be removed,
    and deleting it does nothing.

    >>> import tempfile
    >>> from millstream.storage.storage import LocalStorage
    >>> folder = tempfile.TemporaryDirectory()
    >>> below, above = LocalStorage(folder.name + "/a"), LocalStorage(folder.name + "/b")
    >>> below.write("x", b"1")
    >>> storage = OverlayStorage(below, above)
    >>> storage.write("y", b"2")
    >>> storage.list(""), below.list("")
    (['x', 'y'], ['x'])
    >>> folder.cleanup()
    """

    def __init__(self, below: Storage, above: Storage) -> None:
        self._below = below
        self._above = above
        self.seal = below.seal

    @property
    def root(self) -> str:
        return self._above.root

    def _of(self, name: str) -> Storage:
        return self._above if self._above.exists(name) else self._below

    def write(self, name: str, data: bytes) -> None:
        self._above.write(name, data)

    def read(self, name: str) -> bytes:
        return self._of(name).read(name)

    def exists(self, name: str) -> bool:
        return self._above.exists(name) or self._below.exists(name)

    def list(self, folder: str) -> Names:
        return sorted({*self._above.list(folder), *self._below.list(folder)})

    def delete(self, name: str) -> None:
        self._above.delete(name)

    def open_write(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._above.open_write(name)

    def open_read(self, name: str) -> BinaryIO:
        return self._of(name).open_read(name)

    def size(self, name: str) -> int | None:
        return self._of(name).size(name)

    def delete_tree(self, folder: str) -> None:
        self._above.delete_tree(folder)
