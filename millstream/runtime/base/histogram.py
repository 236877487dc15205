"""A histogram of durations that can be sent, added up and asked for percentiles."""

from __future__ import annotations

import math
from collections.abc import Mapping

__all__ = ["Histogram"]

# Bounds of buckets are this far apart: what a percentile says is within 2.5% of the truth.
_STEP = math.log(1.05)
_LEAST = 1e-6


class Histogram:
    """How many durations, in seconds, fell into each bucket of a growing scale.

    >>> histogram = Histogram()
    >>> for milliseconds in range(1, 101):
    ...     histogram.add(milliseconds / 1000)
    >>> histogram.count, round(histogram.quantile(0.5), 2), histogram.largest
    (100, 0.05, 0.1)
    """

    __slots__ = ("buckets", "count", "largest", "total")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        bucket = round(math.log(max(seconds, _LEAST)) / _STEP)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += seconds
        self.largest = max(self.largest, seconds)

    def merge(self, buckets: Mapping[int, int], total: float, largest: float) -> None:
        """Take in another one's buckets, sum and maximum."""
        for bucket, count in buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
            self.count += count
        self.total += total
        self.largest = max(self.largest, largest)

    @property
    def mean(self) -> float:
        """The mean; 0 of nothing."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """What this share of all durations is not above; 0 of nothing.

        >>> Histogram().quantile(0.99)
        0.0
        """
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(math.exp(bucket * _STEP), self.largest)
        return self.largest
