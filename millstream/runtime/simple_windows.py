"""What the windows have in common whose end alone says when they fire (`aligned_windows.py`, `session_windows.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.common.windows import TimeWindow
from millstream.graph.operators import WindowOp
from millstream.runtime import clock
from millstream.runtime.clock import MAX_TIME, NO_TIME
from millstream.runtime.keyed_state import KeyContext
from millstream.runtime.keys import original_key
from millstream.runtime.window_calls import Incremental

__all__ = ["SimpleWindows"]

Apply = Callable[[Any, list[Any]], Iterable[Any] | None]


class SimpleWindows:
    """One subtask's windows: where results and late records go, and how the window function is called."""

    def __init__(
        self,
        op: WindowOp,
        keys: KeyContext,
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

    def now(self) -> int:
        """Processing time."""
        return clock.now()

    def _late(self, value: Any, timestamp: int) -> None:
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
            for one in results:
                self._emit(one, min(end - 1, MAX_TIME))
