"""Triggers that fire again and again while a window is open (Flink's `ContinuousEventTimeTrigger` and
`ContinuousProcessingTimeTrigger`)."""

from __future__ import annotations

from typing import Any

from millstream.api.state import ReducingStateDescriptor
from millstream.api.trigger import QuietTrigger, Trigger, TriggerResult
from millstream.api.windows import Window
from millstream.common.constants import MAX_TIME
from millstream.common.time import DurationLike, parse_duration
from millstream.common.typeinfo import Types
from millstream.errors import InvalidArgument

__all__ = ["ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger"]

_CONTINUE = TriggerResult.CONTINUE
_FIRE = TriggerResult.FIRE

Context = Trigger.TriggerContext
MergeContext = Trigger.OnMergeContext


class _Continuous(QuietTrigger):
    """What both continuous triggers share: the next time to fire, kept in state.

    The state is the smallest one of several, so that merged windows go on with the next that was due in any.
    """

    def __init__(self, interval: DurationLike) -> None:
        self.interval = parse_duration(interval)
        if self.interval <= 0:
            msg = f"the interval of a {type(self).__name__} must be more than 0"
            raise InvalidArgument(msg, got=repr(interval))
        self._next = ReducingStateDescriptor("fire-time", min, Types.LONG())

    def can_merge(self) -> bool:
        """Yes: windows with this trigger may merge."""
        return True

    def _boundary(self, time: int) -> int:
        """The last multiple of the interval at or before a time."""
        return time - time % self.interval

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.interval})"


class ContinuousEventTimeTrigger(_Continuous):
    """Fires whenever the watermark passes a multiple of the interval, and at the end of the window.

    >>> ContinuousEventTimeTrigger.of("10 s")
    ContinuousEventTimeTrigger(10000)
    """

    @staticmethod
    def of(interval: DurationLike) -> ContinuousEventTimeTrigger:
        """The trigger with this interval."""
        return ContinuousEventTimeTrigger(interval)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """Fire for a late record; else wait for the end of the window and for the next boundary."""
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return _FIRE
        ctx.register_event_time_timer(end)
        state = ctx.get_partitioned_state(self._next)
        if state.get() is None:
            self._wait(self._boundary(timestamp), end, state, ctx)
        return _CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Context) -> TriggerResult:
        """Fire at the end, and at a boundary, which is followed by the next one."""
        end = window.max_timestamp()
        if time == end:
            return _FIRE
        state = ctx.get_partitioned_state(self._next)
        if state.get() != time:
            return _CONTINUE
        state.clear()
        # At the end of all input a window without an end would have boundaries for ever.
        if end != MAX_TIME or ctx.get_current_watermark() != MAX_TIME:
            self._wait(time, end, state, ctx)
        return _FIRE

    def _wait(self, boundary: int, end: int, state: Any, ctx: Context) -> None:
        time = min(boundary + self.interval, end)
        state.add(time)
        ctx.register_event_time_timer(time)

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """Go on with the earliest boundary that any of the windows waited for."""
        ctx.merge_partitioned_state(self._next)
        time = ctx.get_partitioned_state(self._next).get()
        if time is not None:
            ctx.register_event_time_timer(time)

    def clear(self, window: Any, ctx: Context) -> None:
        """Do not wait for the next boundary any more."""
        ctx.delete_event_time_timer(window.max_timestamp())
        state = ctx.get_partitioned_state(self._next)
        time = state.get()
        if time is not None:
            ctx.delete_event_time_timer(time)
            state.clear()


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires whenever the wall clock passes a multiple of the interval, and at the end of the window.

    >>> ContinuousProcessingTimeTrigger.of("10 s")
    ContinuousProcessingTimeTrigger(10000)
    """

    @staticmethod
    def of(interval: DurationLike) -> ContinuousProcessingTimeTrigger:
        """The trigger with this interval."""
        return ContinuousProcessingTimeTrigger(interval)

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Context) -> TriggerResult:
        """Wait for the next boundary."""
        state = ctx.get_partitioned_state(self._next)
        if state.get() is None:
            boundary = self._boundary(ctx.get_current_processing_time())
            self._wait(boundary, window, state, ctx)
        return _CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Context) -> TriggerResult:
        """Fire at a boundary, and wait for the next one."""
        state = ctx.get_partitioned_state(self._next)
        if state.get() != time:
            return _CONTINUE
        state.clear()
        if time < window.max_timestamp():
            self._wait(time, window, state, ctx)
        return _FIRE

    def _wait(self, boundary: int, window: Window, state: Any, ctx: Context) -> None:
        time = min(boundary + self.interval, window.max_timestamp())
        state.add(time)
        ctx.register_processing_time_timer(time)

    def on_merge(self, window: Any, ctx: MergeContext) -> None:
        """Go on with the earliest boundary that any of the windows waited for."""
        ctx.merge_partitioned_state(self._next)
        time = ctx.get_partitioned_state(self._next).get()
        if time is not None:
            ctx.register_processing_time_timer(time)

    def clear(self, window: Any, ctx: Context) -> None:
        """Do not wait for the next boundary any more."""
        state = ctx.get_partitioned_state(self._next)
        time = state.get()
        if time is not None:
            ctx.delete_processing_time_timer(time)
            state.clear()
