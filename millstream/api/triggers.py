"""The ready-made triggers (Flink's `api.windowing.triggers`), with those that fire again and again
from `api/continuous_triggers.py`.

All of them keep what they remember in the window's state and follow Flink's Java versions in what they do when
windows merge.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from millstream.api.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from millstream.api.functions import Function
from millstream.api.state import ReducingStateDescriptor, StateType, ValueStateDescriptor
from millstream.api.trigger import QuietTrigger, Trigger, TriggerResult
from millstream.common.typeinfo import Types
from millstream.errors import InvalidArgument

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaFunction",
    "DeltaTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "as_delta",
]

_CONTINUE = TriggerResult.CONTINUE
_FIRE = TriggerResult.FIRE

Context = Trigger.TriggerContext
MergeContext = Trigger.OnMergeContext


class NeverTrigger(QuietTrigger):
    """Never fires; what `GlobalWindows` has unless another one is set."""

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """Windows that merge leave nothing to do."""


class EventTimeTrigger(QuietTrigger):
    """Fires once the watermark has passed the end of the window, and then again for every record that is late
    but still allowed.

    >>> EventTimeTrigger.create()
    EventTimeTrigger()
    """

    @staticmethod
    def create() -> EventTimeTrigger:
        """A trigger by event time."""
        return EventTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """Fire for a late record; else wait for the end of the window."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return _FIRE
        ctx.register_event_time_timer(end)
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Context) -> TriggerResult:
        """Fire at the end of the window, not at its cleanup."""
        return _FIRE if time == window.max_timestamp() else _CONTINUE

    def can_merge(self) -> bool:
        """Yes: windows with this trigger may merge."""
        return True

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """Wait for the end of the new window; if it has passed, the record at hand will fire it."""
        end = window.max_timestamp()
        if end > ctx.get_current_watermark():
            ctx.register_event_time_timer(end)

    def clear(self, window: Any, ctx: Context) -> None:
        """Do not wait for the window's end any more."""
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(QuietTrigger):
    """Fires when the wall clock has passed the end of the window.

    >>> ProcessingTimeTrigger.create()
    ProcessingTimeTrigger()
    """

    @staticmethod
    def create() -> ProcessingTimeTrigger:
        """A trigger by the clock."""
        return ProcessingTimeTrigger()

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """Wait for the end of the window."""
        ctx.register_processing_time_timer(window.max_timestamp())
        return _CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Context) -> TriggerResult:
        """Fire: the window has ended."""
        return _FIRE

    def can_merge(self) -> bool:
        """Yes: windows with this trigger may merge."""
        return True

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """Wait for the end of the new window; if it has passed, the record at hand will set the timer."""
        end = window.max_timestamp()
        if end > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(end)

    def clear(self, window: Any, ctx: Context) -> None:
        """Do not wait for the window's end any more."""
        ctx.delete_processing_time_timer(window.max_timestamp())


class CountTrigger(QuietTrigger):
    """Fires at every so many records of a window, and counts anew; the records stay in the window.

    >>> CountTrigger.of(3)
    CountTrigger(3)
    """

    def __init__(self, window_size: int) -> None:
        if not isinstance(window_size, int) or isinstance(window_size, bool) or window_size < 1:
            msg = "CountTrigger needs a number of records of 1 or more"
            raise InvalidArgument(msg, got=repr(window_size))
        self.max_count = window_size
        self._count = ReducingStateDescriptor("count", operator.add, Types.LONG())

    @staticmethod
    def of(window_size: int) -> CountTrigger:
        """The trigger for every so many records."""
        return CountTrigger(window_size)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """Count; fire when there are enough."""
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        if count.get() < self.max_count:
            return _CONTINUE
        count.clear()
        return _FIRE

    def can_merge(self) -> bool:
        """Yes: windows with this trigger may merge."""
        return True

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """The counts are added up; the record at hand will fire if there are enough."""
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Any, ctx: Context) -> None:
        """Forget the count of records."""
        ctx.get_partitioned_state(self._count).clear()

    def __repr__(self) -> str:
        return f"CountTrigger({self.max_count})"


class PurgingTrigger(Trigger[Any, Any]):
    """Another trigger, but whenever it fires the contents of the window are dropped.

    >>> PurgingTrigger.of(CountTrigger.of(3))
    PurgingTrigger(CountTrigger(3))
    """

    def __init__(self, nested_trigger: Trigger[Any, Any]) -> None:
        if not isinstance(nested_trigger, Trigger):
            msg = "PurgingTrigger needs the trigger that it wraps"
            raise InvalidArgument(msg, got=repr(nested_trigger)[:200])
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger:
        """The trigger around another one."""
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """As the inner trigger, and purge if that fires."""
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_processing_time(self, time: int, window: Any, ctx: Context) -> TriggerResult:
        """As the inner trigger, and purge if that fires."""
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def on_event_time(self, time: int, window: Any, ctx: Context) -> TriggerResult:
        """As the inner trigger, and purge if that fires."""
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def can_merge(self) -> bool:
        """As the inner trigger."""
        return self.nested_trigger.can_merge()

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """As the inner trigger."""
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: Any, ctx: Context) -> None:
        """As the inner trigger."""
        self.nested_trigger.clear(window, ctx)

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.nested_trigger!r})"


def _purging(result: TriggerResult) -> TriggerResult:
    # The very object of the enumeration, so anything else passes on and is reported as what it is.
    return TriggerResult.FIRE_AND_PURGE if result is _FIRE else result


class DeltaFunction(Function):
    """How far apart two records are, for `DeltaTrigger` and `DeltaEvictor` (Flink's `DeltaFunction`)."""

    @abstractmethod
    def get_delta(self, old_data_point: Any, new_data_point: Any) -> float:
        """The distance from the old one to the new one."""


class DeltaTrigger(QuietTrigger):
    """Fires when a record is further than a threshold from the one that fired last, at first from the first one.

    It is Java's; the function is a `DeltaFunction` or a callable of two records.

    >>> DeltaTrigger.of(10, lambda old, new: new - old)
    DeltaTrigger(10)
    """

    def __init__(
        self,
        threshold: float,
        delta_function: DeltaFunction | Callable[[Any, Any], float],
        state_type: StateType = None,
    ) -> None:
        self.threshold = threshold
        self.delta_function = delta_function
        self._delta = as_delta("DeltaTrigger", delta_function)
        self._last = ValueStateDescriptor("last-element", state_type)

    @staticmethod
    def of(
        threshold: float,
        delta_function: DeltaFunction | Callable[[Any, Any], float],
        state_type: StateType = None,
    ) -> DeltaTrigger:
        """The trigger; with a type of the records, the one it keeps is stored under that type."""
        return DeltaTrigger(threshold, delta_function, state_type)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """Compare with the record that fired last."""
        state = ctx.get_partitioned_state(self._last)
        last = state.value()
        if last is None:
            state.update(element)
            return _CONTINUE
        if self._delta(last, element) > self.threshold:
            state.update(element)
            return _FIRE
        return _CONTINUE

    def clear(self, window: Any, ctx: Context) -> None:
        """Forget the record that fired last."""
        ctx.get_partitioned_state(self._last).clear()

    def __repr__(self) -> str:
        return f"DeltaTrigger({self.threshold})"


def as_delta(owner: str, function: Any) -> Callable[[Any, Any], Any]:
    """The function of two records, taken out of a `DeltaFunction` if it is one."""
    if isinstance(function, DeltaFunction):
        return function.get_delta
    if callable(function) and not isinstance(function, type):
        call: Callable[[Any, Any], Any] = function
        return call
    raise InvalidArgument(
        f"{owner} needs a DeltaFunction or a callable of two records",
        got=repr(function)[:200],
        hint="pass a function such as lambda old, new: new - old",
    )
