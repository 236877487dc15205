"""Storage behind a URL, through PyArrow's file systems or fsspec's.

Both write under a hidden name and move, which on an object store is a copy and a removal; bytes that
are all there go to an object store directly, since it shows an object only when it is complete. What
a lost process leaves behind is hidden, and goes with `delete_tree`.
"""

from __future__ import annotations

import contextlib
import io
import secrets
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, BinaryIO, cast
from urllib.parse import quote

import pyarrow as pa
from pyarrow import fs as arrow_fs

from millstream.errors import ConfigurationError
from millstream.storage.storage import Names, Storage, checked_file_name, shown_root

__all__ = ["ArrowStorage", "FsspecStorage", "RemoteStorage", "open_remote"]

_ARROW = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_KNOWN = "file, s3, gs, hdfs, abfs, memory, and every protocol of fsspec"
# Object stores have no folders to make, and show a file when its upload is complete.
_ARROW_OBJECTS = {"s3", "gcs", "abfs"}
_FSSPEC_OBJECTS = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "tos"}
_BUFFER = 1 << 18


class RemoteStorage(Storage):
    """What the two have in common; `root` is a URL, `base` the path it has in its file system."""

    def __init__(self, root: str, base: str, *, objects: bool) -> None:
        self._root = root
        self._base = base.rstrip("/")
        self._objects = objects

    @property
    def root(self) -> str:
        return self._root

    def folder(self, name: str) -> Storage:
        return open_remote(f"{self.root}/{checked_file_name(name)}")

    def write(self, name: str, data: bytes) -> None:
        if self._objects:
            self._put(self._path(name), data)
        else:
            with self._moved(name) as file:
                file.write(data)

    def open_write(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._moved(name)

    def read(self, name: str) -> bytes:
        with self.open_read(name) as file:
            return file.read()

    def exists(self, name: str) -> bool:
        return self.size(name) is not None

    @contextlib.contextmanager
    def _moved(self, name: str) -> Iterator[BinaryIO]:
        # Also on object stores: closing a stream, even after an error, publishes what it got.
        path = self._path(name)
        parent, slash, _ = path.rpartition("/")
        hidden = f"{parent}{slash}.{secrets.token_hex(16)}"
        if not self._objects:
            self._make_folder(parent)
        try:
            with self._open_new(hidden) as file:
                yield file
            self._move(hidden, path)
        except BaseException:
            # The first error says more than one of the cleaning up, of whatever class it is.
            with contextlib.suppress(Exception):
                self._remove(hidden)
            raise

    def open_hidden(self, name: str) -> BinaryIO:
        path = self._path(name)
        if not self._objects:
            self._make_folder(path.rpartition("/")[0])
        return self._open_new(path)

    def move(self, name: str, to_name: str) -> None:
        self._move(self._path(name), self._path(to_name))

    def _path(self, name: str, *, empty: bool = False) -> str:
        checked = checked_file_name(name, empty=empty).strip("/")
        return f"{self._base}/{checked}" if checked else self._base

    @abstractmethod
    def _put(self, path: str, data: bytes) -> None:
        """Write a whole file in one upload."""

    @abstractmethod
    def _open_new(self, path: str) -> BinaryIO:
        """A stream into a new file."""

    @abstractmethod
    def _move(self, path: str, to: str) -> None:
        """Give a file another name, replacing what has it."""

    @abstractmethod
    def _remove(self, path: str) -> None:
        """Remove a file that is there."""

    @abstractmethod
    def _make_folder(self, path: str) -> None:
        """Make a folder and its parents, if they are missing."""


class ArrowStorage(RemoteStorage):
    """A folder of a PyArrow file system.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> storage = open_remote(f"arrow+file://{folder.name}")
    >>> storage.write("state/a", b"1")
    >>> storage.list("state"), storage.read("state/a")
    (['a'], b'1')
    >>> folder.cleanup()
    """

    def __init__(self, root: str, filesystem: Any, base: str) -> None:
        super().__init__(root, base, objects=filesystem.type_name in _ARROW_OBJECTS)
        self._fs = filesystem

    def open_read(self, name: str) -> BinaryIO:
        # The buffer adds what PyArrow's own file lacks of Python's interface.
        return io.BufferedReader(self._fs.open_input_stream(self._path(name)), _BUFFER)

    def open_random(self, name: str) -> BinaryIO:
        return io.BufferedReader(self._fs.open_input_file(self._path(name)), _BUFFER)

    def walk(self) -> Iterator[tuple[str, int, int]]:
        selector = arrow_fs.FileSelector(self._base, recursive=True, allow_not_found=True)
        found = self._fs.get_file_info(selector)
        for entry in sorted(found, key=lambda entry: str(entry.path)):
            if entry.type == arrow_fs.FileType.File:
                yield (
                    entry.path[len(self._base) :].lstrip("/"),
                    int(entry.size),
                    entry.mtime_ns or 0,
                )

    def size(self, name: str) -> int | None:
        info = self._fs.get_file_info(self._path(name))
        return int(info.size) if info.type == arrow_fs.FileType.File else None

    def list(self, folder: str) -> Names:
        path = self._path(folder, empty=True)
        selector = arrow_fs.FileSelector(path, allow_not_found=True)
        try:
            names = [info.base_name for info in self._fs.get_file_info(selector)]
        except NotADirectoryError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._remove(self._path(name))

    def delete_tree(self, folder: str) -> None:
        path = self._path(folder, empty=True)
        # The root stays: it may be a bucket.
        self._fs.delete_dir_contents(path, missing_dir_ok=True)
        if path != self._base:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_dir(path)

    def folder(self, name: str) -> ArrowStorage:
        url, mark, query = self._root.partition("?")
        root = f"{url.rstrip('/')}/{quote(name)}{mark}{query}"
        return ArrowStorage(root, self._fs, self._path(name))

    def _put(self, path: str, data: bytes) -> None:
        with self._fs.open_output_stream(path) as file:
            file.write(data)

    def _open_new(self, path: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedWriter(self._fs.open_output_stream(path), _BUFFER))

    def _move(self, path: str, to: str) -> None:
        if self._fs.type_name == "hdfs":
            # The one that refuses to replace; for a moment there is no file.
            with contextlib.suppress(FileNotFoundError):
                self._remove(to)
        self._fs.move(path, to)

    def _remove(self, path: str) -> None:
        self._fs.delete_file(path)

    def _make_folder(self, path: str) -> None:
        self._fs.create_dir(path, recursive=True)


class FsspecStorage(RemoteStorage):
    """A folder of an fsspec file system.

    Its calls that take patterns (`rm`, `copy`) are not used: a root may have a `*` in it.
    """

    def __init__(self, root: str, filesystem: Any, base: str) -> None:
        protocol = filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else set(protocol)
        super().__init__(root, base, objects=bool(protocols & _FSSPEC_OBJECTS))
        self._fs = filesystem

    def open_read(self, name: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(self._path(name), "rb"))

    def read(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(self._path(name)))

    def walk(self) -> Iterator[tuple[str, int, int]]:
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(self._base, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        own = self._base.strip("/")
        for path in sorted(found):
            name = path.strip("/")[len(own) :].lstrip("/")
            if name:
                yield name, int(found[path]["size"]), _modified(found[path])

    def size(self, name: str) -> int | None:
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def list(self, folder: str) -> Names:
        path = self._path(folder, empty=True)
        self._fs.invalidate_cache()
        try:
            entries = [entry.rstrip("/") for entry in self._fs.ls(path, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        # Some list the folder itself as well.
        own = path.strip("/")
        names = [entry.rpartition("/")[2] for entry in entries if entry.strip("/") != own]
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._remove(self._path(name))

    def delete_tree(self, folder: str) -> None:
        path = self._path(folder, empty=True)
        self._fs.invalidate_cache()
        entries = self._fs.find(path, withdirs=not self._objects, detail=True)
        # Backwards: what is in a folder before the folder.
        for entry in sorted(entries, reverse=True):
            if entry.strip("/") == self._base.strip("/"):
                continue
            remove = self._fs.rmdir if entries[entry]["type"] == "directory" else self._remove
            with contextlib.suppress(FileNotFoundError):
                remove(entry)
        if not self._objects and path != self._base:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rmdir(path)

    def folder(self, name: str) -> FsspecStorage:
        return FsspecStorage(f"{self._root.rstrip('/')}/{name}", self._fs, self._path(name))

    def _put(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(path, data)

    def _open_new(self, path: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(path, "wb"))

    def _move(self, path: str, to: str) -> None:
        if self._objects:
            self._fs.cp_file(path, to)
            self._remove(path)
        else:
            self._fs.mv(path, to)

    def _remove(self, path: str) -> None:
        self._fs.rm_file(path)

    def _make_folder(self, path: str) -> None:
        self._fs.makedirs(path, exist_ok=True)


def _modified(facts: Any) -> int:
    """When a file was changed, in nanoseconds; fsspec's file systems have no common word for it."""
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        found = facts.get(name)
        if isinstance(found, datetime):
            return int(found.timestamp() * 1e9)
        if isinstance(found, int | float):
            return int(found * 1e9)
    return 0


def open_remote(root: str) -> RemoteStorage:
    """The storage behind a URL; `open_storage` is what to call."""
    scheme, _, rest = root.partition("://")
    way, plus, scheme = scheme.lower().rpartition("+")
    url = f"{scheme}://{rest}"
    if plus and way not in ("arrow", "fsspec"):
        raise _unknown(root)
    if way == "fsspec" or (not way and scheme not in _ARROW):
        return _open_fsspec(root, url)
    try:
        filesystem, base = arrow_fs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, NotImplementedError) as error:
        # A scheme, or a part of a URL, that this build of PyArrow does not know.
        if way:
            raise _unknown(root, str(error)) from None
        return _open_fsspec(root, url, str(error))
    return ArrowStorage(root, filesystem, base)


def _open_fsspec(root: str, url: str, arrow_says: str | None = None) -> FsspecStorage:
    try:
        from fsspec.core import url_to_fs
        from fsspec.registry import get_filesystem_class, known_implementations
    except ImportError:
        msg = f"no storage for {shown_root(root)}: fsspec is not installed"
        hint = f"pip install fsspec; known are {_KNOWN}"
        raise ConfigurationError(msg, pyarrow=arrow_says, hint=hint) from None
    scheme = url.partition("://")[0]
    try:
        get_filesystem_class(scheme)
        filesystem, base = url_to_fs(url)
    except ValueError:
        raise _unknown(root, arrow_says) from None
    except ImportError as error:
        # Of its drivers, those that fsspec does not bring along itself are named by their package.
        package = known_implementations.get(scheme, {}).get("class", "fsspec").partition(".")[0]
        msg = f"no storage for {shown_root(root)}: {error}"
        named = "the package that the message names" if package == "fsspec" else package
        raise ConfigurationError(msg, pyarrow=arrow_says, hint=f"pip install {named}") from None
    return FsspecStorage(root, filesystem, base)


def _unknown(root: str, why: str | None = None) -> ConfigurationError:
    msg = f"no storage is known for {shown_root(root)}"
    return ConfigurationError(msg, pyarrow=why, hint=f"known are {_KNOWN}")
