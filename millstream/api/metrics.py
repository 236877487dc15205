"""Metrics of user functions: counters, gauges, meters, distributions (PyFlink's `pyflink.metrics`).

`runtime_context.get_metrics_group()` gives the group of an operator in a subtask. Its metrics live in the subtask's
process; what they came to is told to the driver at the end of every epoch, and shown from there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

from millstream.errors import InvalidArgument
from millstream.redaction import get_logger

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]

M = TypeVar("M", bound="Metric")

_log = get_logger(__name__)


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
        if time_span_in_seconds < 1:
            msg = "a meter needs a time span of a second or more"
            raise InvalidArgument(msg, got=repr(time_span_in_seconds))
        self._span = time_span_in_seconds
        self._count = 0
        # Second by second, so that a meter of many events is no longer than its time span.
        self._events: deque[tuple[int, int]] = deque()

    def mark_event(self, value: int = 1) -> None:
        """So many events have happened now."""
        self._count += value
        now = int(time.monotonic())
        events = self._events
        if events and events[-1][0] == now:
            events[-1] = now, events[-1][1] + value
            return
        events.append((now, value))
        while events[0][0] <= now - self._span:
            events.popleft()

    def get_count(self) -> int:
        """How many events there have been."""
        return self._count

    def get_rate(self) -> float:
        """How many there are a second, over the time span."""
        since = time.monotonic() - self._span
        # A copy, which another thread of the function does not lengthen.
        events = list(self._events)
        return sum(value for second, value in events if second > since) / self._span


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


class Gauge(Metric):
    """A number that is asked for when somebody looks. PyFlink has no class for it."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask


class MetricGroup:
    """Metrics by name, and groups inside it.

    >>> group = MetricGroup().add_group("parsing")
    >>> group.counter("broken").inc()
    >>> group.counter("broken").get_count()
    1

    A name is one metric's: a second one of another kind works, but is not shown (in Flink neither), and a line in the
    log says so. A second gauge of a name takes the place of the first.
    """

    def __init__(self, path: tuple[tuple[str, ...], ...] = ()) -> None:
        self.path = path
        self._groups: dict[tuple[str, ...], MetricGroup] = {}
        self._metrics: dict[str, Metric] = {}
        self._not_shown: dict[tuple[str, type[Metric]], Metric] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        """The group of this name inside this one; with `extra`, a name and a value for it, which becomes a label."""
        key = (_checked(name),) if extra is None else (_checked(name), _checked(extra))
        if key not in self._groups:
            self._groups[key] = MetricGroup((*self.path, key))
        return self._groups[key]

    def counter(self, name: str) -> Counter:
        """The counter of this name."""
        return self._metric(name, Counter())

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        """A number that is asked for when somebody looks."""
        self._metric(name, Gauge(obj)).ask = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """The meter of this name."""
        return self._metric(name, Meter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        """The distribution of this name."""
        return self._metric(name, Distribution())

    def _metric(self, name: str, new: M) -> M:
        known = self._metrics.setdefault(_checked(name), new)
        if isinstance(known, type(new)):
            return known
        key = name, type(new)
        if key not in self._not_shown:
            kinds = type(known).__name__.lower(), type(new).__name__.lower()
            _log.warning("the %s %r is not shown: a %s has that name", kinds[1], name, kinds[0])
        shadow = self._not_shown.setdefault(key, new)
        assert isinstance(shadow, type(new))
        return shadow

    def _all(self) -> Iterator[tuple[tuple[tuple[str, ...], ...], str, Metric]]:
        """Every metric that is shown, with the groups that it stands in and its name."""
        # Copies, which another thread of the function does not lengthen.
        for name, metric in list(self._metrics.items()):
            yield self.path, name, metric
        for group in list(self._groups.values()):
            yield from group._all()


def _checked(name: str) -> str:
    if not isinstance(name, str) or not name:
        msg = "metrics and their groups are named by texts that are not empty"
        raise InvalidArgument(msg, got=repr(name)[:200])
    return name
