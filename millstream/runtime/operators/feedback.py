"""Iterations: how records get from the end of a loop back to its beginning (Flink's `StreamIterationHead` and
`StreamIterationTail`).

The graph has no cycle. A loop ends in an operator that writes an epoch's records to a file of the job's folder, and
begins with a source that reads them in the following epoch:

```
epoch n      stream ─┬─▶ body ─┬─▶ …
             source ─┘         └─▶ tail ──▶ file ──▶ manifest n ─┐
epoch n+1    stream ─┬─▶ body …                                  │
             source ─┘ ◀─────────────────────────────────────────┘
```

The manifest of epoch n names the files, so what is between two rounds is part of the checkpoint, is removed when no
retained checkpoint names it, and goes into savepoints. What no manifest names was never fed back.

No watermark goes round: a loop never holds event time back, as in Flink.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

import msgspec

from millstream.api.sink import WriterContext
from millstream.api.source import (
    Boundedness,
    Source,
    SourceReader,
    Timestamped,
)
from millstream.checkpoint.manifest import FeedbackFile
from millstream.checkpoint.statefile import Header, StateReader, StateWriter, TableInfo
from millstream.common.constants import NO_TIME
from millstream.graph.operators import FeedbackOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.operators.sinks import PreCommits
from millstream.runtime.state.segments import store_folder
from millstream.runtime.wire.codec import dumps
from millstream.storage.storage import Storage

__all__ = [
    "FeedbackReader",
    "FeedbackSource",
    "FeedbackUnit",
    "FeedbackWriter",
]

# Records written and read at a time.
_BLOCK = 1024


class FeedbackSource(Source):
    """Where a loop begins. Its splits are the files of the epoch before, which the driver knows without looking."""

    def boundedness(self) -> Boundedness:
        """A loop ends when nothing is fed back and its input has ended."""
        return Boundedness.BOUNDED

    def keeps_records(self) -> bool:
        """What is read is made of the file's bytes."""
        return False

    def paced(self) -> bool:
        """What is fed back is there only in the next epoch."""
        return True

    def create_enumerator(self, parallelism: int) -> NoReturn:
        """There is none: `Loops` plans what is read."""
        raise AssertionError("the files of a loop are planned by Loops")

    def create_reader(self) -> SourceReader:
        """The task tells it where the files are."""
        return FeedbackReader()


class FeedbackReader(SourceReader):
    """Reads the files of the epoch before, in a worker."""

    storage: Storage
    stamped: bool = False

    def read(self, split: str, start: int, end: int) -> Iterator[Any]:
        """The records of a file; it is always read as a whole."""
        with self.storage.open_read(split) as stream:
            for _, _, (records, stamps) in StateReader(split, stream, seal=self.storage.seal):
                if not self.stamped:
                    yield from records
                else:
                    times = stamps if stamps is not None else [NO_TIME] * len(records)
                    yield from map(Timestamped, records, times)


class FeedbackWriter:
    """Writes what one subtask feeds back in one epoch."""

    def __init__(self, storage: Storage, uid: str) -> None:
        self._storage = storage
        self._uid = uid
        self.stamped = False
        self._values: list[Any] = []
        self._stamps: list[int] = []
        self._header = Header("", 0, True)
        self._file: StateWriter | None = None
        self._open = ExitStack()
        self._count = 0

    def begin(self, context: WriterContext) -> None:
        """A new epoch: a new file, under a name that no other attempt can have."""
        self._values, self._stamps = [], []
        self._file, self._count = None, 0
        folder = store_folder(f"{self._uid}/{context.subtask}")
        name = f"shared/{folder}/{context.epoch:012d}-{context.attempt}-feedback"
        self._header = Header(name, context.epoch, True, [TableInfo("feedback", "list")])

    def write(self, value: Any, stamp: int = NO_TIME) -> None:
        """Feed one record back."""
        self._values.append(value)
        self._stamps.append(stamp)
        if len(self._values) >= _BLOCK:
            self._flush()

    def _flush(self) -> None:
        if self._file is None:
            stream = self._open.enter_context(self._storage.open_write(self._header.name))
            self._file = StateWriter(stream, self._header, dumps, self._storage.seal)
        stamps = self._stamps if self.stamped else None
        self._file.entries(0, "A", [self._values, stamps])
        self._count += len(self._values)
        self._values, self._stamps = [], []

    def prepare_commit(self) -> bytes | None:
        """The file, for the manifest; None if nothing is fed back."""
        if self._values:
            self._flush()
        if self._file is None:
            return None
        self._file.end()
        self._open.close()
        made = FeedbackFile(self._header.name, self._header.epoch, self._file.size, self._count)
        self._file = None
        return msgspec.msgpack.encode(made)

    def abort(self) -> None:
        """The attempt failed: what is half written must not get its name."""
        error = RuntimeError("the attempt failed")
        with suppress(Exception):
            self._open.__exit__(RuntimeError, error, None)
        self._file = None


class FeedbackUnit(PreCommits[FeedbackOp]):
    """Where a loop ends, in a worker."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self._writer = FeedbackWriter(self.store.storage, node.uid)

    def lines(self, record: str, index: int) -> None:
        """One call, which writes the record into the epoch's file."""
        if self.builder.stamped:
            self._writer.stamped = True
        feed_back = self.code.bind(self._writer.write, "feed_back")
        self.code.line(f"{feed_back}({record}, {self.builder.stamp()})")

    def begin_epoch(self, context: WriterContext) -> None:
        """A new file."""
        self._writer.begin(context)

    def pre_commit(self) -> bytes | None:
        """The file, for the manifest."""
        return self._writer.prepare_commit()

    def abort(self) -> None:
        """The file does not get its name."""
        self._writer.abort()
