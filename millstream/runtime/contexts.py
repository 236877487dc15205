"""The context objects that process functions receive. One per operator, reused for every record."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from millstream.common.broadcast_functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from millstream.common.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    TimerService,
    unkeyed_timers,
)
from millstream.common.state import MapStateDescriptor, StateDescriptor
from millstream.errors import NotSupportedYet, UnsupportedOperation
from millstream.runtime.keyed_state import KeyContext, KeyedStates
from millstream.runtime.keys import original_key
from millstream.runtime.operator_state import OperatorStates, ReadOnlyView

__all__ = [
    "BroadcastSideContext",
    "ElementContext",
    "KeyedElementContext",
    "KeyedReadOnlySideContext",
    "ReadOnlySideContext",
]

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

    def __init__(self) -> None:
        self._timers: TimerService = _ReadOnlyTime()

    def timer_service(self) -> TimerService:
        return self._timers

    def timestamp(self) -> int | None:
        return None


class KeyedElementContext(KeyContext, ElementContext, KeyedCoProcessFunction.Context):
    """For functions with a key; generated code sets `key` and `canon` before each call."""

    def __init__(self) -> None:
        KeyContext.__init__(self)
        self._timers = _NoTimersYet()

    def get_current_key(self) -> Any:
        return self.key


class _BroadcastTime(BaseBroadcastProcessFunction.BaseContext):
    def __init__(self) -> None:
        self._time = _ReadOnlyTime()

    def timestamp(self) -> int | None:
        return None

    def current_processing_time(self) -> int:
        return self._time.current_processing_time()

    def current_watermark(self) -> int:
        return self._time.current_watermark()


class BroadcastSideContext(
    _BroadcastTime, BroadcastProcessFunction.Context, KeyedBroadcastProcessFunction.Context
):
    """For `process_broadcast_element`: broadcast state to read and write, no key, but all keys at once."""

    def __init__(self, states: OperatorStates, keyed: KeyedStates, keys: KeyContext | None) -> None:
        super().__init__()
        self._states = states
        self._keyed = keyed
        self._keys = keys

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        return self._states.get_broadcast_state(state_descriptor)

    def apply_to_keyed_state(
        self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
    ) -> None:
        if self._keys is None:
            msg = "apply_to_keyed_state needs a keyed stream on the other side"
            raise UnsupportedOperation(msg, hint="connect a keyed stream with the broadcast stream")
        state = self._keyed.get(state_descriptor, state_descriptor.kind)
        keys = self._keys
        try:
            for canon in self._keyed.keys_of(state_descriptor):
                keys.canon = canon
                keys.key = original_key(canon)
                function(keys.key, state)
        finally:
            keys.leave()


class ReadOnlySideContext(_BroadcastTime, BroadcastProcessFunction.ReadOnlyContext):
    """For `process_element` beside a broadcast stream."""

    def __init__(self, states: OperatorStates) -> None:
        super().__init__()
        self._states = states
        self._views: dict[str, ReadOnlyView] = {}

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        view = self._views.get(state_descriptor.name)
        if view is None:
            view = ReadOnlyView(self._states.get_broadcast_state(state_descriptor))
            self._views[state_descriptor.name] = view
        return view


class KeyedReadOnlySideContext(
    KeyContext, ReadOnlySideContext, KeyedBroadcastProcessFunction.ReadOnlyContext
):
    """For the keyed side beside a broadcast stream."""

    def __init__(self) -> None:
        KeyContext.__init__(self)
        _BroadcastTime.__init__(self)
        self._timers = _NoTimersYet()

    def attach(self, states: OperatorStates) -> None:
        """Say where broadcast state is."""
        self._states = states
        self._views = {}

    def timer_service(self) -> TimerService:
        return self._timers

    def get_current_key(self) -> Any:
        return self.key
