"""How the bytes of a file become records (Flink's `StreamFormat` and `TextLineInputFormat`).

A record belongs to the range in which its first byte lies. So a file can be cut anywhere, also in
the middle of a line or of a character, and each line is read by exactly one of the ranges.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar

from millstream.errors import InvalidArgument, SourceError, SourceNotFound
from millstream.storage.urls import is_url, open_found

__all__ = [
    "BulkFormat",
    "ColumnsOf",
    "StreamFormat",
    "TextLineFormat",
    "is_compressed",
    "read_file",
]

_CHUNK = 1 << 20
_NEWLINE = 10
_COMPRESSED: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".gzip": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)


class StreamFormat(ABC):
    """Reads records from a stream of bytes.

    >>> StreamFormat.text_line_format()
    TextLineFormat('UTF-8')
    """

    splittable: ClassVar[bool] = True
    """False if records begin anywhere, so that a file can only be read from its beginning; `read_range` is then not
    called."""

    @abstractmethod
    def read_range(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[list[Any]]:
        """Lists of the records that begin in `[start, end)` of a file of `size` bytes."""

    @abstractmethod
    def read_all(self, stream: BinaryIO, path: str) -> Iterator[list[Any]]:
        """Lists of all records of a stream of unknown length."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        r"""Each line is a record, without the \n or \r\n it ends in."""
        return TextLineFormat(charset_name)


class BulkFormat(StreamFormat):
    """Reads files that hold their records in blocks: Parquet, Avro. A block belongs to the range in which its first
    byte lies."""

    def gives_columns(self) -> bool:
        """True if `read_columns` gives what `read_range` does, where each record is a named `Row`."""
        return False

    def read_columns(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[Any]:
        """The records of a range as Arrow's batches."""
        raise NotImplementedError

    def read_all(self, stream: BinaryIO, path: str) -> Iterator[list[Any]]:
        """Lists of all records. Who has packed such a file, which is compressed already, pays with memory."""
        data = io.BytesIO(stream.read())
        size = data.getbuffer().nbytes
        yield from self.read_range(data, path, 0, size, size)


class ColumnsOf(BulkFormat):
    """Reads what a format reads, as Arrow's batches in the place of lists."""

    def __init__(self, bulk_format: BulkFormat) -> None:
        self._format = bulk_format

    def read_range(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[Any]:
        """The batches of a range."""
        return self._format.read_columns(stream, path, start, end, size)


class TextLineFormat(StreamFormat):
    r"""Lines of text.

    >>> file = io.BytesIO("eins\r\nzwölf\n\ndrei".encode())
    >>> list(TextLineFormat().read_range(file, "demo.txt", 0, 9, 18))
    [['eins', 'zwölf']]
    >>> list(TextLineFormat().read_range(file, "demo.txt", 9, 18, 18))
    [['', 'drei']]
    """

    def __init__(self, charset_name: str = "UTF-8") -> None:
        try:
            canonical = codecs.lookup(charset_name).name
            fits = canonical == "utf-8-sig" or "\r\n".encode(canonical) == b"\r\n"
        except LookupError:
            raise InvalidArgument(
                "this charset is not known",
                got=charset_name,
                hint="Python's names: utf-8, latin-1, ...",
            ) from None
        if not fits:
            raise InvalidArgument(
                "lines cannot be found in this charset without reading from the start",
                got=charset_name,
                hint="store the files as utf-8, latin-1 or another charset that contains ASCII",
            )
        self._name = charset_name
        self._charset = "utf-8" if canonical == "utf-8-sig" else canonical

    def __repr__(self) -> str:
        return f"TextLineFormat({self._name!r})"

    def read_range(
        self, stream: BinaryIO, path: str, start: int, end: int, size: int
    ) -> Iterator[list[str]]:
        """The lines that begin in the range; the last one is read beyond its end if need be."""
        position = start
        stream.seek(max(0, start - 1))
        if start > 0 and stream.read(1) != b"\n":
            skipped = stream.readline(end - start)
            position = start + len(skipped) if skipped.endswith(b"\n") else end
        while position < end:
            data = stream.read(min(_CHUNK, end - position))
            if not data:
                raise _shrunk(path, size, position)
            if data[-1] != _NEWLINE:
                data += stream.readline(size - position - len(data))
            yield self._lines(data, path, position)
            position += len(data)

    def read_all(self, stream: BinaryIO, path: str) -> Iterator[list[str]]:
        """All lines of a file."""
        position = 0
        while data := stream.read(_CHUNK):
            if data[-1] != _NEWLINE:
                data += stream.readline()
            yield self._lines(data, path, position)
            position += len(data)

    def _lines(self, data: bytes, path: str, position: int) -> list[str]:
        offset = position
        if position == 0 and self._charset == "utf-8" and data.startswith(codecs.BOM_UTF8):
            data = data[len(codecs.BOM_UTF8) :]
            offset = len(codecs.BOM_UTF8)
        if not data:
            return []
        try:
            text = data.decode(self._charset)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"the file is not {self._name} text: {error.reason}",
                file=path,
                byte_offset=offset + error.start,
                bytes=data[error.start : error.end].hex(" "),
                hint="name its charset: StreamFormat.text_line_format('latin-1')",
            ) from None
        # Not splitlines(): it would also split at form feeds and at Unicode's own line ends.
        lines = text.split("\n")
        if data[-1] == _NEWLINE:
            lines.pop()
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        return lines


def is_compressed(path: str) -> bool:
    """True if the name says that the file has to be unpacked, and so cannot be cut into ranges.

    >>> is_compressed("log.GZ"), is_compressed("log.txt")
    (True, False)
    """
    return os.path.splitext(path)[1].lower() in _COMPRESSED


def read_file(
    records: StreamFormat,
    path: str,
    start: int,
    end: int,
    size: int | None,
    sources: Sequence[str] = (),
) -> Iterator[list[Any]]:
    """Lists of the records of a range; `size` is None for a file that is read whole. `sources` are the paths of the
    source, which say how to reach what lies behind a URL.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".gz") as file:
    ...     _ = file.write(gzip.compress(b"a\\nb\\n"))
    ...     file.flush()
    ...     list(read_file(TextLineFormat(), file.name, 0, 1, None))
    [['a', 'b']]
    """
    try:
        with open_file(path, sources) as stream:
            if size is None:
                yield from records.read_all(stream, path)
                return
            actual = stream.seek(0, os.SEEK_END)
            if actual < size:
                raise _shrunk(path, size, actual)
            yield from records.read_range(stream, path, start, end, size)
    except FileNotFoundError as error:
        raise SourceNotFound(
            "a file is gone that was there when the source found it",
            file=path,
            hint="keep files until the job has read them; put it back and run the job again",
        ) from error
    except _BROKEN as error:
        raise SourceError(
            f"a file cannot be read: {error}",
            file=path,
            hint="check that the file is complete and that the workers may read it",
        ) from error


def open_file(path: str, sources: Sequence[str] = ()) -> BinaryIO:
    """The bytes of a file, unpacked if its name says so.

    >>> with open_file(__file__) as stream:
    ...     stream.readline()[3:16]
    b'How the bytes'
    """
    opener = _COMPRESSED.get(os.path.splitext(path)[1].lower())
    if is_url(path):
        remote = open_found(path, sources)
        return remote if opener is None else _Unpacked(opener(remote, "rb"), remote)
    if opener is None:
        return open(path, "rb", buffering=1 << 17)
    return io.BufferedReader(opener(path, "rb"), 1 << 17)


class _Unpacked(io.BufferedReader):
    """What is in a compressed file behind a URL; its end closes both."""

    def __init__(self, unpacked: Any, packed: BinaryIO) -> None:
        super().__init__(unpacked, 1 << 17)
        self._packed = packed

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._packed.close()


def _shrunk(path: str, size: int, position: int) -> SourceError:
    return SourceError(
        "a file is shorter than it was when the source found it",
        file=path,
        bytes_then=size,
        bytes_now=position,
        hint="files must not change once they can be seen: write elsewhere, then rename",
    )
