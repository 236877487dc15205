"""Joins in generated code. Both inputs write the same few lines, and share the operator that they call:

```
def input_1(records):
    for record2, timestamp2 in records:
        key2 = record2[0]
        keys_1.key = key2
        keys_1.canon = key2
        join_2(record2, timestamp2)
```
"""

from __future__ import annotations

from millstream.api.state import ListStateDescriptor
from millstream.graph.operators import IntervalJoinOp, WindowJoinOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.keys import emit_current_key
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.unit import TimedUnit
from millstream.runtime.operators.interval_join import JoinedIntervals
from millstream.runtime.operators.windowing import GeneralWindows
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import Table
from millstream.runtime.windows.contents import own_table

__all__ = ["IntervalJoinUnit", "WindowJoinUnit"]


class WindowJoinUnit(GeneralWindows[WindowJoinOp]):
    """A record goes into windows of two streams: beside it goes the number of its own."""

    def lines(self, record: str, index: int) -> None:
        """The key, and one call."""
        self.enter_key(record, index)
        window = self.code.bind(self.operator.process, "window")
        self.code.line(f"{window}(({index}, {record}), {self.builder.stamp()})")


class IntervalJoinUnit(TimedUnit[IntervalJoinOp]):
    """A record of one stream meets those of the other that are near it in time."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self.keys = KeyContext()
        self._results = Outlet(self.journal)
        self._late = [
            None if tag is None else (tag, Outlet(self.journal)) for tag in self.op.late_tags
        ]
        left, right = (None if late is None else late[1] for late in self._late)
        self._join = JoinedIntervals(
            self.op,
            self.keys,
            (self._buffer("join-left"), self._buffer("join-right")),
            self._results,
            (left, right),
        )
        self.follows_time(self._join)
        self.opens(self.op.function)

    def _buffer(self, name: str) -> Table:
        return own_table(self.keyed_states, self.store, self.node.uid, ListStateDescriptor(name))

    def lines(self, record: str, index: int) -> None:
        """The key, and one call."""
        keys = self.code.bind(self.keys, "keys")
        emit_current_key(self.builder, self.node, self.op.keys[index], record, keys)
        process = self._join.process1 if index == 0 else self._join.process2
        self.code.line(f"{self.code.bind(process, 'join')}({record}, {self.builder.stamp()})")

    def write_entries(self) -> None:
        """For results, and for late records of each side that somebody wants."""
        for late in self._late:
            if late is not None:
                self.write_side_entry("late", late[1], late[0])
        self.write_result_entry(self._results)

    def take_late(self) -> int:
        """The records of both sides that were too late."""
        count, self._join.dropped_late = self._join.dropped_late, 0
        return count
