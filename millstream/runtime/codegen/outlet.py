"""Where an operator that is not generated code puts its results: functions of the generated code behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.graph.operators import WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.state.journal import Journal

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder

__all__ = ["EmitResults", "Outlet", "late_outlet", "outlets", "result_outlet"]


EmitResults = Callable[["ChainBuilder", StreamNode, str], None]


class Outlet:
    """Where an operator that is not generated code puts what it emits; the code behind it is made after it."""

    __slots__ = ("_journal", "send")

    def __init__(self, journal: Journal | None = None) -> None:
        self.send: Callable[[Any, int], None] = _nowhere
        # Of an operator with an error policy: what holds results back until their record has been processed.
        self._journal = journal

    def __call__(self, value: Any, timestamp: int) -> None:
        self.send(value, timestamp)

    def attach(self, send: Callable[..., None]) -> None:
        """This is the code."""
        self.send = send if self._journal is None else self._journal.holding(send)


def _nowhere(value: Any, timestamp: int) -> None:
    raise AssertionError("the chain has not been built")


def outlets(
    b: ChainBuilder, node: StreamNode, op: WindowOp, emit_result: EmitResults
) -> tuple[Outlet, Outlet | None]:
    """For results, and for late records if somebody wants them."""
    result = result_outlet(b, node, emit_result)
    return result, None if op.late_tag is None else late_outlet(b, node, op.late_tag)


def result_outlet(b: ChainBuilder, node: StreamNode, emit_result: EmitResults) -> Outlet:
    """For results."""
    before = b.code.location
    result = Outlet(b.journals.get(node.id))
    with b.entry("result_", "value, t", result.attach):
        b.at(node, "value", "result")
        emit_result(b, node, "value")
    b.code.location = before
    return result


def late_outlet(b: ChainBuilder, node: StreamNode, tag: str) -> Outlet:
    """For late records."""
    before = b.code.location
    late = Outlet(b.journals.get(node.id))
    with b.entry("late_", "value, t", late.attach):
        b.at(node, "value", "late")
        b.emit(node, "value", tag)
    b.code.location = before
    return late
