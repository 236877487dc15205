"""Records that wait until a function is called for all of them, and the watermarks between them.

A watermark that comes while records wait does not end the batch. It is noted with its place and goes on between the
results of the records that it came between ([0055](../../../docs/decisions/0055-a-watermark-waits-with-its-batch.md)):

```
comes in     r1  r2  w1  r3  w2  r4      the batch is full: the function is called once
goes on      f(r1)  f(r2)  w1  f(r3)  w2  f(r4)
```

With an error policy, a batch whose call fails is called for again record by record: the bad ones are found, the others
lose nothing but time.

Rows that come as columns wait as such, and go on as such if the function gives columns and somebody takes them. A batch
is either: if records come while columns wait, or the other way round, it becomes one of records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.errors import MillstreamError, UserFunctionError, told
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.in_operator import Step
from millstream.runtime.base.text import many, shorten
from millstream.runtime.base.user_lines import user_line, user_traceback
from millstream.runtime.codegen.bad_records import BadRecords, Cursor, Place
from millstream.runtime.codegen.column_outlet import ColumnOutlet
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.columns.batch import ColumnBatch, Stamps
from millstream.runtime.columns.shapes import BatchShape
from millstream.runtime.state.copying import own

__all__ = ["Gathering", "Results"]

Counts = npt.NDArray[Any]

Results = tuple[list[Any] | ColumnBatch, Sequence[int] | Counts | None]
"""What goes on, and for each record how many of them are its; None if it is one each."""


Mark = tuple[int, Step, int]
"""How many records came before a watermark, what it goes through, and the watermark. Or another step of time."""


class CallsFunction(Protocol):
    """What is asked of the operator's unit."""

    node: StreamNode
    op: ops.BatchesOp
    bad: BadRecords | None
    letters: Outlet | None
    direct: bool
    """The records of the operator are those that are being read."""
    stamped: bool
    """The records have timestamps."""
    columns: ColumnOutlet | None

    def called(self, records: list[Any]) -> Results:
        """What the function makes of some records."""

    def called_with(self, table: pa.Table, shape: BatchShape) -> Results:
        """What the function makes of rows that are columns."""


class Gathering:
    """The records that wait in one operator of one subtask."""

    def __init__(self, unit: CallsFunction, cursor: Cursor, *, tracked: bool, copies: bool) -> None:
        self.forward: Step = _nowhere
        # Lists that generated code appends to.
        self.records: list[Any] = []
        self.stamps: list[int] = []
        self.places: list[Place] = []
        self._tracked = tracked
        self._marks: list[Mark] = []
        # A watermark for each record is usual; more come if a filter stands between them and the batch.
        self._most_marks = max(unit.op.batch_size, 1024)
        self._first: Place = ("", 0)
        # Of rows that wait as columns: those, how many they are, and where the last one was read.
        self._pieces: list[ColumnBatch] = []
        self._held = 0
        self._last: Place | None = None
        self._unit = unit
        self._cursor = cursor
        self._copies = copies
        self.send: Callable[..., None] = _nowhere

    def begin(self) -> None:
        """The first record of a batch comes, or the first that is not one of columns."""
        if self._pieces:
            self._make_records()
        else:
            self._first = self._cursor.place()

    def take_columns(self, batch: ColumnBatch) -> bool:
        """Rows come as columns. False if records wait, with which they have to make a batch."""
        if self.records:
            return False
        if self._pieces and not self._pieces[0].alike(batch):
            self._make_records()
            return False
        size, count, start = self._unit.op.batch_size, len(batch), 0
        while start < count:
            if not self._pieces:
                self._first = self._row(count - 1 - start)
            stop = min(count, start + size - self._held)
            self._pieces.append(batch if stop - start == count else batch.slice(start, stop))
            self._held += stop - start
            self._last = self._row(count - stop)
            start = stop
            if self._held >= size:
                self.flush()
        return True

    def _row(self, behind: int) -> Place:
        """Where the row was read behind which so many stand; it becomes the one at hand."""
        if self._unit.direct:
            self._cursor.at_row(behind)
        return self._cursor.place()

    def _make_records(self) -> None:
        """Rows that wait as columns wait as records from here on."""
        pieces = self._take_pieces()
        self.records.extend(chain.from_iterable(piece.records() for piece in pieces))
        self.stamps.extend(chain.from_iterable(piece.timestamps() for piece in pieces))

    def _take_pieces(self) -> list[ColumnBatch]:
        pieces, self._pieces, self._held, self._last = self._pieces, [], 0, None
        return pieces

    def hold(self, watermark: int) -> None:
        """A watermark comes: it waits with the records that came before it."""
        self.after(self.forward, watermark)
        if watermark == MAX_TIME or len(self._marks) >= self._most_marks:
            self.flush()

    def after(self, step: Step, value: int) -> None:
        """Take a step once the records that wait have gone on."""
        waiting = len(self.records) or self._held
        if waiting:
            self._marks.append((waiting, step, value))
        else:
            step(value)

    def release(self, _: int = 0) -> None:
        """Let go of what waits."""
        self.flush()

    def flush(self) -> None:
        """Call the function with what there is, and hand on what comes of it."""
        if self._pieces:
            self._flush_columns()
            return
        records = self.records[:]
        if not records:
            return
        stamps, places, marks = self.stamps[:], self.places[:], self._marks
        self.records.clear()
        self.stamps.clear()
        self.places.clear()
        self._marks = []
        bad = self._unit.bad
        if bad is None:
            try:
                results, counts = self._unit.called(records)
            except Exception as error:
                raise self._explained(error, records) from error
        else:
            bad.seen += len(records)
            # The function may change what it is given before it fails.
            kept = list(map(own, records)) if self._copies else records
            try:
                results, counts = self._unit.called(records)
            except Exception as error:
                self._one_by_one(bad, error, kept, stamps, places, marks)
                return
        if isinstance(results, ColumnBatch):
            times = np.array(stamps, np.int64) if self._unit.stamped else None
            self._hand_on_columns(results, counts, times, marks)
        else:
            self._hand_on(results, counts, stamps, places, marks)

    def _flush_columns(self) -> None:
        """Call the function with gathered rows that have come as columns."""
        last, pieces, marks, bad = self._last, self._take_pieces(), self._marks, self._unit.bad
        self._marks = []
        first = pieces[0]
        table = pa.Table.from_batches([piece.data for piece in pieces])
        stamps: Stamps | None = None
        if first.stamps is not None:
            stamps = np.concatenate([p.stamps for p in pieces if p.stamps is not None])
        if bad is not None:
            bad.seen += table.num_rows
        try:
            results, counts = self._unit.called_with(table, first.shape)
        except Exception as error:
            records = [record for piece in pieces for record in piece.records()]
            if bad is None:
                raise self._explained(error, records, last) from error
            times = [time for piece in pieces for time in piece.timestamps()]
            self._one_by_one(bad, error, records, times, [], marks)
            return
        self._hand_on_columns(results, counts, stamps, marks)

    def _hand_on_columns(
        self,
        results: list[Any] | ColumnBatch,
        counts: Sequence[int] | Counts | None,
        stamps: Stamps | None,
        marks: list[Mark],
    ) -> None:
        """Results with the timestamps of their rows, as columns if somebody takes them."""
        if counts is not None:
            if marks:
                ends = [0, *np.cumsum(counts).tolist()]
                marks = [(ends[place], step, value) for place, step, value in marks]
            stamps = None if stamps is None else np.repeat(stamps, counts)
        if not isinstance(results, ColumnBatch):
            times = [NO_TIME] * len(results) if stamps is None else stamps.tolist()
            self._hand_on(results, None, times, [], marks)
            return
        batch = results.stamped(stamps)
        done = 0
        for place, step, value in marks:
            if place > done:
                self._send_columns(batch.slice(done, place))
                done = place
            step(value)
        if len(batch) > done:
            self._send_columns(batch.slice(done, len(batch)) if done else batch)

    def _send_columns(self, batch: ColumnBatch) -> None:
        outlet = self._unit.columns
        if outlet is None or not outlet.send(batch):
            self.send(batch.records(), batch.timestamps())

    def _hand_on(
        self,
        results: list[Any],
        counts: Sequence[int] | Counts | None,
        stamps: list[int],
        places: list[Place],
        marks: list[Mark],
    ) -> None:
        """Results with the timestamps of their records, and watermarks where they came."""
        if counts is not None:
            ends = [0, *accumulate(counts)]
            marks = [(ends[place], step, value) for place, step, value in marks]
            stamps = _repeated(stamps, counts)
            places = _repeated(places, counts) if self._tracked else []
        done = 0
        for place, step, value in marks:
            if place > done:
                self._send(results, stamps, places, done, place)
                done = place
            step(value)
        self._send(results, stamps, places, done, len(results))

    def _send(
        self, results: list[Any], stamps: list[int], places: list[Place], start: int, end: int
    ) -> None:
        if start or end < len(results):
            results, stamps, places = results[start:end], stamps[start:end], places[start:end]
        if not self._tracked:
            self.send(results, stamps)
            return
        for result, stamp, place in zip(results, stamps, places, strict=True):
            self._cursor.pin(place)
            self.send([result], [stamp])
        self._cursor.pin(None)

    def _one_by_one(
        self,
        bad: BadRecords,
        error: Exception,
        records: list[Any],
        stamps: list[int],
        places: list[Place],
        marks: list[Mark],
    ) -> None:
        """Which records are bad? Each is tried alone, and goes on if it is not."""
        waiting = deque(marks)
        for number, record in enumerate(records):
            _take(waiting, number)
            place = places[number : number + 1]
            try:
                if len(records) == 1:
                    # It was alone.
                    raise error
                again = own(record) if self._copies else record
                results, counts = self._unit.called([again])
                if isinstance(results, ColumnBatch):
                    results = results.records()
            except Exception as failure:
                self._cursor.pin(place[0] if place else None)
                letter = bad.take(failure, record)
                if self._unit.letters is not None:
                    self._unit.letters(letter, stamps[number])
                self._cursor.pin(None)
            else:
                self._hand_on(results, counts, stamps[number : number + 1], place, [])
        _take(waiting, len(records))

    def _explained(
        self, error: Exception, records: list[Any], end: Place | None = None
    ) -> MillstreamError:
        """The error for a batch, which is about more than the record at hand."""
        name, count = self._unit.node.name, len(records)
        (source, first), last = self._first, end or self._cursor.place()
        position = "the operator does not read its input directly"
        if self._unit.direct:
            position = f"{source}, records {first} to {last[1]}"
            if last[0] != source:
                position = f"{source}, record {first}, to {last[0]}, record {last[1]}"
        ends = [shorten(records[0]), shorten(records[-1])]
        facts: dict[str, Any] = {
            "operator": name,
            "line": user_line(error.__traceback__),
            "batch": many(count, "record"),
            "record": ends[0] if count == 1 else f"from {ends[0]} to {ends[1]}",
            "position": position,
        }
        if isinstance(error, MillstreamError):
            return type(error)(error.what, hint=error.hint, **{**facts, **error.evidence})
        return UserFunctionError(
            f"the function of '{name}' raised {told(error)}",
            **facts,
            traceback=user_traceback(error, error.__traceback__),
        )


def _take(waiting: deque[Mark], count: int) -> None:
    """Take the steps of time that are due after so many records."""
    while waiting and waiting[0][0] <= count:
        _, step, value = waiting.popleft()
        step(value)


def _repeated(values: list[Any], counts: Iterable[int]) -> list[Any]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def _nowhere(*_: Any) -> None:
    raise AssertionError("the chain has not been built")
