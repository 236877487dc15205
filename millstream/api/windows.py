"""Windows: the finite pieces that a stream is cut into (Flink's `Window` and its kinds).

A window says only which piece it is and when it ends. Which windows a record belongs to is said by an
assigner (`api/window_assigner.py`), when a window's result is due by a trigger (`api/trigger.py`).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any, TypeAlias

from millstream.common.constants import MAX_TIME
from millstream.common.serializer import TypeSerializer
from millstream.v import kept

__all__ = [
    "MAX_TIMESTAMP",
    "CountWindow",
    "CountWindowSerializer",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "TimeWindow",
    "TimeWindowSerializer",
    "Window",
]

MAX_TIMESTAMP = MAX_TIME


class Window(ABC):
    """The root. Windows are compared and hashed by what they are, so that equal ones share their contents."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The last timestamp that still belongs to the window; its results carry this one."""


class TimeWindow(Window):
    """The time from `start` (which belongs to it) to `end` (which does not), in milliseconds. Windows are ordered by
    start, then by end.

    >>> TimeWindow(0, 5000).max_timestamp()
    4999
    >>> TimeWindow(0, 5000)
    TimeWindow(start=0, end=5000)
    >>> TimeWindow(0, 5000) < TimeWindow(0, 6000) <= TimeWindow(1, 2)
    True
    """

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def max_timestamp(self) -> int:
        """The last millisecond before the end; of a window that reaches beyond the end of time, that.

        >>> TimeWindow(2**63 - 5, 2**63 + 5).max_timestamp() == 2**63 - 1
        True
        """
        last = self.end - 1
        return last if last < MAX_TIME else MAX_TIME  # noqa: FURB136 - twice as fast

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the two overlap, or touch: a session goes on if the next record comes just at its end.

        >>> TimeWindow(0, 10).intersects(TimeWindow(10, 20))
        True
        >>> TimeWindow(0, 10).intersects(TimeWindow(11, 20))
        False
        """
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both.

        >>> TimeWindow(0, 10).cover(TimeWindow(5, 12))
        TimeWindow(start=0, end=12)
        """
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """The start of the window of this size that a timestamp falls into; before 1970 as well.

        >>> TimeWindow.get_window_start_with_offset(7, 0, 5)
        5
        >>> TimeWindow.get_window_start_with_offset(-1, 0, 5)
        -5
        >>> TimeWindow.get_window_start_with_offset(7, 3, 5)
        3
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergeCall) -> None:
        """Tell `callback`, for each group of several windows that hang together, what they become.

        The callback is a `MergingWindowAssigner.MergeCallback`.

        >>> class Show:
        ...     def merge(self, to_be_merged, merge_result):
        ...         print(len(to_be_merged), "become", merge_result)
        >>> three = [TimeWindow(8, 12), TimeWindow(0, 5), TimeWindow(5, 8), TimeWindow(20, 25)]
        >>> TimeWindow.merge_windows(three, Show())
        3 become TimeWindow(start=0, end=12)
        """
        group: list[TimeWindow] = []
        whole: TimeWindow | None = None
        for window in sorted(windows, key=_start):
            if whole is not None and whole.intersects(window):
                whole = whole.cover(window)
                group.append(window)
                continue
            if whole is not None and len(group) > 1:
                callback.merge(group, whole)
            group, whole = [window], window
        if whole is not None and len(group) > 1:
            callback.merge(group, whole)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TimeWindow) and self.start == other.start and self.end == other.end

    # By start, then by end. With anything else a window has no order, which is a TypeError.

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) < (other.start, other.end)

    def __le__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) <= (other.start, other.end)

    def __gt__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) > (other.start, other.end)

    def __ge__(self, other: object) -> bool:
        if not isinstance(other, TimeWindow):
            return NotImplemented
        return (self.start, self.end) >= (other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.start, self.end))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _time_window, (self.start, self.end)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class CountWindow(Window):
    """The window number `id` of those that hold a certain number of records.

    >>> CountWindow(3)
    CountWindow(id=3)
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # noqa: A002 - PyFlink's name
        self.id = id

    def max_timestamp(self) -> int:
        """The end of time: a count window ends by count."""
        return MAX_TIME

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountWindow) and self.id == other.id

    def __lt__(self, other: object) -> bool:
        return self.id < other.id if isinstance(other, CountWindow) else NotImplemented

    def __hash__(self) -> int:
        return hash((CountWindow, self.id))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _count_window, (self.id,)

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


class GlobalWindow(Window):
    """The one window that all records of a key belong to.

    >>> GlobalWindow.get() == GlobalWindow()
    True
    """

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """The one global window."""
        return _GLOBAL

    def max_timestamp(self) -> int:
        """The end of time."""
        return MAX_TIME

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return 0

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _global_window, ()

    def __repr__(self) -> str:
        return "GlobalWindow"


# How windows are unpickled.


@kept
def _time_window(start: int, end: int) -> TimeWindow:
    return TimeWindow(start, end)


@kept
def _count_window(number: int) -> CountWindow:
    return CountWindow(number)


@kept
def _global_window() -> GlobalWindow:
    return _GLOBAL


# Programs written for PyFlink return one of these from `get_window_serializer`; windows here travel as they are.


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end, 8 bytes each.

    >>> stream = BytesIO()
    >>> TimeWindowSerializer().serialize(TimeWindow(-1, 5), stream)
    >>> TimeWindowSerializer().deserialize(BytesIO(stream.getvalue()))
    TimeWindow(start=-1, end=5)
    """

    def serialize(self, element: TimeWindow, stream: BytesIO) -> None:
        """Write a window."""
        stream.write(struct.pack(">qq", element.start, element.end))

    def deserialize(self, stream: BytesIO) -> TimeWindow:
        """Read a window."""
        return TimeWindow(*struct.unpack(">qq", stream.read(16)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The number, 8 bytes."""

    def serialize(self, element: CountWindow, stream: BytesIO) -> None:
        """Write a window."""
        stream.write(struct.pack(">q", element.id))

    def deserialize(self, stream: BytesIO) -> CountWindow:
        """Read a window."""
        return CountWindow(*struct.unpack(">q", stream.read(8)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """One byte: there is only one such window."""

    def serialize(self, element: GlobalWindow, stream: BytesIO) -> None:
        """Write the window."""
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> GlobalWindow:
        """Read the window."""
        stream.read(1)
        return GlobalWindow.get()


_GLOBAL = GlobalWindow()

MergeCall: TypeAlias = Any
"""Anything with `merge(to_be_merged, merge_result)`; the class, in `window_assigner.py`, needs this module."""


def _start(window: TimeWindow) -> int:
    return window.start
