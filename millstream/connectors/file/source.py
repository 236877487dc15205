"""Records from files, once or for as long as new ones appear (Flink's `FileSource`).

The driver looks for files (`millstream.connectors.file.discovery`), the workers read ranges of them
(`millstream.connectors.file.format`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.compat import no_effect
from millstream.common.time import DurationLike, parse_duration
from millstream.connectors.file.discovery import BLOCK_SIZE, FileSplit, FileSplits, check_there
from millstream.connectors.file.format import (
    BulkFormat,
    ColumnsOf,
    StreamFormat,
    read_file,
)
from millstream.connectors.file.paths import stable_path
from millstream.errors import InvalidArgument

__all__ = ["FileSource", "FileSourceBuilder"]


class FileSource(Source):
    """Reads files, folders (with all below them) and glob patterns; made by a builder.

    Names that begin with "." or "_" are not read, unless a path names them.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = pathlib.Path(folder.name, "a.txt").write_text("one\\ntwo\\n")
    >>> format = StreamFormat.text_line_format()
    >>> source = FileSource.for_record_stream_format(format, folder.name).build()
    >>> (split,) = source.create_enumerator(1).discover()
    >>> list(source.create_reader().read(split, 0, 8))
    ['one', 'two']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        stream_format: StreamFormat,
        paths: Sequence[str],
        interval_ms: int | None,
        block_size: int,
    ) -> None:
        self._format = stream_format
        self._paths = tuple(paths)
        self._interval_ms = interval_ms
        self._block_size = block_size

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder:
        """A builder for a source that reads these paths."""
        return FileSourceBuilder(stream_format, *paths)

    @staticmethod
    def for_bulk_file_format(
        bulk_format: BulkFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder:
        """A builder for a source that reads files of a format with blocks, as Parquet and Avro have them."""
        if not isinstance(bulk_format, BulkFormat):
            raise InvalidArgument(
                "the format must be a BulkFormat",
                got=type(bulk_format).__name__,
                hint="ParquetColumnarRowInputFormat(row_type); others: for_record_stream_format",
            )
        return FileSourceBuilder(bulk_format, *paths)

    def validate(self) -> None:
        """Raise SourceNotFound now if a path is missing, rather than when the job runs."""
        for path in self._paths:
            check_there(path, wait=self._interval_ms is not None)

    def boundedness(self) -> Boundedness:
        """Bounded, unless folders are watched."""
        if self._interval_ms is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """The driver's half, which looks for files."""
        return FileSplits(
            self._paths,
            self._interval_ms,
            self._block_size,
            whole=not self._format.splittable,
            never_empty=isinstance(self._format, BulkFormat),
            readers=parallelism,
        )

    def gives_columns(self) -> bool:
        """True if the format does. A class of its own may read otherwise."""
        return (
            type(self) is FileSource
            and isinstance(self._format, BulkFormat)
            and self._format.gives_columns()
        )

    def keeps_records(self) -> bool:
        """Formats of Millstream's own make each record anew; what another format gives is not known."""
        return not type(self._format).__module__.startswith("millstream.")

    def create_reader(self) -> SourceReader:
        """The worker's half."""
        return _FileReader(self._format, self._paths)


class FileSourceBuilder:
    """Builds a `FileSource`.

    >>> builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "/data")
    >>> builder.monitor_continuously("10 s").build().boundedness().name
    'CONTINUOUS_UNBOUNDED'
    """

    def __init__(self, stream_format: StreamFormat, *paths: str | os.PathLike[str]) -> None:
        if not isinstance(stream_format, StreamFormat):
            raise InvalidArgument(
                "the format must be a StreamFormat",
                got=type(stream_format).__name__,
                hint="StreamFormat.text_line_format()",
            )
        if not paths:
            raise InvalidArgument("a file source needs at least one path")
        self._format = stream_format
        self._paths = [stable_path(path) for path in paths]
        self._interval_ms: int | None = None
        self._block_size = BLOCK_SIZE

    def monitor_continuously(self, discovery_interval: DurationLike) -> FileSourceBuilder:
        """Look for new files again and again; the source then never ends.

        A file is read as it is when first seen. Write it elsewhere and rename it into the folder.
        """
        interval = parse_duration(discovery_interval)
        if interval <= 0:
            raise InvalidArgument("the interval must be longer than nothing", got=interval)
        self._interval_ms = interval
        return self

    @no_effect("files are found and cut by Millstream's own enumerator; see set_block_size")
    def set_file_enumerator(self, file_enumerator: Any) -> FileSourceBuilder:
        """Accepted for compatibility."""
        return self

    @no_effect("splits stay with the subtasks that begin them")
    def set_split_assigner(self, split_assigner: Any) -> FileSourceBuilder:
        """Accepted for compatibility."""
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that are there when the job starts, then end. This is the default."""
        self._interval_ms = None
        return self

    def set_block_size(self, block_size: int) -> FileSourceBuilder:
        """Cut files longer than this many bytes, so that several subtasks read them (64 MB)."""
        if not isinstance(block_size, int) or block_size < 1:
            raise InvalidArgument(
                "the block size must be 1 byte or more",
                got=repr(block_size),
                hint="a number of bytes",
            )
        self._block_size = block_size
        return self

    def build(self) -> FileSource:
        """The source that was built."""
        return FileSource(self._format, self._paths, self._interval_ms, self._block_size)


class _FileReader(SourceReader):
    def __init__(self, stream_format: StreamFormat, paths: Sequence[str]) -> None:
        self._format = stream_format
        self._paths = paths

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        return itertools.chain.from_iterable(self._pieces(self._format, split, start, end))

    def read_columns(self, split: str, start: int, end: int) -> Iterable[Any]:
        assert isinstance(self._format, BulkFormat)
        return self._pieces(ColumnsOf(self._format), split, start, end)

    def _pieces(self, records: StreamFormat, split: str, start: int, end: int) -> Iterable[Any]:
        if start >= end:
            return ()
        part = FileSplit.parse(split)
        first = part.start
        return read_file(records, part.path, first + start, first + end, part.size, self._paths)
