"""Which files there are, and how each is cut into splits (Flink's `FileEnumerator`).

A split is a file, or a block of a large one, and its name says how many bytes there were when it
was found: `path#0-size`, `path#start-end/size` for a block, `path#all` for a compressed file. A
position is the number of bytes of the split that are behind it, or 1 behind a compressed file.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from millstream.api.source import SplitEnumerator
from millstream.connectors.file.format import is_compressed
from millstream.errors import SourceError, SourceNotFound

__all__ = ["BLOCK_SIZE", "FileSplit", "FileSplits", "check_there"]

BLOCK_SIZE = 64 << 20
_HIDDEN = (".", "_")


@dataclass(frozen=True)
class FileSplit:
    """A part of a file; `size` is the whole file's, None if it is compressed.

    >>> FileSplit.parse("/data/a.txt#0-100")
    FileSplit(path='/data/a.txt', start=0, end=100, size=100)
    >>> print(FileSplit("/data/b.txt", 64, 128, 200))
    /data/b.txt#64-128/200
    """

    path: str
    start: int
    end: int
    size: int | None

    def __str__(self) -> str:
        if self.size is None:
            return f"{self.path}#all"
        block = f"{self.path}#{self.start}-{self.end}"
        return block if (self.start, self.end) == (0, self.size) else f"{block}/{self.size}"

    @staticmethod
    def parse(split: str) -> FileSplit:
        """What `str` wrote."""
        path, _, part = split.rpartition("#")
        if part == "all":
            return FileSplit(path, 0, 1, None)
        block, _, size = part.partition("/")
        start, end = map(int, block.split("-"))
        return FileSplit(path, start, end, int(size) if size else end)


# What a set without any file consists of, so that the source has something that ends.
_NOTHING = str(FileSplit("", 0, 0, 0))


class FileSplits(SplitEnumerator):
    """Looks for files: once, or whenever the interval has passed.

    >>> FileSplits(["/no/such/folder"], None).discover()
    Traceback (most recent call last):
    ...
    millstream.errors.SourceNotFound: [SOURCE_NOT_FOUND] there is no such file or folder
      path: /no/such/folder
      what to do: check the path; the driver and all workers must see it under this name
    """

    def __init__(
        self,
        paths: Sequence[str],
        interval_ms: int | None,
        block_size: int = BLOCK_SIZE,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._interval_ms = interval_ms
        self._block_size = block_size
        self._clock = clock
        self._lengths: dict[str, int] = {}
        self._seen: set[str] = set()
        self._next_scan: float | None = clock()

    def restored(self, positions: dict[str, int]) -> None:
        """Know the files again that were found before, with the sizes they had then."""
        for split in positions:
            self._add(FileSplit.parse(split))
        if positions and self._interval_ms is None:
            self._next_scan = None

    def discover(self) -> Sequence[str]:
        """All splits found so far; looks for more if it is time to."""
        if self._next_scan is not None and self._clock() >= self._next_scan:
            self._scan()
            if self._interval_ms is None:
                self._next_scan = None
                if not self._lengths:
                    self._add(FileSplit.parse(_NOTHING))
            else:
                self._next_scan = self._clock() + self._interval_ms / 1000
        return list(self._lengths)

    def _scan(self) -> None:
        found: dict[str, os.stat_result] = {}
        for path in self._paths:
            check_there(path, wait=self._interval_ms is not None)
            for file in _files(path):
                if file not in self._seen and file not in found:
                    try:
                        facts = os.stat(file)
                    except FileNotFoundError:
                        continue  # It went away while we looked.
                    if stat.S_ISREG(facts.st_mode):
                        found[file] = facts
        files = list(found)
        if self._interval_ms is not None:
            files.sort(key=lambda file: (found[file].st_mtime_ns, file))
        for file in files:
            for split in _cut(file, found[file].st_size, self._block_size):
                self._add(split)

    def _add(self, split: FileSplit) -> None:
        self._lengths[str(split)] = split.end - split.start
        self._seen.add(split.path)

    def available(self, split: str, position: int) -> int:
        """A split can be read to its end at once."""
        return self._lengths[split]

    def finished(self, split: str, position: int) -> bool:
        """True at the split's end."""
        return position == self._lengths[split]

    def exhausted(self) -> bool:
        """True unless folders are watched."""
        return self._interval_ms is None


def check_there(path: str, *, wait: bool) -> None:
    """Raise SourceNotFound if nothing is there; a pattern may match nothing yet if `wait`.

    >>> check_there("/tmp/*.never", wait=True)
    """
    if os.path.exists(path):
        return
    pattern = glob.has_magic(path)
    if pattern and (wait or next(_files(path), None) is not None):
        return
    raise SourceNotFound(
        "no file matches the pattern" if pattern else "there is no such file or folder",
        path=path,
        hint="check the path; the driver and all workers must see it under this name",
    )


def _files(path: str) -> Iterator[str]:
    """The files that a path stands for, sorted within each folder."""
    if os.path.isdir(path):
        for folder, folders, names in os.walk(path, onerror=_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
            for name in sorted(names):
                if not name.startswith(_HIDDEN):
                    yield os.path.join(folder, name)
    elif os.path.exists(path):
        yield path
    else:
        for match in sorted(glob.glob(path, recursive=True)):
            if not os.path.basename(match).startswith(_HIDDEN):
                yield from _files(match)


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise SourceError(
            f"a folder cannot be read: {error.strerror}",
            path=error.filename,
            hint="let the driver and all workers read it, or name the paths to read one by one",
        ) from error


def _cut(path: str, size: int, block_size: int) -> Iterator[FileSplit]:
    if is_compressed(path):
        yield FileSplit(path, 0, 1, None)
        return
    for start in range(0, max(1, size), block_size):
        yield FileSplit(path, start, min(size, start + block_size), size)
