"""Which parts of a job have to do with time.

A job that asks for no timestamps carries none, and one whose operators do not look at watermarks sends none: both are
worked out here from the graph, before anything runs, so that the path of a record without them costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.api.broadcast_functions import KeyedBroadcastProcessFunction
from millstream.api.functions import KeyedCoProcessFunction, KeyedProcessFunction
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamEdge, StreamNode

__all__ = ["TimeFlow", "time_flow", "uses_timers"]

_PROCESS = (
    ops.ProcessOp,
    ops.KeyedProcessOp,
    ops.CoProcessOp,
    ops.KeyedCoProcessOp,
    ops.BroadcastProcessOp,
)
_WINDOWS_AND_JOINS = (ops.WindowOp, ops.IntervalJoinOp)
_LOOKS_AT_TIMESTAMPS = (*_PROCESS, *_WINDOWS_AND_JOINS, ops.SinkFunctionOp, ops.AssignOp)
_LOOKS_AT_WATERMARKS = (*_PROCESS, *_WINDOWS_AND_JOINS, ops.AssignOp)


@dataclass(frozen=True)
class TimeFlow:
    """The nodes behind which records have timestamps, the nodes that need them or lead to one that does, and the same
    for watermarks."""

    stamped: frozenset[int]
    stamps_wanted: frozenset[int]
    watermarks_wanted: frozenset[int]

    def carries_stamps(self, source: int, target: int) -> bool:
        """True if records travel with their timestamps from one node to the other."""
        return source in self.stamped and target in self.stamps_wanted

    def carries_watermarks(self, target: int) -> bool:
        """True if watermarks travel to a node."""
        return target in self.watermarks_wanted


def time_flow(nodes: Iterable[StreamNode], edges: Iterable[StreamEdge]) -> TimeFlow:
    """Follow timestamps down and the need for them up."""
    every = list(nodes)
    above: dict[int, list[int]] = {node.id: [] for node in every}
    below: dict[int, list[int]] = {node.id: [] for node in every}

    def connect(source: int, target: int) -> None:
        above[target].append(source)
        below[source].append(target)

    for edge in edges:
        connect(edge.source, edge.target)
    watermarks = any(_makes_watermarks(node.operator) for node in every)
    need_watermarks = (n.id for n in every if isinstance(n.operator, _LOOKS_AT_WATERMARKS))
    watermarks_wanted = _reached(need_watermarks, above) if watermarks else frozenset()
    for node in every:
        # Timestamps go round a loop; watermarks do not.
        if isinstance(node.operator, ops.FeedbackOp):
            connect(node.id, node.operator.head)
    stamped = _reached((n.id for n in every if _stamps(n.operator)), below)
    need_stamps = (n.id for n in every if isinstance(n.operator, _LOOKS_AT_TIMESTAMPS))
    return TimeFlow(stamped, _reached(need_stamps, above), watermarks_wanted)


def _reached(starts: Iterable[int], neighbours: dict[int, list[int]]) -> frozenset[int]:
    """The nodes and all that can be reached from them."""
    reached: set[int] = set()
    pending = list(starts)
    while pending:
        at = pending.pop()
        if at not in reached:
            reached.add(at)
            pending.extend(neighbours[at])
    return frozenset(reached)


def _stamps(operator: ops.Operator) -> bool:
    match operator:
        case ops.SourceOp(source=source, strategy=strategy):
            return source.stamped() or (strategy is not None and strategy.stamps)
        case ops.AssignOp(strategy=strategy):
            return strategy.stamps
        case ops.WindowOp() | ops.IntervalJoinOp():
            return True
        case _:
            return uses_timers(operator)


def _makes_watermarks(operator: ops.Operator) -> bool:
    match operator:
        case ops.SourceOp(source=source, strategy=strategy):
            return source.stamped() or (strategy is not None and strategy.kind != "none")
        case ops.AssignOp(strategy=strategy):
            return strategy.kind != "none"
        case _:
            return False


_DEFAULT_ON_TIMER = {
    KeyedProcessFunction.on_timer,
    KeyedCoProcessFunction.on_timer,
    KeyedBroadcastProcessFunction.on_timer,
}


def uses_timers(operator: ops.Operator) -> bool:
    """True if a function says what to do when a timer fires."""
    on_timer = getattr(type(operator.user_function), "on_timer", None)
    return on_timer is not None and on_timer not in _DEFAULT_ON_TIMER
