"""What of a batch job's records can be combined before they are sent (MapReduce's combiner).

Two things must hold. The combined record must have the key of those it is made of: the sum of odd numbers may be even,
so with `lambda n: n % 2` for a key nothing may be added up on the way. And nesting must not matter, for combining makes
f(a, f(b, c)) of f(f(a, b), c). For the built-in aggregations it does not. Of a `reduce` function nobody knows:
`lambda a, b: (a[0], a[1] + 1)` counts a key's records only if it is called for one after the other. So only functions
are used whose bytecode is seen to add up fields, as that of every word count.
"""

from __future__ import annotations

from typing import Any

from millstream.graph.level_plan import Edge
from millstream.graph.operators import ReduceOp, RollingOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import kept_fields, subscript_of

__all__ = ["combining"]


def combining(edge: Edge, head: StreamNode) -> dict[str, Any]:
    """How the senders of an edge combine records for the operator behind it, as fields of the edge.

    Only where the operator itself gives nothing but the last result of a key.
    """
    operator, key = head.operator, edge.partitioning.key
    if edge.partitioning.strategy is not Strategy.HASH or key is None or head.error_policy:
        return {}
    if edge.carries_key:
        return {}
    field = subscript_of(key.selector) if key.field is None else key.field
    if isinstance(operator, ReduceOp) and field in kept_fields(operator.function):
        return {"combiner": operator.function}
    if isinstance(operator, RollingOp) and _keeps_key(operator, field):
        from millstream.runtime.operators.field_reduce import FieldReduce

        reduce = FieldReduce(operator.kind, operator.field, head.name).reduce
        pairs = operator.kind == "sum" and operator.field == 1
        return {"combiner": reduce, "combines_pairs": pairs}
    return {}


def _keeps_key(operator: RollingOp, field: int | str | None) -> bool:
    if operator.kind in ("min_by", "max_by"):
        return True
    # A name and a position may mean the same field.
    return type(field) is type(operator.field) and field != operator.field
