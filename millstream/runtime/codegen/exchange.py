"""How each exchange strategy sends a record, as generated code (Flink's `StreamPartitioner.selectChannel`)."""

from __future__ import annotations

import dis
import itertools
import random
from collections.abc import Callable
from types import FunctionType
from typing import Any

from millstream.api.functions import Partitioner
from millstream.errors import UserFunctionError
from millstream.graph.level_plan import Edge
from millstream.graph.operators import Key
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.clock import NO_TIME
from millstream.runtime.base.recognize import subscript_of
from millstream.runtime.codegen.emitter import Emitter
from millstream.runtime.codegen.fields import field_getter
from millstream.runtime.state.table import MISSING
from millstream.runtime.wire.keys import canonical, key_group, subtask_of
from millstream.runtime.wire.output import EdgeWriter

__all__ = ["emit_canonical", "emit_current_key", "emit_exchange", "emit_key", "is_repeatable"]

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
            key = code.fresh("c")
            code.line(f"{key} = {bare}")
            _emit_canonical(builder, key)
            variable = f"({bare}, {variable})"
        else:
            key = emit_canonical(builder, node, edge.partitioning.key, variable)
        routes: dict[Any, Any] = {}
        send, get = code.fresh("send"), code.bind(routes.get, "route")
        if expanding:
            router = _key_router(edge, routes, list(range(len(writer.lists))), writer.by_group)
            find = code.bind(router, "find")
            code.line(f"{send} = {get}({key})")
            with code.block(f"if {send} is None:"):
                code.line(f"{send} = {find}({key})")
            _append_checked(builder, writer, send, variable)
        else:
            # The cache leads straight from a key to the `append` of its target's list.
            choices: list[Any] = (
                list(zip(writer.appends, writer.stamp_appends, strict=True))
                if writer.stamps
                else writer.appends
            )
            find = code.bind(_key_router(edge, routes, choices, writer.by_group), "find")
            code.line(f"{send} = {get}({key})")
            with code.block(f"if {send} is None:"):
                code.line(f"{send} = {find}({key})")
            if writer.stamps:
                stamp = code.fresh("stamp")
                code.line(f"{send}, {stamp} = {send}")
                code.line(f"{stamp}({builder.stamp()})")
            code.line(f"{send}({variable})")
        return
    if strategy is Strategy.GLOBAL or (len(writer.lists) == 1 and strategy is not Strategy.CUSTOM):
        builder.append(writer, 0, variable)
        return
    if strategy is Strategy.CUSTOM:
        choice = _emit_custom(builder, node, edge, variable)
    else:
        start = _Start(builder.subtask, len(writer.lists))
        builder.epoch_hooks[edge.id] = start
        picker = start.random if strategy is Strategy.SHUFFLE else start.next
        choice = f"{code.bind(picker, 'pick')}()"
    index = code.fresh("t")
    code.line(f"{index} = {choice}")
    if expanding:
        _append_checked(builder, writer, index, variable)
    else:
        appends = code.bind(writer.appends, "sends")
        code.line(f"{appends}[{index}]({variable})")
        if writer.stamps:
            stamps = code.bind(writer.stamp_appends, "stamps")
            code.line(f"{stamps}[{index}]({builder.stamp()})")


def _append_checked(builder: Emitter, writer: EdgeWriter, index: str, variable: str) -> None:
    code = builder.code
    lists, bound, records = (
        code.bind(writer.lists, "lists"),
        code.bind(writer, "writer"),
        code.fresh("l"),
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
    so_far, missing = code.fresh("s"), code.bind(MISSING, "MISSING")
    held = code.bind(combined, "combined")
    if edge.combines_pairs and _is_first_field(edge.partitioning.key):
        # The word count: of (key, number) only the number need be held.
        numbers, get = code.bind(send.numbers, "numbers"), code.bind(send.numbers.get, "number")
        pair = f"type({variable}) is tuple and len({variable}) == 2"
        with code.block(f"if {pair} and type({variable}[1]) is int and {key} is {variable}[0]:"):
            code.line(f"{numbers}[{key}] = {get}({key}, 0) + {variable}[1]")
            with code.block(f"if len({numbers}) >= {_COMBINED}:"):
                code.line(f"{code.bind(send, 'send')}()")
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
            code.line(f"{code.bind(send, 'send')}()")
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

    def find(canon: Any) -> Any:
        if len(routes) >= _ROUTE_CACHE:
            routes.clear()
        group = key_group(canon, maximum)
        choice = choices[group if by_group else subtask_of(group, parallelism, maximum)]
        routes[canon] = choice
        return choice

    return find


class _Start:
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


def emit_key(builder: Emitter, node: StreamNode, key: Key, variable: str) -> str:
    """Write the lines that take the key out of `variable`; the name of its variable."""
    code = builder.code
    brought = builder.brought_key(key)
    if brought is not None:
        return brought
    role = "key" if key.field is None else f"key {key.field!r}"
    builder.at(node, variable, role, key.declared_at)
    name = code.fresh("k")
    subscript = key.field if isinstance(key.field, int) else subscript_of(key.selector)
    if subscript is not None:
        code.line(f"{name} = {variable}[{subscript!r}]")
    elif isinstance(key.field, str):
        code.line(f"{name} = {code.bind(field_getter(key.field), 'field')}({variable})")
    else:
        code.line(
            f"{name} = {builder.bind_function(node, key.selector, 'get_key', 'key')}({variable})"
        )
    if key.key_type is not None:
        check = key.key_type.check_expression(name)
        if check is not None:
            convert = code.bind(key.key_type.convert, "convert")
            if check == "False":
                code.line(f"{name} = {convert}({name})")
            else:
                with code.block(f"if not ({check}):"):
                    code.line(f"{name} = {convert}({name})")
    return name


def emit_canonical(builder: Emitter, node: StreamNode, key: Key, variable: str) -> str:
    """As `emit_key`, then its canonical form: strings and ints are their own."""
    name = emit_key(builder, node, key, variable)
    _emit_canonical(builder, name)
    return name


def _emit_canonical(builder: Emitter, name: str) -> None:
    code = builder.code
    with code.block(f"if type({name}) is not str and type({name}) is not int:"):
        code.line(f"{name} = {code.bind(canonical, 'canonical')}({name})")


# Builtins that give the same for the same, in every process; `hash` does not.
_SAME = frozenset(
    "abs bool bytes complex divmod float frozenset int isinstance len list max min ord repr round set "
    "sorted str sum tuple".split()
)
# What reads anything but the record, or changes something.
_OUTSIDE = ("DEREF", "CLOSURE", "CLASSDEREF", "STORE_", "DELETE_", "IMPORT", "YIELD", "NAME")


def is_repeatable(key: Key) -> bool:
    """True if a key can be taken out of a record a second time, and is the same: the selector looks at nothing but the
    record, constants and builtins. Any other may be random, or depend on what it has seen; its key travels with the
    record, which costs some 150 ns.

    >>> import random
    >>> is_repeatable(Key(lambda v: v[0].lower())), is_repeatable(Key(lambda v: random.random()))
    (True, False)
    """
    if key.field is not None or key.selector in (str, int, len):
        return True
    function = key.selector
    if type(function) is not FunctionType or function.__closure__ or function.__defaults__:
        return False
    for step in dis.get_instructions(function):
        name = step.opname
        if name == "LOAD_GLOBAL":
            if step.argval not in _SAME or step.argval in function.__globals__:
                return False
        elif name != "STORE_FAST" and any(part in name for part in _OUTSIDE):
            return False
    return True


def emit_current_key(
    builder: Emitter, node: StreamNode, key: Key, variable: str, context: str
) -> str:
    """Lines that take the key out of `variable` and make it the current one of `context`; the variable that has its
    canonical form."""
    name = emit_key(builder, node, key, variable)
    code = builder.code
    code.line(f"{context}.key = {name}")
    _emit_canonical(builder, name)
    code.line(f"{context}.canon = {name}")
    builder.at(node, variable)
    return name
