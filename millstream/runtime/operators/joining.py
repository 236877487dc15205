"""Joins in generated code. Both inputs write the same few lines, and share the operator that they call:

```
def input_1(records):
    for v1, t2 in records:
        k3 = v1[0]
        keys_4.key = k3
        keys_4.canon = k3
        join_5(v1, t2)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.api.state import ListStateDescriptor
from millstream.graph.operators import IntervalJoinOp, WindowJoinOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.exchange import emit_current_key
from millstream.runtime.codegen.outlet import EmitResults, late_outlet, outlets, result_outlet
from millstream.runtime.operators.interval_join import IntervalJoin
from millstream.runtime.operators.windowing import general_operator
from millstream.runtime.state.table import Table
from millstream.runtime.windows.contents import own_table
from millstream.runtime.windows.operator import WindowOperator

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder

__all__ = ["compile_interval_join", "compile_window_join"]


def compile_window_join(
    b: ChainBuilder,
    node: StreamNode,
    op: WindowJoinOp,
    v: str,
    index: int,
    emit_result: EmitResults,
) -> None:
    """Lines for a record that goes into windows of two streams: beside it goes the number of its own."""
    operator = b.late.get(node.id)
    if operator is None:
        operator = general_operator(b, node, op, *outlets(b, node, op, emit_result))
    assert isinstance(operator, WindowOperator)
    emit_current_key(b, node, op.keys[index], v, b.code.bind(b.key_context(node), "keys"))
    b.code.line(f"{b.code.bind(operator.process, 'window')}(({index}, {v}), {b.stamp()})")


def compile_interval_join(
    b: ChainBuilder,
    node: StreamNode,
    op: IntervalJoinOp,
    v: str,
    index: int,
    emit_result: EmitResults,
) -> None:
    """Lines for a record of either side of an interval join."""
    operator = b.late.get(node.id)
    if operator is None:
        operator = b.late[node.id] = _interval_join(b, node, op, emit_result)
    assert isinstance(operator, IntervalJoin)
    process = operator.process1 if index == 0 else operator.process2
    emit_current_key(b, node, op.keys[index], v, b.code.bind(b.key_context(node), "keys"))
    b.code.line(f"{b.code.bind(process, 'join')}({v}, {b.stamp()})")


def _interval_join(
    b: ChainBuilder, node: StreamNode, op: IntervalJoinOp, emit_result: EmitResults
) -> IntervalJoin:
    keys = b.key_context(node)
    states = b.keyed_states(node, keys)

    def buffer(name: str) -> Table:
        return own_table(states, b.store, node.uid, ListStateDescriptor(name))

    left, right = (None if tag is None else late_outlet(b, node, tag) for tag in op.late_tags)
    operator = IntervalJoin(
        op,
        keys,
        (buffer("join-left"), buffer("join-right")),
        result_outlet(b, node, emit_result),
        (left, right),
    )
    b.follows(node, operator)
    b.opens(node, op.function)
    return operator
