"""The ready-made window assigners (Flink's `api.windowing.assigners`): tumbling and sliding ones here, the others
in `api/session_windows.py` and `api/count_windows.py`.

Sizes, slides, gaps and offsets may be given as everywhere ("10 s", a `timedelta`, `Time.seconds(10)`, ..) and
are kept as whole milliseconds in `size`, `slide`, `offset` and `gap`.
"""

from __future__ import annotations

from typing import Any

from millstream.api.count_windows import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
)
from millstream.api.session_windows import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from millstream.api.window_assigner import WindowAssigner
from millstream.api.window_bases import (
    EventTimeAssigner,
    ProcessingTimeAssigner,
    no_timestamp,
    positive_length,
    small_offset,
)
from millstream.api.windows import TimeWindow
from millstream.common.constants import NO_TIME
from millstream.common.time import DurationLike

__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "GlobalWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
]

Context = WindowAssigner.WindowAssignerContext


class _Tumbling(WindowAssigner[Any, TimeWindow]):
    """One window after the other."""

    def __init__(self, size: DurationLike, offset: DurationLike | None = None) -> None:
        self.size = positive_length(self, "size", size)
        self.offset = small_offset(self, offset, self.size)

    def _window(self, time: int) -> list[TimeWindow]:
        start = time - (time - self.offset) % self.size
        return [TimeWindow(start, start + self.size)]

    def __repr__(self) -> str:
        offset = f", offset={self.offset}" if self.offset else ""
        return f"{type(self).__name__}({self.size}{offset})"


class TumblingEventTimeWindows(_Tumbling, EventTimeAssigner):
    """Windows of one size, one after the other, by the records' timestamps.

    >>> hours = TumblingEventTimeWindows.of("1 h")
    >>> hours.assign_windows("a", 3_600_001, None)
    [TimeWindow(start=3600000, end=7200000)]
    """

    @staticmethod
    def of(size: DurationLike, offset: DurationLike | None = None) -> TumblingEventTimeWindows:
        """Windows of this size; they start at multiples of it since 1970, moved by the offset.

        >>> TumblingEventTimeWindows.of("1 d", "-8 h")  # days of a time zone that is 8 hours ahead
        TumblingEventTimeWindows(86400000, offset=-28800000)
        """
        return TumblingEventTimeWindows(size, offset)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """The one window that the timestamp falls into."""
        if timestamp == NO_TIME:
            raise no_timestamp(self)
        return self._window(timestamp)


class TumblingProcessingTimeWindows(_Tumbling, ProcessingTimeAssigner):
    """Windows of one size, one after the other, by the wall clock.

    >>> TumblingProcessingTimeWindows.of("5 s").is_event_time()
    False
    """

    @staticmethod
    def of(size: DurationLike, offset: DurationLike | None = None) -> TumblingProcessingTimeWindows:
        """Windows of this size; they start at multiples of it since 1970, moved by the offset."""
        return TumblingProcessingTimeWindows(size, offset)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """The window of this moment."""
        return self._window(context.get_current_processing_time())


class _Sliding(WindowAssigner[Any, TimeWindow]):
    """Windows that start more often than they end; or, if the slide is more than the size, with gaps between."""

    def __init__(
        self, size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> None:
        self.size = positive_length(self, "size", size)
        self.slide = positive_length(self, "slide", slide)
        self.offset = small_offset(self, offset, self.slide)

    def _windows(self, time: int) -> list[TimeWindow]:
        last, size = time - (time - self.offset) % self.slide, self.size
        # From the latest start down to the earliest one whose window still reaches the time.
        return [TimeWindow(start, start + size) for start in range(last, time - size, -self.slide)]

    def __repr__(self) -> str:
        offset = f", offset={self.offset}" if self.offset else ""
        return f"{type(self).__name__}({self.size}, {self.slide}{offset})"


class SlidingEventTimeWindows(_Sliding, EventTimeAssigner):
    """Windows of one size, a new one at every slide, by the records' timestamps.

    >>> SlidingEventTimeWindows.of(10, 5).assign_windows("a", 12, None)
    [TimeWindow(start=10, end=20), TimeWindow(start=5, end=15)]
    """

    @staticmethod
    def of(
        size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> SlidingEventTimeWindows:
        """Windows of this size that start at multiples of the slide since 1970, moved by the offset."""
        return SlidingEventTimeWindows(size, slide, offset)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """All windows that the timestamp falls into, the latest one first."""
        if timestamp == NO_TIME:
            raise no_timestamp(self)
        return self._windows(timestamp)


class SlidingProcessingTimeWindows(_Sliding, ProcessingTimeAssigner):
    """Windows of one size, a new one at every slide, by the wall clock.

    >>> SlidingProcessingTimeWindows.of("10 s", "5 s")
    SlidingProcessingTimeWindows(10000, 5000)
    """

    @staticmethod
    def of(
        size: DurationLike, slide: DurationLike, offset: DurationLike | None = None
    ) -> SlidingProcessingTimeWindows:
        """Windows of this size that start at multiples of the slide since 1970, moved by the offset."""
        return SlidingProcessingTimeWindows(size, slide, offset)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """All windows that this moment falls into, the latest one first."""
        return self._windows(context.get_current_processing_time())
