"""Session windows: they last until nothing has come for the length of a gap (Flink's `EventTimeSessionWindows`
and its kin)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from millstream.api.window_assigner import MergingWindowAssigner, WindowAssigner
from millstream.api.window_bases import (
    EventTimeAssigner,
    ProcessingTimeAssigner,
    no_timestamp,
    positive_length,
)
from millstream.api.windows import TimeWindow
from millstream.common.constants import NO_TIME
from millstream.common.time import DurationLike
from millstream.errors import InvalidArgument

__all__ = [
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
]

Context = WindowAssigner.WindowAssignerContext


class SessionWindowTimeGapExtractor(ABC):
    """Says, record by record, after how much silence its session ends.

    >>> class ByKind(SessionWindowTimeGapExtractor):
    ...     def extract(self, element):
    ...         return 60_000 if element == "call" else 5_000
    >>> ByKind().extract("call")
    60000
    """

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap in milliseconds, more than 0."""


GapExtractor: TypeAlias = SessionWindowTimeGapExtractor | Callable[[Any], int]


class _Session(MergingWindowAssigner[Any, TimeWindow]):
    """Windows that last until nothing has come for the length of the gap."""

    def __init__(self, session_gap: DurationLike) -> None:
        self.gap = positive_length(self, "gap", session_gap)

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback
    ) -> None:
        """Windows that overlap or touch are one session."""
        TimeWindow.merge_windows(windows, callback)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gap})"


class EventTimeSessionWindows(_Session, EventTimeAssigner):
    """Sessions by the records' timestamps.

    >>> EventTimeSessionWindows.with_gap("10 ms").assign_windows("a", 100, None)
    [TimeWindow(start=100, end=110)]
    """

    @staticmethod
    def with_gap(size: DurationLike) -> EventTimeSessionWindows:
        """Sessions that end after so much silence."""
        return EventTimeSessionWindows(size)

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicEventTimeSessionWindows:
        """Sessions that end after as much silence as their records say.

        >>> sessions = EventTimeSessionWindows.with_dynamic_gap(lambda record: record["gap"])
        >>> sessions.assign_windows({"gap": 7}, 100, None)
        [TimeWindow(start=100, end=107)]
        """
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """The session that the record would be by itself."""
        if timestamp == NO_TIME:
            raise no_timestamp(self)
        return [TimeWindow(timestamp, timestamp + self.gap)]


class ProcessingTimeSessionWindows(_Session, ProcessingTimeAssigner):
    """Sessions by the wall clock.

    >>> ProcessingTimeSessionWindows.with_gap("10 s")
    ProcessingTimeSessionWindows(10000)
    """

    @staticmethod
    def with_gap(size: DurationLike) -> ProcessingTimeSessionWindows:
        """Sessions that end after so much silence."""
        return ProcessingTimeSessionWindows(size)

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Sessions that end after as much silence as their records say."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """The session that the record would be by itself."""
        now = context.get_current_processing_time()
        return [TimeWindow(now, now + self.gap)]


class _DynamicSession(_Session):
    """Sessions whose records say how long the gap is."""

    def __init__(self, session_window_time_gap_extractor: GapExtractor) -> None:
        given = session_window_time_gap_extractor
        self.gap_extractor = given
        extract = getattr(given, "extract", given)
        if isinstance(given, type) or not callable(extract):
            raise InvalidArgument(
                f"{type(self).__name__} needs a SessionWindowTimeGapExtractor or a callable",
                got=repr(given)[:200],
                hint="pass an object with extract(element) that gives milliseconds",
            )
        self._extract: Callable[[Any], int] = extract

    def _session(self, element: Any, time: int) -> list[TimeWindow]:
        gap = self._extract(element)
        if not isinstance(gap, int) or isinstance(gap, bool) or gap <= 0:
            raise InvalidArgument(
                "the gap of a session must be a number of milliseconds above 0",
                got=repr(gap)[:200],
                assigner=repr(self),
                hint="let the gap extractor return such a number for every record",
            )
        return [TimeWindow(time, time + gap)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class DynamicEventTimeSessionWindows(_DynamicSession, EventTimeAssigner):
    """Sessions by the records' timestamps, with a gap that the records say.

    >>> DynamicEventTimeSessionWindows(lambda n: n).assign_windows(5, 100, None)
    [TimeWindow(start=100, end=105)]
    """

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicEventTimeSessionWindows:
        """Sessions whose gap `extractor` takes from each record: PyFlink's second name for the constructor."""
        return DynamicEventTimeSessionWindows(extractor)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """The session that the record would be by itself."""
        if timestamp == NO_TIME:
            raise no_timestamp(self)
        return self._session(element, timestamp)


class DynamicProcessingTimeSessionWindows(_DynamicSession, ProcessingTimeAssigner):
    """Sessions by the wall clock, with a gap that the records say.

    >>> DynamicProcessingTimeSessionWindows(lambda n: n).is_event_time()
    False
    """

    @staticmethod
    def with_dynamic_gap(extractor: GapExtractor) -> DynamicProcessingTimeSessionWindows:
        """Sessions whose gap `extractor` takes from each record: PyFlink's second name for the constructor."""
        return DynamicProcessingTimeSessionWindows(extractor)

    def assign_windows(self, element: Any, timestamp: int, context: Context) -> list[TimeWindow]:
        """The session that the record would be by itself."""
        return self._session(element, context.get_current_processing_time())
