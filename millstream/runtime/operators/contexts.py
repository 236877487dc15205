"""The context objects that process functions receive. One per operator, reused for every record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.api.broadcast_functions import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from millstream.api.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    TimerService,
    unkeyed_timers,
)
from millstream.api.state import MapStateDescriptor, StateDescriptor
from millstream.api.time_domain import TimeDomain
from millstream.common.constants import NO_TIME
from millstream.errors import UnsupportedOperation
from millstream.runtime.base import clock
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.operator_state import OperatorStates, ReadOnlyView
from millstream.runtime.time.timers import KeyedTimerService
from millstream.runtime.wire.keys import original_key

__all__ = [
    "BroadcastSideContext",
    "ElementContext",
    "KeyedElementContext",
    "KeyedReadOnlySideContext",
    "ReadOnlySideContext",
]


class ReadOnlyTime(TimerService):
    """Time for functions without a key: to read, not to wait for (rule 16)."""

    def __init__(self) -> None:
        self.watermark = NO_TIME

    def current_processing_time(self) -> int:
        return clock.now()

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("register_processing_time_timer")

    def register_event_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("register_event_time_timer")

    def delete_processing_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("delete_processing_time_timer")

    def delete_event_time_timer(self, timestamp: int) -> None:
        raise unkeyed_timers("delete_event_time_timer")


class ElementContext(CoProcessFunction.Context):
    """For functions without a key; generated code sets `time` before each call, where records have timestamps."""

    def __init__(self) -> None:
        self.timers: ReadOnlyTime | KeyedTimerService = ReadOnlyTime()
        self.time = NO_TIME

    def timer_service(self) -> TimerService:
        return self.timers

    def timestamp(self) -> int | None:
        return None if self.time == NO_TIME else self.time


class KeyedElementContext(KeyContext, ElementContext, KeyedCoProcessFunction.OnTimerContext):
    """For functions with a key. Generated code sets `key` and `canon` before each record; when a timer fires, the
    timers set them (`time/timers.py`), and `KeyedFunctionUnit` sets `time` and `domain`."""

    def __init__(self) -> None:
        KeyContext.__init__(self)
        self.timers = KeyedTimerService(self)
        self.time = NO_TIME
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> Any:
        return self.key

    def time_domain(self) -> TimeDomain:
        return self.domain


class _BroadcastTime(BaseBroadcastProcessFunction.BaseContext):
    def __init__(self) -> None:
        self.timers: ReadOnlyTime | KeyedTimerService = ReadOnlyTime()
        self.time = NO_TIME

    def timestamp(self) -> int | None:
        return None if self.time == NO_TIME else self.time

    def current_processing_time(self) -> int:
        return self.timers.current_processing_time()

    def current_watermark(self) -> int:
        return self.timers.current_watermark()


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
        return self._states.broadcast_state(state_descriptor)

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
            view = ReadOnlyView(self._states.broadcast_state(state_descriptor))
            self._views[state_descriptor.name] = view
        return view


class KeyedReadOnlySideContext(
    KeyContext, ReadOnlySideContext, KeyedBroadcastProcessFunction.OnTimerContext
):
    """For the keyed side beside a broadcast stream."""

    def __init__(self) -> None:
        KeyContext.__init__(self)
        self.timers = KeyedTimerService(self)
        self.time = NO_TIME
        self.domain = TimeDomain.EVENT_TIME

    def attach(self, states: OperatorStates) -> None:
        """Say where broadcast state is."""
        self._states = states
        self._views = {}

    def timer_service(self) -> TimerService:
        return self.timers

    def get_current_key(self) -> Any:
        return self.key

    def time_domain(self) -> TimeDomain:
        return self.domain
