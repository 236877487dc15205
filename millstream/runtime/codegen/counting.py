"""How many records each operator of a chain takes and gives, counted only where nothing else tells.

What comes to a chain is counted by buffers, and so is what leaves it along an edge. In between most numbers follow: a
map gives as many as it takes. Only where an output's number follows from neither side does generated code count it, one
call of an iterator for each record:

```
source ─▶ flat map ─▶ map ─▶ exchange      nothing is counted: the map gave what the exchange got, and took as many
source ─▶ flat map ─▶ filter ─▶ exchange   the flat map's results are counted; what the filter gave, the exchange got
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from millstream.graph.level_plan import Edge
from millstream.graph.operators import CollectOp, PrintOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.tree import ChainTree
from millstream.runtime.wire.output import EdgeWriter
from millstream.runtime.wire.rows import client_edge

__all__ = ["Counting"]

Output = tuple[int, str | None]
"""A node's number, and the tag of a side output."""


class _Counter:
    """Counts by an iterator, which takes a third of the time of anything written in Python."""

    def __init__(self) -> None:
        self.tick = count(1).__next__
        self._last = 0
        # Those that passed many at once.
        self._more = 0

    def add(self, number: int) -> None:
        """Count many at once."""
        self._more += number

    def take(self) -> int:
        """How many there were since the last call."""
        # Asking is a tick too.
        now = self.tick()
        passed, self._last = now - 1 - self._last + self._more, now
        self._more = 0
        return passed


class Counting:
    """The numbers of one chain. `gives_one` says of an operator that it gives one record for each that it takes."""

    def __init__(self, tree: ChainTree, gives_one: Callable[[StreamNode], bool]) -> None:
        self._tree = tree
        self._gives_one = gives_one
        self._counters: dict[Output, _Counter] = {}
        self._edge_of: dict[Output, int] = {}
        self._follows: set[int] = set()
        for node in tree.nodes.values():
            if gives_one(node):
                self._follows.add(node.id)
                continue
            for tag in (None, *tree.tags_of(node)):
                edge = self._edge_below(node, tag)
                if edge is not None:
                    self._edge_of[node.id, tag] = edge
                elif tree.children(node, tag) or tree.edges(node, tag):
                    self._counters[node.id, tag] = _Counter()

    def _edge_below(self, node: StreamNode, tag: str | None) -> int | None:
        """An edge that has as many records as the output, or as a line of operators behind it that give one for one."""
        while True:
            for edge in self._tree.edges(node, tag):
                if _counts_all(edge):
                    return edge.id
            children = self._tree.children(node, tag)
            for child in children:
                if isinstance(child.operator, PrintOp | CollectOp):
                    return client_edge(child.id)
            onward = [child for child in children if self._gives_one(child)]
            if not onward:
                return None
            node, tag = onward[0], None

    def counter(self, node: StreamNode, tag: str | None) -> Callable[[], int] | None:
        """What generated code has to call for each record of an output; None if nothing has to be counted."""
        found = self._counters.get((node.id, tag))
        return None if found is None else found.tick

    def bulk_counter(self, node: StreamNode) -> Callable[[int], None] | None:
        """What counts the records of a node that hands on many at once, as columns; None if nobody counts them."""
        found = self._counters.get((node.id, None))
        return None if found is None else found.add

    def begin(self) -> None:
        """An attempt of an epoch begins: what one that failed has counted is forgotten."""
        for counter in self._counters.values():
            counter.take()

    def report(self, taken: int, writers: Mapping[int, EdgeWriter]) -> dict[str, tuple[int, int]]:
        """By uid, what each operator has taken and given in the epoch; `taken` is what came to the chain."""
        given: dict[Output, int] = {output: c.take() for output, c in self._counters.items()}
        for output, edge in self._edge_of.items():
            writer = writers.get(edge)
            given[output] = 0 if writer is None else writer.records_out
        came = {self._tree.vertex.head.id: taken}
        for inner in self._tree.vertex.inner:
            # Nodes come before those below them, and so do their edges.
            if inner.source in self._follows and inner.tag_id is None:
                given[inner.source, None] = came.get(inner.source, 0)
            came[inner.target] = given.get((inner.source, inner.tag_id), 0)
        numbers: dict[str, tuple[int, int]] = {}
        for node in self._tree.nodes.values():
            if node.id in self._follows:
                given[node.id, None] = came.get(node.id, 0) if self._is_read(node) else 0
            outputs = [None, *self._tree.tags_of(node)]
            out = sum(given.get((node.id, tag), 0) for tag in outputs)
            numbers[node.uid] = came.get(node.id, 0), out
        return numbers

    def _is_read(self, node: StreamNode) -> bool:
        return bool(self._tree.children(node, None) or self._tree.edges(node, None))


def _counts_all(edge: Edge) -> bool:
    """What is combined before it is sent is fewer."""
    return edge.combiner is None and not edge.combines_pairs
