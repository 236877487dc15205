"""Windows that do not end by time: those of a number of records, and the one of all records (Flink's `GlobalWindows`,
PyFlink's `CountTumblingWindowAssigner` and `CountSlidingWindowAssigner`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from millstream.api.state import ValueStateDescriptor
from millstream.api.trigger import Trigger
from millstream.api.triggers import CountTrigger, NeverTrigger, PurgingTrigger
from millstream.api.window_assigner import WindowAssigner
from millstream.api.window_bases import positive_number
from millstream.api.windows import CountWindow, GlobalWindow
from millstream.common.typeinfo import Types

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "GlobalWindows",
    "count_windows",
]

Context = WindowAssigner.WindowAssignerContext


class GlobalWindows(WindowAssigner[Any, GlobalWindow]):
    """One window for all records of a key. It fires only if a trigger is set, and never ends.

    >>> GlobalWindows.create().assign_windows("a", 0, None)
    [GlobalWindow]
    """

    NeverTrigger = NeverTrigger

    @staticmethod
    def create() -> GlobalWindows:
        """An assigner of the one global window."""
        return GlobalWindows()

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[GlobalWindow]:
        """The one window that there is."""
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """A trigger that never fires."""
        return NeverTrigger()

    def is_event_time(self) -> bool:
        """No: the window has no end."""
        return False


class _Counting(WindowAssigner[Any, CountWindow]):
    """Windows by count; how many records a key has had is kept in state."""

    _seen = ValueStateDescriptor("window-assigner-count", Types.LONG())

    def __init__(self, window_size: int) -> None:
        self.size = positive_number(self, "window_size", window_size)

    def _next(self, context: Context) -> int:
        """The number of this record of its key, from 0."""
        state = context.get_runtime_context().get_state(self._seen)
        number: int = state.value() or 0
        state.update(number + 1)
        return number

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fires when the window is full. It gets no more records then, so its contents are dropped."""
        return PurgingTrigger.of(CountTrigger.of(self.size))

    def is_event_time(self) -> bool:
        """No: windows end by count."""
        return False


class CountTumblingWindowAssigner(_Counting):
    """Windows of so many records of a key, one after the other; the last one fires only if it is full.

    >>> CountTumblingWindowAssigner.of(3)
    CountTumblingWindowAssigner(3)
    """

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        """Windows of so many records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[CountWindow]:
        """The one window that is being filled."""
        return [CountWindow(self._next(context) // self.size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size})"


class CountSlidingWindowAssigner(_Counting):
    """Windows of so many records of a key, a new one after every `slide` records; only full ones fire.

    >>> CountSlidingWindowAssigner.of(10, 5)
    CountSlidingWindowAssigner(10, 5)
    """

    def __init__(self, window_size: int, window_slide: int) -> None:
        super().__init__(window_size)
        self.slide = positive_number(self, "window_slide", window_slide)

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        """Windows of so many records, a new one after every so many."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: Context
    ) -> Collection[CountWindow]:
        """All windows that are being filled, the latest one first; none, if the slide leaves gaps between them."""
        number = self._next(context)
        latest = number // self.slide
        # Window i holds the records from i * slide on; the earliest that has this one starts after number - size.
        earliest = max(0, (number - self.size) // self.slide + 1)
        return [CountWindow(i) for i in range(latest, earliest - 1, -1)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide})"


def count_windows(size: int, slide: int = 0) -> WindowAssigner[Any, Any]:
    """The assigner of `count_window`; a slide of 0 means that windows do not overlap.

    >>> count_windows(3), count_windows(3, 1)
    (CountTumblingWindowAssigner(3), CountSlidingWindowAssigner(3, 1))
    """
    if slide == 0:
        return CountTumblingWindowAssigner.of(size)
    return CountSlidingWindowAssigner.of(size, slide)
