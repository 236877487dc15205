"""Which files there are, and how each is cut into splits (Flink's `FileEnumerator`).

A split is a file, or a block of a large one, and its name says how many bytes there were when it
was found: `path#0-size`, `path#start-end/size` for a block, `path#all` for a file that cannot be cut: one that is
compressed, or of a format whose records begin anywhere. A position is the number of bytes of the split that are behind
it, or 1 behind a file that cannot be cut. What lies behind a URL is named without credentials.
"""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from millstream.api.source import SplitEnumerator
from millstream.connectors.file.format import is_compressed
from millstream.errors import SourceError, SourceNotFound
from millstream.redaction import shown
from millstream.storage.urls import Found, RemotePath, is_url, translated

__all__ = ["BLOCK_SIZE", "FileSplit", "FileSplits", "check_there"]

BLOCK_SIZE = 64 << 20
# Cutting off less than this costs more than it saves.
_LEAST = 8 << 20
_HIDDEN = (".", "_")


@dataclass(frozen=True)
class FileSplit:
    """A part of a file; `size` is the whole file's, None if it cannot be cut.

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
        whole: bool = False,
        never_empty: bool = False,
        readers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._whole = whole
        # An empty file has nothing that could be read, and would go unnoticed where there is no such thing.
        self._never_empty = never_empty
        self._interval_ms = interval_ms
        self._block_size = block_size
        self._readers = readers
        self._at_once = False
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

    def at_once(self) -> None:
        """Cut files so that all readers have about as much to read."""
        self._at_once = self._interval_ms is None

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
        found: dict[str, Found] = {}
        for path in self._paths:
            there = False
            for file in _found(path) if is_url(path) else self._on_disk(path):
                there = True
                if file.path not in self._seen:
                    found.setdefault(file.path, file)
            if is_url(path) and not there and self._interval_ms is None:
                raise _missing(path)
        files = list(found.values())
        if self._interval_ms is not None:
            files.sort(key=lambda file: (file.modified, file.path))
        block_size = self._block_size
        if self._at_once:
            # Two for each, because files are not of one size.
            share = -(-sum(file.size for file in files) // (2 * self._readers))
            block_size = min(block_size, max(share, _LEAST))
        for file in files:
            whole = self._whole or (self._never_empty and file.size == 0)
            for split in _cut(file.path, file.size, block_size, whole=whole):
                self._add(split)

    def _on_disk(self, path: str) -> Iterator[Found]:
        check_there(path, wait=self._interval_ms is not None)
        for file in _files(path):
            if file not in self._seen:
                try:
                    facts = os.stat(file)
                except FileNotFoundError:
                    continue  # It went away while we looked.
                if stat.S_ISREG(facts.st_mode):
                    yield Found(file, facts.st_size, facts.st_mtime_ns)

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
    if is_url(path):
        if not wait and next(_found(path), None) is None:
            raise _missing(path)
        return
    if os.path.exists(path):
        return
    if glob.has_magic(path) and (wait or next(_files(path), None) is not None):
        return
    raise _missing(path)


def _missing(path: str) -> SourceNotFound:
    pattern = RemotePath(path).pattern if is_url(path) else glob.has_magic(path)
    return SourceNotFound(
        "no file matches the pattern" if pattern else "there is no such file or folder",
        path=shown(path),
        hint="check the path; the driver and all workers must see it under this name",
    )


def _found(url: str) -> Iterator[Found]:
    """The files behind a URL."""
    try:
        yield from RemotePath(url).files()
    except OSError as error:
        raise SourceError(
            f"the files cannot be listed: {error}",
            path=shown(url),
            hint="check the address, the bucket and the credentials, on the driver and on every worker",
        ) from error


def _files(path: str) -> Iterator[str]:
    """The files that a path stands for, sorted within each folder."""
    if os.path.exists(path):
        yield from _there(path)
    else:
        named = set(path.split(os.sep))
        for match in sorted(_below(path) if "**" in path else glob.glob(path)):
            # Not the last part alone: ** also leads into folders like _temporary.
            if not any(p.startswith(_HIDDEN) and p not in named for p in match.split(os.sep)):
                yield from _there(match)


def _below(pattern: str) -> Iterator[str]:
    """What a pattern with ** stands for. Links to folders are not followed, as in folders that are named: they may
    lead in circles, and `glob` would go round."""
    parts = pattern.split(os.sep)
    fixed = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    wanted = re.compile(translated(pattern).replace(re.escape("?"), "[^/]"))
    for folder, folders, names in os.walk(os.sep.join(parts[:fixed]) or os.sep):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            if wanted.fullmatch(path):
                yield path


def _there(path: str) -> Iterator[str]:
    """A file, or the files below a folder; nothing for a link that leads nowhere."""
    if os.path.isdir(path):
        for folder, folders, names in os.walk(path, onerror=_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith(_HIDDEN))
            for name in sorted(names):
                if not name.startswith(_HIDDEN):
                    yield os.path.join(folder, name)
    elif os.path.exists(path):
        yield path


def _unreadable(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise SourceError(
            f"a folder cannot be read: {error.strerror}",
            path=error.filename,
            hint="let the driver and all workers read it, or name the paths to read one by one",
        ) from error


def _cut(path: str, size: int, block_size: int, *, whole: bool) -> Iterator[FileSplit]:
    if whole or is_compressed(path):
        yield FileSplit(path, 0, 1, None)
        return
    for start in range(0, max(1, size), block_size):
        yield FileSplit(path, start, min(size, start + block_size), size)
