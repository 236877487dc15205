"""Where columns go on as columns: which operators and edges behind a unit take them, settled when the chain is built.

```
source ─▶ assign ─▶ map_batches ─▶ map ─▶ sink
   columns   columns    columns  │ records, by the generated code
```

A reader may refuse a batch that it cannot take as it is. If all do, the unit is told, and hands its rows on as records;
if only some do, those get records that are made for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from millstream.graph.level_plan import Edge
from millstream.graph.operators import BatchesOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.in_operator import in_operator
from millstream.runtime.codegen.bad_records import Cursor
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.fitting import fits
from millstream.runtime.wire.column_output import ColumnWriter

__all__ = ["ColumnOutlet", "TakesColumns", "connect_columns"]

Take = Callable[[ColumnBatch], bool]


class TakesColumns(Protocol):
    """What is asked of an operator's unit ([`unit.py`](unit.py))."""

    columns: ColumnOutlet | None

    def takes_columns(self) -> bool:
        """True if it can be handed columns."""

    def gives_columns(self) -> bool:
        """True if it can hand columns on, if somebody takes them."""

    def take_columns(self, batch: Any, /) -> bool:
        """Process rows; False if they have to come as records."""


class _Taker:
    """One reader of an output: what takes columns, if it does, and the generated function that takes records."""

    __slots__ = ("rows", "take")

    def __init__(self, take: Take | None) -> None:
        self.take = take
        self.rows: Callable[[Iterator[Any], list[int]], None] | None = None

    def attach(self, rows: Callable[..., None]) -> None:
        """Set the generated function."""
        self.rows = rows


class ColumnOutlet:
    """The readers of an output of which at least one takes columns."""

    __slots__ = ("_count", "_cursor", "_declared", "_readers")

    def __init__(
        self,
        readers: list[_Taker],
        declared: Any,
        count: Callable[[int], None] | None,
        cursor: Cursor | None,
    ) -> None:
        self._readers = readers
        # Knows which row is at hand, of rows that go on as they are read.
        self._cursor = cursor
        self._declared = declared
        # What counts the rows of the output, if nothing else tells how many there are.
        self._count = count

    def send(self, batch: ColumnBatch) -> bool:
        """Hand rows on; False if none of the readers has taken them, or they are not what the stream declares."""
        if self._declared is not None and not fits(self._declared, batch):
            return False
        refused = [r for r in self._readers if r.take is None or not r.take(batch)]
        if len(refused) == len(self._readers):
            return False
        if self._count is not None:
            self._count(len(batch))
        for reader in refused:
            assert reader.rows is not None
            records = iter(batch.records())
            if self._cursor is not None:
                self._cursor.follow(records)
            reader.rows(records, batch.timestamps())
        return True


def connect_columns(builder: ChainBuilder, units: Mapping[int, TakesColumns]) -> None:
    """Find for each unit that can give columns who takes them, from the ends of the chain up."""
    tree = builder.tree
    # A letter says where its record was read, and that is known of records one by one.
    if any(
        n.error_policy is not None and n.error_policy.tag is not None for n in tree.nodes.values()
    ):
        return
    for node in reversed(tree.nodes.values()):
        unit = units[node.id]
        if unit.gives_columns():
            unit.columns = _outlet(builder, units, node)


def _outlet(
    builder: ChainBuilder, units: Mapping[int, TakesColumns], node: StreamNode
) -> ColumnOutlet | None:
    readers: list[tuple[_Taker, StreamNode | Edge]] = []
    for child in builder.tree.children(node, None):
        unit = units[child.id]
        takes = in_operator(child, unit.take_columns) if unit.takes_columns() else None
        readers.append((_Taker(takes), child))
    for edge in builder.tree.edges(node, None):
        writer = builder.writer_of(node, edge)
        take = writer.take_columns if isinstance(writer, ColumnWriter) else None
        readers.append((_Taker(take), edge))
    if all(reader.take is None for reader, _ in readers):
        return None
    if len(readers) > 1:
        for reader, where in readers:
            _write_rows(builder, node, reader, where)
    counter = builder.counting.bulk_counter(node)
    through = (node, *builder.tree.above(node))
    as_read = not any(isinstance(above.operator, BatchesOp) for above in through)
    return ColumnOutlet(
        [reader for reader, _ in readers],
        builder.tree.declared_type(node, None),
        counter,
        builder.cursor if as_read else None,
    )


def _write_rows(
    builder: ChainBuilder, node: StreamNode, reader: _Taker, where: StreamNode | Edge
) -> None:
    """The function for records that one reader gets alone."""
    code = builder.code
    with builder.entry("rows", "records", reader.attach) as records:
        stamps, record, stamp = builder.stamp(), code.fresh(), code.fresh("timestamp")
        builder.at(node, record, "rows")
        with (
            builder.each(f"for {record}, {stamp} in zip({records}, {stamps}):"),
            builder.stamped_by(stamp),
        ):
            builder.hand_on(node, where, record)
