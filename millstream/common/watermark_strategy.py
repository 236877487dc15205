"""`WatermarkStrategy`: which timestamp a record has, and how far event time has come.

It only describes; the runtime makes generators of it. Unlike PyFlink's it never changes: every
`with_..` gives a new strategy that keeps all the rest, in whatever order they are called (PyFlink
loses the assigner if `with_idleness` comes after it). Answers to Flink's `WatermarkStrategy`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from millstream.common.guesses import Guesses
from millstream.common.time import DurationLike, parse_duration
from millstream.common.types import Row, named_field
from millstream.errors import InvalidArgument

__all__ = [
    "IngestionTimeAssigner",
    "TimestampAssigner",
    "TimestampColumn",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "as_strategy",
]


class TimestampAssigner(ABC):
    """Says when a record happened.

    >>> class Second(TimestampAssigner):
    ...     def extract_timestamp(self, value, record_timestamp):
    ...         return value[1]
    >>> Second().extract_timestamp(("a", 1000), -(2**63))
    1000
    """

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """The record's timestamp in milliseconds since 1970.

        `record_timestamp` is the one it has already, or -2^63 if it has none.
        """


class IngestionTimeAssigner(TimestampAssigner):
    """The time at which a record is read, whatever it says itself."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return time.time_ns() // 1_000_000


class TimestampColumn(TimestampAssigner):
    """A field of the record, by name or position: milliseconds since 1970, or a `datetime`, to the millisecond before.

    A `datetime` without a time zone is one in UTC, as in Flink.

    >>> TimestampColumn("at").extract_timestamp({"at": 1000}, -(2**63))
    1000
    >>> TimestampColumn(0).extract_timestamp((datetime(1970, 1, 1, 0, 0, 1, 999),), -(2**63))
    1000
    """

    def __init__(self, field: int | str) -> None:
        if isinstance(field, bool) or not isinstance(field, int | str):
            raise InvalidArgument(
                "a column of timestamps goes by its name or its position", got=repr(field)[:200]
            )
        self.field = field

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        field = self.field
        if type(value) is Row and isinstance(field, str):
            found = named_field(value, field)
        elif isinstance(field, str) and not isinstance(value, dict):
            found = getattr(value, field)
        else:
            found = value[field]
        if isinstance(found, datetime):
            if found.tzinfo is None:
                found = found.replace(tzinfo=UTC)
            return (found - _EPOCH) // _MILLISECOND
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        raise InvalidArgument(
            f"the column {field!r} has no timestamp for a record",
            got=f"{type(found).__name__} {found!r}"[:200],
            hint="it needs milliseconds since 1970 or a datetime in each record; filter out those without",
        )

    def __repr__(self) -> str:
        return f"TimestampColumn({self.field!r})"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class WatermarkOutput(ABC):
    """Where a generator puts its watermarks."""

    @abstractmethod
    def emit_watermark(self, watermark: int) -> None:
        """No record at or before this time is to come; one smaller than the last is ignored."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Do not wait for this stream until it says more."""

    @abstractmethod
    def mark_active(self) -> None:
        """Wait for this stream again."""


class WatermarkGenerator:
    """A user's own generator; each of the two methods may be left out.

    >>> class EndMarks(WatermarkGenerator):
    ...     def on_event(self, event, event_timestamp, output):
    ...         if event == "end of minute":
    ...             output.emit_watermark(event_timestamp)
    >>> strategy = WatermarkStrategy.for_generator(EndMarks)
    >>> strategy.kind
    'generator'
    """

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for every record."""
        return

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called from time to time, see `pipeline.auto-watermark-interval`."""
        return


@dataclass(frozen=True)
class WatermarkAlignment:
    """How far ahead of its group a source may run.

    >>> WatermarkAlignment("clicks", 20_000).update_interval_ms
    1000
    """

    group: str
    max_drift_ms: int
    update_interval_ms: int = 1_000


@dataclass(frozen=True)
class WatermarkStrategy(Guesses):
    """Timestamps, watermarks, idleness and alignment of a stream.

    >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness("5 s").with_idleness("1 min")
    >>> strategy.kind, strategy.delay_ms, strategy.idle_timeout_ms
    ('bounded', 5000, 60000)
    """

    kind: Literal["monotonous", "bounded", "none", "generator"]
    """Which generator; `monotonous` is `bounded` with no delay."""

    delay_ms: int = 0
    """How late a record may come, in milliseconds."""

    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignment | None = None

    generator_supplier: Callable[[], WatermarkGenerator] | None = None
    """Makes the generator of one subtask, for the kind `generator`."""

    @property
    def stamps(self) -> bool:
        """True if records get timestamps from it."""
        return self.timestamp_assigner is not None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """For timestamps that never go back.

        >>> WatermarkStrategy.for_monotonous_timestamps().delay_ms
        0
        """
        return WatermarkStrategy("monotonous")

    @staticmethod
    def for_bounded_out_of_orderness(
        max_out_of_orderness: DurationLike,
    ) -> WatermarkStrategy:
        """For records that come at most so much late.

        >>> WatermarkStrategy.for_bounded_out_of_orderness("2 s").delay_ms
        2000
        """
        delay_ms = parse_duration(max_out_of_orderness)
        if delay_ms < 0:
            raise InvalidArgument(
                "the out-of-orderness must not be negative", got=repr(max_out_of_orderness)
            )
        return WatermarkStrategy("bounded", delay_ms)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """No watermarks, except the last one at the end of a bounded input.

        >>> WatermarkStrategy.no_watermarks().kind
        'none'
        """
        return WatermarkStrategy("none")

    @staticmethod
    def for_ingestion_time() -> WatermarkStrategy:
        """Records get the time at which they are read, from the clock of the machine that reads them.

        >>> WatermarkStrategy.for_ingestion_time().stamps
        True
        """
        return WatermarkStrategy("monotonous", timestamp_assigner=IngestionTimeAssigner())

    @staticmethod
    def for_generator(supplier: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """For a generator of your own; `supplier` is called once per subtask.

        >>> WatermarkStrategy.for_generator(WatermarkGenerator).kind
        'generator'
        """
        if not callable(supplier):
            raise InvalidArgument(
                "for_generator needs a function or class that makes a generator",
                got=repr(supplier)[:200],
                hint="pass the class, or lambda: MyGenerator(..)",
            )
        return WatermarkStrategy("generator", generator_supplier=supplier)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """The same strategy, with timestamps taken from the records.

        >>> class First(TimestampAssigner):
        ...     def extract_timestamp(self, value, record_timestamp):
        ...         return value[0]
        >>> strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(First())
        >>> strategy.with_idleness("1 s").timestamp_assigner.extract_timestamp((7,), 0)
        7
        """
        if not callable(getattr(timestamp_assigner, "extract_timestamp", None)):
            raise InvalidArgument(
                "this is not a TimestampAssigner",
                got=repr(timestamp_assigner)[:200],
                hint="pass an object with extract_timestamp(value, record_timestamp)",
            )
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_timestamp_column(self, field: int | str) -> WatermarkStrategy:
        """The same strategy, with timestamps from a field, by name or position: milliseconds since 1970 or a
        `datetime`, which without a time zone is in UTC. Where records come as columns, it is read as one.

        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
        >>> strategy.timestamp_assigner
        TimestampColumn('at')
        """
        return replace(self, timestamp_assigner=TimestampColumn(field))

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        """The same strategy; a stream without records for so long is not waited for.

        >>> WatermarkStrategy.no_watermarks().with_idleness("1 min").idle_timeout_ms
        60000
        """
        return replace(self, idle_timeout_ms=_positive("idle_timeout", idle_timeout))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """The same strategy; a source that runs ahead of its group waits for it.

        >>> strategy = WatermarkStrategy.for_monotonous_timestamps()
        >>> strategy.with_watermark_alignment("clicks", "20 s").alignment
        WatermarkAlignment(group='clicks', max_drift_ms=20000, update_interval_ms=1000)
        """
        alignment = WatermarkAlignment(
            watermark_group,
            _positive("max_allowed_watermark_drift", max_allowed_watermark_drift),
            1_000 if update_interval is None else _positive("update_interval", update_interval),
        )
        return replace(self, alignment=alignment)


def as_strategy(value: Any) -> WatermarkStrategy:
    """The strategy that a call was given; an error if it is something else.

    >>> as_strategy(WatermarkStrategy.no_watermarks()).kind
    'none'
    """
    if not isinstance(value, WatermarkStrategy):
        raise InvalidArgument(
            "a WatermarkStrategy is needed here",
            got=repr(value)[:200],
            hint="for example WatermarkStrategy.for_bounded_out_of_orderness('5 s')"
            ".with_timestamp_assigner(MyAssigner())",
        )
    return value


def _positive(name: str, value: DurationLike) -> int:
    millis = parse_duration(value)
    if millis <= 0:
        raise InvalidArgument(f"{name} must be more than 0", got=repr(value))
    return millis
