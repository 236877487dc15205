"""Columns on their way to windows: rows are gathered, and sent by key, added up where that makes no difference.

What was gathered is one stretch of a channel, with watermarks between the rows:

```
gathered      rows  w1  rows  w2  rows  w3
sent          all rows of the stretch, by key and pane  w1  w2  w3
```

A row that comes after w1 may be added before it if w1 does not fire a window that it is in, which is so for all rows
that keep to their own channel's watermarks. Before rows that do not, what was gathered is cut, so that they find the
windows as they would have. Each distinct key is hashed once, by the function that all keys are hashed by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.common.constants import MAX_LONG_VALUE, MAX_TIME
from millstream.graph.level_plan import Edge
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.payload import KeyedRows, Partials, Sent
from millstream.runtime.operators.window_columns import (
    WindowColumns,
    WindowLayout,
    key_fits,
    layout_of,
)
from millstream.runtime.windows.grouping import Groups, Ints, PaneNumbers, accumulators
from millstream.runtime.wire.codec import WATERMARK, Mark
from millstream.runtime.wire.column_output import ColumnWriter, Gathered
from millstream.runtime.wire.keys import canonical, key_group, subtask_of

__all__ = ["KeyedColumnWriter", "encode_keys"]

# Rows that are added up at a time, and rows that are sent as they are.
_MOST_ADDED = 1 << 17
_MOST_SENT = 1 << 15
# Rows may be long; all of their columns are held until they are sent.
_MOST_BYTES = 32 << 20
# Routes of this many distinct keys are remembered; then the memory starts afresh.
_ROUTE_CACHE = 200_000


class _Run(NamedTuple):
    """Rows that are sent together, and the marks before and behind them."""

    start: int
    stop: int
    before: list[tuple[int, int]]
    behind: list[tuple[int, int]]


class KeyedColumnWriter(ColumnWriter):
    """The writer of an edge to windows that take columns."""

    __slots__ = ("_edge", "_key", "_kind", "_largest", "_layout", "_numbers", "_routes", "_wanted")

    def __init__(self, edge: Edge, *arguments: Any, **options: Any) -> None:
        super().__init__(edge.id, *arguments, **options)
        assert edge.partitioning.key is not None
        wanted: WindowColumns = edge.columns
        self._edge = edge
        self._key = edge.partitioning.key
        self._wanted = wanted
        self._numbers = PaneNumbers(wanted.size, wanted.slide, wanted.offset)
        # Of the rows that came last: what they are, and where their columns are.
        self._kind: ColumnBatch | None = None
        self._layout: WindowLayout | None = None
        # The largest int that is to be added up, of what waits.
        self._largest = 0
        self._routes: dict[Any, int] = {}

    def accepts(self, batch: ColumnBatch) -> bool:
        """True if the rows can be sent as columns; what waits goes before them if they do not go together."""
        if self._kind is None or not self._kind.alike(batch):
            if self.held_rows:
                self.send_gathered()
            self._kind = batch.slice(0, 0)
            self._layout = layout_of(batch, self._key, self._wanted)
        layout = self._layout
        if (
            layout is None
            or batch.stamps is None
            or not self._numbers.can_number(batch.stamps)
            or not key_fits(self._key, batch.data.column(layout.key))
        ):
            return False
        largest = max((_largest(batch.data.column(place)) for place in layout.sums), default=0)
        if largest * len(batch) > MAX_LONG_VALUE:
            return False
        if max(largest, self._largest) * (self.held_rows + len(batch)) > MAX_LONG_VALUE:
            self.send_gathered()
        self._largest = max(largest, self._largest)
        return True

    def is_full(self) -> bool:
        """True if enough waits to be sent."""
        most = _MOST_ADDED if self._adds_up else _MOST_SENT
        return self.held_rows >= most or self.held_bytes >= _MOST_BYTES

    @property
    def _adds_up(self) -> bool:
        """True if rows can be added up before they are sent."""
        return (
            not self._wanted.one_by_one and self._layout is not None and not self._layout.in_order
        )

    def _forget(self) -> None:
        super()._forget()
        self._largest = 0

    # -- sending ----------------------------------------------------------------------------------------------

    def send_rows(self, gathered: Gathered) -> None:
        """Send what was gathered, in as few buffers as its watermarks allow."""
        layout = self._layout
        assert layout is not None
        batches = [held for held in gathered if isinstance(held, ColumnBatch)]
        stamps: Ints = np.concatenate([b.stamps for b in batches if b.stamps is not None])
        key, *fields = (
            pa.concat_arrays([batch.data.column(place) for batch in batches])
            for place in (layout.key, *layout.fields)
        )
        whole: list[pa.Array] = []
        if self._wanted.whole:
            whole = pa.concat_batches([batch.data for batch in batches]).columns
        of_row, keys = encode_keys(key)
        targets = np.fromiter(map(self._route, _canonical_keys(keys)), np.int64, len(keys))
        numbers = self._numbers.numbers(stamps)
        for run in self._runs(gathered, numbers):
            part = slice(run.start, run.stop)
            count = run.stop - run.start
            some = [column.slice(run.start, count) for column in fields]
            if self._adds_up:
                made = self._added_up(numbers[part], of_row[part], keys, targets, some)
            else:
                every = [pa.array(stamps[part]), *some]
                every += [column.slice(run.start, count) for column in whole]
                made = self._by_target(of_row[part], keys, targets, every, len(some), batches[0])
            for index in range(len(self.lists)):
                self._post(index, made.get(index), run)

    def _post(self, index: int, columns: Sent | None, run: _Run) -> None:
        count = 0 if columns is None else len(columns)
        marks = [Mark(0, *mark) for mark in run.before]
        self.post_columns(index, columns, [*marks, *(Mark(count, *mark) for mark in run.behind)])

    def _runs(self, gathered: Gathered, numbers: Ints) -> Iterator[_Run]:
        """The rows with the marks around them, cut before rows that are late by the watermarks before them, and behind
        marks that are not watermarks: while a channel is idle, time goes on without it."""
        before: list[tuple[int, int]] = []
        behind: list[tuple[int, int]] = []
        start = stop = 0
        fired: int | None = None
        for held in gathered:
            if isinstance(held, tuple):
                (behind if stop > start else before).append(held)
                if stop > start and fired != MAX_TIME:
                    over = held[0] != WATERMARK
                    fired = MAX_TIME if over else self._numbers.fired(held[1])
                continue
            end = stop + len(held)
            if fired is not None and self._numbers.start(int(numbers[stop:end].min())) < fired:
                yield _Run(start, stop, before, behind)
                before, behind, start, fired = [], [], stop, None
            stop = end
        yield _Run(start, stop, before, behind)

    def _added_up(
        self,
        numbers: Ints,
        of_row: Ints,
        keys: pa.Array,
        targets: Ints,
        fields: list[pa.Array],
    ) -> dict[int, Sent]:
        groups = Groups(numbers, of_row, len(keys))
        starts = [self._numbers.start(number) for number in groups.panes.tolist()]
        columns = [
            keys.take(pa.array(groups.keys)),
            pa.array(starts, pa.int64()),
            pa.array(groups.rows),
            *accumulators(self._wanted.aggregates, fields, groups),
        ]
        data = pa.RecordBatch.from_arrays(columns, names=[str(n) for n in range(len(columns))])
        found: dict[int, Sent] = {}
        for index, some in _split(targets[groups.keys], len(self.lists)):
            part = data if some is None else data.take(pa.array(some))
            rows = groups.rows if some is None else groups.rows[some]
            found[index] = Partials(part, int(rows.sum()))
        return found

    def _by_target(
        self,
        of_row: Ints,
        keys: pa.Array,
        targets: Ints,
        columns: list[pa.Array],
        fields: int,
        kind: ColumnBatch,
    ) -> dict[int, Sent]:
        names = [str(n) for n in range(len(columns) + 1)]
        found: dict[int, Sent] = {}
        for index, some in _split(targets[of_row], len(self.lists)):
            mine, part = of_row, columns
            if some is not None:
                mine, taken = of_row[some], pa.array(some)
                part = [column.take(taken) for column in columns]
            used = np.flatnonzero(np.bincount(mine, minlength=len(keys)))
            renumbered = np.zeros(len(keys), np.int32)
            renumbered[used] = np.arange(len(used), dtype=np.int32)
            key = pa.DictionaryArray.from_arrays(
                pa.array(renumbered[mine]), keys.take(pa.array(used))
            )
            data = pa.RecordBatch.from_arrays([key, *part], names=names)
            found[index] = KeyedRows(data, fields, kind.shape if self._wanted.whole else None)
        return found

    def _route(self, canon: Any) -> int:
        target = self._routes.get(canon)
        if target is None:
            if len(self._routes) >= _ROUTE_CACHE:
                self._routes.clear()
            edge = self._edge
            group = key_group(canon, edge.target_max_parallelism)
            target = subtask_of(group, edge.target_parallelism, edge.target_max_parallelism)
            self._routes[canon] = target
        return target


def _split(targets: Ints, count: int) -> Iterator[tuple[int, Ints | None]]:
    """The places that go to each target; None stands for all of them."""
    if count == 1:
        yield 0, None
        return
    for index in range(count):
        some = np.flatnonzero(targets == index)
        if len(some):
            yield index, some


def _largest(column: pa.Array) -> int:
    """The largest distance from 0."""
    if column.null_count:
        column = column.drop_null()
    values = column.to_numpy()
    return max(-int(values.min()), int(values.max())) if len(values) else 0


_NO_KEY = canonical(None)


def _canonical_keys(keys: pa.Array) -> list[Any]:
    return [_NO_KEY if key is None else key for key in keys.to_pylist()]


def encode_keys(column: pa.Array) -> tuple[Ints, pa.Array]:
    """For each row the number of its key, and the distinct keys in their canonical form; null stands for that of None.

    >>> of_row, keys = encode_keys(pa.array(["b", "a", "b"]))
    >>> of_row.tolist(), keys.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    """
    kind = column.type
    bits = pa.types.is_float64(kind)
    if bits:
        # 0.0 and -0.0 are two keys, and so are two kinds of NaN.
        column = column.view(pa.int64())
    encoded = column.dictionary_encode(null_encoding="encode")
    keys = encoded.dictionary
    if not pa.types.is_string(kind) and not (pa.types.is_int64(kind)):
        values = keys.view(pa.float64()).to_pylist() if bits else keys.to_pylist()
        keys = pa.array(list(map(canonical, values)), pa.binary())
    return encoded.indices.to_numpy().astype(np.int64), keys
