"""Where state files and manifests are kept: a folder, on a disk or behind a URL.

Names are relative, with `/` between parts. A file is written under a hidden name and then moved, so
a reader sees all of it or nothing. Hidden names (those that begin with ".") are never listed.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import shutil
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, ClassVar, TypeAlias

from millstream import redaction
from millstream.errors import ConfigurationError, StorageAway
from millstream.storage.seal import Seal

__all__ = ["LocalStorage", "Storage", "checked_file_name", "shown_root", "stable"]

# Inside the classes `list` is the method.
Names: TypeAlias = list[str]

_BUFFER = 1 << 18
_CHUNK = 1 << 20
_FILE = re.compile(r"file:(//[^/]*(?=/))?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# What file systems without hard links answer to a link, and those without folder sync to that.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


class Storage(ABC):
    """The interface. Six operations must be written; the others work on top of them, if slowly."""

    exclusive_publish: ClassVar[bool] = False
    """True if of several simultaneous `publish` calls with one name exactly one succeeds."""

    seal: Seal | None = None
    """What signs and checks the files that are kept here, for whoever writes and reads them."""

    @property
    @abstractmethod
    def root(self) -> str:
        """What to give to `open_storage` to get the same storage elsewhere."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Create or replace a file; a reader sees the old bytes or the new ones, never a part."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """A file's bytes; FileNotFoundError if there is none."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """True if the file is there; a folder is not a file."""

    @abstractmethod
    def list(self, folder: str) -> Names:
        """The names directly below a folder, sorted, without hidden ones; empty if there is none."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; no error if it is gone."""

    def take(self, name: str) -> bool:
        """Remove a file; True if it was there. Of two that take one file at the same moment both may be told so,
        unless the storage is a file system."""
        there = self.exists(name)
        self.delete(name)
        return there

    def publish(self, name: str, data: bytes) -> None:
        """Create a file; FileExistsError if the name is taken.

        Unless `exclusive_publish` is true, this looks first and writes then: two writers at the
        same moment may both succeed, and it is the job's lease that keeps the second one away.
        """
        if self.exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.write(name, data)

    def open_write(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A stream into a file that appears when the context ends without an error."""
        return self._buffered(name)

    @contextlib.contextmanager
    def _buffered(self, name: str) -> Iterator[BinaryIO]:
        buffer = io.BytesIO()
        yield buffer
        self.write(name, buffer.getvalue())

    def open_read(self, name: str) -> BinaryIO:
        """A stream out of a file; FileNotFoundError if there is none."""
        return io.BytesIO(self.read(name))

    def open_random(self, name: str) -> BinaryIO:
        """A stream out of a file that can be read from any place."""
        return self.open_read(name)

    def open_hidden(self, name: str) -> BinaryIO:
        """A stream into a new file; for hidden names, which nobody reads before `move`."""
        raise AssertionError(f"{type(self).__name__} has no streams that stay open")

    def move(self, name: str, to_name: str) -> None:
        """Give a file another name."""
        raise AssertionError(f"{type(self).__name__} moves no files")

    def walk(self) -> Iterator[tuple[str, int, int]]:
        """All files, hidden or not, sorted: name, size, and when it was changed, in nanoseconds. This, `open_hidden`
        and `move` are for data behind a URL."""
        raise AssertionError(f"{type(self).__name__} cannot be walked through")

    def size(self, name: str) -> int | None:
        """A file's size in bytes; None if there is no such file."""
        try:
            return len(self.read(name))
        except FileNotFoundError:
            return None

    def delete_tree(self, folder: str) -> None:
        """Remove all that is below a folder, hidden or not; no error if it is gone.

        The folder goes too, if it is not the root ("").
        """
        for child in self.list(folder):
            name = f"{folder}/{child}" if folder else child
            if self.exists(name):
                self.delete(name)
            else:
                self.delete_tree(name)

    def delete_hidden(self, folder: str) -> None:
        """Remove what writers that were killed have left behind directly in a folder."""

    def copy_from(self, other: Storage, name: str, to_name: str) -> None:
        """Copy a file of another storage, or of this one, without holding it in memory."""
        with other.open_read(name) as source, self.open_write(to_name) as target:
            shutil.copyfileobj(source, target, _CHUNK)

    def expect(self) -> None:
        """From now on the root is known to be there: if it is not, that is trouble (`StorageAway`) and no empty folder.
        Behind a URL nothing looks empty because it cannot be reached."""

    def check_private(self) -> None:
        """Raise if anybody may change what is kept here: who can do that can have the job do anything."""

    def folder(self, name: str) -> Storage:
        """The storage whose root is a folder below this one's. Those that `open_storage` gives have it."""
        raise AssertionError(f"{type(self).__name__} has no folder {name}")


class LocalStorage(Storage):
    """A folder of a file system that every worker can see.

    Files and folders are for their owner alone. A file's bytes are on the disk before its name is.
    With `durable` false a name may be lost with the machine's power, though not with the process:
    enough for a folder that ends with its job.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> storage = LocalStorage(folder.name)
    >>> storage.write("state/a", b"1")
    >>> storage.list("state"), storage.size("state/a")
    (['a'], 1)
    >>> folder.cleanup()
    """

    exclusive_publish = True

    def __init__(self, root: str, *, durable: bool = True) -> None:
        self._root = Path(root)
        self._durable = durable
        self._expected = False

    @property
    def root(self) -> str:
        return str(self._root)

    def write(self, name: str, data: bytes) -> None:
        with self._placed(name, os.replace) as file:
            file.write(data)

    def publish(self, name: str, data: bytes) -> None:
        with self._placed(name, _place_new) as file:
            file.write(data)

    def open_write(self, name: str) -> AbstractContextManager[BinaryIO]:
        return self._placed(name, os.replace)

    def open_read(self, name: str) -> BinaryIO:
        try:
            return self._file(name).open("rb")
        except FileNotFoundError:
            self._require_root()
            raise

    def read(self, name: str) -> bytes:
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            self._require_root()
            raise

    def exists(self, name: str) -> bool:
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        try:
            facts = self._file(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            return None
        return facts.st_size if stat.S_ISREG(facts.st_mode) else None

    def list(self, folder: str) -> Names:
        try:
            names = os.listdir(self._root / checked_file_name(folder, empty=True))
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            return []
        return sorted(name for name in names if not name.startswith("."))

    def delete(self, name: str) -> None:
        with contextlib.suppress(NotADirectoryError):
            self._file(name).unlink(missing_ok=True)

    def take(self, name: str) -> bool:
        try:
            self._file(name).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def delete_tree(self, folder: str) -> None:
        path = self._root / checked_file_name(folder, empty=True)
        # Before Python 3.13 a file that somebody else removes meanwhile ends the removal.
        for _ in range(100):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                if path.exists():
                    continue
            return

    def delete_hidden(self, folder: str) -> None:
        path = self._root / checked_file_name(folder, empty=True)
        with contextlib.suppress(FileNotFoundError):
            for entry in list(path.iterdir()):
                if entry.name.startswith(".") and entry.is_file():
                    entry.unlink(missing_ok=True)

    def expect(self) -> None:
        self._expected = True

    def _require_root(self) -> None:
        """What is not there is missing only if the root is there. That of a network's disk that is lost is not."""
        if self._expected and not self._root.is_dir():
            raise StorageAway(
                "the job's folder is not there any more",
                folder=shown_root(self.root),
                hint="is the disk of the network still mounted? The job goes on when the folder is back as it was",
            )

    def check_private(self) -> None:
        try:
            facts = self._root.stat()
        except FileNotFoundError:
            return
        # In a sticky folder, as /tmp is, nobody can move or remove what is another's, but anybody can be there first.
        shared = self._root.parent.stat().st_mode & stat.S_IWOTH
        if shared and os.name == "posix" and facts.st_uid not in (os.geteuid(), 0):
            raise ConfigurationError(
                "the folder of the checkpoints was made by another user, where everybody may make folders",
                folder=self.root,
                owner=facts.st_uid,
                hint="choose another folder, or run the job as the owner of this one",
            )
        if facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX:
            raise ConfigurationError(
                "everybody may write to the folder of the checkpoints, and so change the job's state and code",
                folder=self.root,
                permissions=stat.filemode(facts.st_mode),
                hint=f"chmod o-w {self.root}, or choose a folder of the job's own",
            )

    def folder(self, name: str) -> LocalStorage:
        return LocalStorage(str(self._file(name)), durable=self._durable)

    def _file(self, name: str) -> Path:
        return self._root / checked_file_name(name)

    @contextlib.contextmanager
    def _placed(self, name: str, place: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
        """A new hidden file, which `place` gives its name when all of it is on the disk."""
        path = self._file(name)
        hidden = path.with_name(f".{secrets.token_hex(16)}")
        try:
            descriptor = os.open(hidden, _CREATE, 0o600)
        except FileNotFoundError:
            self._require_root()
            self._make_folder(path.parent)
            descriptor = os.open(hidden, _CREATE, 0o600)
        try:
            try:
                # The descriptor outlives the stream, which a user of it may close early.
                with os.fdopen(descriptor, "wb", _BUFFER, closefd=False) as file:
                    yield file
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            place(hidden, path)
        except BaseException:
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise
        if self._durable:
            _sync_folder(path.parent)

    def _make_folder(self, path: Path) -> None:
        # Not `mkdir(parents=True)`: that gives the parents the permissions of the umask.
        try:
            self._make_one_folder(path)
        except FileNotFoundError:
            if path.parent == path:
                raise
            self._make_folder(path.parent)
            # Below /proc nothing can be made, and it says of every name that it does not exist.
            self._make_one_folder(path)

    def _make_one_folder(self, path: Path) -> None:
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if not path.is_dir():
                raise
        else:
            if self._durable:
                _sync_folder(path.parent)


def _place_new(hidden: Path, path: Path) -> None:
    """Give a file its name if nothing has it; a rename would replace what has."""
    try:
        os.link(hidden, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # No links here: take the name with an empty file, which a reader may see for a moment.
        os.close(os.open(path, _CREATE, 0o600))
        try:
            hidden.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    else:
        with contextlib.suppress(OSError):
            hidden.unlink()


def _sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk, where the file system knows how to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def checked_file_name(name: str, *, empty: bool = False) -> str:
    """The name, if it stays below its root; "" is the root itself, which only folders may be.

    >>> checked_file_name("state/a")
    'state/a'
    >>> checked_file_name("../a")
    Traceback (most recent call last):
    ...
    ValueError: a name must stay below its storage's root: '../a'
    """
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        msg = f"a name must stay below its storage's root: {name!r}"
        raise ValueError(msg)
    if not empty and parts[-1] in ("", "."):
        msg = f"not the name of a file or folder: {name!r}"
        raise ValueError(msg)
    return name


def stable(root: str) -> str:
    """A root that means the same in every process: a local path becomes absolute.

    >>> stable("file:///data/../state"), stable("s3://bucket/state")
    ('/state', 's3://bucket/state')
    """
    path = _local(root)
    return root if path is None else os.path.abspath(path)


def shown_root(root: str) -> str:
    """A root as messages show it: without the password that a URL may hold.

    >>> shown_root("s3://key:secret@bucket/state")
    's3://***@bucket/state'
    """
    return redaction.shown(root)


def _local(root: str) -> str | None:
    """The path, if the root is a local one."""
    if "\0" in root:
        raise ConfigurationError("a path cannot hold the character NUL", path=repr(root))
    if root.startswith("file:"):
        return _FILE.sub("", root, count=1)
    return None if _SCHEME.match(root) else root
