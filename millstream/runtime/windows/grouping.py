"""Rows by key and pane, without a loop over them: what the declared aggregates of each group come to.

Everything is exact, and as a loop over the rows would have it: ints are added as ints, floats one after the other in
the order of the rows, of equal values the first is kept, and groups come in the order of their first rows.

| aggregate | places of its accumulator |
|---|---|
| `count` | how many rows |
| `sum_of` | the sum, None without values |
| `min_of`, `max_of` | the value, None without values |
| `mean_of` | the sum, and how many values |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.api.aggregates import FieldAggregate
from millstream.common.constants import MAX_TIME, NO_TIME

__all__ = [
    "Groups",
    "Ints",
    "PaneNumbers",
    "accumulators",
    "counts_of",
    "last_end",
    "sums_of_floats",
]

Ints = npt.NDArray[np.int64]

# Times up to here can be calculated with in 64 bits, whatever the windows are.
_FAR = 1 << 61


def last_end(watermark: int, size: int, slide: int, offset: int) -> int:
    """The last end of a window at or before the watermark: panes before it have been read by a window. When time is
    over, so is every window, also one whose end lies beyond."""
    at = watermark + 1 if watermark < MAX_TIME else MAX_TIME + size + slide
    # Records without a timestamp must not pass for very old ones (rule 9).
    return max(at - (at - offset - size) % slide, NO_TIME + 1)


class PaneNumbers:
    """Numbers the panes of windows that leave no gaps.

    >>> panes = PaneNumbers(11, 4, 1)
    >>> numbers = panes.numbers(np.array([0, 1, 3, 4, 5, 9]))
    >>> [panes.start(number) for number in numbers.tolist()]
    [0, 1, 1, 4, 5, 9]
    """

    def __init__(self, size: int, slide: int, offset: int) -> None:
        self.size, self.slide, self.offset = size, slide, offset
        # Windows begin and end at these places within a slide.
        self.cut = size % slide

    def can_number(self, times: Ints) -> bool:
        """False if times are so far away that they could not be calculated with, or one is missing."""
        far = max(self.size, self.slide, abs(self.offset))
        return far < _FAR and int(times.min()) > -_FAR and int(times.max()) < _FAR

    def numbers(self, times: Ints) -> Ints:
        """The number of the pane that each time is in."""
        since = times - self.offset if self.offset else times
        # NumPy divides much faster than it takes remainders.
        slides: Ints = since // self.slide
        if not self.cut:
            return slides
        return 2 * slides + (since - slides * self.slide >= self.cut)

    def start(self, number: int) -> int:
        """Where a pane begins."""
        if not self.cut:
            return number * self.slide + self.offset
        return number // 2 * self.slide + self.offset + (self.cut if number % 2 else 0)

    def before(self, numbers: Ints, start: int) -> npt.NDArray[np.bool_]:
        """Which of the panes begin before the start of some pane."""
        if abs(start) >= _FAR:
            return np.full(len(numbers), start > 0)
        earlier: npt.NDArray[np.bool_] = numbers < self.numbers(np.array([start]))[0]
        return earlier

    def fired(self, watermark: int) -> int:
        """The start of the first pane that no window has read when the watermark is so far."""
        return last_end(watermark, self.size, self.slide, self.offset)


class Groups:
    """Which rows have the same key and pane.

    >>> groups = Groups(np.array([7, 7, 8, 7]), np.array([1, 0, 1, 1]), 2)
    >>> groups.panes.tolist(), groups.keys.tolist(), groups.rows.tolist()
    ([7, 7, 8], [1, 0, 1], [2, 1, 1])
    """

    def __init__(self, panes: Ints, keys: Ints, key_count: int) -> None:
        count = len(keys)
        low, some = int(panes.min()), None
        size = (int(panes.max()) - low + 1) * key_count
        known: Ints | None = None
        if size > 4 * count + 4096:
            # Few of all that there might be are there.
            some, panes = np.unique(panes, return_inverse=True)
            known, ids = np.unique(panes * key_count + keys, return_inverse=True)
            size = len(known)
        else:
            ids = (panes - low) * key_count + keys
        first: Ints = np.full(size, count, np.int64)
        # Of several that are put in one place the last one stays.
        first[ids[::-1]] = np.arange(count - 1, -1, -1)
        rows: Ints = np.bincount(ids, minlength=size)
        there = np.flatnonzero(rows)
        order = there[np.argsort(first[there], kind="stable")]
        number = np.empty(size, np.int64)
        number[order] = np.arange(len(order))
        which = order if known is None else known[order]
        self.of_row: Ints = number[ids]
        """The group of each row; groups are numbered in the order of their first rows."""
        self.keys: Ints = which % key_count
        places = which // key_count
        self.panes: Ints = places + low if some is None else some[places]
        self.rows: Ints = rows[order]

    def __len__(self) -> int:
        return len(self.rows)


def accumulators(
    aggregates: Sequence[FieldAggregate],
    fields: Sequence[pa.Array],
    groups: Groups,
    *,
    leave_floats: bool = False,
) -> list[Any]:
    """The accumulators of all groups, by their places: each an array of Arrow's, null for None; `fields` has the column
    of each aggregate that has a field, in their order. With `leave_floats` the places of sums of floats stay null."""
    places: list[Any] = []
    given = iter(fields)
    for aggregate in aggregates:
        if aggregate.kind == "count":
            places.append(pa.array(groups.rows))
            continue
        column = next(given)
        values, of_row = _present(column, groups)
        counts: Ints = np.bincount(of_row, minlength=len(groups))
        missing = counts == 0
        if aggregate.kind in ("sum_of", "mean_of"):
            if pa.types.is_floating(column.type) and leave_floats:
                places.append(pa.nulls(len(groups), pa.float64()))
            else:
                sums = np.zeros(len(groups), np.int64)
                np.add.at(sums, of_row, values)
                places.append(pa.array(sums, mask=missing))
            if aggregate.kind == "mean_of":
                places.append(pa.array(counts))
        else:
            least = aggregate.kind == "min_of"
            places.append(pa.array(_extremes(values, of_row, counts, least), mask=missing))
    return places


def counts_of(column: pa.Array, groups: Groups) -> Ints:
    """How many values each group has."""
    counts: Ints = np.bincount(_present(column, groups)[1], minlength=len(groups))
    return counts


def sums_of_floats(
    column: pa.Array, groups: Groups, begun: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The sums of each group's values, added one after the other to what they begin with: -0.0 if there is nothing yet,
    to which a number can be added and stays as it is."""
    values, of_row = _present(column, groups)
    with np.errstate(all="ignore"):
        np.add.at(begun, of_row, values)
    return begun


def _present(column: pa.Array, groups: Groups) -> tuple[Any, Ints]:
    """The values that are not null, and the group of each."""
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False), groups.of_row
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return column.drop_null().to_numpy(zero_copy_only=False), groups.of_row[valid]


def _extremes(values: Any, of_row: Ints, counts: Ints, least: bool) -> Any:
    """The smallest or largest value of each group; one NaN makes it NaN, and of several that are equal it is the
    first, which for zeros shows."""
    floats = values.dtype.kind == "f"
    if floats:
        start: Any = np.inf if least else -np.inf
    else:
        start = np.iinfo(np.int64).max if least else np.iinfo(np.int64).min
    found = np.full(len(counts), start, values.dtype)
    with np.errstate(all="ignore"):
        (np.minimum if least else np.maximum).at(found, of_row, values)
    if floats:
        zeros = np.flatnonzero(values == 0)
        if len(zeros) and np.signbit(values[zeros]).any():
            first = np.zeros(len(counts), np.float64)
            first[of_row[zeros][::-1]] = values[zeros][::-1]
            found = np.where(found == 0, first, found)
    return found
