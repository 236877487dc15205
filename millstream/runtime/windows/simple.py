"""What the windows have in common whose end alone says when they fire (`aligned.py`, `sessions.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from millstream.api.windows import TimeWindow
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.graph.operators import WindowOp
from millstream.runtime.base import clock
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.windows.calls import Incremental
from millstream.runtime.windows.change import Former, OpenWindow
from millstream.runtime.windows.kept import KeptWindows
from millstream.runtime.wire.keys import original_key

__all__ = ["SimpleWindows"]

Apply = Callable[[Any, list[Any]], Iterable[Any] | None]


class SimpleWindows:
    """One subtask's windows: where results and late records go, and how the window function is called."""

    def __init__(
        self,
        op: WindowOp,
        keys: KeyContext,
        former: Former,
        kept: KeptWindows,
        emit: Callable[[Any, int], None],
        emit_late: Callable[[Any, int], None] | None,
        apply: Apply | None,
        enter: Callable[[Any], None],
    ) -> None:
        self._assigner = op.assigner
        self._lateness = op.lateness
        self._keys = keys
        self._emit = emit
        self._emit_late = emit_late
        self._apply = apply
        self._enter = enter
        self.dropped_late = 0
        function = Incremental(op.incremental)
        self.add, self.reduce, self.fresh = function.add, function.reduce, function.fresh
        self._first, self._merge, self._result = function.first, function.merge, function.result
        self._watermark = NO_TIME
        self._former = former
        # What a former program has left that this one's windows are not.
        self._kept = kept

    def now(self) -> int:
        """The time of the clock, in milliseconds."""
        return clock.now()

    def late(self, value: Any, timestamp: int) -> None:
        """None of a record's windows is there any more. That alone does not make it late (rule 20)."""
        if min(timestamp + self._lateness, MAX_TIME) > self._watermark:
            return
        if self._emit_late is None:
            self.dropped_late += 1
        else:
            self._emit_late(value, timestamp)

    def _call(self, start: int, end: int, key: Any, value: Any) -> None:
        """Hand a window's value to its function; every result carries the window's last timestamp (rule 22)."""
        assert self._apply is not None
        keys, window = self._keys, TimeWindow(start, end)
        keys.canon, keys.key = key, original_key(key)
        self._enter(window)
        results = self._apply(window, [value])
        if results is not None:
            emit, last = self._emit, window.max_timestamp()
            for result in results:
                emit(result, last)

    # -- windows of a former program --------------------------------------------------------------------------

    def _open_windows(self, states: Mapping[str, Any], mine: str = "") -> list[OpenWindow]:
        """The windows of a former program that are open and not over, taken out of the state."""
        before, watermark = self._former.changed(states), self._watermark
        if before is None:
            return []
        self._former.drop_timers()
        return [
            window
            for window in self._former.take(before, watermark, mine)
            if window.end - 1 + self._lateness > watermark != MAX_TIME
        ]

    def _fire_kept(self, end: int, apart_from: int | None = None) -> None:
        """Fire the windows with this end; but not those that begin at a certain time."""
        at = min(end - 1, MAX_TIME)
        for key, start in self._kept.ending(end):
            if start == apart_from:
                continue
            value = self._result(self._kept.get(key, start, end))
            if self._apply is None:
                self._emit(value, at)
            else:
                self._call(start, end, key, value)
