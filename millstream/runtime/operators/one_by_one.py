"""Whether what an operator gets is of the record that is being read."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.graph.operators import AsyncOp, BatchesOp, WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.graph.time import uses_timers
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.tree import ChainTree

__all__ = ["comes_one_by_one", "leads_to_letters"]


def leads_to_letters(tree: ChainTree, node: StreamNode) -> bool:
    """True if an operator, or one behind it in the chain, writes letters, which say where a record was read."""
    return any(
        reader.error_policy is not None and reader.error_policy.tag is not None
        for reader in (node, *_below(tree, node))
    )


def comes_one_by_one(builder: ChainBuilder, node: StreamNode) -> bool:
    """True if the chain's cursor says where the operator's records were read: no operator above lets its results come
    later than their records, or it says whose they are."""
    pinned = leads_to_letters(builder.tree, node)
    return not any(
        isinstance(above.operator, AsyncOp | WindowOp)
        or uses_timers(above.operator)
        or (isinstance(above.operator, BatchesOp) and not pinned)
        for above in builder.tree.above(node)
    )


def _below(tree: ChainTree, node: StreamNode) -> Iterator[StreamNode]:
    pending = tree.readers_of(node)
    while pending:
        at = pending.pop()
        yield at
        pending.extend(tree.readers_of(at))
