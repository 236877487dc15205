"""Makes the files of an epoch visible (Flink's `FileCommitter`).

A commit may be repeated at any time, also after it was cut short: each file either still waits, and is
published (`millstream.connectors.file.places`), or has its name already, and is left alone. If it is neither here
nor there, whoever reads the folder has taken it away since it was committed: that is what files are for. Nothing
here can tell that from a hidden file that somebody has removed, so it is said in the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from millstream.api.sink import Committer
from millstream.connectors.file.compact import (
    CompactingCommitter,
    FileCompactStrategy,
    IdenticalFileCompactor,
    elsewhere,
    former_committer,
)
from millstream.connectors.file.places import Part, Place, hidden_name, place_of
from millstream.errors import SinkError
from millstream.redaction import get_logger

__all__ = ["FileCommitter", "Part", "hidden_name", "mark_of"]

_log = get_logger("millstream.job")


def mark_of(mark: str, job_id: str, sink: str) -> str:
    """What tells the hidden files of one job's sink from all others: a `FileSink` may be the end of several streams,
    and of one job after the other.

    >>> mark_of("4f2a91c0", "77e0", "orders")
    '0fb73e24'
    """
    return hashlib.sha256(f"{mark} {job_id} {sink}".encode()).hexdigest()[:8]


class FileCommitter(Committer):
    """Publishes the files of a sink; `mark` is what tells its hidden files from another `FileSink`'s.

    >>> FileCommitter("/data/out", "4f2a91c0").commit(0, [])
    """

    def __init__(self, path: str, mark: str) -> None:
        self._path = path
        self._mark = mark
        self._last = -1
        self._places: dict[str, Place] = {}
        self._buckets: set[tuple[str, str]] = {("", "")}

    def starts_from(self, job_id: str, epoch: int) -> None:
        """Publish what a former program, which did so, has left to be compacted."""
        former = CompactingCommitter(self._path, FileCompactStrategy(1), IdenticalFileCompactor())
        former.job_id, former.sink = self.job_id, self.sink
        former.starts_from(job_id, epoch)

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Publish what is not visible yet."""
        gone = self._commit(epoch, committables)
        if gone:
            raise SinkError(
                "a file to commit is gone",
                file=gone[0],
                epoch=epoch,
                hint="nothing but this sink may move or remove its hidden files, or abort its uploads, before they are "
                "committed",
            )

    def commit_again(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Publish what is not visible yet; what neither waits nor is visible was committed, and taken away by whoever
        reads the files."""
        parts = [part for committable in committables for part in Part.decode(committable)]
        for path in elsewhere(parts, self._place("").root):
            # The sink may have compacted there.
            strategy, compactor = FileCompactStrategy(1), IdenticalFileCompactor()
            former = former_committer(self, path, self._path, strategy, compactor)
            former.starts_from(self.job_id, epoch)
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
        """Publish; the hidden names of files that are gone."""
        published: dict[str, set[str]] = {}
        gone: list[str] = []
        for committable in committables:
            for part in Part.decode(committable):
                place = self._place(part.path)
                if place.publish(part, epoch):
                    published.setdefault(part.path, set()).add(part.bucket)
                else:
                    gone.append(place.where(part))
        for path, buckets in published.items():
            self._place(path).settle(buckets)
            self._buckets.update((path, bucket) for bucket in buckets)
        if not gone:
            self._last = max(self._last, epoch)
        return gone

    def _place(self, path: str) -> Place:
        """Where a part was written; "" is the sink's own path."""
        if path not in self._places:
            self._places[path] = place_of(path or self._path, self._path)
        return self._places[path]

    def close(self) -> None:
        """Remove what failed attempts at committed epochs have left behind.

        Hidden files of a later epoch stay: its commit may still come, after a recovery.
        """
        if self._last < 0:
            return
        mark = mark_of(self._mark, self.job_id, self.sink)
        for path, bucket in self._buckets:
            self._place(path).sweep(bucket, mark, self._last)
