"""The job graph laid out as one line of levels, which is what runs.

A vertex's level is the longest path from a source to it. All vertices of a level run in one Spark stage; a
buffer for a deeper level passes through the stages between untouched. So a job of any shape (branches,
joins, diamonds, many sinks) is a line of stages with one exchange between each two, and every source is read
once.

The plan is inert: it is pickled once, shipped to the workers, and compiled there
(`millstream.runtime.task.chain`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.graph.job_graph import JobGraph, JobVertex
from millstream.graph.operators import FeedbackSourceOp, FrameSourceOp
from millstream.graph.partitioning import Partitioning, Strategy
from millstream.graph.stream_graph import StreamEdge
from millstream.graph.time import TimeFlow, time_flow

__all__ = ["Edge", "Level", "LevelPlan", "build_level_plan"]


@dataclass(frozen=True)
class Edge:
    """A connection between two vertices; its id stands in every buffer that travels along it."""

    id: int
    source_node: int
    tag_id: str | None
    target_vertex: int
    input_index: int
    partitioning: Partitioning
    source_parallelism: int
    target_parallelism: int
    target_max_parallelism: int
    target_level: int
    buffer_timeout: int
    tag_type: Any = None
    stamped: bool = False
    """Records travel with their timestamps."""
    watermarked: bool = False
    """Watermarks travel between them."""
    from_splits: bool = False
    """The channels are a source's splits, not subtasks."""
    from_frame: bool = False
    """The source is a Spark frame, whose partitions are other ones in each epoch."""
    source_uid: str = ""
    carries_key: bool = False
    """Each record travels with its key, as a pair: its selector may not give the same a second time."""
    combiner: Any = None
    """In a batch job: what combines two records of a key before they are sent."""
    combines_pairs: bool = False
    """The combiner adds the second fields of pairs, which needs no call."""
    waits: bool = False
    """In a batch job: its records are read after those of the target's broadcast side (rule 60)."""
    columns: Any = None
    """What the target makes of columns, if records may be sent as such."""

    def targets_of(self, subtask: int) -> tuple[int, ...]:
        """The subtasks that subtask number `subtask` of the source sends to: records by the strategy (GLOBAL only to
        the first), marks to all of them."""
        p, q = self.source_parallelism, self.target_parallelism
        match self.partitioning.strategy:
            case Strategy.FORWARD:
                return (subtask % q,)
            case Strategy.RESCALE:
                if p <= q:
                    # Each sender owns a run of targets.
                    return tuple(range(subtask * q // p, (subtask + 1) * q // p))
                return (subtask * q // p,)
            case _:
                return tuple(range(q))

    def targets_of_groups(self) -> tuple[int, ...]:
        """For each key group, the subtask that it belongs to."""
        count, most = self.target_parallelism, self.target_max_parallelism
        return tuple(group * count // most for group in range(most))


@dataclass(frozen=True)
class Level:
    """The vertices of one stage; `parallelism` is its number of tasks."""

    index: int
    vertices: tuple[JobVertex, ...]
    parallelism: int


@dataclass(frozen=True)
class LevelPlan:
    """Everything the runtime needs to know about the shape of a job."""

    levels: tuple[Level, ...]
    edges: tuple[Edge, ...]

    def out_edges(self, vertex: JobVertex) -> list[Edge]:
        """The edges that leave a vertex."""
        inside = {node.id for node in vertex.nodes}
        return [edge for edge in self.edges if edge.source_node in inside]

    def in_edges(self, vertex: JobVertex) -> list[Edge]:
        """The edges that lead to a vertex."""
        return [edge for edge in self.edges if edge.target_vertex == vertex.id]

    @property
    def vertices(self) -> list[JobVertex]:
        """All vertices, level by level."""
        return [vertex for level in self.levels for vertex in level.vertices]

    @property
    def sources(self) -> tuple[JobVertex, ...]:
        """The vertices of level 0."""
        return self.levels[0].vertices


def build_level_plan(graph: JobGraph) -> LevelPlan:
    """Lay the vertices out by the longest path from a source."""
    by_id = {vertex.id: vertex for vertex in graph.vertices}
    above: dict[int, list[int]] = {vertex.id: [] for vertex in graph.vertices}
    for edge in graph.edges:
        above[edge.target].append(graph.vertex_of[edge.source])
    depth: dict[int, int] = {}

    def level_of(vertex_id: int) -> int:
        if vertex_id not in depth:
            depth[vertex_id] = 1 + max((level_of(v) for v in above[vertex_id]), default=-1)
        return depth[vertex_id]

    # Ids grow along every edge, so in this order the recursion is never deep.
    for vertex in sorted(graph.vertices, key=lambda v: v.id):
        level_of(vertex.id)
    levels = []
    for index in range(max(depth.values()) + 1):
        members = tuple(v for v in graph.vertices if depth[v.id] == index)
        levels.append(Level(index, members, max(v.parallelism for v in members)))
    nodes = [node for vertex in graph.vertices for node in vertex.nodes]
    inner = [edge for vertex in graph.vertices for edge in vertex.inner]
    flow = time_flow(nodes, [*inner, *graph.edges])
    edges = tuple(
        _edge(number, edge, graph, by_id, depth, flow) for number, edge in enumerate(graph.edges)
    )
    return LevelPlan(tuple(levels), edges)


def _edge(
    number: int,
    edge: StreamEdge,
    graph: JobGraph,
    by_id: dict[int, JobVertex],
    depth: dict[int, int],
    flow: TimeFlow,
) -> Edge:
    target = by_id[edge.target]
    sender = by_id[graph.vertex_of[edge.source]]
    source = next(n for n in sender.nodes if n.id == edge.source)
    return Edge(
        id=number,
        source_node=edge.source,
        tag_id=edge.tag_id,
        target_vertex=target.id,
        input_index=edge.input_index,
        partitioning=edge.partitioning,
        source_parallelism=source.parallelism,
        target_parallelism=target.parallelism,
        target_max_parallelism=target.head.max_parallelism,
        target_level=depth[target.id],
        buffer_timeout=source.buffer_timeout,
        tag_type=edge.tag_type,
        stamped=flow.carries_stamps(edge.source, edge.target),
        # A loop never holds event time back.
        watermarked=flow.carries_watermarks(edge.target)
        and not isinstance(source.operator, FeedbackSourceOp),
        from_splits=sender.is_source,
        from_frame=isinstance(sender.head.operator, FrameSourceOp),
        source_uid=source.uid,
    )
