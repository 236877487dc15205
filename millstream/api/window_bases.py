"""What the ready-made window assigners share: their kind of time, and checks of what they are given."""

from __future__ import annotations

from typing import Any

from millstream.api.trigger import Trigger
from millstream.api.triggers import EventTimeTrigger, ProcessingTimeTrigger
from millstream.api.window_assigner import WindowAssigner
from millstream.api.windows import TimeWindow
from millstream.common.time import DurationLike, parse_duration
from millstream.errors import InvalidArgument, MissingTimestamp

__all__ = [
    "EventTimeAssigner",
    "ProcessingTimeAssigner",
    "no_timestamp",
    "positive_length",
    "positive_number",
    "small_offset",
]


class EventTimeAssigner(WindowAssigner[Any, TimeWindow]):
    """Windows of the records' own time."""

    def is_event_time(self) -> bool:
        """Yes: windows end by watermark."""
        return True

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fires at the end of the window."""
        return EventTimeTrigger.create()


class ProcessingTimeAssigner(WindowAssigner[Any, TimeWindow]):
    """Windows of the time at which records are processed."""

    def is_event_time(self) -> bool:
        """No: windows end by the clock."""
        return False

    def get_default_trigger(self, env: Any) -> Trigger[Any, Any]:
        """Fires at the end of the window."""
        return ProcessingTimeTrigger.create()


def positive_length(owner: WindowAssigner[Any, Any], subject: str, value: DurationLike) -> int:
    """A size, slide or gap in milliseconds; more than 0."""
    millis = parse_duration(value)
    if millis <= 0:
        msg = f"the {subject} of {type(owner).__name__} must be at least 1 ms"
        raise InvalidArgument(msg, got=repr(value), hint='for example "10 s"')
    return millis


def small_offset(owner: WindowAssigner[Any, Any], value: DurationLike | None, step: int) -> int:
    """An offset in milliseconds; less than `step`, the time from one window to the next."""
    millis = 0 if value is None else parse_duration(value)
    if abs(millis) >= step:
        raise InvalidArgument(
            f"the offset of {type(owner).__name__} must be less than the time between two windows",
            got=repr(value),
            between_windows=f"{step} ms",
            hint="an offset moves the borders of windows, so that of a whole window moves nothing",
        )
    return millis


def positive_number(owner: WindowAssigner[Any, Any], subject: str, value: int) -> int:
    """A number of records; 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"{subject} of {type(owner).__name__} must be a number of records of 1 or more"
        raise InvalidArgument(msg, got=repr(value)[:200])
    return value


def no_timestamp(assigner: WindowAssigner[Any, Any]) -> MissingTimestamp:
    """The error for a record without a timestamp in a window of event time (rule 9)."""
    return MissingTimestamp(
        "a record without a timestamp came to a window of event time",
        windows=repr(assigner),
        hint="call assign_timestamps_and_watermarks(...) before the window, or use windows of processing time",
    )
