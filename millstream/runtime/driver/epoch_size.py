"""How many records go into an epoch: as many as, by what the last epochs took, fit into the interval.

An epoch takes a fixed time, that of planning, scheduling and publishing, and a time for each record. Where the fixed
time alone comes near the interval, or is longer, smaller epochs would not be shorter, only fewer records would be read:
then they may take twice the fixed time.
"""

from __future__ import annotations

from collections import deque
from statistics import linear_regression

__all__ = ["EpochSize"]

_FIRST = 5_000
_LEAST = 1_000
_GROWTH = 8.0
_WARM_UP = 2
_REMEMBERED = 16
# Sizes that differ by less say nothing about what is fixed.
_DIFFERENT = 1.2


class EpochSize:
    """Learns from each epoch how large the next may be; with `fixed`, all are of that size.

    >>> size = EpochSize(interval=1.0)
    >>> for _ in range(4):
    ...     size.learn(size.records, seconds=0.1 + size.records / 1_000_000)
    >>> size.records
    900000
    """

    def __init__(self, interval: float, fixed: int | None = None) -> None:
        self._interval = interval
        self._fixed = fixed
        self.records = fixed or _FIRST
        """How many the next epoch may read."""
        self._least = _LEAST
        self._warm_up = _WARM_UP
        self._epochs = 0
        self._seen: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self._floor = 0.0

    @classmethod
    def of_range(cls, seconds: float) -> EpochSize:
        """Of what a subtask is told to read at a time, where that costs next to nothing: it begins with one record, and
        may stay there if that alone takes long.

        >>> size = EpochSize.of_range(0.05)
        >>> for _ in range(3):
        ...     size.learn(size.records, seconds=0.02 * size.records)
        >>> size.records
        2
        """
        size = cls(seconds)
        size.records = size._least = 1
        size._warm_up = 0
        return size

    def change(self, interval: float) -> None:
        """Epochs are to take another time from now on.

        >>> size = EpochSize(interval=1.0)
        >>> size.change(4.0)
        >>> size.records
        20000
        """
        if not self._fixed:
            self.records = max(self._least, int(self.records * interval / self._interval))
        self._interval = interval

    def learn(self, records: int, seconds: float) -> None:
        """An epoch of so many records took so long."""
        if not records or self._fixed:
            return
        self._epochs += 1
        if self._epochs <= self._warm_up and seconds > self._interval:
            # The first epochs also start workers and compile; their time says nothing about the records.
            return
        self._seen.append((records, seconds))
        floor = self._fixed_seconds()
        may_take = max(self._interval, 2 * floor)
        # An epoch that was not full says little about how fast a full one would be.
        if records >= self.records * 0.9 or seconds > may_take * 1.5:
            wanted = records * (may_take - floor) / max(1e-3, seconds - floor)
            self.records = max(self._least, int(min(wanted, self.records * _GROWTH)))

    def _fixed_seconds(self) -> float:
        """How long an epoch of no records would take, as far as epochs of different sizes tell."""
        sizes = [size for size, _ in self._seen]
        if max(sizes) >= _DIFFERENT * min(sizes):
            times = [seconds for _, seconds in self._seen]
            self._floor = min(max(0.0, linear_regression(sizes, times).intercept), *times)
        return self._floor
