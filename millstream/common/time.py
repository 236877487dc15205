"""Lengths and points of time, and the one reader of durations that the whole API uses.

Wherever PyFlink takes a `Time` or a `Duration`, Millstream also takes a `timedelta`, a text such
as "10 s", or whole milliseconds; `parse_duration` makes milliseconds of all of them. Answers to
Flink's `Time` and `TimeUtils`, and to Java's `Duration` and `Instant`.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from millstream.errors import InvalidArgument
from millstream.v import keep, kept

__all__ = ["Duration", "DurationLike", "Instant", "Time", "parse_duration"]

_MILLI = 1_000_000
_SECOND = 1_000 * _MILLI
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class Time:
    """A length of time in milliseconds.

    >>> Time.seconds(5).to_milliseconds()
    5000
    >>> Time.minutes(1) == Time.seconds(60)
    True
    """

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = int(milliseconds)

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """So many milliseconds.

        >>> Time.milliseconds(7).to_milliseconds()
        7
        """
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> Time:
        """So many seconds.

        >>> Time.seconds(1).to_milliseconds()
        1000
        """
        return Time(seconds * 1_000)

    @staticmethod
    def minutes(minutes: int) -> Time:
        """So many minutes.

        >>> Time.minutes(1).to_milliseconds()
        60000
        """
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> Time:
        """So many hours; fewer than none for the offset of a time zone.

        >>> Time.hours(-8).to_milliseconds()
        -28800000
        """
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> Time:
        """So many days.

        >>> Time.days(1).to_milliseconds()
        86400000
        """
        return Time(days * 86_400_000)

    def to_milliseconds(self) -> int:
        """The length in milliseconds.

        >>> Time.seconds(2).to_milliseconds()
        2000
        """
        return self._milliseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash((Time, self._milliseconds))

    def __repr__(self) -> str:
        return f"Time({self._milliseconds} ms)"


class Duration:
    """A length of time in nanoseconds.

    >>> Duration.of_millis(1500).to_millis()
    1500
    >>> Duration.of_minutes(1) == Duration.of_seconds(60)
    True
    """

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        self._nanos = int(nanos)

    @staticmethod
    def of_days(days: int) -> Duration:
        """So many days.

        >>> Duration.of_days(1).to_millis()
        86400000
        """
        return Duration(days * _DAY)

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """So many hours.

        >>> Duration.of_hours(1).to_millis()
        3600000
        """
        return Duration(hours * _HOUR)

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """So many minutes.

        >>> Duration.of_minutes(2).to_millis()
        120000
        """
        return Duration(minutes * _MINUTE)

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """So many seconds.

        >>> Duration.of_seconds(3).to_millis()
        3000
        """
        return Duration(seconds * _SECOND)

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """So many milliseconds.

        >>> Duration.of_millis(4).to_millis()
        4
        """
        return Duration(millis * _MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """So many nanoseconds.

        >>> Duration.of_nanos(5_000_000).to_millis()
        5
        """
        return Duration(nanos)

    def to_millis(self) -> int:
        """Whole milliseconds; what is left over is cut off.

        >>> Duration.of_nanos(1_999_999).to_millis()
        1
        """
        return self._nanos // _MILLI

    def to_nanos(self) -> int:
        """The length in nanoseconds.

        >>> Duration.of_millis(1).to_nanos()
        1000000
        """
        return self._nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self._nanos == other._nanos

    def __hash__(self) -> int:
        return hash((Duration, self._nanos))

    def __repr__(self) -> str:
        if self._nanos % _MILLI:
            return f"Duration({self._nanos} ns)"
        return f"Duration({self._nanos // _MILLI} ms)"


class Instant:
    """A point on the time line: seconds since 1970 in UTC, and nanoseconds after that second.

    >>> Instant.of_epoch_milli(-1)
    Instant<-1, 999000000>
    >>> Instant.of_epoch_milli(-1).to_epoch_milli()
    -1
    """

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        self.seconds = seconds
        self.nanos = nanos

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The point so many milliseconds after 1970.

        >>> Instant.of_epoch_milli(1500)
        Instant<1, 500000000>
        """
        seconds, millis = divmod(epoch_milli, 1_000)
        return Instant(seconds, millis * _MILLI)

    def to_epoch_milli(self) -> int:
        """Milliseconds since 1970.

        >>> Instant(2, 3_000_000).to_epoch_milli()
        2003
        """
        return self.seconds * 1_000 + self.nanos // _MILLI

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Instant)
            and self.seconds == other.seconds
            and self.nanos == other.nanos
        )

    def __hash__(self) -> int:
        return hash((Instant, self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


@kept
def _time(milliseconds: int) -> Time:
    return Time(milliseconds)


@kept
def _duration(nanos: int) -> Duration:
    return Duration(nanos)


@kept
def _instant(seconds: int, nanos: int) -> Instant:
    return Instant(seconds, nanos)


keep(Time, lambda time: (time._milliseconds,), _time)
keep(Duration, lambda duration: (duration._nanos,), _duration)
keep(Instant, lambda instant: (instant.seconds, instant.nanos), _instant)


DurationLike: TypeAlias = str | int | timedelta | Duration | Time
"""What `parse_duration` reads."""

_UNITS = {
    unit: nanos
    for nanos, units in (
        (_DAY, "d day days"),
        (_HOUR, "h hour hours"),
        (_MINUTE, "m min minute minutes"),
        (_SECOND, "s sec secs second seconds"),
        (_MILLI, "ms milli millis millisecond milliseconds"),
        (1_000, "us µs micro micros microsecond microseconds"),
        (1, "ns nano nanos nanosecond nanoseconds"),
    )
    for unit in units.split()
}
_TEXT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zµ]*)\s*", re.IGNORECASE)


def parse_duration(value: DurationLike) -> int:
    """Milliseconds of anything that means a length of time; a bare number is milliseconds.

    >>> parse_duration("10 s"), parse_duration("100ms"), parse_duration("1 min")
    (10000, 100, 60000)
    >>> parse_duration(timedelta(seconds=1)), parse_duration(Time.hours(-8)), parse_duration(5)
    (1000, -28800000, 5)
    """
    if isinstance(value, Time):
        return value.to_milliseconds()
    if isinstance(value, Duration):
        return value.to_millis()
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _parse_text(value)
    raise _not_a_duration(value)


def _parse_text(text: str) -> int:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise _not_a_duration(text)
    nanos = _UNITS.get(match.group(2).lower() or "ms")
    if nanos is None:
        raise _not_a_duration(text)
    return int(Decimal(match.group(1)) * nanos // _MILLI)


def _not_a_duration(value: Any) -> InvalidArgument:
    return InvalidArgument(
        "this is not a duration",
        got=repr(value)[:200],
        hint='pass "10 s", "100 ms", "1 min", a timedelta, a Duration, a Time or milliseconds',
    )
