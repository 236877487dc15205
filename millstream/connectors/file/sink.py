"""Records into files that appear when their epoch is complete (Flink's `FileSink`, row formats).

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
from millstream.common.serialization import Encoder
from millstream.connectors.file.bucket_assigner import (
    BasePathBucketAssigner,
    BucketAssigner,
    DateTimeBucketAssigner,
)
from millstream.connectors.file.commit import FileCommitter, Part, hidden_name, mark_of
from millstream.connectors.file.paths import local_path
from millstream.connectors.file.rolling_policy import OutputFileConfig, RollingPolicy
from millstream.errors import InvalidArgument, NotSupportedYet, SinkError

__all__ = ["FileSink", "FileSinkBuilder"]

_BUFFER = 1 << 18


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
        encoder: Encoder,
        assigner: BucketAssigner,
        policy: RollingPolicy,
        config: OutputFileConfig,
    ) -> None:
        self.path = path
        self.encoder = encoder
        self.assigner = assigner
        self.policy = policy
        self.config = config
        self.mark = uuid.uuid4().hex[:8]

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> FileSinkBuilder:
        """A builder for a sink that writes record after record."""
        return FileSinkBuilder(base_path, encoder)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch; makes no file before its first record."""
        return _FileWriter(self, context)

    def create_committer(self) -> Committer:
        """Renames files."""
        return FileCommitter(self.path, self.mark)


class FileSinkBuilder:
    """Builds a `FileSink`.

    >>> builder = FileSink.for_row_format("/data/out", Encoder.simple_string_encoder())
    >>> config = OutputFileConfig.builder().with_part_suffix(".txt").build()
    >>> builder.with_output_file_config(config).build().path
    '/data/out'
    """

    def __init__(self, base_path: str | os.PathLike[str], encoder: Encoder) -> None:
        self._path = local_path(base_path)
        self._encoder = _of(Encoder, encoder, "Encoder.simple_string_encoder()")
        self._assigner: BucketAssigner = DateTimeBucketAssigner()
        self._policy = RollingPolicy.default_rolling_policy()
        self._config = OutputFileConfig()

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

    @no_effect("files are never compacted")
    def disable_compact(self) -> FileSinkBuilder:
        """Accepted for compatibility."""
        return self

    def enable_compact(self, strategy: Any, compactor: Any) -> FileSinkBuilder:
        """Not available yet."""
        raise NotSupportedYet(
            "enable_compact is not available yet",
            hint="longer epochs make fewer and larger files",
        )

    def build(self) -> FileSink:
        """The sink."""
        return FileSink(self._path, self._encoder, self._assigner, self._policy, self._config)


class _FileWriter(SinkWriter):
    def __init__(self, sink: FileSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._mark = uuid.uuid4().hex[:8]
        self._encode: Callable[[Any, BinaryIO], None] = sink.encoder.encode
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
                if stream.tell() >= self._limit:
                    self._end(bucket)

    def _start(self, bucket: str) -> BinaryIO:
        context, config = self._context, self._sink.config
        _check_bucket(bucket)
        # Further parts of the same epoch get a number, the first one does not.
        earlier = sum(part.bucket == bucket for part in self._parts)
        number = f"-{earlier}" if earlier else ""
        stem = f"{config.part_prefix}-{context.subtask}-{context.epoch}{number}"
        visible = f"{stem}{config.part_suffix}"
        mark = mark_of(self._sink.mark, context.job_id, context.sink)
        hidden = hidden_name(visible, mark, context.epoch, context.attempt, self._mark)
        part = Part(bucket, hidden, visible, self._sink.path)
        folder = os.path.join(self._sink.path, bucket)
        path = os.path.join(folder, hidden)
        try:
            os.makedirs(folder, exist_ok=True)
            stream = open(path, "xb", buffering=_BUFFER)  # noqa: SIM115  # closed by _end or abort
        except OSError as error:
            raise SinkError(
                f"a file cannot be created: {error.strerror}",
                file=path,
                hint="check that every worker can see the folder and may write to it",
            ) from error
        self._parts.append(part)
        self._current[bucket] = part
        self._open[bucket] = stream
        return stream

    def _end(self, bucket: str) -> None:
        stream = self._open.pop(bucket)
        part = self._current.pop(bucket)
        try:
            with stream:
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise SinkError(
                f"a file cannot be written: {error.strerror}",
                file=os.path.join(self._sink.path, part.bucket, part.hidden),
                hint="check the space left on the disk",
            ) from error

    def prepare_commit(self) -> bytes | None:
        for bucket in list(self._open):
            self._end(bucket)
        return Part.encode(self._parts) if self._parts else None

    def abort(self) -> None:
        for stream in self._open.values():
            with contextlib.suppress(OSError):
                stream.close()
        for part in self._parts:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._sink.path, part.bucket, part.hidden))
        self._open.clear()
        self._parts.clear()


def _of(kind: type[Any], value: Any, hint: str) -> Any:
    if isinstance(value, kind):
        return value
    raise InvalidArgument(f"this is not a {kind.__name__}", got=type(value).__name__, hint=hint)


def _check_bucket(bucket: Any) -> None:
    names = bucket.split("/") if isinstance(bucket, str) else [".."]
    if bucket != "" and any(name in ("", ".", "..") for name in names):
        raise SinkError(
            "a bucket must be a relative path below the sink's folder",
            bucket=repr(bucket),
            hint="let get_bucket_id return names without '..', and no '/' at either end",
        )
