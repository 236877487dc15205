"""The context objects that process functions receive. One per operator, reused for every record."""

from __future__ import annotations

import time
from typing import Any

from millstream.common.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    TimerService,
    unkeyed_timers,
)
from millstream.errors import NotSupportedYet

__all__ = ["ElementContext", "KeyedElementContext"]

_MIN_WATERMARK = -(1 << 63)


class _ReadOnlyTime(TimerService):
    """Time for functions without a key: to read, not to wait for (rule 16)."""

    def current_processing_time(self) -> int:
        return time.time_ns() // 1_000_000

    def current_watermark(self) -> int:
        return _MIN_WATERMARK

    def register_processing_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("register_processing_time_timer")

    def register_event_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("register_event_time_timer")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("delete_processing_time_timer")

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("delete_event_time_timer")


class _NoTimersYet(_ReadOnlyTime):
    """Keyed functions may have timers, once they exist."""

    def register_processing_time_timer(self, timestamp: int) -> None:
        raise _no_timers("register_processing_time_timer")

    def register_event_time_timer(self, timestamp: int) -> None:
        raise _no_timers("register_event_time_timer")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        raise _no_timers("delete_processing_time_timer")

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise _no_timers("delete_event_time_timer")


def _no_timers(call: str) -> NotSupportedYet:
    msg = f"TimerService.{call} is not available yet"
    return NotSupportedYet(msg, hint="keep to process_element without timers for now")


class ElementContext(CoProcessFunction.Context):
    """For functions without a key."""

    __slots__ = ("_timers",)

    def __init__(self) -> None:
        self._timers: TimerService = _ReadOnlyTime()

    def timer_service(self) -> TimerService:
        return self._timers

    def timestamp(self) -> int | None:
        return None


class KeyedElementContext(ElementContext, KeyedCoProcessFunction.Context):
    """For functions with a key; generated code sets `key` before each call."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        super().__init__()
        self._timers = _NoTimersYet()
        self.key: Any = None

    def get_current_key(self) -> Any:
        return self.key
