"""`WindowAssigner`: says which windows a record belongs to (Flink's `WindowAssigner`).

The ready-made ones are in `api/window_assigners.py`. One assigner object serves all keys of an operator, so what it
has to remember about a key it keeps in keyed state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from millstream.api.functions import RuntimeContext
from millstream.api.trigger import Trigger
from millstream.api.windows import Window

__all__ = ["MergingWindowAssigner", "WindowAssigner"]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class WindowAssigner(ABC, Generic[T, W]):
    """Puts each record into any number of windows.

    >>> from millstream.api.triggers import EventTimeTrigger
    >>> from millstream.api.windows import TimeWindow
    >>> class OneSecond(WindowAssigner):
    ...     def assign_windows(self, element, timestamp, context):
    ...         start = timestamp - timestamp % 1000
    ...         return [TimeWindow(start, start + 1000)]
    ...
    ...     def get_default_trigger(self, env):
    ...         return EventTimeTrigger.create()
    ...
    ...     def is_event_time(self):
    ...         return True
    >>> OneSecond().assign_windows("a", 1234, None)
    [TimeWindow(start=1000, end=2000)]
    """

    class WindowAssignerContext(ABC):
        """What an assigner may ask."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The wall clock, in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """The subtask, and keyed state of the record's key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[W]:
        """The windows of a record; `timestamp` is -2^63 if it has none."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """The trigger of windows for which the program sets none; `env` is the program's environment."""

    def get_window_serializer(self) -> Any:
        """Not needed: windows travel as they are. Here so that programs written for PyFlink keep theirs."""
        return None

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by watermark rather than by wall clock or count; only such ones know lateness."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may grow together, as sessions do."""

    class MergeCallback(ABC):
        """Where `merge_windows` says which windows become one."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
            """The windows `to_be_merged` become the one that is `merge_result`."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback) -> None:
        """Find out which of the windows are to be merged, and tell the callback for each group."""
