"""Each operator's lines of generated code. One function per operator class of `millstream.graph.operators`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.api.functions import Function, SinkFunction
from millstream.api.output_tag import OutputTag
from millstream.api.sink import Sink, SinkWriter, WriterContext
from millstream.api.time_domain import TimeDomain
from millstream.common.types import Row, format_row, format_value
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.graph.time import uses_timers
from millstream.graph.transformations import line_of
from millstream.redaction import get_logger
from millstream.runtime.base.clock import MAX_TIME, NO_TIME
from millstream.runtime.base.recognize import pair_of, timestamp_subscript_of
from millstream.runtime.codegen.bad_records import is_guarded
from millstream.runtime.codegen.exchange import emit_current_key
from millstream.runtime.operators.aggregate import compile_reduce, compile_rolling
from millstream.runtime.operators.async_lines import compile_async
from millstream.runtime.operators.contexts import (
    BroadcastSideContext,
    ElementContext,
    KeyedElementContext,
    KeyedReadOnlySideContext,
    ReadOnlySideContext,
)
from millstream.runtime.operators.feedback import FeedbackWriter
from millstream.runtime.operators.guard import compile_guarded
from millstream.runtime.operators.joining import compile_interval_join, compile_window_join
from millstream.runtime.operators.windowing import compile_window
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.time.timers import InternalTimers, checked_time
from millstream.runtime.time.watermarks import WatermarkStage

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder

__all__ = ["compile_operator", "compile_source"]

_log = get_logger(__name__)


def compile_operator(builder: ChainBuilder, node: StreamNode, variable: str, index: int) -> None:
    """Write the lines of `node` for a record of input number `index` that is in `variable`."""
    builder.at(node, variable)

    def own() -> None:
        _COMPILERS[type(node.operator)](builder, node, node.operator, variable, index)

    if is_guarded(node):
        compile_guarded(builder, node, node.error_policy, variable, own)
    else:
        own()


def _enter_key(b: ChainBuilder, node: StreamNode, op: ops.Operator, v: str, index: int) -> None:
    """A function object on a keyed stream may have keyed state, so it gets a current key; a lambda may not."""
    if op.keys and isinstance(op.user_function, Function):
        context = b.code.bind(b.key_context(node), "keys")
        emit_current_key(b, node, op.keys[index], v, context)


def _map(b: ChainBuilder, node: StreamNode, op: ops.MapOp, v: str, index: int) -> None:
    _enter_key(b, node, op, v, index)
    out = b.code.fresh()
    pair = pair_of(op.function, v)
    if pair is not None:
        b.code.line(f"{out} = {pair}")
    else:
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
    with (
        code.block(f"if {results} is not None:"),
        b.each(f"for {out} in {results}:"),
    ):
        _emit_result(b, node, out)


def _emit_result(b: ChainBuilder, node: StreamNode, out: str) -> None:
    code = b.code
    tag_class = code.bind(OutputTag, "OutputTag")
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


def _async(b: ChainBuilder, node: StreamNode, op: ops.AsyncOp, v: str, index: int) -> None:
    compile_async(b, node, op, v, _emit_result)


def _window(b: ChainBuilder, node: StreamNode, op: ops.WindowOp, v: str, index: int) -> None:
    compile_window(b, node, op, v, _emit_result)


def _window_join(
    b: ChainBuilder, node: StreamNode, op: ops.WindowJoinOp, v: str, index: int
) -> None:
    compile_window_join(b, node, op, v, index, _emit_result)


def _interval_join(
    b: ChainBuilder, node: StreamNode, op: ops.IntervalJoinOp, v: str, index: int
) -> None:
    compile_interval_join(b, node, op, v, index, _emit_result)


def _process(b: ChainBuilder, node: StreamNode, op: ops.ProcessOp, v: str, index: int) -> None:
    function = b.bind_function(node, op.function, "process_element", "process")
    _emit_results(b, node, f"{function}({v}, {_element_context(b, node)})")


def _element_context(b: ChainBuilder, node: StreamNode) -> str:
    """The context of a function without a key, with the time of the record at hand."""
    context = ElementContext()
    b.reads_time(node, context.timers)
    name = b.code.bind(context, "ctx")
    _enter_time(b, name)
    return name


def _enter_time(b: ChainBuilder, context: str) -> None:
    if b.stamped:
        b.code.line(f"{context}.time = {b.stamp()}")


def _keyed_process(
    b: ChainBuilder, node: StreamNode, op: ops.KeyedProcessOp, v: str, index: int
) -> None:
    context = _keyed_context(b, node, op, KeyedElementContext)
    emit_current_key(b, node, op.key, v, context)
    _enter_time(b, context)
    function = b.bind_function(node, op.function, "process_element", "process")
    _emit_results(b, node, f"{function}({v}, {context})")


def _keyed_context(b: ChainBuilder, node: StreamNode, op: Any, make: type[KeyContext]) -> str:
    """The context of a keyed function, with timers if it says what to do when one fires."""
    first = node.id not in b.key_contexts
    context: Any = b.key_context(node, make)
    name = b.code.bind(context, "ctx")
    if not first:
        return name
    if not uses_timers(op):
        b.reads_time(node, context.timers)
        return name
    timers = InternalTimers(context, lambda table: b.table(node, table))
    context.timers.attach(timers)
    b.fires(node, timers)
    on_timer = b.bind_function(node, op.function, "on_timer", "on_timer")

    def attach(fire: Callable[..., None]) -> None:
        def event(timestamp: int, namespace: Any) -> None:
            context.time, context.domain = timestamp, TimeDomain.EVENT_TIME
            fire(timestamp, timestamp)

        def processing(timestamp: int, namespace: Any) -> None:
            # Rule 14: what a timer of the clock gives has no timestamp.
            context.time, context.domain = timestamp, TimeDomain.PROCESSING_TIME
            fire(timestamp, NO_TIME)

        timers.on_event_time, timers.on_processing_time = event, processing

    before = b.code.location
    with b.entry("fire_", "timestamp, t", attach):
        b.at(node, "timestamp", "timer")
        _emit_results(b, node, f"{on_timer}(timestamp, {name})")
    b.code.location = before
    return name


def compile_source(b: ChainBuilder, node: StreamNode, v: str) -> None:
    """Lines for a record that a source has read."""
    strategy = getattr(node.operator, "strategy", None)
    if strategy is None and b.stamped:
        # The source's own timestamps and watermarks.
        strategy = WatermarkStrategy.no_watermarks()
    if strategy is None:
        b.emit(node, v)
    else:
        _compile_stage(b, node, strategy, v)


def _assign(b: ChainBuilder, node: StreamNode, op: ops.AssignOp, v: str, index: int) -> None:
    _compile_stage(b, node, op.strategy, v)


def _compile_stage(b: ChainBuilder, node: StreamNode, strategy: WatermarkStrategy, v: str) -> None:
    """The record's timestamp; then the largest so far, or the user's generator, which emits at the record's exact
    place (rule 1)."""
    code = b.code
    if b.batch:
        # Rule 60: timestamps, but no watermarks.
        strategy = replace(
            strategy, kind="none", generator_supplier=None, idle_timeout_ms=None, alignment=None
        )
    stage = b.stages.setdefault(node.id, WatermarkStage(strategy, node.name))
    name, t = code.bind(stage, "stage"), code.fresh("t")
    follows = strategy.kind in ("monotonous", "bounded")
    if strategy.timestamp_assigner is not None:
        method = strategy.timestamp_assigner.extract_timestamp
        field = timestamp_subscript_of(method)
        # What is inlined has no frame of its own that an error could show.
        b.at(node, v, "timestamp", None if field is None else line_of(method))
        if field is None:
            code.line(f"{t} = {code.bind(method, 'timestamp')}({v}, {b.stamp()})")
        else:
            code.line(f"{t} = {v}[{field!r}]")
        check = f"{t} = {code.bind(_timestamp, 'checked')}({t})"
        with code.block(f"if type({t}) is not int:"):
            code.line(check)
        if follows:
            # A timestamp that is not the largest is compared with the least there can be, any other with the largest.
            with code.block(f"if {t} > {name}.max:"):
                with code.block(f"if {t} > {MAX_TIME}:"):
                    code.line(check)
                code.line(f"{name}.max = {t}")
            with code.block(f"elif {t} < {NO_TIME}:"):
                code.line(check)
        else:
            with code.block(f"if not {NO_TIME} <= {t} <= {MAX_TIME}:"):
                code.line(check)
        b.at(node, v)
    else:
        code.line(f"{t} = {b.stamp()}")
        if follows:
            with code.block(f"if {t} > {name}.max:"):
                code.line(f"{name}.max = {t}")
    if strategy.idle_timeout_ms is not None or strategy.kind == "generator":
        with code.block(f"if {name}.quiet:"):
            code.line(f"{name}.heard()")
    with b.stamped_by(t if strategy.stamps or b.stamped else ""):
        b.emit(node, v)
    if stage.generator is not None:
        b.at(node, v, "watermark")
        code.line(f"{name}.generator.on_event({v}, {t}, {name})")


def _timestamp(value: Any) -> int:
    return checked_time(value, "extract_timestamp")


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
    _emit_results(b, node, f"{function}({v}, {_element_context(b, node)})")


def _keyed_co_process(
    b: ChainBuilder, node: StreamNode, op: ops.KeyedCoProcessOp, v: str, index: int
) -> None:
    context = _keyed_context(b, node, op, KeyedElementContext)
    emit_current_key(b, node, op.input_keys[index], v, context)
    _enter_time(b, context)
    function = b.bind_function(node, op.function, f"process_element{index + 1}", "process")
    _emit_results(b, node, f"{function}({v}, {context})")


def _broadcast_process(
    b: ChainBuilder, node: StreamNode, op: ops.BroadcastProcessOp, v: str, index: int
) -> None:
    """Input 0 is the data, input 1 the broadcast side, which has no key."""
    states = b.operator_states(node)
    for descriptor in op.states:
        # Now, so that a restore can tell whether what was written is still asked for, and as what.
        states.get_broadcast_state(descriptor)
    keys: KeyContext | None = None
    ctx = ""
    if op.key is not None:
        ctx = _keyed_context(b, node, op, KeyedReadOnlySideContext)
        context = b.key_context(node)
        assert isinstance(context, KeyedReadOnlySideContext)
        context.attach(states)
        keys = context
    if index == 0:
        if op.key is not None:
            emit_current_key(b, node, op.key, v, ctx)
        else:
            reading = ReadOnlySideContext(states)
            b.reads_time(node, reading.timers)
            ctx = b.code.bind(reading, "ctx")
        function = b.bind_function(node, op.function, "process_element", "process")
    else:
        writing = BroadcastSideContext(states, b.keyed_states(node, keys), keys)
        b.reads_time(node, writing.timers)
        ctx = b.code.bind(writing, "ctx")
        if keys is not None:
            b.code.line(f"{b.code.bind(keys.leave, 'leave')}()")
        function = b.bind_function(node, op.function, "process_broadcast_element", "process")
    _enter_time(b, ctx)
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

    def abort(self) -> None:
        """What a `SinkFunction` has written cannot be taken back."""


def _sink_function(
    b: ChainBuilder, node: StreamNode, op: ops.SinkFunctionOp, v: str, index: int
) -> None:
    invoke = b.bind_function(node, op.function, "invoke", "invoke")
    context = b.code.bind(SinkFunction.Context(), "ctx")
    if b.stamped:
        b.code.line(f"{context}._timestamp = None if {b.stamp()} == {NO_TIME} else {b.stamp()}")
    b.code.line(f"{invoke}({v}, {context})")
    if isinstance(op.function, SinkFunction):
        b.sink_hooks[node.id] = FlushHook(op.function)


class WriterHook:
    """Gives generated code the epoch's writer of a `Sink`."""

    __slots__ = ("_sink", "_writer", "write")

    def __init__(self, sink: Sink) -> None:
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
        committable = self._writer.prepare_commit()
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


def _feedback(b: ChainBuilder, node: StreamNode, op: ops.FeedbackOp, v: str, index: int) -> None:
    writer = b.sink_hooks.get(node.id)
    if writer is None:
        writer = FeedbackWriter(b.store.storage, node.uid, stamped=b.stamped)
        b.sink_hooks[node.id] = writer
    assert isinstance(writer, FeedbackWriter)
    b.code.line(f"{b.code.bind(writer.write, 'feed_back')}({v}, {b.stamp()})")


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
    ops.AssignOp: _assign,
    ops.AsyncOp: _async,
    ops.MapOp: _map,
    ops.ProjectOp: _project,
    ops.FlatMapOp: _flat_map,
    ops.FilterOp: _filter,
    ops.ProcessOp: _process,
    ops.KeyedProcessOp: _keyed_process,
    ops.ReduceOp: compile_reduce,
    ops.WindowOp: _window,
    ops.WindowJoinOp: _window_join,
    ops.IntervalJoinOp: _interval_join,
    ops.RollingOp: compile_rolling,
    ops.CoMapOp: _co_map,
    ops.CoFlatMapOp: _co_flat_map,
    ops.CoProcessOp: _co_process,
    ops.KeyedCoProcessOp: _keyed_co_process,
    ops.BroadcastProcessOp: _broadcast_process,
    ops.SinkFunctionOp: _sink_function,
    ops.SinkOp: _sink,
    ops.FeedbackOp: _feedback,
    ops.PrintOp: _print,
    ops.CollectOp: _collect,
}
