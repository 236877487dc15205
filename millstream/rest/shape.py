"""The shape of a job as REST shows it: vertices, operators, edges, under names that everybody may see.

It is made once from the plan and holds nothing of the program, so that a job that has ended can be shown for long
without keeping its functions and data alive."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.graph.job_graph import JobVertex
from millstream.graph.plan_json import guarantee_of
from millstream.redaction import shown
from millstream.reporters.moment import id_of
from millstream.runtime.driver.job import Job

__all__ = ["EdgeShape", "JobShape", "OperatorShape", "VertexShape", "shape_of", "vertex_id"]


def vertex_id(vertex: JobVertex) -> str:
    """The id of a vertex in REST, 32 hex digits: it stays as long as the uid of its first operator does."""
    return id_of(vertex.head.uid)


@dataclass(frozen=True)
class OperatorShape:
    """One operator of a vertex."""

    uid: str
    name: str
    description: str
    declared_at: str | None
    guarantee: str | None


@dataclass(frozen=True)
class VertexShape:
    """One vertex; `number` is its id in the plan, under which its figures are."""

    id: str
    number: int
    name: str
    parallelism: int
    max_parallelism: int
    level: int
    kind: str
    slot_group: str
    operators: tuple[OperatorShape, ...]


@dataclass(frozen=True)
class EdgeShape:
    """A connection between two vertices, by their ids."""

    source: str
    target: str
    strategy: str


@dataclass(frozen=True)
class JobShape:
    """All of it."""

    vertices: tuple[VertexShape, ...]
    edges: tuple[EdgeShape, ...]

    def vertex(self, id_: str) -> VertexShape | None:
        """The vertex with that id."""
        return next((vertex for vertex in self.vertices if vertex.id == id_), None)

    def vertex_of_operator(self, name: str) -> VertexShape | None:
        """The first vertex with an operator of that name."""
        return next(
            (v for v in self.vertices if any(operator.name == name for operator in v.operators)),
            None,
        )


def shape_of(job: Job) -> JobShape:
    """The shape of a job's plan."""
    plan = job.plan
    ids = {node.id: vertex_id(vertex) for vertex in plan.vertices for node in vertex.nodes}
    by_number = {vertex.id: vertex_id(vertex) for vertex in plan.vertices}
    vertices = tuple(
        VertexShape(
            by_number[vertex.id],
            vertex.id,
            shown(vertex.name),
            vertex.parallelism,
            vertex.head.max_parallelism,
            level.index,
            "source" if vertex.is_source else "operator" if plan.out_edges(vertex) else "sink",
            id_of(vertex.head.slot_sharing_group),
            tuple(
                OperatorShape(
                    node.uid,
                    shown(node.name),
                    shown(node.description),
                    None if node.declared_at is None else shown(str(node.declared_at)),
                    guarantee_of(node.operator) if node.is_sink else None,
                )
                for node in vertex.nodes
            ),
        )
        for level in plan.levels
        for vertex in level.vertices
    )
    edges = tuple(
        EdgeShape(
            ids[edge.source_node],
            by_number[edge.target_vertex],
            edge.partitioning.strategy.value,
        )
        for edge in plan.edges
    )
    return JobShape(vertices, edges)
