"""What the metrics of an operator's functions came to in an epoch, in one subtask.

They are told as differences from the last time, so that only epochs that have run are counted: an attempt that fails
takes its functions with it, and with them all that it has counted. Whatever a program does to its metrics, the job goes
on: what cannot be told is left out, with one line in the log.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

from millstream.api.metrics import Counter, Distribution, Gauge, Meter, Metric, MetricGroup
from millstream.errors import told
from millstream.redaction import get_logger
from millstream.runtime.base.text import shorten
from millstream.runtime.wire.reports import UserMetric

__all__ = ["UserMetrics"]

_log = get_logger(__name__)

# What a report can hold.
_MOST = 1 << 62


class UserMetrics:
    """The metrics of one operator's functions, and what has been told of them."""

    def __init__(self, operator: str) -> None:
        self.group = MetricGroup()
        self._operator = operator
        # By metric, what its count and its sum were.
        self._told: dict[Metric, tuple[int, float]] = {}
        self._warned: set[Metric] = set()

    def take(self) -> list[UserMetric]:
        """What is new since the last time; of gauges, what they are at."""
        return [
            news
            for groups, name, metric in self.group._all()
            if (news := self._safely(groups, name, metric)) is not None
        ]

    def _safely(
        self, groups: tuple[tuple[str, ...], ...], name: str, metric: Metric
    ) -> UserMetric | None:
        path = tuple(tuple(map(_text, group)) for group in groups)
        try:
            return self._tell(path, _text(name), metric)
        except Exception as error:
            if metric not in self._warned:
                self._warned.add(metric)
                kind = type(metric).__name__.lower()
                text = "the %s %r of '%s' has no value that can be shown: %s"
                _log.warning(text, kind, name, self._operator, told(error))
            # A gauge that had a value has none now; what was counted before stays.
            absent = UserMetric(name=_text(name), kind="absent", groups=path)
            return absent if isinstance(metric, Gauge) else None

    def _tell(
        self, groups: tuple[tuple[str, ...], ...], name: str, metric: Metric
    ) -> UserMetric | None:
        if isinstance(metric, Gauge):
            value = _number(metric.ask())
            return UserMetric(name=name, kind="gauge", groups=groups, value=value)
        new = metric not in self._told
        before, sum_before = self._told.get(metric, (0, 0.0))
        if isinstance(metric, Counter):
            count = _whole(metric.get_count())
            self._told[metric] = count, 0.0
            if count == before and not new:
                return None
            return UserMetric(name=name, kind="counter", groups=groups, count=count - before)
        if isinstance(metric, Meter):
            count = _whole(metric.get_count())
            rate = _number(metric.get_rate())
            self._told[metric] = count, 0.0
            return UserMetric(
                name=name, kind="meter", groups=groups, count=count - before, value=rate
            )
        assert isinstance(metric, Distribution)
        if metric.count == before and not new:
            return None
        total = _number(metric.sum)
        least = None if metric.min is None else _number(metric.min)
        largest = None if metric.max is None else _number(metric.max)
        count = metric.count - before
        self._told[metric] = metric.count, total
        return UserMetric(
            name=name,
            kind="distribution",
            groups=groups,
            count=count,
            value=total - sum_before,
            least=least,
            largest=largest,
        )


def _whole(value: object) -> int:
    if not isinstance(value, Integral) or abs(int(value)) > _MOST:
        msg = f"{shorten(value)} is no whole number below 2**62"
        raise TypeError(msg)
    return int(value)


def _number(value: object) -> float:
    if not isinstance(value, Real) or not math.isfinite(float(value)):
        msg = f"{shorten(value)} is no number"
        raise TypeError(msg)
    return float(value)


def _text(name: str) -> str:
    """A name may come from data, with characters that have no bytes."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
