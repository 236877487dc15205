"""The same graph at another default parallelism, from the graph alone: uids, maximum parallelism and everything that
the program has set stay as they are, so that its state fits (what Flink's `AdaptiveScheduler` does to a `JobGraph`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.errors import InvalidArgument
from millstream.graph.operators import AssignOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamEdge, StreamGraph, StreamNode, exchange_between

__all__ = ["at_parallelism"]


def at_parallelism(
    graph: StreamGraph, parallelism: int, *, everything: bool = False
) -> StreamGraph:
    """The graph with this default parallelism. Operators whose parallelism the program has set keep it, and those that
    can use a few subtasks only keep to them. With `everything`, what the program has set does not count, and no
    operator has more subtasks than its maximum parallelism (Flink's reactive mode)."""
    nodes: dict[int, StreamNode] = {}
    edges: list[StreamEdge] = []
    for id_, node in graph.nodes.items():
        inputs = [edge for edge in graph.edges if edge.target == id_]
        count = _parallelism(node, inputs, nodes, parallelism, everything=everything)
        nodes[id_] = replace(node, parallelism=count)
    for edge in graph.edges:
        wanted = None if edge.automatic else edge.partitioning
        chosen = exchange_between(nodes[edge.source], nodes[edge.target], wanted)
        edges.append(replace(edge, partitioning=chosen))
    return replace(graph, nodes=nodes, edges=tuple(edges), parallelism=parallelism)


def _parallelism(
    node: StreamNode,
    inputs: Sequence[StreamEdge],
    nodes: dict[int, StreamNode],
    parallelism: int,
    *,
    everything: bool,
) -> int:
    wanted = None if everything else node.own_parallelism
    first = nodes.get(inputs[0].source) if inputs else None
    forwarded = everything and any(
        not edge.automatic and edge.partitioning.strategy is Strategy.FORWARD for edge in inputs
    )
    if wanted is None and first is not None and (forwarded or isinstance(node.operator, AssignOp)):
        # Timestamps are given where the records are (rule 37); and who is forwarded to has as many subtasks.
        wanted = first.parallelism
    count = wanted or parallelism
    if node.most_parallelism is not None:
        count = min(count, node.most_parallelism)
    if everything:
        return min(count, node.max_parallelism)
    if count > node.max_parallelism:
        raise InvalidArgument(
            f"'{node.name}' cannot have {count} subtasks: its maximum parallelism is {node.max_parallelism}",
            operator=f"{node.name} (uid {node.uid})",
            max_parallelism=node.max_parallelism,
            hint="the maximum is for the life of the state; set_max_parallelism() sets it for a job that begins anew",
        )
    return count
