"""The unit of each operator: one for every class of `millstream.graph.operators`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.column_outlet import connect_columns
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.operators.aggregate import ReduceUnit, RollingUnit
from millstream.runtime.operators.async_unit import AsyncUnit
from millstream.runtime.operators.batches import batches_unit
from millstream.runtime.operators.broadcast import broadcast_unit
from millstream.runtime.operators.feedback import FeedbackUnit
from millstream.runtime.operators.joining import IntervalJoinUnit, WindowJoinUnit
from millstream.runtime.operators.process import KeyedProcessUnit, ProcessUnit
from millstream.runtime.operators.sinks import CollectUnit, PrintUnit, SinkFunctionUnit, SinkUnit
from millstream.runtime.operators.stateless import (
    CoFlatMapUnit,
    CoMapUnit,
    FilterUnit,
    FlatMapUnit,
    MapUnit,
    ProjectUnit,
)
from millstream.runtime.operators.timestamps import AssignUnit, SourceUnit
from millstream.runtime.operators.windowing import window_unit

__all__ = ["UNITS", "Watch", "make_units", "watching"]

UNITS: dict[type[ops.Operator], Callable[[ChainBuilder, StreamNode], OperatorUnit[Any]]] = {
    ops.SourceOp: SourceUnit,
    ops.FrameSourceOp: SourceUnit,
    ops.FeedbackSourceOp: SourceUnit,
    ops.AssignOp: AssignUnit,
    ops.MapOp: MapUnit,
    ops.ProjectOp: ProjectUnit,
    ops.FlatMapOp: FlatMapUnit,
    ops.FilterOp: FilterUnit,
    ops.CoMapOp: CoMapUnit,
    ops.CoFlatMapOp: CoFlatMapUnit,
    ops.ProcessOp: ProcessUnit,
    ops.CoProcessOp: ProcessUnit,
    ops.KeyedProcessOp: KeyedProcessUnit,
    ops.KeyedCoProcessOp: KeyedProcessUnit,
    ops.BroadcastProcessOp: broadcast_unit,
    ops.ReduceOp: ReduceUnit,
    ops.RollingOp: RollingUnit,
    ops.WindowOp: window_unit,
    ops.WindowJoinOp: WindowJoinUnit,
    ops.IntervalJoinOp: IntervalJoinUnit,
    ops.AsyncOp: AsyncUnit,
    ops.BatchesOp: batches_unit,
    ops.SinkFunctionOp: SinkFunctionUnit,
    ops.SinkOp: SinkUnit,
    ops.FeedbackOp: FeedbackUnit,
    ops.PrintOp: PrintUnit,
    ops.CollectOp: CollectUnit,
}


def make_units(builder: ChainBuilder) -> dict[int, OperatorUnit[Any]]:
    """The units of a chain's operators by the numbers of their nodes, the head first."""
    units = {node.id: UNITS[type(node.operator)](builder, node) for node in builder.vertex.nodes}
    if _watch is not None:
        # Who watches wants to see each record.
        _watch(builder, units)
    elif builder.settings.columns:
        builder.further.append(lambda: connect_columns(builder, units))
    return units


Watch = Callable[[ChainBuilder, dict[int, OperatorUnit[Any]]], None]
"""Is shown the units of a chain before they write its code, and may have them write more."""

_watch: Watch | None = None


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Have every chain that is compiled in this process meanwhile shown to `watch`."""
    global _watch
    before, _watch = _watch, watch
    try:
        yield
    finally:
        _watch = before
