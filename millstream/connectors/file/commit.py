"""Makes the files of an epoch visible (Flink's `FileCommitter`).

A commit may be repeated at any time, also after it was cut short: each file is either still hidden,
and is renamed, or has its name already, and is left alone. If it is neither here nor there, whoever reads
the folder has taken it away since it was committed: that is what files are for. Nothing here can tell
that from a hidden file that somebody has removed, so it is said in the log.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.api.sink import Committer
from millstream.errors import SinkError
from millstream.redaction import get_logger

__all__ = ["FileCommitter", "Part", "hidden_name", "mark_of"]

_log = get_logger("millstream.job")

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


def mark_of(mark: str, job_id: str, sink: str) -> str:
    """What tells the hidden files of one job's sink from all others: a `FileSink` may be the end of several streams,
    and of one job after the other.

    >>> mark_of("4f2a91c0", "77e0", "orders")
    '0fb73e24'
    """
    return hashlib.sha256(f"{mark} {job_id} {sink}".encode()).hexdigest()[:8]


class Part(NamedTuple):
    """A file of a bucket: its name before and after the commit, and the sink's folder when it was written, which may
    not be that of the sink that commits it.

    >>> Part.decode(
    ...     Part.encode([Part("day=1", ".part-0-1.inprogress.4f.1.a-77", "part-0-1", "/out")])
    ... )
    [Part(bucket='day=1', hidden='.part-0-1.inprogress.4f.1.a-77', visible='part-0-1', path='/out')]
    """

    bucket: str
    hidden: str
    visible: str
    path: str = ""

    @staticmethod
    def encode(parts: Iterable[Part]) -> bytes:
        """The parts as a committable."""
        return json.dumps(list(parts)).encode()

    @staticmethod
    def decode(committable: bytes) -> list[Part]:
        """What `encode` wrote."""
        return [Part(*fields) for fields in json.loads(committable)]


class FileCommitter(Committer):
    """Renames the files of a sink; `mark` is what tells its hidden files from another `FileSink`'s.

    >>> FileCommitter("/data/out", "4f2a91c0").commit(0, [])
    """

    def __init__(self, path: str, mark: str) -> None:
        self._path = path
        self._mark = mark
        self._last = -1
        self._folders = {path}

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Rename what is not renamed yet."""
        gone = self._commit(epoch, committables)
        if gone:
            raise SinkError(
                "a file to commit is gone",
                file=gone[0],
                epoch=epoch,
                hint="nothing but this sink may move or remove its hidden files before they are committed",
            )

    def commit_again(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Rename what is not renamed yet; what is neither hidden nor visible was committed, and taken away by whoever
        reads the files."""
        gone = self._commit(epoch, committables)
        if gone:
            _log.warning(
                "epoch %d: %d of the files to commit again are not there any more, so they were committed before and "
                "have been moved or removed since; the first is %s",
                epoch,
                len(gone),
                gone[0],
            )

    def _commit(self, epoch: int, committables: Sequence[bytes]) -> list[str]:
        """Rename; the hidden names of files that are gone."""
        folders: set[str] = set()
        gone: list[str] = []
        for committable in committables:
            for part in Part.decode(committable):
                folder = os.path.join(part.path or self._path, part.bucket)
                if _publish(folder, part, epoch):
                    folders.add(folder)
                else:
                    gone.append(os.path.join(folder, part.hidden))
        for folder in folders:
            _sync_folder(folder)
        self._folders |= folders
        if not gone:
            self._last = max(self._last, epoch)
        return gone

    def close(self) -> None:
        """Remove what failed attempts at committed epochs have left behind.

        Hidden files of a later epoch stay: its commit may still come, after a recovery.
        """
        mark = mark_of(self._mark, self.job_id, self.sink)
        for folder in self._folders:
            with contextlib.suppress(OSError):
                for name in os.listdir(folder):
                    trailer = _TRAILER.search(name)
                    if (
                        trailer is not None
                        and trailer["mark"] == mark
                        and int(trailer["epoch"]) <= self._last
                    ):
                        os.unlink(os.path.join(folder, name))


def _publish(folder: str, part: Part, epoch: int) -> bool:
    """Rename a file, unless it is; False if it is under neither of its names."""
    hidden = os.path.join(folder, part.hidden)
    visible = os.path.join(folder, part.visible)
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


def _sync_folder(folder: str) -> None:
    """Make renames survive a loss of power, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
