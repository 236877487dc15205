"""Process functions over a stream and a broadcast stream (Flink's `BroadcastProcessFunction`).

Every subtask gets all records of the broadcast side and keeps them in broadcast state, which only
that side may change. Records may reach subtasks in different orders, so what a subtask keeps must
not depend on the order, or subtasks will disagree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from millstream.api.functions import Function, TimerService
from millstream.api.state import (
    BroadcastState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    StateDescriptor,
)

__all__ = [
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "KeyedBroadcastProcessFunction",
]


class BaseBroadcastProcessFunction(Function):
    """What both kinds of broadcast functions share."""

    class BaseContext(ABC):
        """What either side may ask."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The record's timestamp, or None if it has none."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The wall clock, in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The operator's event-time watermark."""

    class Context(BaseContext):
        """What the broadcast side may ask."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]:
            """The state, to read and to change."""

    class ReadOnlyContext(BaseContext):
        """What the other side may ask."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]:
            """The state, to read only."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A process function over a stream without keys and a broadcast stream.

    >>> RULES = MapStateDescriptor("rules")
    >>> class Match(BroadcastProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         if value in ctx.get_broadcast_state(RULES):
    ...             yield value
    ...
    ...     def process_broadcast_element(self, value, ctx):
    ...         ctx.get_broadcast_state(RULES).put(value, True)
    >>> from unittest.mock import Mock
    >>> ctx = Mock()
    >>> ctx.get_broadcast_state.return_value = {"red": True}
    >>> list(Match().process_element("red", ctx)), list(Match().process_element("blue", ctx))
    (['red'], [])
    """

    class Context(BaseBroadcastProcessFunction.Context):
        """What `process_broadcast_element` may ask."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What `process_element` may ask."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None:
        """Called for each record of the stream; it may only read broadcast state."""

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: BroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record of the broadcast stream, on every subtask."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """A process function over a keyed stream and a broadcast stream.

    The keyed side has keyed state and timers. The broadcast side has no current key: to reach keyed
    state it calls `apply_to_keyed_state`.

    >>> LIMIT = MapStateDescriptor("limit")
    >>> class Above(KeyedBroadcastProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         if value > (ctx.get_broadcast_state(LIMIT).get("limit") or 0):
    ...             yield ctx.get_current_key(), value
    ...
    ...     def process_broadcast_element(self, value, ctx):
    ...         ctx.get_broadcast_state(LIMIT).put("limit", value)
    >>> from unittest.mock import Mock
    >>> ctx = Mock()
    >>> ctx.get_broadcast_state.return_value = {"limit": 5}
    >>> ctx.get_current_key.return_value = "a"
    >>> list(Above().process_element(4, ctx)), list(Above().process_element(6, ctx))
    ([], [('a', 6)])
    """

    class Context(BaseBroadcastProcessFunction.Context):
        """What `process_broadcast_element` may ask."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, Any], None]
        ) -> None:
            """Call ``function(key, state)`` for every key of this subtask that has a value in the state.

            The keys come in an order that nothing may rely on. PyFlink has no such method.
            """

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What `process_element` may ask."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Time, and timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record at hand."""

    class OnTimerContext(ReadOnlyContext):
        """What `on_timer` may ask."""

        @abstractmethod
        def time_domain(self) -> Any:
            """Event time or processing time."""

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterable[Any] | None:
        """Called for each record of the keyed stream; it may only read broadcast state."""

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record of the broadcast stream, on every subtask; there is no key."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        """Called when a timer fires."""
