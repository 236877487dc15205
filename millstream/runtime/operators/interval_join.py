"""The interval join: pairs of records of one key whose timestamps are so far apart (Flink's `IntervalJoinOperator`).

A record is kept in its side's buffer, and meets what the other side's buffer holds within the bounds. It is removed
once the watermark says that nothing it could meet is still to come. A buffer has a list for each key and timestamp.
Which timestamps there are is known in memory: of each key in order, so that a record looks at those it meets only, and
of all keys by time. When a record goes follows from its timestamp, so the timers that Flink has here are not needed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from millstream.api.join_functions import ProcessJoinFunction
from millstream.common.constants import NO_TIME
from millstream.errors import MissingTimestamp
from millstream.graph.operators import IntervalJoinOp
from millstream.runtime.base.several import several
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import DELETED, ListChange, Table, isolate

__all__ = ["JoinedIntervals"]

Emit = Callable[[Any, int], None]


class Times:
    """Which timestamps there are in a table with keys (canon, timestamp); it is the table's index."""

    __slots__ = ("_at", "_heap", "_keys", "_table", "of", "valid")

    def __init__(self, table: Table) -> None:
        self._at: dict[Any, list[int]] = {}
        self.of = self._at.get
        """A key's timestamps in order, or None. Only to be read, and only while `valid`."""
        # The keys of each timestamp, never too few, sometimes too many; and the timestamps.
        self._keys: dict[int, list[Any]] = {}
        self._heap: list[int] = []
        self._table = table
        # The table may have been filled before anybody asked for it.
        self.valid = False
        table.index = self

    def add(self, canon: Any, timestamp: int) -> None:
        """The key has something at a timestamp."""
        times = self._at.get(canon)
        if times is None:
            self._at[canon] = [timestamp]
        elif timestamp > times[-1]:
            # Nearly always: records come nearly in order.
            times.append(timestamp)
        else:
            place = bisect_left(times, timestamp)
            if times[place] == timestamp:
                return
            times.insert(place, timestamp)
        keys = self._keys.get(timestamp)
        if keys is None:
            self._keys[timestamp] = [canon]
            heappush(self._heap, timestamp)
        else:
            keys.append(canon)

    def remove(self, canon: Any, timestamp: int) -> bool:
        """The key has nothing any more at a timestamp; False if it had nothing before."""
        times = self._at.get(canon)
        if times is None:
            return False
        place = bisect_left(times, timestamp)
        if place == len(times) or times[place] != timestamp:
            return False
        del times[place]
        if not times:
            del self._at[canon]
        return True

    def first(self) -> int | None:
        """The smallest timestamp."""
        return self._heap[0] if self._heap else None

    def take_first(self) -> list[Any]:
        """Remove the smallest timestamp; the keys that had something there."""
        timestamp = heappop(self._heap)
        return [canon for canon in self._keys.pop(timestamp) if self.remove(canon, timestamp)]

    def put_back(self, key: Any, *, there: bool) -> None:
        """What was done to an entry has been undone."""
        if self.valid and there:
            self.add(*key)
        elif self.valid:
            self.remove(*key)

    def applied(self, kind: str, entries: list[Any]) -> None:
        """Entries of a file were put into the table."""
        if not self.valid:
            return
        if kind == "D":
            for canon, timestamp in entries:
                self.remove(canon, timestamp)
        else:
            for (canon, timestamp), _ in entries:
                self.add(canon, timestamp)

    def clear(self) -> None:
        """The table is empty."""
        self._at.clear()
        self._keys.clear()
        self._heap.clear()

    def refresh(self) -> None:
        """Look at the whole table."""
        self.clear()
        for canon, timestamp in self._table.keys():  # noqa: SIM118 - a table is no dictionary
            self._at.setdefault(canon, []).append(timestamp)
            self._keys.setdefault(timestamp, []).append(canon)
        for times in self._at.values():
            times.sort()
        self._heap = list(self._keys)
        heapify(self._heap)
        self.valid = True


class _Buffer:
    """The records of one side that wait for those of the other."""

    __slots__ = ("changed", "changes", "read", "times")

    def __init__(self, table: Table) -> None:
        self.changes = table.changes
        self.changed = table.changes.get
        self.read = table.read
        self.times = Times(table)

    def add(self, canon: Any, timestamp: int, value: Any) -> None:
        """Keep a record for those of the other side."""
        pair = canon, timestamp
        change = self.changed(pair)
        if change is None:
            self.changes[pair] = ListChange([value], replace=False)
        elif change is DELETED:
            self.changes[pair] = ListChange([value], replace=True)
        else:
            change.items.append(value)
            return
        self.times.add(canon, timestamp)

    def at(self, canon: Any, timestamp: int) -> list[Any]:
        """The records of a timestamp of which `times` says that there are some; not to be changed."""
        pair = canon, timestamp
        change = self.changed(pair)
        if change is None:
            records: list[Any] = self.read(pair, None)
            return records
        items: list[Any] = change.items
        if change.replace:
            return items
        base = self.read(pair, None)
        return items if base is None else base + items

    def drop_until(self, time: int) -> None:
        """What is not later than this has met all it could."""
        times, changes, read = self.times, self.changes, self.read
        if not times.valid:
            times.refresh()
        first = times.first()
        while first is not None and first <= time:
            for canon in times.take_first():
                pair = canon, first
                # What came and went within an epoch leaves no trace in the epoch's file.
                if read(pair, None) is None:
                    changes.pop(pair, None)
                else:
                    changes[pair] = DELETED
            first = times.first()


class _PairContext(ProcessJoinFunction.Context):
    """What the function is told of the pair at hand."""

    __slots__ = ("at", "left", "right")

    def __init__(self) -> None:
        self.left = self.right = self.at = NO_TIME

    def get_left_timestamp(self) -> int:
        return self.left

    def get_right_timestamp(self) -> int:
        return self.right

    def timestamp(self) -> int:
        return self.at


class _Side:
    """What happens to the records of one side. `lower` and `upper` are relative to their timestamps."""

    __slots__ = (
        "_call",
        "_context",
        "_emit",
        "_is_left",
        "_join",
        "_keys",
        "_late",
        "_lower",
        "_mine",
        "_other",
        "_upper",
    )

    def __init__(
        self,
        join: JoinedIntervals,
        bounds: tuple[int, int],
        buffers: tuple[_Buffer, _Buffer],
        late: Emit | None,
        *,
        is_left: bool,
    ) -> None:
        self._join = join
        self._is_left = is_left
        self._lower, self._upper = bounds
        self._mine, self._other = buffers
        self._late = late
        self._keys, self._call = join.keys, join.call
        self._context, self._emit = join.context, join.emit

    def process(self, value: Any, timestamp: int) -> None:
        """A record of the current key."""
        if timestamp < self._join.watermark or timestamp == NO_TIME:
            self._put_aside(value, timestamp)
            return
        mine, other, canon = self._mine, self._other, self._keys.canon
        if not mine.times.valid:
            mine.times.refresh()
        if not other.times.valid:
            other.times.refresh()
        mine.add(canon, timestamp, isolate(value))
        times = other.times.of(canon)
        if times is None:
            return
        first = bisect_left(times, timestamp + self._lower)
        last = bisect_right(times, timestamp + self._upper)
        if first == last:
            return
        context, call, emit, is_left = self._context, self._call, self._emit, self._is_left
        for at in times[first:last]:
            later = max(at, timestamp)
            for partner in other.at(canon, at):
                context.at = later
                if is_left:
                    context.left, context.right = timestamp, at
                    results = call(value, isolate(partner), context)
                else:
                    context.left, context.right = at, timestamp
                    results = call(isolate(partner), value, context)
                if results is not None:
                    for result in results:
                        emit(result, later)

    def _put_aside(self, value: Any, timestamp: int) -> None:
        if timestamp == NO_TIME:
            raise MissingTimestamp(
                "a record without a timestamp came to an interval join",
                side="left" if self._is_left else "right",
                hint="call assign_timestamps_and_watermarks(...) on both streams before key_by",
            )
        if self._late is None:
            self._join.dropped_late += 1
        else:
            self._late(value, timestamp)


class JoinedIntervals:
    """One subtask's interval join. `keys` says whose record is at hand."""

    def __init__(
        self,
        op: IntervalJoinOp,
        keys: KeyContext,
        tables: tuple[Table, Table],
        emit: Emit,
        late: tuple[Emit | None, Emit | None],
    ) -> None:
        self.keys = keys
        self.call: Callable[..., Any] = several(op.function.process_element)
        self.context = _PairContext()
        self.emit = emit
        self.watermark = NO_TIME
        self.dropped_late = 0
        self._left, self._right = left, right = _Buffer(tables[0]), _Buffer(tables[1])
        # How long after its own time a record of either side can still meet one that is not late.
        self._left_stays, self._right_stays = max(op.upper, 0), max(-op.lower, 0)
        first = _Side(self, (op.lower, op.upper), (left, right), late[0], is_left=True)
        two = _Side(self, (-op.upper, -op.lower), (right, left), late[1], is_left=False)
        self.process1: Callable[[Any, int], None] = first.process
        """Takes a record of the left side and its timestamp, once the key context is set."""
        self.process2: Callable[[Any, int], None] = two.process
        """Takes a record of the right side and its timestamp, once the key context is set."""

    def advance(self, watermark: int) -> None:
        """The watermark has moved on: forget what it has passed."""
        self.watermark = watermark
        self._left.drop_until(watermark - self._left_stays)
        self._right.drop_until(watermark - self._right_stays)
