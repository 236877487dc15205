"""Process functions: with and without a key, with timers, with one input and with two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millstream.api.time_domain import TimeDomain
from millstream.common.constants import NO_TIME
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.graph.time import uses_timers
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.keys import emit_current_key
from millstream.runtime.codegen.unit import TimedUnit
from millstream.runtime.operators.contexts import (
    ElementContext,
    KeyedElementContext,
    KeyedReadOnlySideContext,
)
from millstream.runtime.time.timers import KeyedTimerService

__all__ = ["KeyedFunctionUnit", "KeyedProcessUnit", "ProcessUnit", "enter_time"]

Op = TypeVar("Op", bound=ops.Operator)


def enter_time(builder: ChainBuilder, context: str, *, timers: bool = False) -> None:
    """Lines that tell a function's context the time of the record at hand; with `timers`, one that fired may have left
    its own there."""
    if builder.stamped or timers:
        builder.code.line(f"{context}.time = {builder.stamp()}")


def method_for(op: ops.Operator, index: int) -> str:
    """The method that takes records of an input."""
    two = isinstance(op, ops.CoProcessOp | ops.KeyedCoProcessOp)
    return f"process_element{index + 1}" if two else "process_element"


class ProcessUnit(TimedUnit[ops.ProcessOp | ops.CoProcessOp]):
    """A process function without a key: it may look at the time, and set no timers."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        # For records with a timestamp, and for those without: what a timer gives has one, whatever elements have.
        self._contexts = ElementContext(), ElementContext()
        for context in self._contexts:
            self.reads_time(context.timers)

    def lines(self, record: str, index: int) -> None:
        """One call, and a loop over its results."""
        method = method_for(self.op, index)
        function = self.bind_function(self.op.function, method, "process")
        context = self.code.bind(self._contexts[self.builder.stamped], "context")
        enter_time(self.builder, context)
        self.emit_results(f"{function}({record}, {context})", method)


class KeyedFunctionUnit(TimedUnit[Op]):
    """A function with a key, and with timers if it says what to do when one fires."""

    def __init__(
        self,
        builder: ChainBuilder,
        node: StreamNode,
        context: KeyedElementContext | KeyedReadOnlySideContext,
    ) -> None:
        super().__init__(builder, node)
        self.keys = self.function_context = context
        if not uses_timers(self.op):
            self.reads_time(context.timers)
        else:
            service = context.timers
            assert isinstance(service, KeyedTimerService)
            service.attach(self.has_timers(context))

    def write_entries(self) -> None:
        """The function that is called when a timer fires."""
        if self.timers is None:
            return
        on_timer = self.bind_function(self.op.user_function, "on_timer", "on_timer")
        context = self.code.bind(self.function_context, "context")
        with self.builder.entry("fire", "due", self._attach) as due:
            self.at(due, "timer")
            self.emit_results(f"{on_timer}({due}, {context})", "on_timer")

    def _attach(self, fire: Callable[..., None]) -> None:
        context, timers = self.function_context, self.timers
        assert timers is not None

        def event(timestamp: int, namespace: Any) -> None:
            context.time, context.domain = timestamp, TimeDomain.EVENT_TIME
            fire(timestamp, timestamp)
            # Records without timestamps do not set it.
            context.time = NO_TIME

        def processing(timestamp: int, namespace: Any) -> None:
            # Rule 14: what a timer of the clock gives has no timestamp.
            context.time, context.domain = timestamp, TimeDomain.PROCESSING_TIME
            fire(timestamp, NO_TIME)
            context.time = NO_TIME

        timers.on_event_time, timers.on_processing_time = event, processing


class KeyedProcessUnit(KeyedFunctionUnit[ops.KeyedProcessOp | ops.KeyedCoProcessOp]):
    """A process function with a key."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node, KeyedElementContext())

    def lines(self, record: str, index: int) -> None:
        """The key, then one call and a loop over its results."""
        context = self.code.bind(self.function_context, "context")
        emit_current_key(self.builder, self.node, self.op.keys[index], record, context)
        enter_time(self.builder, context, timers=self.timers is not None)
        method = method_for(self.op, index)
        function = self.bind_function(self.op.function, method, "process")
        self.emit_results(f"{function}({record}, {context})", method)
