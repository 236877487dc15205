"""The sending side of an edge that takes columns too: they are gathered, and sent as buffers of their own.

Columns and records take turns on such an edge, as a chain has them. Whatever waits as columns came before whatever
waits in the lists of records: columns that come while records wait send those on first. So generated code appends to
the lists as it does for every edge, and need not know of columns.
"""

from __future__ import annotations

from typing import Any

from millstream.runtime.columns.batch import ColumnBatch, joined
from millstream.runtime.columns.payload import Sent, can_ship
from millstream.runtime.wire.codec import LATENCY, Mark, encode, encode_sent
from millstream.runtime.wire.output import EdgeWriter

__all__ = ["ColumnWriter", "Gathered"]

Gathered = list[ColumnBatch | tuple[int, int]]
"""Rows, and the kinds and values of the marks between them."""

# A buffer counts its marks in 16 bits.
_MAX_MARKS = 1 << 15


class ColumnWriter(EdgeWriter):
    """Sends rows as they are, to the one target of its edge."""

    __slots__ = ("_held_marks", "gathered", "held_bytes", "held_rows")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.gathered: Gathered = []
        self.held_rows = 0
        self.held_bytes = 0
        self._held_marks = 0

    def take_columns(self, batch: ColumnBatch) -> bool:
        """Gather rows; False if they have to be sent as records."""
        if not self.accepts(batch):
            return False
        if super().waits:
            self.flush_all()
        self.gathered.append(batch)
        self.held_rows += len(batch)
        self.held_bytes += batch.data.nbytes
        if self.is_full():
            self.send_gathered()
        return True

    def accepts(self, batch: ColumnBatch) -> bool:
        """True if the rows can be sent as columns; rows of another kind that wait go before them."""
        if not can_ship(batch.shape):
            return False
        last = next((held for held in self.gathered if isinstance(held, ColumnBatch)), None)
        if last is not None and not last.alike(batch):
            self.send_gathered()
        return True

    def is_full(self) -> bool:
        """True if enough waits to be sent."""
        return self.held_bytes >= self.max_bytes

    def send_gathered(self) -> None:
        """Send what waits as columns, and the marks between."""
        gathered, rows = self.gathered, self.held_rows
        self._forget()
        if rows:
            self.send_rows(gathered)
        elif gathered:
            marks = [Mark(0, *mark) for mark in gathered if isinstance(mark, tuple)]
            for index in range(len(self.lists)):
                self.post_columns(index, None, marks)

    def send_rows(self, gathered: Gathered) -> None:
        """Send what was gathered: a buffer for all rows up to a mark."""
        batches: list[ColumnBatch] = []
        marks: list[Mark] = []
        for held in gathered:
            if isinstance(held, tuple):
                marks.append(Mark(sum(map(len, batches)), *held))
                continue
            if batches and marks:
                self.post_columns(0, joined(batches).stamped(None), marks)
                batches, marks = [], []
            batches.append(held)
        self.post_columns(0, joined(batches).stamped(None), marks)

    def post_columns(self, index: int, columns: Sent | None, marks: list[Mark]) -> None:
        """Send a buffer of columns, or of marks alone."""
        count = 0 if columns is None else len(columns)
        if self.probes[index]:
            marks = [*marks, Mark(count, LATENCY, self.probes[index])]
            self.probes[index] = 0
        if columns is not None:
            self.post(index, encode_sent(columns, marks), count)
        elif marks:
            self.post(index, encode([], None, marks), 0)

    # -- as every writer ------------------------------------------------------------------------------------

    def mark(self, kind: int, value: int = 0) -> None:
        """Put a mark behind everything, for every target."""
        if super().waits:
            # What waits as columns comes before that, and so before the mark.
            self.send_gathered()
            super().mark(kind, value)
            return
        self.gathered.append((kind, value))
        self._held_marks += 1
        if self._held_marks >= _MAX_MARKS:
            self.send_gathered()

    def flush(self, index: int) -> None:
        """Send one target's records as a buffer, behind what waits as columns."""
        if self.gathered:
            self.send_gathered()
        super().flush(index)

    @property
    def waits(self) -> bool:
        """True if something waits to be sent."""
        return bool(self.gathered) or super().waits

    def flush_all(self) -> None:
        """Send the rows that are gathered, and all buffers of records."""
        if self.gathered:
            self.send_gathered()
        super().flush_all()

    def begin(self, epoch: int) -> None:
        """An attempt of an epoch begins: forget what one that failed has left behind."""
        self._forget()
        super().begin(epoch)

    def _forget(self) -> None:
        self.gathered = []
        self.held_rows = self.held_bytes = self._held_marks = 0
