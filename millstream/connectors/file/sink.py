"""Records into files that appear when their epoch is complete (Flink's `FileSink`).

```
writer     .part-<subtask>-<epoch><suffix>.inprogress.<sink>.<epoch>.<attempt>-<writer>   hidden
committer  part-<subtask>-<epoch><suffix>                                                 renamed
```

A reader that skips names beginning with "." sees complete files only, each record once. Nothing is
ever overwritten: if another run has taken a name, the writer's mark is added to it. Files of failed
attempts are removed at the end of the job; those of a driver that was lost stay, hidden, as in
Flink.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from typing import Any, BinaryIO

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from millstream.common.compat import no_effect
from millstream.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from millstream.connectors.file.bucket_assigner import (
    BasePathBucketAssigner,
    BucketAssigner,
    DateTimeBucketAssigner,
)
from millstream.connectors.file.commit import FileCommitter, mark_of
from millstream.connectors.file.compact import (
    CompactingCommitter,
    FileCompactor,
    FileCompactStrategy,
)
from millstream.connectors.file.paths import stable_path
from millstream.connectors.file.places import Part, hidden_name, place_of
from millstream.connectors.file.rolling_policy import OutputFileConfig, RollingPolicy
from millstream.errors import InvalidArgument, SinkError
from millstream.redaction import shown

__all__ = ["FileSink", "FileSinkBuilder"]

_BUFFER = 1 << 18
_Encode = Callable[[Any, BinaryIO], None]


class FileSink(Sink):
    """Writes files below a folder; made by a builder.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> builder = FileSink.for_row_format(folder.name, Encoder.simple_string_encoder())
    >>> sink = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    >>> writer = sink.create_writer(WriterContext(subtask=0, parallelism=1, epoch=7, attempt="a"))
    >>> writer.write("hello")
    >>> sink.create_committer().commit(7, [writer.prepare_commit()])
    >>> os.listdir(folder.name)
    ['part-0-7']
    >>> folder.cleanup()
    """

    guarantee = DeliveryGuarantee.EXACTLY_ONCE

    def __init__(
        self,
        path: str,
        encoder: Encoder | BulkWriterFactory,
        assigner: BucketAssigner,
        policy: RollingPolicy,
        config: OutputFileConfig,
        compaction: tuple[FileCompactStrategy, FileCompactor] | None = None,
    ) -> None:
        self.path = path
        self.compaction = compaction
        self.encoder = encoder
        self.assigner = assigner
        self.policy = policy
        self.config = config
        self.mark = uuid.uuid4().hex[:8]

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> FileSinkBuilder:
        """A builder for a sink that writes record after record."""
        return FileSinkBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(
        base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory
    ) -> FileSinkBuilder:
        """A builder for a sink whose files are written in blocks: Parquet, Avro, CSV. A file ends with its epoch, or
        earlier if a rolling policy says so."""
        return FileSinkBuilder(base_path, bulk=writer_factory)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch; makes no file before its first record."""
        if isinstance(self.encoder, Encoder):
            return _FileWriter(self, context, self.encoder.encode)
        return _BulkFileWriter(self, context, self.encoder)

    def takes_columns(self) -> bool:
        """True if files are written by columns, and no record chooses its folder. A class of its own may write
        otherwise."""
        if type(self) is not FileSink:
            return False
        by_time = type(self.assigner) in (BasePathBucketAssigner, DateTimeBucketAssigner)
        return by_time and bool(getattr(self.encoder, "takes_columns", False))

    def create_committer(self) -> Committer:
        """Publishes files, or compacts them first."""
        if self.compaction is not None:
            return CompactingCommitter(self.path, *self.compaction)
        return FileCommitter(self.path, self.mark)


class FileSinkBuilder:
    """Builds a `FileSink`.

    >>> builder = FileSink.for_row_format("/data/out", Encoder.simple_string_encoder())
    >>> config = OutputFileConfig.builder().with_part_suffix(".txt").build()
    >>> builder.with_output_file_config(config).build().path
    '/data/out'
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        encoder: Encoder | None = None,
        *,
        bulk: BulkWriterFactory | None = None,
    ) -> None:
        self._path = stable_path(base_path)
        self._encoder: Encoder | BulkWriterFactory
        self._policy: RollingPolicy
        if bulk is not None:
            hint = "ParquetBulkWriters.for_row_type(row_type)"
            self._encoder = _of(BulkWriterFactory, bulk, hint)
            self._policy = RollingPolicy.on_checkpoint_rolling_policy()
        else:
            self._encoder = _of(Encoder, encoder, "Encoder.simple_string_encoder()")
            self._policy = RollingPolicy.default_rolling_policy()
        self._assigner: BucketAssigner = DateTimeBucketAssigner()
        self._config = OutputFileConfig()
        self._compaction: tuple[FileCompactStrategy, FileCompactor] | None = None

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> FileSinkBuilder:
        """Choose the folder of each record; by default there is one per hour, as in Flink."""
        hint = "BucketAssigner.date_time_bucket_assigner()"
        self._assigner = _of(BucketAssigner, bucket_assigner, hint)
        return self

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSinkBuilder:
        """Say when a file ends before its epoch does."""
        hint = "RollingPolicy.default_rolling_policy()"
        self._policy = _of(RollingPolicy, rolling_policy, hint)
        return self

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> FileSinkBuilder:
        """Say what names begin and end with."""
        hint = "OutputFileConfig.builder().build()"
        self._config = _of(OutputFileConfig, output_file_config, hint)
        return self

    @no_effect("no file is open for longer than an epoch, so none has to be looked for")
    def with_bucket_check_interval(self, interval: Any) -> FileSinkBuilder:
        """Accepted for compatibility."""
        return self

    def disable_compact(self) -> FileSinkBuilder:
        """Publish files as they are. This is the default."""
        self._compaction = None
        return self

    def enable_compact(
        self, strategy: FileCompactStrategy, compactor: FileCompactor
    ) -> FileSinkBuilder:
        """Make few files of many before they appear. They appear later then, up to what the strategy says."""
        hint = "FileCompactStrategy.builder().enable_compaction_on_checkpoint(5).build()"
        _of(FileCompactStrategy, strategy, hint)
        _of(FileCompactor, compactor, "FileCompactor.concat_file_compactor()")
        if compactor.plain and not getattr(self._encoder, "concatenable", True):
            raise InvalidArgument(
                "files of this format cannot be joined byte by byte",
                got=type(compactor).__name__,
                hint="ParquetFileCompactor() for Parquet, FileCompactor.identical_file_compactor() for others",
            )
        self._compaction = strategy, compactor
        return self

    def build(self) -> FileSink:
        """The sink, as it was described."""
        return FileSink(
            self._path,
            self._encoder,
            self._assigner,
            self._policy,
            self._config,
            self._compaction,
        )


class _FileWriter(SinkWriter):
    def __init__(self, sink: FileSink, context: WriterContext, encode: _Encode) -> None:
        self._sink = sink
        self._context = context
        self._place = place_of(sink.path, staged=sink.compaction is not None)
        self._mark = uuid.uuid4().hex[:8]
        self._encode = encode
        self._assign = sink.assigner.get_bucket_id
        self._bucketed = not isinstance(sink.assigner, BasePathBucketAssigner)
        self._limit = sink.policy.part_size
        # tell() asks the system, which takes longer than writing a short record.
        self._check_every = 1 if (self._limit or 0) < _BUFFER else 64
        self._unchecked = 0
        self._open: dict[str, BinaryIO] = {}
        self._current: dict[str, Part] = {}
        self._parts: list[Part] = []

    def write(self, value: Any) -> None:
        bucket = self._assign(value) if self._bucketed else ""
        stream = self._open.get(bucket)
        if stream is None:
            stream = self._start(bucket)
        self._encode(value, stream)
        if self._limit is not None:
            self._unchecked += 1
            if self._unchecked >= self._check_every:
                self._unchecked = 0
                if self._size(bucket) >= self._limit:
                    self._end(bucket)

    def _size(self, bucket: str) -> int:
        return self._open[bucket].tell()

    def _start(self, bucket: str) -> BinaryIO:
        _check_bucket(bucket)
        part = self._new_part(bucket)
        try:
            stream = self._place.create(part)
        except OSError as error:
            raise SinkError(
                f"a file cannot be created: {error.strerror or error}",
                file=shown(self._place.where(part)),
                hint="check that every worker can see the folder and may write to it",
            ) from error
        self._current[bucket] = part
        self._open[bucket] = stream
        return stream

    def _new_part(self, bucket: str) -> Part:
        context, config = self._context, self._sink.config
        # Further parts of the same epoch get a number, the first one does not.
        earlier = sum(part.bucket == bucket for part in self._parts)
        number = f"-{earlier}" if earlier else ""
        mark = mark_of(self._sink.mark, context.job_id, context.sink)
        if self._place.marked:
            number = f"-{earlier}-{mark}{self._mark}"
        stem = f"{config.part_prefix}-{context.subtask}-{context.epoch}{number}"
        visible = f"{stem}{config.part_suffix}"
        hidden = hidden_name(visible, mark, context.epoch, context.attempt, self._mark)
        return Part(bucket, hidden, visible, self._place.root)

    def _end(self, bucket: str) -> None:
        stream = self._open.pop(bucket)
        part = self._current.pop(bucket)
        # Known before it is durable, so that an abort finds it.
        self._parts.append(part)
        try:
            size = stream.tell()
            self._parts[-1] = self._place.finish(stream, part)._replace(size=size)
        except OSError as error:
            raise self._unwritten(part, error) from error

    def _unwritten(self, part: Part, error: OSError) -> SinkError:
        return SinkError(
            f"a file cannot be written: {error.strerror or error}",
            file=shown(self._place.where(part)),
            hint="check the space left on the disk, or the storage",
        )

    def prepare_commit(self) -> bytes | None:
        for bucket in list(self._open):
            self._end(bucket)
        return Part.encode(self._parts) if self._parts else None

    def abort(self) -> None:
        for bucket, stream in self._open.items():
            self._place.discard(stream, self._current[bucket])
        for part in self._parts:
            self._place.discard(None, part)
        self._open.clear()
        self._current.clear()
        self._parts.clear()


class _BulkFileWriter(_FileWriter):
    """Writes through a `BulkWriter` for each file, which keeps records back until it has many."""

    def __init__(self, sink: FileSink, context: WriterContext, factory: BulkWriterFactory) -> None:
        super().__init__(sink, context, self._add)
        self._create = factory.create
        # By the stream, because that is what is at hand for each record.
        self._writers: dict[int, BulkWriter] = {}

    def _add(self, value: Any, stream: BinaryIO) -> None:
        writer = self._writers.get(id(stream))
        if writer is None:
            writer = self._writers[id(stream)] = self._create(stream)
        writer.add_element(value)

    def write_columns(self, columns: Any, *, named: bool) -> bool:
        bucket = self._assign(None) if self._bucketed else ""
        stream = self._open.get(bucket)
        if stream is None:
            stream = self._start(bucket)
        writer = self._writers.get(id(stream))
        if writer is None:
            writer = self._writers[id(stream)] = self._create(stream)
        if not writer.add_columns(columns, named=named):
            return False
        if self._limit is not None and self._size(bucket) >= self._limit:
            self._end(bucket)
        return True

    def _size(self, bucket: str) -> int:
        stream = self._open[bucket]
        return stream.tell() + self._writers[id(stream)].held

    def _end(self, bucket: str) -> None:
        stream = self._open[bucket]
        try:
            self._writers[id(stream)].finish()
        except OSError as error:
            raise self._unwritten(self._current[bucket], error) from error
        del self._writers[id(stream)]
        super()._end(bucket)

    def abort(self) -> None:
        for writer in self._writers.values():
            with contextlib.suppress(Exception):
                writer.discard()
        self._writers.clear()
        super().abort()


def _of(kind: type[Any], value: Any, hint: str) -> Any:
    if isinstance(value, kind):
        return value
    raise InvalidArgument(f"this is not a {kind.__name__}", got=type(value).__name__, hint=hint)


def _check_bucket(bucket: Any) -> None:
    names = bucket.split("/") if isinstance(bucket, str) else [".."]
    if bucket != "" and any(name in ("", ".", "..") or "\0" in name for name in names):
        raise SinkError(
            "a bucket must be a relative path below the sink's folder",
            bucket=repr(bucket),
            hint="let get_bucket_id return names without '..', and no '/' at either end",
        )
