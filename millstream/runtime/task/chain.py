"""A vertex's chain compiled into one Python loop per input (Flink's `OperatorChain`).

The tree of operators becomes straight-line code: a map is an assignment, a filter an `if`, a flat map a
nested `for`, an exchange an `append` to the target's list. Between a record's arrival and its serialization
there is no call but the user's own. `millstream.print.generated-code` shows the result:

```
def input_0(records):
    for v1 in records:
        v2 = map_2(v1)
        if filter_3(v2):
            k4 = v2[0]
            ...
            send_5(v2)
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.functions import Function, RuntimeContext
from millstream.graph.operators import SourceOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.state.keyed_state import WithoutState
from millstream.runtime.task.chain_time import ChainTime
from millstream.runtime.time.valve import InputEdge

__all__ = [
    "Chain",
]


class Chain:
    """A compiled chain of one subtask."""

    __slots__ = (
        "adopts",
        "bad_records",
        "carried",
        "checkpointed",
        "contexts",
        "copies_input",
        "cursor",
        "epoch_hooks",
        "functions",
        "incremental",
        "inputs",
        "key_contexts",
        "key_ends",
        "late",
        "module",
        "nodes",
        "opened",
        "operator_states",
        "rebuilds_reported",
        "sink_hooks",
        "stamped",
        "store",
        "time",
        "vertex",
        "writers",
    )

    def __init__(
        self, builder: ChainBuilder, input_count: int, inputs: Sequence[InputEdge]
    ) -> None:
        """Compile the chain; `inputs` are the edges that bring it watermarks."""
        self.vertex = builder.vertex
        self.module = builder.generate(input_count)
        self.nodes = builder.nodes
        made = self.module.build()
        self.inputs: tuple[Callable[[Iterable[Any]], None], ...] = made[:input_count]
        for attach, function in zip(builder.entries.values(), made[input_count:], strict=True):
            attach(function)
        self.writers = builder.writers
        self.stamped = builder.takes_stamps
        self.carried = builder.carried
        head = builder.vertex.head.operator
        # A source may give one object again and again, and again after a failure.
        self.copies_input = (
            not builder.object_reuse
            and isinstance(head, SourceOp)
            and bool(head.source.keeps_records())
        )
        self.late = builder.late
        self.adopts = builder.adopts
        self.key_ends = builder.key_ends
        self.time = ChainTime(builder, inputs, input_count, ask=builder.ask_generators)
        self.functions = builder.functions
        self.epoch_hooks = builder.epoch_hooks
        self.sink_hooks = builder.sink_hooks
        self.store = builder.store
        self.bad_records = builder.bad_records
        self.cursor = builder.cursor
        self.contexts = {node.id: builder.context(node) for node, _ in builder.functions}
        self.incremental = {
            node.id: builder.context(node, keyed=WithoutState(node.name))
            for node, function in builder.functions
            if _is_incremental(node, function)
        }
        self.key_contexts = list(builder.key_contexts.values())
        self.checkpointed = [
            (node, function)
            for node, function in builder.functions
            if isinstance(function, CheckpointedFunction)
        ]
        self.operator_states = {
            node.id: builder.operator_states(node) for node, _ in self.checkpointed
        }
        self.opened = False
        self.rebuilds_reported = 0

    def context_of(self, node: StreamNode, function: Function) -> RuntimeContext:
        """What a function is opened with."""
        if _is_incremental(node, function):
            return self.incremental[node.id]
        return self.contexts[node.id]

    def leave_keys(self) -> None:
        """No operator has a current key from here on (rule 49)."""
        for context in self.key_contexts:
            context.leave()


def _is_incremental(node: StreamNode, function: Any) -> bool:
    """True for the function that adds records to windows, also with one around it."""
    incremental = getattr(node.operator, "incremental", None)
    return incremental is not None and getattr(function, "inner", function) is incremental
