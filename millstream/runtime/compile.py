"""Each operator's lines of generated code. One function per operator class of `millstream.graph.operators`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.common.functions import Function, SinkFunction
from millstream.common.output_tag import OutputTag
from millstream.common.sink import SinkWriter, WriterContext
from millstream.common.types import Row, format_row, format_value
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.aggregate import compile_reduce, compile_rolling
from millstream.runtime.contexts import (
    BroadcastSideContext,
    ElementContext,
    KeyedElementContext,
    KeyedReadOnlySideContext,
    ReadOnlySideContext,
)
from millstream.runtime.exchange import emit_current_key
from millstream.runtime.keyed_state import KeyContext
from millstream.runtime.poison import compile_guarded

if TYPE_CHECKING:
    from millstream.runtime.chain import ChainBuilder

__all__ = ["compile_operator"]

_log = logging.getLogger(__name__)


def compile_operator(builder: ChainBuilder, node: StreamNode, variable: str, index: int) -> None:
    """Write the lines of `node` for a record of input number `index` that is in `variable`."""
    builder.at(node, variable)

    def own() -> None:
        _COMPILERS[type(node.operator)](builder, node, node.operator, variable, index)

    policy = node.error_policy
    if policy is None or policy.kind == "fail":
        own()
    else:
        compile_guarded(builder, node, policy, variable, own)


def _enter_key(b: ChainBuilder, node: StreamNode, op: ops.Operator, v: str, index: int) -> None:
    """A function object on a keyed stream may have keyed state, so it gets a current key; a lambda may not."""
    if op.keys and isinstance(op.user_function, Function):
        context = b.code.bind(b.key_context(node), "keys")
        emit_current_key(b, node, op.keys[index], v, context)


def _map(b: ChainBuilder, node: StreamNode, op: ops.MapOp, v: str, index: int) -> None:
    _enter_key(b, node, op, v, index)
    out = b.code.fresh()
    b.code.line(f"{out} = {b.bind_function(node, op.function, 'map', 'map')}({v})")
    b.emit(node, out)


def _project(b: ChainBuilder, node: StreamNode, op: ops.ProjectOp, v: str, index: int) -> None:
    fields = op.fields

    def project_row(value: Any) -> Any:
        if isinstance(value, Row):
            return Row(*[value[i] for i in fields])
        return tuple(value[i] for i in fields)

    out = b.code.fresh()
    inline = "".join(f"{v}[{i}], " for i in fields)
    slow = b.code.bind(project_row, "project")
    b.code.line(f"{out} = ({inline}) if type({v}) is tuple else {slow}({v})")
    b.emit(node, out)


def _flat_map(b: ChainBuilder, node: StreamNode, op: ops.FlatMapOp, v: str, index: int) -> None:
    _enter_key(b, node, op, v, index)
    out = b.code.fresh()
    function = b.bind_function(node, op.function, "flat_map", "flat_map")
    with b.each(f"for {out} in {function}({v}):"):
        b.emit(node, out)


def _filter(b: ChainBuilder, node: StreamNode, op: ops.FilterOp, v: str, index: int) -> None:
    _enter_key(b, node, op, v, index)
    function = b.bind_function(node, op.function, "filter", "filter")
    with b.code.block(f"if {function}({v}):"):
        b.emit(node, v)


def _emit_results(b: ChainBuilder, node: StreamNode, call: str) -> None:
    """Results of a process function: None or an iterable; tagged ones go to their side output (rule 53)."""
    code = b.code
    results, out = code.fresh("r"), code.fresh()
    code.line(f"{results} = {call}")
    tag_class = code.bind(OutputTag, "OutputTag")
    with (
        code.block(f"if {results} is not None:"),
        b.each(f"for {out} in {results}:"),
    ):
        with code.block(
            f"if type({out}) is tuple and len({out}) == 2 and type({out}[0]) is {tag_class}:"
        ):
            tag, side = code.fresh("tag"), code.fresh()
            code.line(f"{tag} = {out}[0].tag_id")
            code.line(f"{side} = {out}[1]")
            for tag_id in b.tags_of(node):
                with code.block(f"if {tag} == {tag_id!r}:"):
                    b.emit(node, side, tag_id)
        with code.block("else:"):
            b.emit(node, out)


def _process(b: ChainBuilder, node: StreamNode, op: ops.ProcessOp, v: str, index: int) -> None:
    function = b.bind_function(node, op.function, "process_element", "process")
    _emit_results(b, node, f"{function}({v}, {b.code.bind(ElementContext(), 'ctx')})")


def _keyed_process(
    b: ChainBuilder, node: StreamNode, op: ops.KeyedProcessOp, v: str, index: int
) -> None:
    context = b.code.bind(b.key_context(node, KeyedElementContext), "ctx")
    emit_current_key(b, node, op.key, v, context)
    function = b.bind_function(node, op.function, "process_element", "process")
    _emit_results(b, node, f"{function}({v}, {context})")


def _co_map(b: ChainBuilder, node: StreamNode, op: ops.CoMapOp, v: str, index: int) -> None:
    _enter_key(b, node, op, v, index)
    out = b.code.fresh()
    b.code.line(f"{out} = {b.bind_function(node, op.function, f'map{index + 1}', 'map')}({v})")
    with b.code.block(f"if {out} is not None:"):
        b.emit(node, out)


def _co_flat_map(
    b: ChainBuilder, node: StreamNode, op: ops.CoFlatMapOp, v: str, index: int
) -> None:
    _enter_key(b, node, op, v, index)
    results, out = b.code.fresh("r"), b.code.fresh()
    function = b.bind_function(node, op.function, f"flat_map{index + 1}", "flat_map")
    b.code.line(f"{results} = {function}({v})")
    with b.code.block(f"if {results} is not None:"), b.each(f"for {out} in {results}:"):
        b.emit(node, out)


def _co_process(b: ChainBuilder, node: StreamNode, op: ops.CoProcessOp, v: str, index: int) -> None:
    function = b.bind_function(node, op.function, f"process_element{index + 1}", "process")
    _emit_results(b, node, f"{function}({v}, {b.code.bind(ElementContext(), 'ctx')})")


def _keyed_co_process(
    b: ChainBuilder, node: StreamNode, op: ops.KeyedCoProcessOp, v: str, index: int
) -> None:
    context = b.code.bind(b.key_context(node, KeyedElementContext), "ctx")
    emit_current_key(b, node, op.input_keys[index], v, context)
    function = b.bind_function(node, op.function, f"process_element{index + 1}", "process")
    _emit_results(b, node, f"{function}({v}, {context})")


def _broadcast_process(
    b: ChainBuilder, node: StreamNode, op: ops.BroadcastProcessOp, v: str, index: int
) -> None:
    """Input 0 is the data, input 1 the broadcast side, which has no key."""
    states = b.operator_states(node)
    keys: KeyContext | None = None
    if op.key is not None:
        context = b.key_context(node, KeyedReadOnlySideContext)
        assert isinstance(context, KeyedReadOnlySideContext)
        context.attach(states)
        keys = context
    if index == 0:
        reading = keys if keys is not None else ReadOnlySideContext(states)
        ctx = b.code.bind(reading, "ctx")
        if op.key is not None:
            emit_current_key(b, node, op.key, v, ctx)
        function = b.bind_function(node, op.function, "process_element", "process")
    else:
        writing = BroadcastSideContext(states, b.keyed_states(node, keys), keys)
        ctx = b.code.bind(writing, "ctx")
        if keys is not None:
            b.code.line(f"{b.code.bind(keys.leave, 'leave')}()")
        function = b.bind_function(node, op.function, "process_broadcast_element", "process")
    _emit_results(b, node, f"{function}({v}, {ctx})")


class FlushHook:
    """Tells a `SinkFunction` that an epoch ends."""

    def __init__(self, function: SinkFunction) -> None:
        self._function = function

    def begin(self, context: WriterContext) -> None:
        """Nothing to prepare."""

    def prepare_commit(self) -> bytes | None:
        """Flush; nothing to commit."""
        self._function.flush()
        return None


def _sink_function(
    b: ChainBuilder, node: StreamNode, op: ops.SinkFunctionOp, v: str, index: int
) -> None:
    invoke = b.bind_function(node, op.function, "invoke", "invoke")
    b.code.line(f"{invoke}({v}, {b.code.bind(SinkFunction.Context(), 'ctx')})")
    if isinstance(op.function, SinkFunction):
        b.sink_hooks[node.id] = FlushHook(op.function)


class WriterHook:
    """Gives generated code the epoch's writer of a `Sink`."""

    __slots__ = ("_sink", "_writer", "write")

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._writer: SinkWriter | None = None
        self.write: Callable[[Any], None] | None = None

    def begin(self, context: WriterContext) -> None:
        """A new epoch: a new writer."""
        self._writer = self._sink.create_writer(context)
        self.write = self._writer.write

    def prepare_commit(self) -> bytes | None:
        """What the driver has to commit."""
        assert self._writer is not None
        committable: bytes | None = self._writer.prepare_commit()
        self._writer = None
        return committable

    def abort(self) -> None:
        """The attempt failed."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.abort()
            except Exception:
                # What made the attempt fail must not be hidden by this.
                _log.warning("a sink's writer could not be aborted", exc_info=True)


def _sink(b: ChainBuilder, node: StreamNode, op: ops.SinkOp, v: str, index: int) -> None:
    hook = WriterHook(op.sink)
    b.sink_hooks[node.id] = hook
    b.code.line(f"{b.code.bind(hook, 'sink')}.write({v})")


def _print(b: ChainBuilder, node: StreamNode, op: ops.PrintOp, v: str, index: int) -> None:
    number = f"{b.subtask + 1}" if node.parallelism > 1 else ""
    prefix = ":".join(part for part in (op.identifier or "", number) if part)
    start = f"{prefix}> " if prefix else ""

    def line(value: Any) -> str:
        return start + (format_row(value) if isinstance(value, Row) else format_value(value))

    b.append(b.client_writer(node), 0, f"{b.code.bind(line, 'line')}({v})")


def _collect(b: ChainBuilder, node: StreamNode, op: ops.CollectOp, v: str, index: int) -> None:
    b.append(b.client_writer(node), 0, v)


_COMPILERS: dict[type, Callable[..., None]] = {
    ops.MapOp: _map,
    ops.ProjectOp: _project,
    ops.FlatMapOp: _flat_map,
    ops.FilterOp: _filter,
    ops.ProcessOp: _process,
    ops.KeyedProcessOp: _keyed_process,
    ops.ReduceOp: compile_reduce,
    ops.RollingOp: compile_rolling,
    ops.CoMapOp: _co_map,
    ops.CoFlatMapOp: _co_flat_map,
    ops.CoProcessOp: _co_process,
    ops.KeyedCoProcessOp: _keyed_co_process,
    ops.BroadcastProcessOp: _broadcast_process,
    ops.SinkFunctionOp: _sink_function,
    ops.SinkOp: _sink,
    ops.PrintOp: _print,
    ops.CollectOp: _collect,
}
