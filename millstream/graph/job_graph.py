"""Chaining: operators with no exchange between them become one vertex (Flink's `StreamingJobGraphGenerator`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from millstream.graph.operators import FrameSourceOp, SourceOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamEdge, StreamGraph, StreamNode
from millstream.graph.transformations import ChainingStrategy

__all__ = ["JobGraph", "JobVertex", "build_job_graph"]


@dataclass(frozen=True)
class JobVertex:
    """A chain: a tree of operators under one head, run as one loop by each subtask.

    `nodes` is in pre-order, the head first; `inner` are the edges inside the chain.
    """

    id: int
    nodes: tuple[StreamNode, ...]
    inner: tuple[StreamEdge, ...]

    @property
    def head(self) -> StreamNode:
        """The operator that reads the vertex's inputs."""
        return self.nodes[0]

    @property
    def parallelism(self) -> int:
        """The parallelism of the vertex, which all operators of its chain have."""
        return self.head.parallelism

    @property
    def name(self) -> str:
        """The operators' names, as Flink writes a chain: ``Source: a -> (Map, Filter -> Sink: b)``."""
        by_source: dict[int, list[int]] = {}
        for edge in self.inner:
            by_source.setdefault(edge.source, []).append(edge.target)
        names = {node.id: node.name for node in self.nodes}

        def describe(node_id: int) -> str:
            # A loop along the line, and calls only at forks: a line may be longer than the stack.
            parts = [names[node_id]]
            while len(children := list(dict.fromkeys(by_source.get(node_id, [])))) == 1:
                node_id = children[0]
                parts.append(names[node_id])
            if children:
                parts.append("(" + ", ".join(describe(child) for child in children) + ")")
            return " -> ".join(parts)

        return describe(self.head.id)

    @property
    def is_source(self) -> bool:
        """True if the vertex reads from outside."""
        return isinstance(self.head.operator, SourceOp | FrameSourceOp)


@dataclass(frozen=True)
class JobGraph:
    """Vertices in topological order and the edges between them."""

    vertices: tuple[JobVertex, ...]
    edges: tuple[StreamEdge, ...]
    vertex_of: dict[int, int]


def is_chainable(edge: StreamEdge, graph: StreamGraph, inputs: int) -> bool:
    """Flink's rule: one input, FORWARD, same parallelism, same slot group, and nobody says no."""
    up, down = graph.nodes[edge.source], graph.nodes[edge.target]
    return (
        graph.chaining_enabled
        and inputs == 1
        and edge.partitioning.strategy is Strategy.FORWARD
        and up.parallelism == down.parallelism
        and up.slot_sharing_group == down.slot_sharing_group
        and up.chaining != ChainingStrategy.NEVER
        and down.chaining == ChainingStrategy.ALWAYS
    )


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """Cut the stream graph into chains."""
    inputs = Counter(edge.target for edge in graph.edges)
    chained = [edge for edge in graph.edges if is_chainable(edge, graph, inputs[edge.target])]
    below: dict[int, list[StreamEdge]] = {}
    for edge in chained:
        below.setdefault(edge.source, []).append(edge)
    into = {edge.target for edge in chained}
    vertices = []
    vertex_of: dict[int, int] = {}
    for node in graph.nodes.values():
        if node.id in into:
            continue
        nodes: list[StreamNode] = []
        inner: list[StreamEdge] = []
        stack = [node.id]
        while stack:
            current = stack.pop()
            nodes.append(graph.nodes[current])
            vertex_of[current] = node.id
            inner.extend(below.get(current, []))
            stack.extend(dict.fromkeys(edge.target for edge in reversed(below.get(current, []))))
        vertices.append(JobVertex(node.id, tuple(nodes), tuple(inner)))
    # A chained edge is the only one into its target.
    between = tuple(edge for edge in graph.edges if edge.target not in into)
    return JobGraph(tuple(vertices), between, vertex_of)
