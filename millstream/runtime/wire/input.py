"""The receiving side of a level: buffers in a fixed order, whatever order the shuffle delivers them in.

Buffers are merged by (sequence, channel), which is the same on every run and every retry; those of edges that are to be
read `first` come before all others. Up to `memory` bytes wait in memory, the rest in a temporary file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator
from typing import IO, Any, NamedTuple

import pyarrow as pa

__all__ = ["InputQueue", "Received", "ordered", "rows_of"]


class Received(NamedTuple):
    """One buffer row."""

    edge: int
    channel: int
    target: int
    sequence: int
    payload: Any


class InputQueue:
    """Takes rows in any order and gives them back in the right one."""

    __slots__ = ("_entries", "_file", "_first", "_held", "_in_memory", "_memory", "spilled_bytes")

    def __init__(self, memory: int = 64 << 20, first: Collection[int] = ()) -> None:
        # (sequence, channel, edge, target, place); `place` indexes `_in_memory`, or is a file range.
        self._entries: list[tuple[int, int, int, int, Any]] = []
        self._in_memory: list[Any] = []
        self._held = 0
        self._memory = memory
        self._first = first
        self._file: IO[bytes] | None = None
        self.spilled_bytes = 0

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in all rows of an Arrow batch without copying their payloads."""
        targets, channels, sequences, edges = (batch.column(i).to_pylist() for i in range(4))
        payloads = batch.column(4)
        for i, sequence in enumerate(sequences):
            payload = payloads[i].as_buffer()
            self._in_memory.append(payload)
            self._held += payload.size
            self._entries.append(
                (sequence, channels[i], edges[i], targets[i], len(self._in_memory) - 1)
            )
        if self._held > self._memory:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="millstream-sort-")  # noqa: SIM115
        places: list[tuple[int, int]] = []
        for payload in self._in_memory:
            places.append((self._file.tell(), payload.size))
            self._file.write(payload)
        first = len(self._entries) - len(places)
        for offset, place in enumerate(places):
            self._entries[first + offset] = (*self._entries[first + offset][:4], place)
        self.spilled_bytes += self._held
        self._in_memory = []
        self._held = 0

    def drain(self) -> Iterator[Received]:
        """All rows, ordered; each payload is let go as soon as the next one is asked for."""
        self._entries.sort(key=self._place)
        entries, self._entries = self._entries, []
        for sequence, channel, edge, target, place in entries:
            if isinstance(place, tuple):
                assert self._file is not None
                self._file.seek(place[0])
                payload: Any = self._file.read(place[1])
            else:
                payload, self._in_memory[place] = self._in_memory[place], None
            yield Received(edge, channel, target, sequence, payload)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _place(self, entry: tuple[int, int, int, int, Any]) -> tuple[int, ...]:
        # Announcements, which have a number below 0, are for all edges.
        later = entry[0] >= 0 and entry[2] not in self._first
        return (later, *entry[:4])


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Received]:
    """The rows of `batches` as they come, which somebody has put in order before."""
    for batch in batches:
        targets, channels, sequences, edges = (batch.column(i).to_pylist() for i in range(4))
        payloads = batch.column(4)
        for i, sequence in enumerate(sequences):
            yield Received(edges[i], channels[i], targets[i], sequence, payloads[i].as_buffer())


def ordered(
    batches: Iterable[pa.RecordBatch], memory: int, first: Collection[int] = ()
) -> Iterator[Received]:
    """The rows of `batches` in their fixed order."""
    queue = InputQueue(memory, first)
    for batch in batches:
        queue.add_batch(batch)
    yield from queue.drain()
