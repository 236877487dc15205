"""How each exchange strategy sends a record, as generated code (Flink's `StreamPartitioner.selectChannel`)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from millstream.api.functions import Partitioner
from millstream.common.constants import NO_TIME
from millstream.errors import UserFunctionError
from millstream.graph.level_plan import Edge
from millstream.graph.operators import Key
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import subscript_of
from millstream.runtime.codegen.emitter import Emitter
from millstream.runtime.codegen.keys import emit_canonical, emit_key, make_canonical
from millstream.runtime.state.table import MISSING
from millstream.runtime.wire.keys import key_group, subtask_of
from millstream.runtime.wire.output import EdgeWriter

__all__ = ["emit_exchange"]

# Routes of this many distinct keys are remembered; then the memory starts afresh.
_ROUTE_CACHE = 200_000
# Keys that a sender of a batch job holds at a time to combine their records.
_COMBINED = 500_000


def emit_exchange(
    builder: Emitter,
    node: StreamNode,
    edge: Edge,
    writer: EdgeWriter,
    variable: str,
    expanding: bool,
) -> None:
    """Write the lines that send `variable` along `edge`."""
    code = builder.code
    builder.at(node, variable, "send")
    strategy = edge.partitioning.strategy
    if strategy is Strategy.HASH and edge.combiner is not None:
        _emit_combined(builder, node, edge, writer, variable)
        return
    if strategy is Strategy.HASH:
        assert edge.partitioning.key is not None
        if edge.carries_key:
            bare = emit_key(builder, node, edge.partitioning.key, variable)
            key = code.fresh("route_key")
            code.line(f"{key} = {bare}")
            make_canonical(builder, key)
            variable = f"({bare}, {variable})"
        else:
            key = emit_canonical(builder, node, edge.partitioning.key, variable)
        _emit_routed(builder, edge, writer, key, variable, expanding)
        return
    if strategy is Strategy.GLOBAL or (len(writer.lists) == 1 and strategy is not Strategy.CUSTOM):
        builder.append(writer, 0, variable)
        return
    if strategy is Strategy.CUSTOM:
        choice = _emit_custom(builder, node, edge, variable)
    else:
        # An operator may emit at several places of the code; they take turns by one choice.
        if writer.choice is None:
            writer.choice = _Choice(builder.subtask, len(writer.lists))
        picker = writer.choice.random if strategy is Strategy.SHUFFLE else writer.choice.next
        choice = f"{code.bind(picker, 'pick')}()"
    index = code.fresh("target")
    code.line(f"{index} = {choice}")
    if expanding:
        _append_checked(builder, writer, index, variable)
    else:
        appends = code.bind(writer.appends, "appends")
        code.line(f"{appends}[{index}]({variable})")
        if writer.stamps:
            stamps = code.bind(writer.stamp_appends, "stamps")
            code.line(f"{stamps}[{index}]({builder.stamp()})")


def _emit_routed(
    builder: Emitter, edge: Edge, writer: EdgeWriter, key: str, variable: str, expanding: bool
) -> None:
    """Lines that send a record to the subtask of its key."""
    code = builder.code
    routes: dict[Any, Any] = {}
    if expanding:
        choices: list[Any] = list(range(len(writer.lists)))
        target = code.fresh("target")
    elif writer.stamps:
        # The cache leads straight from a key to the `append` of its target's list.
        choices = list(zip(writer.appends, writer.stamp_appends, strict=True))
        target = code.fresh("appends")
    else:
        choices = writer.appends
        target = code.fresh("append")
    route = code.bind(routes.get, "route")
    find = code.bind(_key_router(edge, routes, choices, writer.by_group), "find")
    code.line(f"{target} = {route}({key})")
    with code.block(f"if {target} is None:"):
        code.line(f"{target} = {find}({key})")
    if expanding:
        _append_checked(builder, writer, target, variable)
    elif writer.stamps:
        append, append_time = code.fresh("append"), code.fresh("append_time")
        code.line(f"{append}, {append_time} = {target}")
        code.line(f"{append_time}({builder.stamp()})")
        code.line(f"{append}({variable})")
    else:
        code.line(f"{target}({variable})")


def _append_checked(builder: Emitter, writer: EdgeWriter, index: str, variable: str) -> None:
    code = builder.code
    lists, bound, records = (
        code.bind(writer.lists, "buffers"),
        code.bind(writer, "writer"),
        code.fresh("buffer"),
    )
    code.line(f"{records} = {lists}[{index}]")
    code.line(f"{records}.append({variable})")
    if writer.stamps:
        stamps = code.bind(writer.stamps, "stamps")
        code.line(f"{stamps}[{index}].append({builder.stamp()})")
    with code.block(f"if len({records}) >= {bound}.limit:"):
        code.line(f"{bound}.flush({index})")


def _emit_combined(
    builder: Emitter, node: StreamNode, edge: Edge, writer: EdgeWriter, variable: str
) -> None:
    """In a batch job only a key's last result counts: its records are combined before they are sent."""
    assert edge.partitioning.key is not None
    code = builder.code
    key = emit_canonical(builder, node, edge.partitioning.key, variable)
    builder.at(node, variable, "send")
    # An operator may emit at several places of the code; what they send is held in one.
    if writer.combined is None:
        writer.combined = _Combined(edge, writer)
    send = writer.combined
    combined = send.held
    so_far, missing = code.fresh("so_far"), code.bind(MISSING, "MISSING")
    held = code.bind(combined, "combined")
    if edge.combines_pairs and _is_first_field(edge.partitioning.key):
        # The word count: of (key, number) only the number need be held.
        numbers, get = code.bind(send.numbers, "numbers"), code.bind(send.numbers.get, "number")
        pair = f"type({variable}) is tuple and len({variable}) == 2"
        with code.block(f"if {pair} and type({variable}[1]) is int and {key} is {variable}[0]:"):
            code.line(f"{numbers}[{key}] = {get}({key}, 0) + {variable}[1]")
            with code.block(f"if len({numbers}) >= {_COMBINED}:"):
                code.line(f"{code.bind(send, 'send_combined')}()")
        with code.block("else:"):
            _emit_held(builder, edge, variable, key, so_far, missing, held, send)
        return
    _emit_held(builder, edge, variable, key, so_far, missing, held, send)


def _is_first_field(key: Key) -> bool:
    return key.key_type is None and (key.field == 0 or subscript_of(key.selector) == 0)


def _emit_held(
    builder: Emitter,
    edge: Edge,
    variable: str,
    key: str,
    so_far: str,
    missing: str,
    held: str,
    send: _Combined,
) -> None:
    code, combined = builder.code, send.held
    code.line(f"{so_far} = {code.bind(combined.get, 'combining')}({key}, {missing})")
    with code.block(f"if {so_far} is {missing}:"):
        with code.block(f"if len({held}) >= {_COMBINED}:"):
            code.line(f"{code.bind(send, 'send_combined')}()")
        code.line(f"{held}[{key}] = {variable}")
    combine = code.bind(edge.combiner, "combine")
    if edge.combines_pairs:
        both = f"type({so_far}) is tuple and len({so_far}) == 2 and type({variable}) is tuple"
        with code.block(f"elif {both}:"):
            with code.block("try:"):
                code.line(f"{held}[{key}] = ({so_far}[0], {so_far}[1] + {variable}[1])")
            with code.block("except TypeError:"):
                # It says what is wrong with the record.
                code.line(f"{held}[{key}] = {combine}({so_far}, {variable})")
    with code.block("else:"):
        code.line(f"{held}[{key}] = {combine}({so_far}, {variable})")


class _Combined:
    """The records that a sender holds back, one per key; called, it sends them."""

    __slots__ = ("_find", "_writer", "held", "numbers")

    def __init__(self, edge: Edge, writer: EdgeWriter) -> None:
        self.held: dict[Any, Any] = {}
        # Those that are pairs of their key and a number.
        self.numbers: dict[Any, int] = {}
        self._writer = writer
        self._find = _key_router(edge, {}, list(range(len(writer.lists))), writer.by_group)

    def __call__(self) -> None:
        writer, find = self._writer, self._find
        # The pairs' tuples are made as they are sent: most of what is held is never one.
        for canon, record in itertools.chain(
            ((key, (key, number)) for key, number in self.numbers.items()), self.held.items()
        ):
            index = find(canon)
            records = writer.lists[index]
            records.append(record)
            if writer.stamps:
                writer.stamps[index].append(NO_TIME)
            if len(records) >= writer.limit:
                writer.flush(index)
        self.numbers.clear()
        self.held.clear()


def _key_router(
    edge: Edge, routes: dict[Any, Any], choices: list[Any], by_group: bool
) -> Callable[[Any], Any]:
    parallelism, maximum = edge.target_parallelism, edge.target_max_parallelism
    # Looked up rather than computed: where there are more keys than are remembered, most records come by here.
    of_group = (
        choices
        if by_group
        else [choices[subtask_of(group, parallelism, maximum)] for group in range(maximum)]
    )

    def find(canon: Any) -> Any:
        if len(routes) >= _ROUTE_CACHE:
            routes.clear()
        choice = routes[canon] = of_group[key_group(canon, maximum)]
        return choice

    return find


class _Choice:
    """Round robin and random choice that begin anew in each epoch, so that a retry makes the same choices,
    and at another target in each epoch, so that small epochs do not all go to the first."""

    def __init__(self, subtask: int, count: int) -> None:
        self._subtask = subtask
        self._count = count
        self.begin(0)

    def begin(self, epoch: int) -> None:
        start = (self._subtask + epoch) % self._count
        order = [(start + i) % self._count for i in range(self._count)]
        self._cycle = itertools.cycle(order).__next__
        self._random = random.Random(epoch * 1_000_003 + self._subtask).random

    def next(self) -> int:
        return self._cycle()

    def random(self) -> int:
        return int(self._random() * self._count)


def _emit_custom(builder: Emitter, node: StreamNode, edge: Edge, variable: str) -> str:
    assert edge.partitioning.key is not None
    code = builder.code
    key = emit_key(builder, node, edge.partitioning.key, variable)
    partitioner = edge.partitioning.partitioner
    choose = partitioner
    if isinstance(partitioner, Partitioner):
        choose = partitioner.partition
        builder.opens(node, partitioner)
    count = edge.target_parallelism
    name = node.name

    def checked(key: Any) -> int:
        target = choose(key, count)
        if type(target) is int and 0 <= target < count:
            return target
        msg = f"the partitioner after '{name}' chose a target that does not exist"
        raise UserFunctionError(
            msg,
            operator=name,
            chosen=repr(target),
            wanted=f"a number from 0 to {count - 1}",
            hint="return key % num_partitions, or check the arithmetic",
        )

    builder.at(node, variable, "partition", edge.partitioning.key.declared_at)
    return f"{code.bind(checked, 'partition')}({key})"
