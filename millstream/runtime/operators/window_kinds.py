"""Which implementation serves which windows: panes of all keys, sessions of each, or the one that serves all."""

from __future__ import annotations

from millstream.api.triggers import EventTimeTrigger
from millstream.api.window_assigners import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.api.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from millstream.graph.operators import WindowOp
from millstream.runtime.base.recognize import never_returns

__all__ = ["keeps_panes", "keeps_sessions"]

_SESSIONS = (EventTimeSessionWindows, DynamicEventTimeSessionWindows)
_DEFAULT_CLEAR = {ProcessWindowFunction.clear, ProcessAllWindowFunction.clear}


def keeps_panes(op: WindowOp, *, share_panes: bool) -> bool:
    """True of windows whose values stand in panes of all keys."""
    if not _is_simple(op):
        return False
    return type(op.assigner) is TumblingEventTimeWindows or (
        # Flink never calls `merge` for windows that do not merge, so programs leave it empty.
        type(op.assigner) is SlidingEventTimeWindows
        and share_panes
        and op.kind == "aggregate"
        and not never_returns(op.incremental.merge)
    )


def keeps_sessions(op: WindowOp) -> bool:
    """True of sessions that are kept as a list for each key."""
    return type(op.assigner) in _SESSIONS and _is_simple(op)


def _is_simple(op: WindowOp) -> bool:
    """True if the end of a window alone says when it fires, and it has one value."""
    clear = getattr(type(op.function), "clear", None)
    return (
        type(op.trigger) is EventTimeTrigger
        and op.evictor is None
        and op.kind in ("reduce", "aggregate")
        and (clear is None or clear in _DEFAULT_CLEAR)
    )
