"""The sending side of an edge (Flink's `RecordWriter`): a list of records per target, flushed as buffers.

Generated code appends to the lists directly; nothing here is called per record. A list is flushed when it
has reached `limit` records. The limit follows the records' size, so that a buffer stays near `max_bytes`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from millstream.errors import RecordNotSerializable, told
from millstream.runtime.base.text import shorten
from millstream.runtime.wire.codec import LATENCY, Mark, dumps, encode
from millstream.runtime.wire.rows import RowBatch, client_node

__all__ = ["GROUP_SHIFT", "EdgeWriter"]

_NEVER = float("inf")
_FIRST_LIMIT = 256
# A buffer counts its marks in 16 bits.
_MAX_MARKS = 1 << 15
# Above so many bits of a buffer's number stands its key group, from 1, in a batch job.
GROUP_SHIFT = 40


class EdgeWriter:
    """All records that one subtask sends along one edge."""

    __slots__ = (
        "appends",
        "buffers_out",
        "by_group",
        "bytes_out",
        "channel",
        "choice",
        "combined",
        "copies",
        "edge",
        "first",
        "flows",
        "last_flush",
        "limit",
        "lists",
        "marks",
        "max_bytes",
        "max_records",
        "operator",
        "probes",
        "records_out",
        "rows",
        "sequence",
        "stamp_appends",
        "stamps",
        "targets",
        "timeout",
    )

    def __init__(
        self,
        edge: int,
        operator: str,
        targets: Sequence[int],
        rows: RowBatch,
        *,
        broadcast: bool = False,
        stamped: bool = False,
        by_group: bool = False,
        waits: bool = False,
        max_bytes: int = 256 << 10,
        max_records: int = 8192,
        timeout_ms: int | None = None,
    ) -> None:
        self.edge = edge
        self.operator = operator
        # In a batch job: a list for each key group, whose number leads that of the buffer.
        self.by_group = by_group
        # The number of a channel's first buffer. Behind everything that has no key group, if that is to be read before.
        self.first = 1 << GROUP_SHIFT if waits and not by_group else 0
        # What holds records back to combine them, if anything does; called before everything is sent.
        self.combined: Any = None
        # What chooses the target of each record, if anything does: anew with each epoch, so that a retry does the same.
        self.choice: Any = None
        # A broadcast keeps one list and writes its buffer once for each target.
        self.copies: Sequence[int] = targets if broadcast else ()
        self.targets: Sequence[int] = (targets[0],) if broadcast else targets
        self.lists: list[list[Any]] = [[] for _ in self.targets]
        self.appends: list[Callable[[Any], None]] = [buffer.append for buffer in self.lists]
        # The records' timestamps, in lists beside those of the records.
        self.stamps: list[list[int]] = [[] for _ in self.targets] if stamped else []
        self.stamp_appends: list[Callable[[int], None]] = [stamps.append for stamps in self.stamps]
        self.marks: list[list[Mark]] = [[] for _ in self.targets]
        # A latency mark that goes with the next buffer, for each target; 0 is none.
        self.probes: list[int] = [0] * len(self.targets)
        self.rows = rows
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.limit = min(_FIRST_LIMIT, max_records)
        # Where records flow through all levels at once; else nothing is sent for its age.
        self.flows = timeout_ms is not None
        self.timeout = timeout_ms / 1000 if timeout_ms is not None and timeout_ms >= 0 else _NEVER
        self.last_flush = time.monotonic()
        self.channel = 0
        self.sequence = self.first
        self.records_out = 0
        self.bytes_out = 0
        self.buffers_out = 0

    def start(self, channel: int) -> None:
        """Send as `channel` from now on."""
        if channel == self.channel and self.flows:
            # What waits for more records may go on waiting.
            return
        self.flush_all()
        self.channel = channel
        self.sequence = self.first

    def mark(self, kind: int, value: int = 0) -> None:
        """Put a mark behind everything sent so far, for every target."""
        for index, (records, marks) in enumerate(zip(self.lists, self.marks, strict=True)):
            marks.append(Mark(len(records), kind, value))
            if len(marks) >= _MAX_MARKS:
                self.flush(index)

    def probe(self, value: int) -> None:
        """Have a latency mark go with the next buffer of every target, which it neither makes nor ends: where buffers
        begin must not depend on the clock."""
        self.probes = [waiting or value for waiting in self.probes]

    def announce(self, *marks: Mark) -> None:
        """Send marks to every target that are read before the buffers of all channels."""
        payload = encode([], None, marks)
        for target in self.copies or self.targets:
            self.rows.add(target, self.channel, -1, self.edge, payload)

    def flush(self, index: int) -> None:
        """Send one target's records as a buffer."""
        records, marks = self.lists[index], self.marks[index]
        if not records and not marks:
            return
        if self.probes[index]:
            marks.append(Mark(len(records), LATENCY, self.probes[index]))
            self.probes[index] = 0
        stamps = self.stamps[index] if self.stamps else None
        try:
            payload = encode(records, stamps, marks)
        except Exception as error:
            raise self._unserializable(records, error) from None
        if stamps is not None:
            stamps.clear()
        count = len(records)
        self.post(index, payload, count)
        if count:
            fitting = self.max_bytes * count // len(payload)
            self.limit = max(1, min(self.max_records, fitting, self.limit * 4))
        # The generated code holds on to the list's `append`, so the list must stay the same object.
        records.clear()
        marks.clear()

    def post(self, index: int, payload: bytes, count: int) -> None:
        """Send a buffer of so many records."""
        sequence = self.sequence
        if self.by_group:
            sequence += (index + 1) << GROUP_SHIFT
        for target in self.copies or (self.targets[index],):
            self.rows.add(target, self.channel, sequence, self.edge, payload)
            self.bytes_out += len(payload)
            self.buffers_out += 1
        self.sequence += 1
        self.records_out += count

    @property
    def waits(self) -> bool:
        """True if something waits to be sent."""
        return any(self.lists) or any(self.marks)

    def flush_full(self) -> None:
        """Send the buffers that are full, or all of them when the flush timeout has passed."""
        now = time.monotonic()
        if now - self.last_flush >= self.timeout:
            self.last_flush = now
            self.flush_all()
            return
        limit = self.limit
        for index, records in enumerate(self.lists):
            if len(records) >= limit:
                self.flush(index)

    def flush_all(self) -> None:
        """Send all buffers."""
        if self.combined is not None:
            self.combined()
        for index in range(len(self.lists)):
            self.flush(index)

    def begin(self, epoch: int) -> None:
        """An attempt of an epoch begins: forget what one that failed has left behind."""
        if self.choice is not None:
            self.choice.begin(epoch)
        for records, marks in zip(self.lists, self.marks, strict=True):
            records.clear()
            marks.clear()
        for stamps in self.stamps:
            stamps.clear()
        self.probes = [0] * len(self.targets)
        self.sequence = self.first
        self.records_out = self.bytes_out = self.buffers_out = 0

    def _unserializable(self, records: list[Any], error: Exception) -> RecordNotSerializable:
        for record in records:
            try:
                dumps(record)
            except Exception as failure:
                reader = "the next operator" if client_node(self.edge) is None else "the driver"
                msg = f"a record of '{self.operator}' cannot be serialized for {reader}"
                return RecordNotSerializable(
                    msg,
                    operator=self.operator,
                    record=shorten(record),
                    type=type(record).__qualname__,
                    cause=f"{type(failure).__name__}: {failure}",
                    hint="emit plain values (tuples, strings, numbers, Rows, dataclasses); keep "
                    "connections, locks and open files in the function and create them in open()",
                )
        msg = f"a buffer of '{self.operator}' cannot be serialized"
        return RecordNotSerializable(msg, operator=self.operator, cause=told(error))
