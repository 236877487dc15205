"""Figures of a job over time, for charts: a point a second, of the last quarter of an hour."""

from __future__ import annotations

import threading
from collections.abc import Mapping

__all__ = ["History"]

KEPT = 900
"""How many points are kept."""

_APART = 1.0


class History:
    """Lists of equal length, one for each name, and the times of their points in seconds since 1970.

    >>> history = History()
    >>> history.add(100.0, {"rate": 1.0})
    >>> history.add(101.5, {"rate": 2.0, "lag": 3.0})
    >>> history.read()
    ([100.0, 101.5], {'rate': [1.0, 2.0], 'lag': [None, 3.0]})
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._series: dict[str, list[float | None]] = {}
        self._lock = threading.Lock()

    def is_due(self, now: float) -> bool:
        """True if the last point is a second old."""
        return not self._times or now - self._times[-1] >= _APART or now < self._times[-1]

    def add(self, now: float, figures: Mapping[str, float | None]) -> None:
        """A point of every name; those that are not there now have none."""
        with self._lock:
            for name in figures:
                if name not in self._series:
                    self._series[name] = [None] * len(self._times)
            self._times.append(now)
            for name, values in self._series.items():
                values.append(figures.get(name))
            if len(self._times) > KEPT:
                del self._times[0]
                for values in self._series.values():
                    del values[0]

    def read(self) -> tuple[list[float], dict[str, list[float | None]]]:
        """Copies, for another thread."""
        with self._lock:
            return list(self._times), {name: list(line) for name, line in self._series.items()}
