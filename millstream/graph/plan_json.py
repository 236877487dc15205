"""The stream graph as the JSON that Flink's plan visualizer reads, and as text."""

from __future__ import annotations

from typing import Any

from millstream.graph.operators import (
    CollectOp,
    FrameSourceOp,
    Operator,
    PrintOp,
    SinkOp,
    SourceOp,
)
from millstream.graph.stream_graph import StreamGraph
from millstream.redaction import shown

__all__ = ["guarantee_of", "plan_as_json"]


def plan_as_json(graph: StreamGraph) -> dict[str, Any]:
    """The plan with Flink's field names."""
    nodes = []
    for node in graph.nodes.values():
        entry: dict[str, Any] = {
            "id": node.id,
            "type": shown(node.name),
            "pact": _pact(node.operator, node.is_sink),
            "contents": shown(node.description),
            "parallelism": node.parallelism,
        }
        if node.is_sink:
            entry["guarantee"] = guarantee_of(node.operator)
        elif isinstance(node.operator, SourceOp | FrameSourceOp):
            entry["guarantee"] = guarantee_of_source(node.operator)
        if "guarantee" in entry:
            entry["uid"] = shown(node.uid)
        inputs = [edge for edge in graph.edges if edge.target == node.id]
        if inputs:
            entry["predecessors"] = [
                {
                    "id": edge.source,
                    "ship_strategy": edge.partitioning.strategy.value,
                    "side": "second" if edge.input_index == 0 else "first",
                }
                for edge in inputs
            ]
        nodes.append(entry)
    return {"nodes": nodes}


def _pact(operator: Operator, is_sink: bool) -> str:
    if isinstance(operator, SourceOp | FrameSourceOp):
        return "Data Source"
    return "Data Sink" if is_sink else "Operator"


def guarantee_of_source(operator: SourceOp | FrameSourceOp) -> str:
    """What a source promises about its records."""
    if isinstance(operator, FrameSourceOp):
        return "as Spark's source"
    return (
        "exactly-once" if operator.source.reads_again() else "what was read is lost with the driver"
    )


def guarantee_of(operator: Operator) -> str:
    """What a sink promises about its output."""
    if isinstance(operator, SinkOp):
        return operator.sink.guarantee.value
    if isinstance(operator, PrintOp) or (isinstance(operator, CollectOp) and not operator.schema):
        return "once while the driver lives"
    return "at-least-once"
