"""Where a file sink's files lie, and how one becomes visible there.

```
a folder      written under a hidden name, renamed          a file system's rename shows all or nothing
S3            uploaded in parts, completed                  nobody sees an upload before it is completed
other URLs    written under a hidden name, moved            on an object store: copied, then removed
```

In a folder a name that is taken gets the writer's mark; behind a URL every name has it, so that nothing can be
overwritten there and a file that is seen under a name is the one that was written for it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple, cast

from millstream.connectors.file.paths import stable_path
from millstream.errors import SinkError
from millstream.redaction import shown
from millstream.storage.s3 import S3Upload, S3Uploads
from millstream.storage.urls import DataUrl, is_url, open_data

__all__ = ["Part", "Place", "hidden_name", "place_of"]

_BUFFER = 1 << 18

_TRAILER = re.compile(
    r"\.inprogress\.(?P<mark>[0-9a-f]+)\.(?P<epoch>\d+)\.(?P<attempt>.*)-(?P<writer>[0-9a-f]+)$"
)

# What file systems say that have no hard links, or not for files of another user.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def hidden_name(visible: str, mark: str, epoch: int, attempt: str, writer: str) -> str:
    """The name of a file before its commit; `mark` and `writer` are hexadecimal.

    >>> hidden_name("part-0-7.txt", "4f2a91c0", 7, "a1", "77e0")
    '.part-0-7.txt.inprogress.4f2a91c0.7.a1-77e0'
    """
    return f".{visible}.inprogress.{mark}.{epoch}.{attempt}-{writer}"


class Part(NamedTuple):
    """A file of a bucket: its name before and after the commit, the sink's path when it was written, which may
    not be that of the sink that commits it, what completes its upload, if it is one, and how many bytes it has.

    >>> Part.decode(
    ...     Part.encode([Part("day=1", ".part-0-1.inprogress.4f.1.a-77", "part-0-1", "/out")])
    ... )[0][:4]
    ('day=1', '.part-0-1.inprogress.4f.1.a-77', 'part-0-1', '/out')
    """

    bucket: str
    hidden: str
    visible: str
    path: str = ""
    upload: str = ""
    size: int = 0

    @staticmethod
    def encode(parts: Iterable[Part]) -> bytes:
        """The parts as a committable."""
        return json.dumps(list(parts)).encode()

    @staticmethod
    def decode(committable: bytes) -> list[Part]:
        """What `encode` wrote."""
        return [Part(*fields) for fields in json.loads(committable)]


class Place(ABC):
    """Files below a path or URL."""

    marked = False
    """True if every name has the mark of its writer."""

    root: str
    """The path as committables hold it: without credentials."""

    @abstractmethod
    def create(self, part: Part) -> BinaryIO:
        """A stream into a new file."""

    @abstractmethod
    def finish(self, stream: BinaryIO, part: Part) -> Part:
        """Make durable what was written; the part as the commit needs it."""

    @abstractmethod
    def discard(self, stream: BinaryIO | None, part: Part) -> None:
        """Remove what was written; `stream` is None if it is finished."""

    @abstractmethod
    def publish(self, part: Part, epoch: int) -> bool:
        """Make a file visible, unless it is; False if it is neither waiting nor there."""

    @abstractmethod
    def sweep(self, bucket: str, mark: str, last: int) -> None:
        """Remove what attempts at epochs up to the last have left behind."""

    def settle(self, buckets: Iterable[str]) -> None:
        """Make what was published survive a loss of power."""

    def where(self, part: Part) -> str:
        """The file's place, for messages."""
        return "/".join(piece for piece in (self.root, part.bucket, part.hidden) if piece)


def place_of(path: str, known: str = "", *, staged: bool = False) -> Place:
    """The place behind a sink's path; `known` is another path, whose credentials are used if it has any. With `staged`,
    files are written so that they can be read before they are published.

    >>> place_of("/data/out").root
    '/data/out'
    """
    if not is_url(path):
        return _Folder(path)
    url = DataUrl.parse(path)
    if not url.user and is_url(known):
        url = DataUrl.parse(known).reaching(path)
    return _S3(url) if url.scheme in ("s3", "s3a") and not staged else _Remote(url)


class _Folder(Place):
    def __init__(self, path: str) -> None:
        self.root = stable_path(path) if path else ""

    def _path(self, part: Part, name: str) -> str:
        return os.path.join(self.root, part.bucket, name)

    def create(self, part: Part) -> BinaryIO:
        path = self._path(part, part.hidden)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return open(path, "xb", buffering=_BUFFER)

    def finish(self, stream: BinaryIO, part: Part) -> Part:
        with stream:
            stream.flush()
            os.fsync(stream.fileno())
        return part

    def discard(self, stream: BinaryIO | None, part: Part) -> None:
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path(part, part.hidden))

    def publish(self, part: Part, epoch: int) -> bool:
        hidden, visible = self._path(part, part.hidden), self._path(part, part.visible)
        # The name for when another run, or another sink, has a file of the first choice's name.
        trailer = _TRAILER.search(part.hidden)
        assert trailer is not None
        stem, suffix = os.path.splitext(visible)
        marked = f"{stem}-{trailer['writer']}{suffix}"
        try:
            os.stat(hidden)  # Some file systems would complain of other things first.
            if _rename(hidden, visible) or _rename(hidden, marked):
                return True
            reason = "its name and the one to fall back on are taken"
        except FileNotFoundError:
            return os.path.exists(visible) or os.path.exists(marked)
        except OSError as error:
            reason = error.strerror or str(error)
        raise SinkError(f"a file cannot be renamed: {reason}", file=hidden, epoch=epoch)

    def settle(self, buckets: Iterable[str]) -> None:
        for bucket in buckets:
            # Where the file system can.
            with contextlib.suppress(OSError):
                descriptor = os.open(os.path.join(self.root, bucket), os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def sweep(self, bucket: str, mark: str, last: int) -> None:
        folder = os.path.join(self.root, bucket)
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if _left_behind(name, mark, last):
                    os.unlink(os.path.join(folder, name))


def _left_behind(hidden: str, mark: str, last: int) -> bool:
    trailer = _TRAILER.search(hidden)
    return trailer is not None and trailer["mark"] == mark and int(trailer["epoch"]) <= last


def _rename(old: str, new: str) -> bool:
    """Rename without overwriting; False if the new name is another file's."""
    try:
        os.link(old, new)
    except FileExistsError:
        if not os.path.samefile(old, new):
            return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.exists(new):
            return False
        os.rename(old, new)
        return True
    os.unlink(old)
    return True


class _Url(Place):
    """What the places behind URLs have in common."""

    marked = True

    def __init__(self, url: DataUrl) -> None:
        self._url = url
        self.root = url.plain

    def _refused(self, what: str, part: Part, epoch: int, error: OSError) -> SinkError:
        return SinkError(
            f"{what}: {error}",
            file=shown(self.where(part)),
            epoch=epoch,
            hint="nothing is lost: the commit is repeated when the job starts again and the storage answers",
        )


class _S3(_Url):
    def __init__(self, url: DataUrl) -> None:
        super().__init__(url)
        self._uploads = S3Uploads(str(url))

    def create(self, part: Part) -> BinaryIO:
        return cast(BinaryIO, self._uploads.begin(_name(part)))

    def finish(self, stream: Any, part: Part) -> Part:
        return part._replace(upload=stream.finish())

    def discard(self, stream: Any, part: Part) -> None:
        with contextlib.suppress(OSError):
            if isinstance(stream, S3Upload):
                stream.discard()
            elif part.upload:
                self._uploads.abort(_name(part), part.upload)

    def publish(self, part: Part, epoch: int) -> bool:
        if not part.upload:
            # Written to be compacted, by a program that did so.
            return _Remote(self._url).publish(part, epoch)
        try:
            return self._uploads.complete(_name(part), part.upload)
        except OSError as error:
            raise self._refused("an upload cannot be completed", part, epoch, error) from error

    def sweep(self, bucket: str, mark: str, last: int) -> None:
        # Of an upload only the name it will have is known.
        name_of = re.compile(rf"-(?P<epoch>\d+)-\d+-{mark}[0-9a-f]{{8}}(?![0-9a-f])")

        def left_behind(name: str) -> bool:
            found = name_of.search(name)
            return found is not None and int(found["epoch"]) <= last

        with contextlib.suppress(OSError):
            self._uploads.abort_all(bucket, left_behind)


class _Remote(_Url):
    def _path(self, part: Part, name: str) -> str:
        return f"{part.bucket}/{name}" if part.bucket else name

    def create(self, part: Part) -> BinaryIO:
        return open_data(self._url).open_hidden(self._path(part, part.hidden))

    def finish(self, stream: BinaryIO, part: Part) -> Part:
        stream.close()
        return part

    def discard(self, stream: BinaryIO | None, part: Part) -> None:
        # Not OSErrors alone: what a driver of fsspec raises is its own business, and this is only to clean up.
        with contextlib.suppress(Exception):
            if stream is not None:
                stream.close()
        with contextlib.suppress(Exception):
            open_data(self._url).delete(self._path(part, part.hidden))

    def publish(self, part: Part, epoch: int) -> bool:
        storage = open_data(self._url)
        hidden, visible = self._path(part, part.hidden), self._path(part, part.visible)
        try:
            if storage.exists(visible):
                # A copy is complete when it is there; what it was made from may have been left behind.
                storage.delete(hidden)
                return True
            if not storage.exists(hidden):
                return False
            storage.move(hidden, visible)
        except OSError as error:
            raise self._refused("a file cannot be moved", part, epoch, error) from error
        return True

    def sweep(self, bucket: str, mark: str, last: int) -> None:
        storage = open_data(self._url)
        with contextlib.suppress(Exception):
            for name, _, _ in list(storage.walk()):
                folder, _, last_part = name.rpartition("/")
                if folder == bucket and _left_behind(last_part, mark, last):
                    storage.delete(name)


def _name(part: Part) -> str:
    return f"{part.bucket}/{part.visible}" if part.bucket else part.visible
