"""How columns come into the panes of tumbling and sliding windows: added up before, or as rows.

The panes are those that the generated loop adds to, and so are the accumulators in them. A group of rows is combined
with what its pane has by the aggregates' own `merge`; sums of floats, which depend on the order, go on from what the
pane has. Rows whose windows have fired are taken one by one, as the loop would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.api.aggregates import FieldAggregate
from millstream.runtime.columns.payload import KeyedRows, Partials
from millstream.runtime.state.panes import Pane, Panes
from millstream.runtime.state.table import MISSING
from millstream.runtime.windows.aligned import AlignedWindows
from millstream.runtime.windows.grouping import (
    Groups,
    Ints,
    PaneNumbers,
    accumulators,
    counts_of,
    sums_of_floats,
)
from millstream.runtime.wire.keys import canonical

__all__ = ["ColumnsToPanes"]

_NO_KEY = canonical(None)


class Aggregating(Protocol):
    """The declared aggregates."""

    aggregates: tuple[FieldAggregate, ...]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Two accumulators as one."""

    def misfit(self, error: Exception, **facts: Any) -> Exception:
        """The error for values that do not go together."""


class ColumnsToPanes:
    """Adds columns to one subtask's windows."""

    def __init__(self, windows: AlignedWindows, panes: Panes, function: Aggregating) -> None:
        self._windows = windows
        self._panes = panes
        self._numbers = PaneNumbers(windows.size, windows.slide, windows.offset)
        self._aggregates = function.aggregates
        self._merge = function.merge
        self._misfit = function.misfit

    def take(self, columns: Partials | KeyedRows) -> None:
        """Add all of the rows."""
        if isinstance(columns, Partials):
            with self._explaining():
                self._take_partials(columns)
        else:
            self._take_rows(columns)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Around everything that merges: what a pane has, and what is added, may be of different types."""
        try:
            yield
        except (TypeError, LookupError, AttributeError) as error:
            raise self._misfit(error) from error

    def _take_partials(self, partials: Partials) -> None:
        windows, merge = self._windows, self._merge
        changes, before, fired = windows.changes, self._panes.before, windows.fired
        keys, starts, counts, *places = (column.to_pylist() for column in partials.data.columns)
        last: int | None = None
        pane: Pane = {}
        parts = zip(*places, strict=True)
        for key, start, count, part in zip(keys, starts, counts, parts, strict=True):
            if key is None:
                key = _NO_KEY
            if start < fired:
                self._late_part(start, key, part, count)
                continue
            if start != last:
                found = changes.get(start)
                pane, last = windows.open_pane(start) if found is None else found, start
            so_far = pane.get(key, MISSING)
            if so_far is MISSING:
                so_far = before(start, key)
            pane[key] = part if so_far is MISSING else merge(so_far, part)

    def _late_part(self, start: int, key: Any, part: Any, count: int) -> None:
        """Rows of a pane that a window has read. Nobody wants them one by one, or they would have come so."""
        if not self._windows.still_added(start, key, lambda so_far: self._merge(so_far, part)):
            self._windows.dropped_late += count

    # -- rows -------------------------------------------------------------------------------------------------

    def _take_rows(self, rows: KeyedRows) -> None:
        encoded, times = rows.data.column(0), rows.data.column(1).to_numpy()
        keys = [_NO_KEY if key is None else key for key in encoded.dictionary.to_pylist()]
        of_row = encoded.indices.to_numpy().astype(np.int64)
        numbers, fields = self._numbers.numbers(times), rows.fields
        late = self._numbers.before(numbers, self._windows.fired)
        if not late.any():
            with self._explaining():
                self._add(numbers, of_row, keys, fields)
            return
        due = ~late
        if due.any():
            some = pa.array(due)
            with self._explaining():
                self._add(numbers[due], of_row[due], keys, [c.filter(some) for c in fields])
        for place in np.flatnonzero(late).tolist():
            self._late_row(rows, place, int(times[place]), keys[of_row[place]])

    def _late_row(self, rows: KeyedRows, place: int, time: int, key: Any) -> None:
        alone = self._accumulator([column[place].as_py() for column in rows.fields])

        def added(so_far: Any) -> Any:
            with self._explaining():
                return self._merge(so_far, alone)

        if not self._windows.still_added(time, key, added):
            self._windows.late(rows.record(place), time)

    def _accumulator(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The accumulator of a single row."""
        places: list[Any] = []
        given = iter(values)
        for aggregate in self._aggregates:
            if aggregate.kind == "count":
                places.append(1)
                continue
            value = next(given)
            places.append(value)
            if aggregate.kind == "mean_of":
                places.append(0 if value is None else 1)
        return tuple(places)

    def _add(
        self, numbers: Ints, of_row: Ints, keys: list[Any], fields: Sequence[pa.Array]
    ) -> None:
        """Rows that are in time."""
        groups = Groups(numbers, of_row, len(keys))
        made = accumulators(self._aggregates, fields, groups, leave_floats=True)
        parts: list[Any] = list(zip(*(place.to_pylist() for place in made), strict=True))
        panes: list[Pane] = []
        befores: list[Any] = []
        group_keys = [keys[key] for key in groups.keys.tolist()]
        starts = list(map(self._numbers.start, groups.panes.tolist()))
        for key, start in zip(group_keys, starts, strict=True):
            pane = self._windows.open_pane(start)
            so_far = pane.get(key, MISSING)
            panes.append(pane)
            befores.append(self._panes.before(start, key) if so_far is MISSING else so_far)
        merged = [
            part if so_far is MISSING else self._merge(so_far, part)
            for part, so_far in zip(parts, befores, strict=True)
        ]
        for place, column in self._float_sums(fields):
            merged = self._with_sums(place, column, groups, merged)
        for pane, key, accumulator in zip(panes, group_keys, merged, strict=True):
            pane[key] = accumulator

    def _float_sums(self, fields: Sequence[pa.Array]) -> list[tuple[int, pa.Array]]:
        """The places of an accumulator that are sums of floats, and their columns."""
        found: list[tuple[int, pa.Array]] = []
        given, place = iter(fields), 0
        for aggregate in self._aggregates:
            if aggregate.kind != "count":
                column = next(given)
                if aggregate.kind in ("sum_of", "mean_of") and pa.types.is_floating(column.type):
                    found.append((place, column))
            place += 2 if aggregate.kind == "mean_of" else 1
        return found

    @staticmethod
    def _with_sums(
        place: int, column: pa.Array, groups: Groups, accumulated: list[Any]
    ) -> list[Any]:
        """Accumulators with the sums of a column's values added in one place."""
        counts = counts_of(column, groups)
        begun = np.full(len(groups), -0.0)
        for group in np.flatnonzero(counts).tolist():
            old = accumulated[group][place]
            if old is not None:
                # Of an int a float, as it is when one is added; what no float can be added to says so.
                begun[group] = old + -0.0
        sums = sums_of_floats(column, groups, begun)
        return [
            (*accumulator[:place], new, *accumulator[place + 1 :]) if count else accumulator
            for accumulator, new, count in zip(
                accumulated, sums.tolist(), counts.tolist(), strict=True
            )
        ]
