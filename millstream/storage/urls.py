"""URLs of data: what of them may be written down, and the files below them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, NamedTuple

from millstream.storage.open import open_storage
from millstream.storage.storage import Storage

__all__ = [
    "DataUrl",
    "Found",
    "RemotePath",
    "check_scheme",
    "is_url",
    "open_data",
    "open_found",
    "translated",
]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_MAGIC = re.compile(r"[*\[]")
_HIDDEN = (".", "_")
# Only PyArrow's URLs have a query; elsewhere a ? is a sign like any other.
_WITH_QUERY = ("s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")


def is_url(path: str) -> bool:
    """True for what is not a path of a local file system.

    >>> is_url("s3://bucket/in"), is_url("/data/in"), is_url("file:///data/in")
    (True, False, False)
    """
    return _SCHEME.match(path) is not None and not path.startswith("file:")


def check_scheme(url: str) -> None:
    """Raise if there is nothing that can reach the URL. Nothing is asked of a server.

    >>> check_scheme("nowhere://data")
    Traceback (most recent call last):
    ...
    millstream.errors.ConfigurationError: [CONFIGURATION_INVALID] no storage is known for nowhere://data
      what to do: known are file, s3, gs, hdfs, abfs, memory, and every protocol of fsspec
    """
    if DataUrl.parse(url).scheme not in _WITH_QUERY:
        open_storage(url)


@dataclass(frozen=True)
class DataUrl:
    """A URL in its parts.

    >>> url = DataUrl.parse("s3://key:secret@bucket/in/a.txt?region=eu-west-1")
    >>> url.plain, str(url.parent)
    ('s3://bucket/in/a.txt', 's3://key:secret@bucket/in?region=eu-west-1')
    """

    scheme: str
    user: str = field(repr=False)
    path: str
    query: str

    @staticmethod
    def parse(url: str) -> DataUrl:
        """The parts of a URL."""
        scheme, _, rest = url.partition("://")
        query = ""
        if scheme.lower().rpartition("+")[2] in _WITH_QUERY:
            rest, _, query = rest.partition("?")
        return DataUrl._of(scheme, rest, query)

    @staticmethod
    def parse_plain(plain: str) -> DataUrl:
        """The parts of what `plain` gave, or of a file below it: a ? is part of a name there.

        >>> DataUrl.parse_plain("s3://bucket/in/what?.txt").name
        'what?.txt'
        """
        scheme, _, rest = plain.partition("://")
        return DataUrl._of(scheme, rest, "")

    @staticmethod
    def _of(scheme: str, rest: str, query: str) -> DataUrl:
        host, slash, path = rest.partition("/")
        user, at, host = host.rpartition("@")
        return DataUrl(scheme.lower(), user + at, f"{host}{slash}{path}".rstrip("/"), query)

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.user}{self.path}{query}"

    @property
    def plain(self) -> str:
        """The URL without credentials and settings: what splits and committables are written with."""
        return f"{self.scheme}://{self.path}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> DataUrl:
        """The folder above."""
        return replace(self, path=self.path.rpartition("/")[0])

    def reaching(self, plain: str) -> DataUrl:
        """Another URL with this one's credentials and settings, if it is of the same scheme."""
        other = DataUrl.parse_plain(plain)
        if other.scheme != self.scheme:
            return other
        return replace(other, user=self.user, query=self.query)


class Found(NamedTuple):
    """A file: its URL, its size, and when it was changed, in nanoseconds."""

    path: str
    size: int
    modified: int


class RemotePath:
    """What a source is told to read behind a URL: a file, a folder with all below it, or a pattern.

    >>> import fsspec
    >>> memory = fsspec.filesystem("memory")
    >>> memory.pipe({"/docs/in/a.txt": b"1", "/docs/in/b.csv": b"22", "/docs/in/_c.txt": b"3"})
    >>> [found.path for found in RemotePath("memory://docs/in/*.txt").files()]
    ['memory://docs/in/a.txt']
    >>> open_found("memory://docs/in/b.csv", ["memory://docs/in"]).read()
    b'22'
    >>> memory.rm("/docs", recursive=True)
    """

    def __init__(self, url: str) -> None:
        self.url = DataUrl.parse(url)
        self.pattern = _MAGIC.search(self.url.path) is not None

    def files(self) -> Iterator[Found]:
        """The files, without those whose name, or a folder's below the path, begins with . or _."""
        if self.pattern:
            yield from self._matching()
            return
        if self.url.name != self.url.path:
            size = open_data(self.url.parent).size(self.url.name)
            if size is not None:
                yield Found(self.url.plain, size, 0)
                return
        yield from _below(self.url)

    def _matching(self) -> Iterator[Found]:
        fixed = self.url.path[: _MAGIC.search(self.url.path).start()]  # type: ignore[union-attr]
        folder = replace(self.url, path=fixed.rpartition("/")[0])
        wanted = re.compile(translated(self.url.path))
        for found in _below(folder):
            if wanted.fullmatch(found.path.removeprefix(f"{self.url.scheme}://")):
                yield found


def _below(folder: DataUrl) -> Iterator[Found]:
    for name, size, modified in open_data(folder).walk():
        if not any(part.startswith(_HIDDEN) for part in name.split("/")):
            yield Found(f"{folder.plain}/{name}", size, modified)


def open_data(url: DataUrl) -> Storage:
    """The storage of a folder of data."""
    host, _, folder = url.path.partition("/")
    storage = _opened(str(replace(url, path=host)), os.getpid())
    return storage.folder(folder) if folder else storage


@functools.lru_cache(maxsize=16)
def _opened(root: str, process: int) -> Storage:
    """A bucket, or the like, once per process: to open one takes requests, and a fork cannot use the parent's."""
    return open_storage(root)


def open_found(path: str, sources: Sequence[str]) -> BinaryIO:
    """The bytes of a file that one of several paths has led to, with that one's credentials and settings."""
    url = DataUrl.parse_plain(path)
    for source in sources:
        if is_url(source):
            given = DataUrl.parse(source)
            fixed = _MAGIC.split(given.path)[0]
            if given.scheme == url.scheme and url.path.startswith(fixed):
                url = given.reaching(path)
                break
    return open_data(url.parent).open_random(url.name)


def translated(pattern: str) -> str:
    """A pattern of names as a regular expression: ** is any folders, * and [..] stay within a name.

    >>> bool(re.fullmatch(translated("in/**/*.txt"), "in/2026/11/a.txt"))
    True
    >>> bool(re.fullmatch(translated("in/*.txt"), "in/2026/a.txt"))
    False
    """
    result, place = "", 0
    while place < len(pattern):
        if pattern.startswith("**/", place):
            result, place = result + "(?:.*/)?", place + 3
        elif pattern.startswith("**", place):
            result, place = result + ".*", place + 2
        elif pattern[place] == "*":
            result, place = result + "[^/]*", place + 1
        elif pattern[place] == "[" and "]" in pattern[place + 1 :]:
            end = pattern.index("]", place + 1)
            inside = pattern[place + 1 : end].replace("\\", r"\\")
            inside = f"^{inside[1:]}" if inside.startswith("!") else inside
            result, place = f"{result}[{inside}]", end + 1
        else:
            result, place = result + re.escape(pattern[place]), place + 1
    return result
