"""Which windows take columns, and which columns those are.

Tumbling and sliding windows with declared aggregates, whose key is a field: what has to be added is then known without
calling anything, and a sender can do part of it. The driver asks when it lays out the edges, the windows' own unit when
it is built; both must come to the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.api.aggregates import FieldAggregate
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.graph.operators import AssignOp, Key, WindowOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import field_of
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.fitting import array_fits
from millstream.runtime.columns.payload import can_ship
from millstream.runtime.columns.shapes import BatchShape
from millstream.runtime.operators.declared_aggregates import DeclaredAggregates
from millstream.runtime.operators.window_kinds import keeps_panes

__all__ = [
    "WindowColumns",
    "WindowLayout",
    "adds_columns",
    "columns_wanted",
    "key_fits",
    "layout_of",
]


@dataclass(frozen=True)
class WindowColumns:
    """What the senders of an edge have to know of the windows behind it."""

    aggregates: tuple[FieldAggregate, ...]
    size: int
    slide: int
    offset: int
    one_by_one: bool
    """Late rows are wanted, or make a window fire again, each of them."""

    whole: bool
    """The records themselves are wanted if they are late."""


def adds_columns(node: StreamNode, *, share_panes: bool) -> bool:
    """True if an operator is windows that columns can be added to: they stand in panes, and there are no gaps between
    them. With an error policy what a record has done may have to be undone."""
    op = node.operator
    if type(op) is not WindowOp or op.all_windows or not keeps_panes(op, share_panes=share_panes):
        return False
    slide = getattr(op.assigner, "slide", op.assigner.size)
    policy = node.error_policy
    return (
        isinstance(op.incremental, DeclaredAggregates)
        and op.accumulator_type is None
        and op.assigner.size >= slide
        and (policy is None or policy.kind == "fail")
    )


def columns_wanted(edge: Edge, vertex: JobVertex, *, share_panes: bool) -> WindowColumns | None:
    """What to send along an edge as columns; None if its vertex wants records.

    A generator of watermarks behind the windows is asked after every 1024 records that they take, so there the records
    have to come one by one.
    """
    key, op = edge.partitioning.key, vertex.head.operator
    if (
        edge.partitioning.strategy is not Strategy.HASH
        or key is None
        or _reads(key) is None
        or not adds_columns(vertex.head, share_panes=share_panes)
        or any(isinstance(node.operator, AssignOp) for node in vertex.nodes)
    ):
        return None
    assert isinstance(op, WindowOp)
    late = op.late_tag is not None
    return WindowColumns(
        op.incremental.aggregates,
        op.assigner.size,
        getattr(op.assigner, "slide", op.assigner.size),
        op.assigner.offset,
        late or op.lateness > 0,
        late,
    )


def _reads(key: Key) -> tuple[str, int | str] | None:
    """How a key is taken out of a record, if it is a field of it."""
    if isinstance(key.field, int):
        return "item", key.field
    return ("name", key.field) if key.field is not None else field_of(key.selector)


def _place(shape: BatchShape, how: str, name: Any) -> int | None:
    match how:
        case "item":
            return shape.at(name)
        case "attribute":
            return shape.attribute(name)
        case _:
            return shape.named(name)


@dataclass(frozen=True)
class WindowLayout:
    """Where in rows of one kind the key and the aggregated fields are."""

    key: int
    fields: tuple[int, ...]
    """The column of each aggregate that has one."""

    sums: tuple[int, ...]
    """The aggregates that add up ints."""

    in_order: bool
    """Floats are added up: the order shows."""


def layout_of(batch: ColumnBatch, key: Key, wanted: WindowColumns) -> WindowLayout | None:
    """Where the columns are in rows like these; None if windows could not add them up as they are."""
    shape, columns = batch.shape, batch.data.columns
    reads = _reads(key)
    place = None if reads is None else _place(shape, *reads)
    if place is None or pa.types.is_null(columns[place].type):
        return None
    if wanted.whole and not can_ship(shape):
        return None
    fields: list[int] = []
    sums: list[int] = []
    in_order = False
    for aggregate in wanted.aggregates:
        if aggregate.field is None:
            continue
        at = _field_place(shape, aggregate.field)
        if at is None:
            return None
        kind = columns[at].type
        if not (pa.types.is_int64(kind) or pa.types.is_float64(kind)):
            return None
        fields.append(at)
        if aggregate.kind in ("sum_of", "mean_of"):
            if pa.types.is_float64(kind):
                in_order = True
            else:
                sums.append(at)
    return WindowLayout(place, tuple(fields), tuple(sums), in_order)


def _field_place(shape: BatchShape, field: int | str) -> int | None:
    if isinstance(field, str):
        return shape.named(field)
    return field if field == 0 and not shape.names else shape.at(field)


def key_fits(key: Key, column: pa.Array) -> bool:
    """True if keys are of the type that `key_by` declares, as they are."""
    return key.key_type is None or array_fits(key.key_type, column)
