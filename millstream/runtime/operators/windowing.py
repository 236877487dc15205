"""Window operators in generated code: which implementation serves which program, and how results come back.

```
for v1, t2 in records:
    k3 = v1[0]
    keys_4.key = k3
    keys_4.canon = k3
    window_5(v1, t2)


def result_6(value, t):  # called by the operator for each result
    ...
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.api.checkpointed import KeyedStateStore
from millstream.api.functions import Function
from millstream.api.triggers import EventTimeTrigger
from millstream.api.window_assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.api.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from millstream.checkpoint.statefile import table_name
from millstream.graph.operators import WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.clock import NO_TIME
from millstream.runtime.base.recognize import never_returns
from millstream.runtime.codegen.exchange import emit_canonical, emit_current_key
from millstream.runtime.codegen.outlet import (
    EmitResults,
    Outlet,
    outlets,
)
from millstream.runtime.state.codec import codec_for
from millstream.runtime.state.journal import NotedDict
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.panes import Panes, PanesOnDisk, PaneTable
from millstream.runtime.state.table import MISSING
from millstream.runtime.time.timers import InternalTimers
from millstream.runtime.windows.aligned import AlignedWindows
from millstream.runtime.windows.calls import caller
from millstream.runtime.windows.change import CONTENTS, SESSIONS, Former, panes_name
from millstream.runtime.windows.contexts import NamedStates, NoWindowState, WindowContext
from millstream.runtime.windows.kept import KeptWindows
from millstream.runtime.windows.operator import WindowOperator
from millstream.runtime.windows.sessions import SessionWindows
from millstream.runtime.windows.typed_accumulator import with_fitted_accumulators

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder

__all__ = [
    "compile_window",
    "general_operator",
]


def compile_window(
    b: ChainBuilder, node: StreamNode, op: WindowOp, v: str, emit_result: EmitResults
) -> None:
    """Lines for a record that goes into windows; `emit_result` writes those for one result."""
    op = with_fitted_accumulators(op, node)
    result, late = outlets(b, node, op, emit_result)
    if not _simple(op):
        _compile_any(b, node, op, v, result, late)
    elif type(op.assigner) in _SESSIONS:
        _compile_sessions(b, node, op, v, result, late)
    elif type(op.assigner) is TumblingEventTimeWindows or (
        # Flink never calls `merge` for windows that do not merge, so programs leave it empty.
        b.share_panes and op.kind == "aggregate" and not never_returns(op.incremental.merge)
    ):
        _compile_aligned(b, node, op, v, result, late)
    else:
        _compile_any(b, node, op, v, result, late)


_ALIGNED = (TumblingEventTimeWindows, SlidingEventTimeWindows)
_SESSIONS = (EventTimeSessionWindows, DynamicEventTimeSessionWindows)
_DEFAULT_CLEAR = {ProcessWindowFunction.clear, ProcessAllWindowFunction.clear}


def _simple(op: WindowOp) -> bool:
    """True if the windows are of a kind whose end alone says when they fire, with one value per window."""
    clear = getattr(type(op.function), "clear", None)
    return (
        type(op.assigner) in (*_ALIGNED, *_SESSIONS)
        and type(op.trigger) is EventTimeTrigger
        and op.evictor is None
        and op.kind in ("reduce", "aggregate")
        and (clear is None or clear in _DEFAULT_CLEAR)
    )


def _compile_any(
    b: ChainBuilder, node: StreamNode, op: WindowOp, v: str, result: Outlet, late: Outlet | None
) -> None:
    operator = general_operator(b, node, op, result, late)
    emit_current_key(b, node, op.key, v, b.code.bind(b.key_context(node), "keys"))
    b.code.line(f"{b.code.bind(operator.process, 'window')}({v}, {b.stamp()})")


def general_operator(
    b: ChainBuilder, node: StreamNode, op: WindowOp, result: Outlet, late: Outlet | None
) -> WindowOperator:
    """The operator for any window, with its timers and functions."""
    keys = b.key_context(node)
    timers = InternalTimers(keys, lambda table: b.table(node, table))
    operator = WindowOperator(
        op,
        node.name,
        node.uid,
        keys,
        b.store,
        timers,
        b.keyed_states(node, keys),
        b.context(node),
        result,
        late,
    )
    timers.on_event_time = operator.on_event_time
    timers.on_processing_time = operator.on_processing_time
    b.fires(node, timers)
    b.late[node.id] = operator
    b.adopts.append((node.uid, operator))
    for function in operator.functions:
        b.opens(node, function)
    return operator


class _Functions:
    """The window function of a simple operator, and the state it may use."""

    def __init__(self, b: ChainBuilder, node: StreamNode, op: WindowOp) -> None:
        self._builder, self._node = b, node
        self.keys = b.key_context(node)
        self.apply: Callable[[Any, list[Any]], Any] | None = None
        self._scope = KeyContext()
        self._context: WindowContext | None = None
        for function in (op.incremental, op.function):
            if isinstance(function, Function):
                b.opens(node, function)
        if op.function is not None:
            scoped = KeyedStates(b.store, node.uid, node.name, self._scope)
            windows: KeyedStateStore = (
                NoWindowState(node.name)
                if type(op.assigner) in _SESSIONS
                else NamedStates(scoped, "window:")
            )
            states = NamedStates(b.keyed_states(node, self.keys))
            self._context = WindowContext(None, windows, states)
            self.apply = caller(op, self._context, self.keys)

    def belong_to(self, operator: AlignedWindows | SessionWindows) -> None:
        """The operator that calls the function: the chain and the function follow its watermark."""
        b, node = self._builder, self._node
        b.adopts.append((node.uid, operator))
        b.follows(node, operator)
        b.late[node.id] = operator
        if self._context is not None:
            self._context.timers = operator

    def enter(self, window: Any) -> None:
        """The function is called for a window of the current key."""
        assert self._context is not None
        self._context.current = window
        self._scope.key = self.keys.key
        self._scope.canon = self.keys.canon, (window.start, window.end)


def _former(
    b: ChainBuilder, node: StreamNode, op: WindowOp, layout: str
) -> tuple[Former, KeptWindows]:
    """The windows that a former program has left open."""
    former = Former(b.store, node.uid, node.name, op, layout)
    codec = codec_for(op.accumulator_type)
    return former, KeptWindows(b.store.table(table_name(node.uid, CONTENTS), "value", codec))


def _compile_sessions(
    b: ChainBuilder, node: StreamNode, op: WindowOp, v: str, result: Outlet, late: Outlet | None
) -> None:
    functions = _Functions(b, node, op)
    table = b.table(node, SESSIONS)
    former, kept = _former(b, node, op, "sessions")
    operator = SessionWindows(
        op, functions.keys, table, former, kept, result, late, functions.apply, functions.enter
    )
    functions.belong_to(operator)
    canon = emit_canonical(b, node, op.key, v)
    b.at(node, v)
    code, t = b.code, b.stamp()
    slow = f"{code.bind(operator.process, 'session')}({v}, {t}, {canon})"
    if operator.gap is None or not b.stamped:
        code.line(slow)
        return
    # Nearly always the key has one session, which this epoch has met before, and it goes on.
    end, found, sessions = code.fresh("e"), code.fresh("s"), code.bind(operator, "sessions")
    add = code.bind(operator.add, "add")
    code.line(f"{end} = {t} + {operator.gap}")
    code.line(f"{found} = {code.bind(table.changes.get, 'changed')}({canon})")
    with code.block(f"if type({found}) is list and len({found}) == 1:"):
        code.line(f"{found} = {found}[0]")
        # What comes before the session's start is looked at slowly, and with it what has no timestamp (rule 9).
        with code.block(f"if {found}[0] <= {t} <= {found}[1] > {sessions}.over:"):
            code.line(f"{found}[2] = {add}({v}, {found}[2])")
            with code.block(f"if {end} > {found}[1]:"):
                code.line(f"{found}[1] = {end}")
        with code.block("else:"):
            code.line(slow)
    with code.block("else:"):
        code.line(slow)


def _compile_aligned(
    b: ChainBuilder, node: StreamNode, op: WindowOp, v: str, result: Outlet, late: Outlet | None
) -> None:
    code = b.code
    functions = _Functions(b, node, op)
    table = b.pane_table(node, panes_name(op), op.accumulator_type)
    panes: Panes
    if isinstance(table, PaneTable):
        panes = table
    else:
        on_disk = PanesOnDisk(table)
        if node.id in b.journals:
            on_disk.changes = NotedDict(b.journals[node.id], {})
        # At the end of an epoch its changes go into the table.
        b.store.expiring.append(on_disk)
        panes = on_disk
    former, kept = _former(b, node, op, "panes")
    operator = AlignedWindows(
        op, functions.keys, panes, former, kept, result, late, functions.apply, functions.enter
    )
    functions.belong_to(operator)

    canon = emit_canonical(b, node, op.key, v)
    b.at(node, v)
    t, pane, found, so_far = b.stamp(), code.fresh("p"), code.fresh("w"), code.fresh("s")
    windows, missing = code.bind(operator, "windows"), code.bind(MISSING, "MISSING")
    time = f"({t} - {operator.offset})" if operator.offset else t
    if operator.cut:
        into = code.fresh("i")
        code.line(f"{into} = {time} % {operator.slide}")
        code.line(f"{pane} = {t} - {into}")
        with code.block(f"if {into} >= {operator.cut}:"):
            # Between windows that do not touch there is no pane: what is not after "no time" is looked at slowly.
            gap = operator.size < operator.slide
            code.line(f"{pane} = {NO_TIME}" if gap else f"{pane} += {operator.cut}")
    else:
        code.line(f"{pane} = {t} - {time} % {operator.slide}")
    with code.block(f"if {pane} < {windows}.fired:"):
        code.line(f"{code.bind(operator.slow, 'slow')}({v}, {t}, {canon})")
    with code.block("else:"):
        look = f"{found} = {code.bind(operator.changes.get, 'pane')}({pane})"
        new = f"{found} = {code.bind(operator.open_pane, 'open_pane')}({pane})"
        if node.id in b.journals:
            # What a failed record has done to panes is undone, by other panes in their places.
            code.line(look)
            with code.block(f"if {found} is None:"):
                code.line(new)
        else:
            # Mostly the pane of the record before: one that has not been read is the same throughout a buffer.
            last = code.fresh("q")
            code.prepare(f"{last} = {found} = None")
            with code.block(f"if {pane} != {last}:"):
                code.line(look)
                with code.block(f"if {found} is None:"):
                    code.line(new)
                code.line(f"{last} = {pane}")
        code.line(f"{so_far} = {found}.get({canon}, {missing})")
        with code.block(f"if {so_far} is {missing}:"):
            code.line(f"{so_far} = {code.bind(operator.before, 'before')}({pane}, {canon})")
        if op.kind == "aggregate":
            add = code.bind(operator.add, "add")
            code.line(f"{found}[{canon}] = {add}({v}, {so_far})")
        else:
            reduce = code.bind(operator.reduce, "reduce")
            code.line(
                f"{found}[{canon}] = {v} if {so_far} is {missing} else {reduce}({so_far}, {v})"
            )
