"""Window operators in generated code: which implementation serves which program, and how results come back.

```
for record, timestamp in records:
    key = record[0]
    keys_1.key = key
    keys_1.canon = key
    window_1(record, timestamp)


def result_1(result, timestamp2):  # called by the operator for each result
    ...
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from millstream.api.checkpointed import KeyedStateStore
from millstream.api.functions import Function, RuntimeContext
from millstream.checkpoint.statefile import table_name
from millstream.common.constants import NO_TIME
from millstream.graph.operators import WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.keys import emit_canonical, emit_current_key
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.unit import TimedUnit
from millstream.runtime.columns.payload import KeyedRows, Partials
from millstream.runtime.operators.window_columns import adds_columns
from millstream.runtime.operators.window_kinds import keeps_panes, keeps_sessions
from millstream.runtime.state.codec import codec_for
from millstream.runtime.state.journal import NotedDict
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates, WithoutState
from millstream.runtime.state.panes import Panes, PanesOnDisk, PaneTable
from millstream.runtime.state.table import MISSING
from millstream.runtime.windows.aligned import AlignedWindows
from millstream.runtime.windows.calls import caller
from millstream.runtime.windows.change import CONTENTS, SESSIONS, Former, panes_name
from millstream.runtime.windows.contexts import FiringContext, NamedStates, NoWindowState
from millstream.runtime.windows.from_columns import ColumnsToPanes
from millstream.runtime.windows.kept import KeptWindows
from millstream.runtime.windows.operator import WindowOperator
from millstream.runtime.windows.sessions import SessionWindows
from millstream.runtime.windows.typed_accumulator import with_fitted_accumulators

__all__ = [
    "AlignedWindowUnit",
    "GeneralWindows",
    "SessionWindowUnit",
    "WindowUnit",
    "window_unit",
]

Op = TypeVar("Op", bound=WindowOp)


def window_unit(builder: ChainBuilder, node: StreamNode) -> _Windows[WindowOp]:
    """The unit that serves the windows of a program."""
    op: Any = node.operator
    if keeps_panes(op, share_panes=builder.settings.share_panes):
        return AlignedWindowUnit(builder, node)
    if keeps_sessions(op):
        return SessionWindowUnit(builder, node)
    return WindowUnit(builder, node)


class _Windows(TimedUnit[Op]):
    """What all window operators have: a key, an operator that keeps the windows, results, and late records."""

    operator: WindowOperator | AlignedWindows | SessionWindows

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self.op = with_fitted_accumulators(self.op, node)
        self.current = self.keys = KeyContext()
        self.results = Outlet(self.journal)
        self.late = None if self.op.late_tag is None else Outlet(self.journal)

    def write_entries(self) -> None:
        """For results, and for late records if somebody wants them."""
        self.write_result_entry(self.results)
        if self.late is not None and self.op.late_tag is not None:
            self.write_side_entry("late", self.late, self.op.late_tag)

    def adopt(self, states: Mapping[str, Any]) -> None:
        """Go on with the windows that are open, of which the manifest says how they were kept."""
        self.operator.adopt(states)

    def take_late(self) -> int:
        """The records that no window has taken."""
        count, self.operator.dropped_late = self.operator.dropped_late, 0
        return count

    def context_of(self, function: Function) -> RuntimeContext:
        """The function that adds records to windows has no state of its own, also with one around it."""
        incremental = getattr(self.node.operator, "incremental", None)
        if incremental is not None and getattr(function, "inner", function) is incremental:
            return self.context_with(WithoutState(self.node.name))
        return self.context


class GeneralWindows(_Windows[Op]):
    """Any windows, with any trigger and evictor: everything is the business of the operator."""

    operator: WindowOperator

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        timers = self.has_timers(self.current)
        self.operator = WindowOperator(
            self.op,
            node.name,
            node.uid,
            self.current,
            self.store,
            timers,
            self.keyed_states,
            self.context,
            self.results,
            self.late,
        )
        timers.on_event_time = self.operator.on_event_time
        timers.on_processing_time = self.operator.on_processing_time
        for function in self.operator.functions:
            self.opens(function)

    def enter_key(self, record: str, index: int) -> None:
        """Lines that make the record's key the current one."""
        keys = self.code.bind(self.current, "keys")
        emit_current_key(self.builder, self.node, self.op.keys[index], record, keys)


class WindowUnit(GeneralWindows[WindowOp]):
    """Any windows of one stream."""

    def lines(self, record: str, index: int) -> None:
        """The key, and one call."""
        self.enter_key(record, index)
        window = self.code.bind(self.operator.process, "window")
        self.code.line(f"{window}({record}, {self.builder.stamp()})")


class _SimpleWindows(_Windows[WindowOp]):
    """Windows with one value each, whose end alone says when they fire; their function, and the state it may use."""

    operator: AlignedWindows | SessionWindows

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        op = self.op
        self.apply: Callable[[Any, list[Any]], Any] | None = None
        self._scope = KeyContext()
        self._context: FiringContext | None = None
        for function in (op.incremental, op.function):
            if isinstance(function, Function):
                self.opens(function)
        if op.function is not None:
            scoped = KeyedStates(self.store, node.uid, node.name, self._scope)
            windows: KeyedStateStore = (
                NoWindowState(node.name) if keeps_sessions(op) else NamedStates(scoped, "window:")
            )
            self._context = FiringContext(None, windows, NamedStates(self.keyed_states))
            self.apply = caller(op, self._context, self.current)

    def is_kept_by(self, operator: AlignedWindows | SessionWindows) -> None:
        """The operator that calls the function: the chain and the function follow its watermark."""
        self.operator = operator
        self.follows_time(operator)
        if self._context is not None:
            self._context.timers = operator

    def enter(self, window: Any) -> None:
        """The function is called for a window of the current key."""
        assert self._context is not None
        self._context.current = window
        self._scope.key = self.current.key
        self._scope.canon = self.current.canon, (window.start, window.end)

    def former(self, layout: str) -> tuple[Former, KeptWindows]:
        """The windows that a former program has left open."""
        former = Former(self.store, self.node.uid, self.node.name, self.op, layout)
        codec = codec_for(self.op.accumulator_type)
        name = table_name(self.node.uid, CONTENTS)
        return former, KeptWindows(self.store.table(name, "value", codec))


class SessionWindowUnit(_SimpleWindows):
    """Windows that end when a key has been silent for some time."""

    operator: SessionWindows

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self._sessions = self.table(SESSIONS)
        former, kept = self.former("sessions")
        self.is_kept_by(
            SessionWindows(
                self.op,
                self.current,
                self._sessions,
                former,
                kept,
                self.results,
                self.late,
                self.apply,
                self.enter,
            )
        )

    def lines(self, record: str, index: int) -> None:
        """A session that goes on is changed in place; all else is a call."""
        code, operator, timestamp = self.code, self.operator, self.builder.stamp()
        canon = emit_canonical(self.builder, self.node, self.op.keys[0], record)
        self.at(record)
        slow = f"{code.bind(operator.process, 'other_session')}({record}, {timestamp}, {canon})"
        if operator.gap is None or not self.builder.stamped:
            code.line(slow)
            return
        # Nearly always the key has one session, which this epoch has met before, and it goes on.
        end, session, sessions = code.fresh("end"), code.fresh("session"), code.fresh("sessions")
        windows, add = code.bind(operator, "windows"), code.bind(operator.add, "add")
        changed = code.bind(self._sessions.changes.get, "open_sessions")
        code.line(f"{end} = {timestamp} + {operator.gap}")
        code.line(f"{sessions} = {changed}({canon})")
        with code.block(f"if type({sessions}) is list and len({sessions}) == 1:"):
            code.line(f"{session} = {sessions}[0]")
            # What comes before the session's start is looked at slowly, and with it what has no timestamp (rule 9).
            with code.block(f"if {session}[0] <= {timestamp} <= {session}[1] > {windows}.over:"):
                code.line(f"{session}[2] = {add}({record}, {session}[2])")
                with code.block(f"if {end} > {session}[1]:"):
                    code.line(f"{session}[1] = {end}")
            with code.block("else:"):
                code.line(slow)
        with code.block("else:"):
            code.line(slow)


class AlignedWindowUnit(_SimpleWindows):
    """Tumbling and sliding windows: all keys' windows end together, so values stand in panes of all keys."""

    operator: AlignedWindows

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        panes = self._panes()
        self._columns: ColumnsToPanes | None = None
        former, kept = self.former("panes")
        self.is_kept_by(
            AlignedWindows(
                self.op,
                self.current,
                panes,
                former,
                kept,
                self.results,
                self.late,
                self.apply,
                self.enter,
            )
        )

        if adds_columns(node, share_panes=builder.settings.share_panes):
            self._columns = ColumnsToPanes(self.operator, panes, self.op.incremental)

    def takes_columns(self) -> bool:
        """True if what is to be added is known without calling anything."""
        return self._columns is not None

    def take_columns(self, batch: KeyedRows | Partials) -> bool:
        """Rows by key, or what they come to."""
        assert self._columns is not None
        self._columns.take(batch)
        return True

    def _panes(self) -> Panes:
        uid, name = self.node.uid, panes_name(self.op)
        codec = codec_for(self.op.accumulator_type)
        self.store.register(uid, name, {"kind": "pane", "type": codec.schema, "ttl": False})
        table = self.store.table(table_name(uid, name), "pane", codec)
        if isinstance(table, PaneTable):
            return table
        on_disk = PanesOnDisk(table)
        if self.journal is not None:
            on_disk.changes = NotedDict(self.journal, {})
        # At the end of an epoch its changes go into the table.
        self.store.expiring.append(on_disk)
        return on_disk

    def lines(self, record: str, index: int) -> None:
        """The pane of the record's time, and in it the value of its key."""
        code, operator, timestamp = self.code, self.operator, self.builder.stamp()
        canon = emit_canonical(self.builder, self.node, self.op.keys[0], record)
        self.at(record)
        start = code.fresh("pane_start")
        self._find_start(start, timestamp)
        with code.block(f"if {start} < {code.bind(operator, 'windows')}.fired:"):
            slow = code.bind(operator.slow, "late_or_again")
            code.line(f"{slow}({record}, {timestamp}, {canon})")
        with code.block("else:"):
            pane = self._find_pane(start)
            so_far, missing = code.fresh("so_far"), code.bind(MISSING, "MISSING")
            code.line(f"{so_far} = {pane}.get({canon}, {missing})")
            with code.block(f"if {so_far} is {missing}:"):
                code.line(f"{so_far} = {code.bind(operator.before, 'old_value')}({start}, {canon})")
            if self.op.kind == "aggregate":
                add = code.bind(operator.add, "add")
                code.line(f"{pane}[{canon}] = {add}({record}, {so_far})")
            else:
                reduced = f"{code.bind(operator.reduce, 'reduce')}({so_far}, {record})"
                code.line(f"{pane}[{canon}] = {record} if {so_far} is {missing} else {reduced}")

    def _find_start(self, start: str, timestamp: str) -> None:
        code, operator = self.code, self.operator
        time = f"({timestamp} - {operator.offset})" if operator.offset else timestamp
        if not operator.cut:
            code.line(f"{start} = {timestamp} - {time} % {operator.slide}")
            return
        into = code.fresh("into")
        code.line(f"{into} = {time} % {operator.slide}")
        code.line(f"{start} = {timestamp} - {into}")
        with code.block(f"if {into} >= {operator.cut}:"):
            # Between windows that do not touch there is no pane: what is not after "no time" is looked at slowly.
            gap = operator.size < operator.slide
            code.line(f"{start} = {NO_TIME}" if gap else f"{start} += {operator.cut}")

    def _find_pane(self, start: str) -> str:
        code, operator = self.code, self.operator
        pane = code.fresh("pane")
        look = f"{pane} = {code.bind(operator.changes.get, 'new_pane')}({start})"
        new = f"{pane} = {code.bind(operator.open_pane, 'open_pane')}({start})"
        if self.journal is not None:
            # What a failed record has done to panes is undone, by other panes in their places.
            code.line(look)
            with code.block(f"if {pane} is None:"):
                code.line(new)
            return pane
        # Mostly the pane of the record before: one that has not been read is the same throughout a buffer.
        last = code.fresh("last_start")
        code.prepare(f"{last} = {pane} = None")
        with code.block(f"if {start} != {last}:"):
            code.line(look)
            with code.block(f"if {pane} is None:"):
                code.line(new)
            code.line(f"{last} = {start}")
        return pane
