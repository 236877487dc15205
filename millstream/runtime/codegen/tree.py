"""The tree of a chain's operators: who reads whom, and the edges that leave it."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.common.typeinfo import TypeInformation
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.graph.operators import CollectOp, PrintOp
from millstream.graph.stream_graph import StreamNode

__all__ = ["ChainTree"]


class ChainTree:
    """The operators of a chain, the head at the root. An output is a node's main one, or with a tag a side output."""

    def __init__(self, vertex: JobVertex, edges: list[Edge]) -> None:
        self.vertex = vertex
        self.nodes = nodes = {node.id: node for node in vertex.nodes}
        self.out_edges = edges
        self._above = {inner.target: inner.source for inner in vertex.inner}
        self._children: dict[tuple[int, str | None], list[StreamNode]] = {}
        self._edges: dict[tuple[int, str | None], list[Edge]] = {}
        self._readers: dict[int, dict[int, StreamNode]] = {}
        self._tag_types: dict[tuple[int, str | None], TypeInformation] = {}
        for inner in vertex.inner:
            child = nodes[inner.target]
            self._children.setdefault((inner.source, inner.tag_id), []).append(child)
            self._readers.setdefault(inner.source, {})[child.id] = child
            if inner.tag_type is not None:
                self._tag_types[inner.source, inner.tag_id] = inner.tag_type
        for edge in edges:
            self._edges.setdefault((edge.source_node, edge.tag_id), []).append(edge)
            if edge.tag_type is not None:
                self._tag_types[edge.source_node, edge.tag_id] = edge.tag_type

    def children(self, node: StreamNode, tag: str | None) -> list[StreamNode]:
        """The operators of the chain that read an output."""
        return self._children.get((node.id, tag), [])

    def edges(self, node: StreamNode, tag: str | None) -> list[Edge]:
        """The edges that take an output to other chains."""
        return self._edges.get((node.id, tag), [])

    def readers_of(self, node: StreamNode) -> list[StreamNode]:
        """The operators of the chain that read any output of a node, each once."""
        return list(self._readers.get(node.id, {}).values())

    def edges_of(self, node: StreamNode) -> list[Edge]:
        """The edges that leave a node, whatever the output."""
        return [edge for edge in self.out_edges if edge.source_node == node.id]

    def above(self, node: StreamNode) -> Iterator[StreamNode]:
        """The operators that a node's records have come through, the nearest first."""
        at = self._above.get(node.id)
        while at is not None:
            yield self.nodes[at]
            at = self._above.get(at)

    def tags_of(self, node: StreamNode) -> list[str]:
        """The side outputs of a node that somebody reads."""
        outputs = [*self._children, *self._edges]
        return sorted({tag for node_id, tag in outputs if node_id == node.id and tag is not None})

    def declared_type(self, node: StreamNode, tag: str | None) -> TypeInformation | None:
        """The type of a node's results, or of those for a side output."""
        return node.output_type if tag is None else self._tag_types.get((node.id, tag))

    def reaches_user_code(self, node: StreamNode) -> bool:
        """True if a function of the same chain gets the node's records as they are, not as bytes."""
        children = self.children(node, None)
        return any(not isinstance(child.operator, PrintOp | CollectOp) for child in children)
