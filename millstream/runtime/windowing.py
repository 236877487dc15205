"""Window operators in generated code: which implementation serves which program, and how results come back.

```
for v1, t2 in records:
    k3 = v1[0]
    keys_4.key = k3; keys_4.canon = k3
    window_5(v1, t2)

def result_6(value, t):          # called by the operator for each result
    ...
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.graph.operators import WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.exchange import emit_current_key
from millstream.runtime.timers import InternalTimers
from millstream.runtime.window_operator import WindowOperator

if TYPE_CHECKING:
    from millstream.runtime.chain import ChainBuilder

__all__ = ["Outlet", "compile_window"]

EmitResults = Callable[["ChainBuilder", StreamNode, str], None]


class Outlet:
    """Where an operator that is not generated code puts what it emits; the code behind it is made after it."""

    __slots__ = ("send",)

    def __init__(self) -> None:
        self.send: Callable[[Any, int], None] = _nowhere

    def __call__(self, value: Any, timestamp: int) -> None:
        self.send(value, timestamp)

    def attach(self, send: Callable[..., None]) -> None:
        """This is the code."""
        self.send = send


def _nowhere(value: Any, timestamp: int) -> None:
    raise AssertionError("the chain has not been built")


def compile_window(
    b: ChainBuilder, node: StreamNode, op: WindowOp, v: str, emit_result: EmitResults
) -> None:
    """Lines for a record that goes into windows; `emit_result` writes those for one result."""
    result, late = outlets(b, node, op, emit_result)
    keys = b.key_context(node)
    timers = InternalTimers(keys, lambda table: b.table(node, table))
    operator = WindowOperator(
        op,
        node.name,
        node.uid,
        keys,
        b.store,
        timers,
        b.keyed_states(node, keys),
        b.context(node),
        result,
        late,
    )
    timers.on_event_time = operator.on_event_time
    timers.on_processing_time = operator.on_processing_time
    b.fires(node, timers)
    b.late[node.id] = operator
    for function in operator.functions:
        b.opens(node, function)
    emit_current_key(b, node, op.key, v, b.code.bind(keys, "keys"))
    b.code.line(f"{b.code.bind(operator.process, 'window')}({v}, {b.stamp()})")


def outlets(
    b: ChainBuilder, node: StreamNode, op: WindowOp, emit_result: EmitResults
) -> tuple[Outlet, Outlet | None]:
    """For results, and for late records if somebody wants them."""
    before = b.code.location
    result = Outlet()
    with b.entry("result_", "value, t", result.attach):
        b.at(node, "value", "result")
        emit_result(b, node, "value")
    late: Outlet | None = None
    if op.late_tag is not None:
        late = Outlet()
        with b.entry("late_", "value, t", late.attach):
            b.at(node, "value", "late")
            b.emit(node, "value", op.late_tag)
    b.code.location = before
    return result, late
