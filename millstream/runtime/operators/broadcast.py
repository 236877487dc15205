"""A stream beside a broadcast one (Flink's `CoBroadcastWithKeyedOperator` and its kin without a key)."""

from __future__ import annotations

from millstream.graph.operators import BroadcastProcessOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.keys import emit_current_key
from millstream.runtime.codegen.unit import OperatorUnit, TimedUnit
from millstream.runtime.operators.contexts import (
    BroadcastSideContext,
    KeyedReadOnlySideContext,
    ReadOnlySideContext,
)
from millstream.runtime.operators.process import KeyedFunctionUnit, enter_time

__all__ = ["BroadcastProcessUnit", "KeyedBroadcastProcessUnit", "broadcast_unit"]


def broadcast_unit(builder: ChainBuilder, node: StreamNode) -> OperatorUnit[BroadcastProcessOp]:
    """The unit for a stream with a key, or for one without."""
    return (KeyedBroadcastProcessUnit if node.operator.keys else BroadcastProcessUnit)(
        builder, node
    )


def _ask_for_states(unit: OperatorUnit[BroadcastProcessOp]) -> None:
    """Ask for broadcast states when the unit is made, so that a restore can tell whether what was written is still
    asked for, and as what."""
    for descriptor in unit.op.states:
        unit.operator_states.get_broadcast_state(descriptor)


class BroadcastProcessUnit(TimedUnit[BroadcastProcessOp]):
    """Input 0 is the data, input 1 the broadcast side."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        _ask_for_states(self)
        self._reading = ReadOnlySideContext(self.operator_states)
        self._writing = BroadcastSideContext(self.operator_states, self.keyed_states, None)
        self.reads_time(self._reading.timers)
        self.reads_time(self._writing.timers)

    def lines(self, record: str, index: int) -> None:
        """One call, and a loop over its results."""
        method = "process_element" if index == 0 else "process_broadcast_element"
        context = self.code.bind(self._reading if index == 0 else self._writing, "context")
        function = self.bind_function(self.op.function, method, "process")
        enter_time(self.builder, context)
        self.emit_results(f"{function}({record}, {context})", method)


class KeyedBroadcastProcessUnit(KeyedFunctionUnit[BroadcastProcessOp]):
    """Input 0 is the data, with a key; input 1 the broadcast side, which has none."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        reading = KeyedReadOnlySideContext()
        super().__init__(builder, node, reading)
        _ask_for_states(self)
        reading.attach(self.operator_states)
        self._writing = BroadcastSideContext(self.operator_states, self.keyed_states, reading)
        self.reads_time(self._writing.timers)

    def lines(self, record: str, index: int) -> None:
        """The key, or none, then one call and a loop over its results."""
        fires = index == 0 and self.timers is not None
        if index == 0:
            context, method = self.code.bind(self.function_context, "context"), "process_element"
            key = self.op.key
            assert key is not None
            emit_current_key(self.builder, self.node, key, record, context)
        else:
            context = self.code.bind(self._writing, "context")
            method = "process_broadcast_element"
            self.code.line(f"{self.code.bind(self.function_context.leave, 'leave_key')}()")
        function = self.bind_function(self.op.function, method, "process")
        enter_time(self.builder, context, timers=fires)
        self.emit_results(f"{function}({record}, {context})", method)
