"""Evictors: take records out of a window before or after its function runs (Flink's `Evictor`).

With an evictor a window keeps all its records, also if it has a reduce or aggregate function. PyFlink has no
evictors; these are Java's, with lists in the place of iterators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.api.metrics import MetricGroup
from millstream.api.triggers import DeltaFunction, as_delta
from millstream.api.windows import Window
from millstream.common.constants import NO_TIME
from millstream.common.time import DurationLike, parse_duration
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.v import keep, kept

__all__ = ["CountEvictor", "DeltaEvictor", "Evictor", "TimeEvictor", "TimestampedValue"]

T = TypeVar("T")
W = TypeVar("W", bound=Window)


class TimestampedValue(NamedTuple):
    """A record in a window, as evictors see it.

    >>> TimestampedValue("a", 5).has_timestamp()
    True
    """

    value: Any
    timestamp: int = NO_TIME

    def get_value(self) -> Any:
        """The record that is in the window."""
        return self.value

    def get_timestamp(self) -> int:
        """The record's timestamp; -2^63 if it has none."""
        return self.timestamp

    def has_timestamp(self) -> bool:
        """Whether the record has a timestamp."""
        return self.timestamp != NO_TIME


@kept
def _element(*parts: Any) -> TimestampedValue:
    return TimestampedValue(*parts)


keep(TimestampedValue, tuple, _element)


class Evictor(ABC, Generic[T, W]):
    """Chooses which records of a window stay, before and after the window's function.

    Both methods get the records in the order they came in and return those to keep; the others leave the
    window for good.

    >>> class WithoutNegatives(Evictor):
    ...     def evict_before(self, elements, size, window, ctx):
    ...         return [one for one in elements if one.value >= 0]
    ...
    ...     def evict_after(self, elements, size, window, ctx):
    ...         return elements
    >>> kept = WithoutNegatives().evict_before(
    ...     [TimestampedValue(1, 0), TimestampedValue(-1, 0)], 2, None, None
    ... )
    >>> [one.value for one in kept]
    [1]
    """

    class EvictorContext(ABC):
        """What an evictor may ask."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The wall clock, in milliseconds."""

        def get_metric_group(self) -> MetricGroup:
            """Where an evictor may count things: the metrics of its operator."""
            raise UnsupportedOperation("this context has no metrics")

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The operator's watermark."""

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        """The records that the function is to get; `size` is how many there are."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue], size: int, window: W, ctx: EvictorContext
    ) -> list[TimestampedValue]:
        """The records that are to stay after the function has run."""


class _OneSided(Evictor[Any, Any]):
    """An evictor that does the same thing either before or after the function."""

    def __init__(self, do_evict_after: bool) -> None:
        self.do_evict_after = bool(do_evict_after)

    def evict_before(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Any,
        ctx: Evictor.EvictorContext,
    ) -> list[TimestampedValue]:
        """Evict, unless the evictor does so after the function."""
        return elements if self.do_evict_after else self._keep(elements)

    def evict_after(
        self,
        elements: list[TimestampedValue],
        size: int,
        window: Any,
        ctx: Evictor.EvictorContext,
    ) -> list[TimestampedValue]:
        """Evict, if the evictor does so after the function."""
        return self._keep(elements) if self.do_evict_after else elements

    @abstractmethod
    def _keep(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        """The elements that stay in the window."""


class CountEvictor(_OneSided):
    """Keeps the last so many records.

    >>> three = [TimestampedValue(n, n) for n in (1, 2, 3)]
    >>> [one.value for one in CountEvictor.of(2).evict_before(three, 3, None, None)]
    [2, 3]
    """

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if not isinstance(max_count, int) or isinstance(max_count, bool) or max_count < 0:
            msg = "CountEvictor needs a number of records of 0 or more"
            raise InvalidArgument(msg, got=repr(max_count))
        self.max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Keep so many records."""
        return CountEvictor(max_count, do_evict_after)

    def _keep(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        surplus = len(elements) - self.max_count
        return elements[surplus:] if surplus > 0 else elements

    def __repr__(self) -> str:
        return f"CountEvictor({self.max_count})"


class TimeEvictor(_OneSided):
    """Keeps the records that are less than a length of time older than the newest one.

    Records without timestamps all stay.

    >>> three = [TimestampedValue(n, n) for n in (1, 7, 11)]
    >>> [one.value for one in TimeEvictor.of("10 ms").evict_before(three, 3, None, None)]
    [7, 11]
    """

    def __init__(self, window_size: DurationLike, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self.window_size = parse_duration(window_size)
        if self.window_size < 0:
            msg = "TimeEvictor needs a length of time that is not negative"
            raise InvalidArgument(msg, got=repr(window_size))

    @staticmethod
    def of(window_size: DurationLike, do_evict_after: bool = False) -> TimeEvictor:
        """Keep the records of the last so much time."""
        return TimeEvictor(window_size, do_evict_after)

    def _keep(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        # As in Flink the first record stands for all: a stream has timestamps or has none.
        if not elements or elements[0].timestamp == NO_TIME:
            return elements
        cutoff = max(element.timestamp for element in elements) - self.window_size
        return [element for element in elements if element.timestamp > cutoff]

    def __repr__(self) -> str:
        return f"TimeEvictor({self.window_size})"


class DeltaEvictor(_OneSided):
    """Keeps the records that are nearer than a threshold to the last one.

    The function is a `DeltaFunction` or a callable of two records.

    >>> four = [TimestampedValue(n, 0) for n in (1, 8, 5, 10)]
    >>> nearby = DeltaEvictor.of(5, lambda old, new: new - old)
    >>> [one.value for one in nearby.evict_before(four, 4, None, None)]
    [8, 10]
    """

    def __init__(
        self,
        threshold: float,
        delta_function: DeltaFunction | Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> None:
        super().__init__(do_evict_after)
        self.threshold = threshold
        self.delta_function = delta_function
        self._delta = as_delta("DeltaEvictor", delta_function)

    @staticmethod
    def of(
        threshold: float,
        delta_function: DeltaFunction | Callable[[Any, Any], float],
        do_evict_after: bool = False,
    ) -> DeltaEvictor:
        """Keep records that are nearer to the last one than the threshold."""
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def _keep(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if not elements:
            return elements
        last, delta, threshold = elements[-1].value, self._delta, self.threshold
        return [element for element in elements if delta(element.value, last) < threshold]

    def __repr__(self) -> str:
        return f"DeltaEvictor({self.threshold})"
