"""What of a batch job's records can be combined before they are sent (MapReduce's combiner)."""

from __future__ import annotations

from typing import Any

from millstream.common.functions import Function
from millstream.graph.level_plan import Edge
from millstream.graph.operators import ReduceOp, RollingOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode

__all__ = ["combining"]


def combining(edge: Edge, head: StreamNode) -> dict[str, Any]:
    """How the senders of an edge combine records for the operator behind it, as fields of the edge.

    Only where the operator itself gives nothing but the last result of a key, by a function without a life of its own.
    """
    operator = head.operator
    if edge.partitioning.strategy is not Strategy.HASH or head.error_policy is not None:
        return {}
    if isinstance(operator, ReduceOp) and not isinstance(operator.function, Function):
        return {"combiner": operator.function}
    if isinstance(operator, RollingOp):
        from millstream.runtime.field_reduce import FieldReduce

        reduce = FieldReduce(operator.kind, operator.field, head.name).reduce
        pairs = operator.kind == "sum" and operator.field == 1
        return {"combiner": reduce, "combines_pairs": pairs}
    return {}
