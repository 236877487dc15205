"""A vertex's chain compiled into one Python loop per input (Flink's `OperatorChain`).

The tree of operators becomes straight-line code: a map is an assignment, a filter an `if`, a flat map a
nested `for`, an exchange an `append` to the target's list. In a chain of maps, filters and a keyed exchange there is,
between a record's arrival and its serialization, no call but the user's own, those of methods of dictionaries and
lists, and what a new or unusual key needs. `millstream.print.generated-code` shows the result:

```
def input_0(records):
    for record in records:
        mapped = map_1(record)
        if filter_1(mapped):
            key = mapped[0]
            ...
            target(mapped)
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.graph.operators import SourceOp
from millstream.runtime.base.in_operator import in_operator
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.unit import OperatorUnit, that_do
from millstream.runtime.task.chain_time import ChainTime
from millstream.runtime.time.valve import InputEdge

__all__ = [
    "Chain",
]


class Chain:
    """A compiled chain of one subtask."""

    def __init__(
        self,
        builder: ChainBuilder,
        units: Mapping[int, OperatorUnit[Any]],
        input_count: int,
        inputs: Sequence[InputEdge],
    ) -> None:
        """Compile the chain; `inputs` are the edges that bring it watermarks."""
        self.vertex = builder.vertex
        self.nodes = builder.tree.nodes
        self.module = builder.generate(input_count, units)
        made = self.module.build()
        self.inputs: tuple[Callable[[Iterable[Any]], None], ...] = made[:input_count]
        for attach, function in zip(builder.entries.values(), made[input_count:], strict=True):
            attach(function)
        head = units[self.vertex.head.id]
        self.columns: Callable[[Any], bool] | None = None
        """Takes columns in the place of the first input's records, and says whether it did; None if it takes none."""
        if builder.settings.columns and head.takes_columns():
            self.columns = in_operator(head.node, head.take_columns)
        self.units = list(units.values())
        self.key_ends = [unit.end_key for unit in that_do(self.units, "end_key")]
        # A chain may be long, and most of it does nothing when an epoch begins or ends.
        self.beginning = that_do(self.units, "begin_epoch")
        self.committing = that_do(self.units, "prepare_commit")
        self._keys = [unit.keys for unit in self.units if unit.keys is not None]
        self.writers = builder.writers
        self.counting = builder.counting
        self.sinks = [node.uid for node in builder.vertex.nodes if node.is_sink]
        self.settings = builder.settings
        source = builder.vertex.head.operator
        # A source may give one object again and again, and again after a failure.
        self.copies_input = (
            not builder.settings.object_reuse
            and isinstance(source, SourceOp)
            and bool(source.source.keeps_records())
        )
        self.time = ChainTime(builder, units, inputs, input_count)
        self.store = builder.store
        self.cursor = builder.cursor
        _open_once(self.units)
        self.with_functions = [unit for unit in self.units if unit.functions]
        self.checkpointed = [unit for unit in self.units if unit.checkpointed]
        self.opened = False
        self.rebuilds_reported = 0

    def leave_keys(self) -> None:
        """No operator has a current key from here on (rule 49)."""
        for keys in self._keys:
            keys.leave()


def _open_once(units: Iterable[OperatorUnit[Any]]) -> None:
    """A function object that several operators have is opened by the first of them."""
    known: set[int] = set()
    for unit in units:
        unit.functions = [function for function in unit.functions if id(function) not in known]
        known.update(map(id, unit.functions))
