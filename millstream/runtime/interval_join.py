"""The interval join: pairs of records of one key whose timestamps are so far apart (Flink's `IntervalJoinOperator`).

A record is kept in its side's buffer, and meets what the other side's buffer holds within the bounds. A *cleanup timer*
removes it once the watermark says that nothing it could meet is still to come. A buffer has a list for each key and
timestamp; which timestamps a key has is known in memory, in order, so that a record looks at those it meets only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from millstream.common.join_functions import ProcessJoinFunction
from millstream.errors import MissingTimestamp
from millstream.graph.operators import IntervalJoinOp
from millstream.runtime.clock import NO_TIME
from millstream.runtime.keyed_state import KeyContext
from millstream.runtime.state import DELETED, ListChange, Table, isolate
from millstream.runtime.timers import InternalTimers

__all__ = ["LEFT", "RIGHT", "IntervalJoin"]

LEFT, RIGHT = 0, 1
"""The namespaces of cleanup timers."""

Emit = Callable[[Any, int], None]


class Times:
    """Which timestamps each key has in a table with keys (canon, timestamp); it is the table's index."""

    __slots__ = ("_at", "_table", "of", "valid")

    def __init__(self, table: Table) -> None:
        self._at: dict[Any, list[int]] = {}
        self.of = self._at.get
        """A key's timestamps in order, or None. Only to be read, and only while `valid`."""
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
            if times[place] != timestamp:
                times.insert(place, timestamp)

    def remove(self, canon: Any, timestamp: int) -> None:
        """The key has nothing any more at a timestamp."""
        times = self._at.get(canon)
        if times is None:
            return
        place = bisect_left(times, timestamp)
        if place < len(times) and times[place] == timestamp:
            del times[place]
            if not times:
                del self._at[canon]

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

    def refresh(self) -> None:
        """Look at the whole table."""
        self._at.clear()
        for canon, timestamp in self._table.keys():  # noqa: SIM118 - a table is no dictionary
            self._at.setdefault(canon, []).append(timestamp)
        for times in self._at.values():
            times.sort()
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
        """One more."""
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
            found: list[Any] = self.read(pair, None)
            return found
        items: list[Any] = change.items
        if change.replace:
            return items
        base = self.read(pair, None)
        return items if base is None else base + items

    def drop(self, canon: Any, timestamp: int) -> None:
        """Those of a timestamp have met all they could."""
        pair = canon, timestamp
        # What came and went within an epoch leaves no trace in the epoch's file.
        if self.read(pair, None) is None:
            self.changes.pop(pair, None)
        else:
            self.changes[pair] = DELETED
        if self.times.valid:
            self.times.remove(canon, timestamp)


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
        "_namespace",
        "_other",
        "_timers",
        "_upper",
        "stays",
    )

    def __init__(
        self,
        join: IntervalJoin,
        namespace: int,
        bounds: tuple[int, int],
        buffers: tuple[_Buffer, _Buffer],
        late: Emit | None,
    ) -> None:
        self._join = join
        self._namespace = namespace
        self._is_left = namespace == LEFT
        self._lower, self._upper = bounds
        self.stays = max(self._upper, 0)
        """How long after its own time a record can still meet one that is not late."""
        self._mine, self._other = buffers
        self._late = late
        self._keys, self._timers = join.keys, join.timers
        self._call, self._context, self._emit = join.call, join.context, join.emit

    def process(self, value: Any, timestamp: int) -> None:
        """A record of the current key."""
        timers = self._timers
        if timestamp < timers.watermark or timestamp == NO_TIME:
            self._put_aside(value, timestamp)
            return
        mine, other, canon = self._mine, self._other, self._keys.canon
        if not mine.times.valid:
            mine.times.refresh()
        if not other.times.valid:
            other.times.refresh()
        mine.add(canon, timestamp, isolate(value))
        # Before the function is called: also a record whose failure is passed over has to go one day.
        timers.register_event(self._namespace, timestamp + self.stays)
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
            for found in other.at(canon, at):
                context.at = later
                if is_left:
                    context.left, context.right = timestamp, at
                    results = call(value, isolate(found), context)
                else:
                    context.left, context.right = at, timestamp
                    results = call(isolate(found), value, context)
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


class IntervalJoin:
    """One subtask's interval join. `keys` says whose record or timer is at hand."""

    def __init__(
        self,
        op: IntervalJoinOp,
        keys: KeyContext,
        tables: tuple[Table, Table],
        timers: InternalTimers,
        emit: Emit,
        late: tuple[Emit | None, Emit | None],
    ) -> None:
        self.keys = keys
        self.timers = timers
        self.call: Callable[..., Any] = op.function.process_element
        self.context = _PairContext()
        self.emit = emit
        self.dropped_late = 0
        self._left, self._right = left, right = _Buffer(tables[0]), _Buffer(tables[1])
        one = _Side(self, LEFT, (op.lower, op.upper), (left, right), late[0])
        two = _Side(self, RIGHT, (-op.upper, -op.lower), (right, left), late[1])
        self._left_stays, self._right_stays = one.stays, two.stays
        self.process1: Callable[[Any, int], None] = one.process
        """Takes a record of the left side and its timestamp, once the key context is set."""
        self.process2: Callable[[Any, int], None] = two.process
        """The same for the right side."""

    def on_event_time(self, timestamp: int, namespace: Any) -> None:
        """Nothing is still to come that could meet the records of a timestamp."""
        if namespace == LEFT:
            self._left.drop(self.keys.canon, timestamp - self._left_stays)
        else:
            self._right.drop(self.keys.canon, timestamp - self._right_stays)
