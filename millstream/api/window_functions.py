"""The functions that make a window's result (Flink's `WindowFunction`, `ProcessWindowFunction` and their kin).

Each is called when the window fires, with all its records, or with the one result of a reduce or aggregate
function that ran before it. They return or yield any number of values; None means none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic

from millstream.api.checkpointed import KeyedStateStore
from millstream.api.functions import Function
from millstream.api.generics import W2, W
from millstream.api.generics import K as KEY
from millstream.api.generics import T as IN
from millstream.api.generics import U as OUT

__all__ = [
    "AllWindowFunction",
    "KeyedStateStore",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "WindowFunction",
]


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes the result of one window of one key.

    >>> class Count(WindowFunction):
    ...     def apply(self, key, window, inputs):
    ...         return [(key, len(list(inputs)))]
    >>> Count().apply("a", None, [1, 2, 3])
    [('a', 3)]
    """

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """The results of the window."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes the result of one window of a stream without keys.

    >>> class Count(AllWindowFunction):
    ...     def apply(self, window, inputs):
    ...         return [len(list(inputs))]
    >>> Count().apply(None, [1, 2, 3])
    [3]
    """

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """The results of the window."""


class WindowContext(ABC, Generic[W2]):
    """What a process function of a window may ask."""

    @abstractmethod
    def window(self) -> W2:
        """The window that has fired."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The wall clock, in milliseconds."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's watermark."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """State of this key and this window: over several firings, until `clear`. Not for windows that merge."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """State of this key, over all its windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Makes the result of one window of one key, and may ask for time and state.

    >>> class Count(ProcessWindowFunction):
    ...     def process(self, key, context, elements):
    ...         yield key, context.window().start, len(list(elements))
    >>> from unittest.mock import Mock
    >>> from millstream.api.windows import TimeWindow
    >>> context = Mock(window=lambda: TimeWindow(0, 10))
    >>> list(Count().process("a", context, [1, 2, 3]))
    [('a', 0, 3)]
    """

    class Context(WindowContext[W2]):
        """What `process` and `clear` may ask."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """The results of the window."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """Called when the window is removed: clear what was kept in `window_state`."""
        return


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Makes the result of one window of a stream without keys, and may ask for time and state.

    >>> class Count(ProcessAllWindowFunction):
    ...     def process(self, context, elements):
    ...         yield len(list(elements))
    >>> list(Count().process(None, [1, 2, 3]))
    [3]
    """

    class Context(WindowContext[W2]):
        """What `process` and `clear` may ask."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """The results of the window."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """Called when the window is removed: clear what was kept in `window_state`."""
        return
