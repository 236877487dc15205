"""The interval join: pairs of records of one key whose timestamps are so far apart (Flink's `IntervalJoinOperator`).

A record is kept in its side's buffer, and meets what the other side's buffer holds within the bounds. A *cleanup timer*
removes it once the watermark says that nothing it could meet is still to come. A buffer is a list under (key, timestamp);
which timestamps a key has is known in memory, in order, so that a record looks at those it meets and at no others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any

from millstream.common.functions import Function
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
        """The key has something at a timestamp at which it had nothing."""
        times = self._at.get(canon)
        if times is None:
            self._at[canon] = [timestamp]
        elif timestamp > times[-1]:
            # Nearly always: records come nearly in order.
            times.append(timestamp)
        else:
            insort(times, timestamp)

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
        # Changes come by key and not in order: the whole is looked at when it is needed.
        self.valid = False

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
            if self.read(pair, None) is None:
                self.times.add(canon, timestamp)
        elif change is DELETED:
            self.changes[pair] = ListChange([value], replace=True)
            self.times.add(canon, timestamp)
        else:
            change.items.append(value)

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


class IntervalJoin:
    """One subtask's interval join. `keys` says whose record or timer is at hand."""

    def __init__(
        self,
        op: IntervalJoinOp,
        keys: KeyContext,
        left: Table,
        right: Table,
        timers: InternalTimers,
        emit: Emit,
        emit_late: tuple[Emit | None, Emit | None],
    ) -> None:
        self._keys = keys
        self._timers = timers
        self._left, self._right = _Buffer(left), _Buffer(right)
        self._lower, self._upper = op.lower, op.upper
        # How long after its own time a record of a side can still meet another.
        self._left_stays, self._right_stays = max(op.upper, 0), max(-op.lower, 0)
        self._function: ProcessJoinFunction[Any, Any, Any] = op.function
        self._call = op.function.process_element
        self._context = _PairContext()
        self._emit = emit
        self._late_left, self._late_right = emit_late
        self.dropped_late = 0

    @property
    def functions(self) -> list[Function]:
        """The function object that is to be opened and closed."""
        return [self._function]

    def process1(self, value: Any, timestamp: int) -> None:
        """A record of the left side, of the current key."""
        timers = self._timers
        if timestamp < timers.watermark or timestamp == NO_TIME:
            self._late(value, timestamp, self._late_left)
            return
        mine, other, canon = self._left, self._right, self._keys.canon
        if not mine.times.valid:
            mine.times.refresh()
        mine.add(canon, timestamp, isolate(value))
        # Before the function is called: also a record whose failure is passed over has to go one day.
        timers.register_event(LEFT, timestamp + self._left_stays)
        if not other.times.valid:
            other.times.refresh()
        times = other.times.of(canon)
        if times is None:
            return
        lowest, highest = timestamp + self._lower, timestamp + self._upper
        if times[-1] < lowest or times[0] > highest:
            return
        context, call, emit = self._context, self._call, self._emit
        for at in times[bisect_left(times, lowest) : bisect_right(times, highest)]:
            later = at if at > timestamp else timestamp
            for right in other.at(canon, at):
                context.left, context.right, context.at = timestamp, at, later
                results = call(value, isolate(right), context)
                if results is not None:
                    for result in results:
                        emit(result, later)

    def process2(self, value: Any, timestamp: int) -> None:
        """A record of the right side, of the current key."""
        timers = self._timers
        if timestamp < timers.watermark or timestamp == NO_TIME:
            self._late(value, timestamp, self._late_right)
            return
        mine, other, canon = self._right, self._left, self._keys.canon
        if not mine.times.valid:
            mine.times.refresh()
        mine.add(canon, timestamp, isolate(value))
        timers.register_event(RIGHT, timestamp + self._right_stays)
        if not other.times.valid:
            other.times.refresh()
        times = other.times.of(canon)
        if times is None:
            return
        lowest, highest = timestamp - self._upper, timestamp - self._lower
        if times[-1] < lowest or times[0] > highest:
            return
        context, call, emit = self._context, self._call, self._emit
        for at in times[bisect_left(times, lowest) : bisect_right(times, highest)]:
            later = at if at > timestamp else timestamp
            for left in other.at(canon, at):
                context.left, context.right, context.at = at, timestamp, later
                results = call(isolate(left), value, context)
                if results is not None:
                    for result in results:
                        emit(result, later)

    def _late(self, value: Any, timestamp: int, emit_late: Emit | None) -> None:
        if timestamp == NO_TIME:
            raise MissingTimestamp(
                "a record without a timestamp came to an interval join",
                hint="call assign_timestamps_and_watermarks(...) on both streams before key_by",
            )
        if emit_late is None:
            self.dropped_late += 1
        else:
            emit_late(value, timestamp)

    def on_event_time(self, timestamp: int, namespace: Any) -> None:
        """Nothing is still to come that could meet the records of a timestamp."""
        if namespace == LEFT:
            self._left.drop(self._keys.canon, timestamp - self._left_stays)
        else:
            self._right.drop(self._keys.canon, timestamp - self._right_stays)
