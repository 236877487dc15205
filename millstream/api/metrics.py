"""Metrics of user functions: counters, gauges, meters, distributions (PyFlink's `pyflink.metrics`).

`runtime_context.get_metrics_group()` gives the group of a subtask. Its metrics live in the subtask's process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

M = TypeVar("M", bound="Metric")


class Metric:
    """The root of all metrics."""


class Counter(Metric):
    """A number that goes up and down.

    >>> counter = Counter()
    >>> counter.inc()
    >>> counter.inc(4)
    >>> counter.dec()
    >>> counter.get_count()
    4
    """

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Count up by `n`."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Count down by `n`."""
        self._count -= n

    def get_count(self) -> int:
        """The count so far."""
        return self._count


class Meter(Metric):
    """Events, and how many there are a second.

    >>> meter = Meter()
    >>> meter.mark_event(3)
    >>> meter.get_count()
    3
    """

    def __init__(self, time_span_in_seconds: int = 60) -> None:
        self._span = time_span_in_seconds
        self._count = 0
        self._events: deque[tuple[float, int]] = deque()

    def mark_event(self, value: int = 1) -> None:
        """So many events have happened now."""
        self._count += value
        now = time.monotonic()
        self._events.append((now, value))
        while self._events[0][0] < now - self._span:
            self._events.popleft()

    def get_count(self) -> int:
        """How many events there have been."""
        return self._count

    def get_rate(self) -> float:
        """How many there are a second, over the time span."""
        now = time.monotonic()
        recent = sum(value for when, value in self._events if when >= now - self._span)
        return recent / self._span


class Distribution(Metric):
    """Sum, number, smallest and largest of the values it was given.

    >>> sizes = Distribution()
    >>> for size in (3, 1, 2):
    ...     sizes.update(size)
    >>> sizes.sum, sizes.count, sizes.min, sizes.max
    (6, 3, 1, 3)
    """

    def __init__(self) -> None:
        self.sum = 0
        self.count = 0
        self.min: int | None = None
        self.max: int | None = None

    def update(self, value: int) -> None:
        """Add a value."""
        self.sum += value
        self.count += 1
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)


class MetricGroup:
    """Metrics by name, and groups inside it.

    >>> group = MetricGroup().add_group("parsing")
    >>> group.counter("broken").inc()
    >>> group.counter("broken").get_count()
    1
    """

    def __init__(self, path: tuple[str, ...] = ()) -> None:
        self.path = path
        self._groups: dict[tuple[str, ...], MetricGroup] = {}
        self._metrics: dict[str, Metric] = {}
        self._gauges: dict[str, Callable[[], int]] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """The group of this name inside this one; with `extra`, a name and a value for it."""
        key = (name,) if extra is None else (name, extra)
        return self._groups.setdefault(key, MetricGroup(self.path + key))

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        return self._metric(name, Counter())

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """A number that is asked for when somebody looks."""
        self._gauges[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """The meter of this name."""
        return self._metric(name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """The distribution of this name."""
        return self._metric(name, Distribution())

    def _metric(self, name: str, new: M) -> M:
        known = self._metrics.setdefault(name, new)
        return known if isinstance(known, type(new)) else new
