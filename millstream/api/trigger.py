"""`Trigger`: says when the result of a window is due (Flink's `Trigger`).

A trigger object serves all keys and windows of an operator, so it keeps nothing in itself: what it has to
remember it keeps in the window's own state, which the context gives. The ready-made ones are in `api/triggers.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from millstream.api.metrics import MetricGroup
from millstream.api.state import StateDescriptor
from millstream.api.windows import Window
from millstream.errors import UnsupportedOperation
from millstream.v import keep, kept

__all__ = ["QuietTrigger", "Trigger", "TriggerResult"]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TriggerResult(Enum):
    """What is to happen with a window: nothing, its result emitted, its contents dropped, or both.

    >>> TriggerResult.FIRE.is_fire(), TriggerResult.FIRE.is_purge()
    (True, False)
    """

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def __init__(self, fire: bool, purge: bool) -> None:
        # Plain attributes, as `value` is a slow property and this is asked for every record.
        self._fire = fire
        self._purge = purge

    def is_fire(self) -> bool:
        """Whether the window's result is emitted."""
        return self._fire

    def is_purge(self) -> bool:
        """Whether the window's contents are dropped; what the trigger itself remembers stays."""
        return self._purge


@kept
def _result(name: str) -> TriggerResult:
    return TriggerResult[name]


keep(TriggerResult, lambda result: (result.name,), _result)


class Trigger(ABC, Generic[T, W]):
    """Asked for every record of a window and for every timer that it has set.

    >>> class EveryEnd(Trigger):
    ...     "Fires when a record says that it is the last one."
    ...
    ...     def on_element(self, element, timestamp, window, ctx):
    ...         last = element == "end"
    ...         return TriggerResult.FIRE_AND_PURGE if last else TriggerResult.CONTINUE
    ...
    ...     def on_event_time(self, time, window, ctx):
    ...         return TriggerResult.CONTINUE
    ...
    ...     def on_processing_time(self, time, window, ctx):
    ...         return TriggerResult.CONTINUE
    ...
    ...     def clear(self, window, ctx):
    ...         pass
    >>> EveryEnd().on_element("end", 0, None, None)
    <TriggerResult.FIRE_AND_PURGE: (True, True)>
    """

    class TriggerContext(ABC):
        """Time, timers and state, of the key and the window at hand."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The wall clock, in milliseconds."""

        def get_metric_group(self) -> MetricGroup:
            """Where a trigger may count things: the metrics of its operator."""
            raise UnsupportedOperation("this context has no metrics")

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The operator's watermark."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` when the wall clock reaches the time."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` when the watermark reaches the time."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Forget a timer; unknown ones are ignored."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Forget a timer; unknown ones are ignored."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """State of the key and window at hand, apart from all other state of the job."""

    class OnMergeContext(TriggerContext):
        """As `TriggerContext`, for the window that others have been merged into."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge the state of a descriptor, of all merged windows, into the state of the result."""

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: TriggerContext
    ) -> TriggerResult:
        """Called for every record, after it was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when a processing-time timer of the window is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult:
        """Called when an event-time timer of the window is due."""

    def can_merge(self) -> bool:
        """Whether the trigger can follow when windows merge, as sessions do; then it needs `on_merge` as well."""
        return False

    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Called when windows have been merged into `window`: merge their state, set the timers anew."""
        msg = f"{type(self).__name__} cannot follow when windows merge"
        hint = "write on_merge, and let can_merge return True"
        raise UnsupportedOperation(msg, window=repr(window), hint=hint)

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """Called when the window is removed: clear the trigger's state, delete its timers."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class QuietTrigger(Trigger[Any, Any]):
    """Says "continue" to everything; the ready-made ones change only what they answer to."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: Any, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Any, ctx: Trigger.TriggerContext) -> None:
        return
