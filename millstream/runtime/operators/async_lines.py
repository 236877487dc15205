"""Lines for asynchronous I/O ([`async_io.py`](async_io.py))."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.api.output_tag import OutputTag
from millstream.graph.operators import AsyncOp, WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.graph.time import uses_timers
from millstream.runtime.base.in_operator import in_operator
from millstream.runtime.codegen.bad_records import BadRecords
from millstream.runtime.codegen.outlet import EmitResults, Outlet
from millstream.runtime.operators.async_calls import holder_of
from millstream.runtime.state.copying import own

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.operators.async_io import AsyncIO

__all__ = ["compile_async"]


def compile_async(
    b: ChainBuilder, node: StreamNode, op: AsyncOp, v: str, emit_result: EmitResults
) -> None:
    """Lines for a record that something outside is asked about; `emit_result` writes those for one result.

    An error policy is the operator's own business: the request that fails is not that of the record at hand.
    """
    result = Outlet()
    bad: BadRecords | None = None
    letters: Outlet | None = None
    policy = node.error_policy
    if policy is not None and policy.kind != "fail":
        bad = b.bad_records.setdefault(node.id, BadRecords(node, b.cursor))
        letters = None if policy.tag is None else Outlet()
    holder = holder_of(op.function)
    cursor = b.cursor if all(_one_by_one(one) for one in b.nodes_above(node)) else None
    fit = None if bad is None else _fitting(b, node)
    reuse = b.object_reuse
    operator = AsyncIO(op, node.name, holder, result, cursor, bad, letters, fit, reuse=reuse)
    # Before the code behind it is written, which may hold another of these: that one has to wait for this one.
    b.opens(node, holder)
    b.follows(node, operator)
    b.polls.append(in_operator(node, operator.poll))
    b.settles.append(in_operator(node, operator.settle))
    b.code.line(f"{b.code.bind(operator.process, 'ask')}({v}, {b.stamp()})")
    before = b.code.location
    with b.entry("result_", "value, t", result.attach):
        b.at(node, "value", "result")
        emit_result(b, node, "value")
    if letters is not None:
        with b.entry("letter_", "value, t", letters.attach):
            b.emit(node, "value", policy.tag.tag_id)
    b.code.location = before


def _fitting(b: ChainBuilder, node: StreamNode) -> Callable[[Any], Any]:
    """What makes a result fit its declared type, and one that nobody else has, while it is still known whose it is."""
    types: dict[str | None, Any] = {tag: b.declared_type(node, tag) for tag in b.tags_of(node)}
    types[None] = node.output_type
    copies = not b.object_reuse

    def fit(result: Any) -> Any:
        side = type(result) is tuple and len(result) == 2 and type(result[0]) is OutputTag
        tag, value = (result[0].tag_id, result[1]) if side else (None, result)
        declared = types.get(tag)
        if declared is not None:
            value = declared.convert(value)
        if copies:
            value = own(value)
        return (result[0], value) if side else value

    return fit


def _one_by_one(node: StreamNode) -> bool:
    """True if what an operator emits is of the record that is being read."""
    return not isinstance(node.operator, AsyncOp | WindowOp) and not uses_timers(node.operator)
