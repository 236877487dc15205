"""How long records take from their source to each sink, by markers in the buffers (Flink's `LatencyMarker`).

Now and then a source notes the time at which it has read. The note goes with the next buffers to every target, and on
from each chain that has processed its buffer, until it comes to a sink. It changes nothing else: buffers begin and end
where they would, and records are handed on in the same pieces. Hosts must agree on the time for the numbers to mean
much.
"""

from __future__ import annotations

import time

from millstream.runtime.base.histogram import Histogram
from millstream.runtime.task.chain import Chain
from millstream.runtime.wire.reports import LatencyReport

__all__ = ["LatencyMarkers"]

_MICROSECONDS = 1_000_000


class LatencyMarkers:
    """The markers of one task in one epoch; `interval` is in seconds, 0 for no markers."""

    def __init__(self, interval: float, last: float) -> None:
        self._interval = interval
        self.last = last
        """When the last one was made, on the clock of `time.monotonic`."""
        self._seen: dict[str, Histogram] = {}

    def due(self) -> int:
        """A marker for what has been read just now if it is time for one, else 0."""
        if not self._interval:
            return 0
        now = time.monotonic()
        if now - self.last < self._interval:
            return 0
        self.last = now
        return int(time.time() * _MICROSECONDS)

    def passed(self, chain: Chain, marker: int) -> None:
        """A chain has processed what a marker stands behind."""
        seconds = max(0.0, time.time() - marker / _MICROSECONDS)
        for sink in chain.sinks:
            self._seen.setdefault(sink, Histogram()).add(seconds)
        for writer in chain.writers.values():
            writer.probe(marker)

    def report(self) -> dict[str, LatencyReport]:
        """By the uid of a sink, how long markers took."""
        return {
            sink: LatencyReport(seen.buckets, seen.total, seen.largest)
            for sink, seen in self._seen.items()
        }
