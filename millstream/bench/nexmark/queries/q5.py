"""Hot items: the auctions with the most bids of the last ten seconds, every two seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Time
from millstream.datastream import AggregateFunction, DataStream, WindowFunction
from millstream.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows

SIZE, SLIDE = Time.seconds(10), Time.seconds(2)


class Count(AggregateFunction[Any, int, int]):
    """How many there are."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class OfWindow(WindowFunction[int, Any, int, Any]):
    """The count of a window, with the window."""

    def apply(self, key: int, window: Any, inputs: Iterable[int]) -> Iterable[Any]:
        return [(window.end, key, count) for count in inputs]


class Most(WindowFunction[Any, Any, int, Any]):
    """Auctions with the highest count of a window, of which there may be several."""

    def apply(self, key: int, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        counts = list(inputs)
        most = max(count for _, _, count in counts)
        return [counted for counted in counts if counted[2] == most]


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(end of the window, auction, bids)"""
    by_auction = bids(events).map(lambda bid: (bid.auction,)).key_by(0)
    counts = by_auction.window(SlidingEventTimeWindows.of(SIZE, SLIDE)).aggregate(
        Count(), OfWindow()
    )
    # A count has its window's last millisecond for a timestamp, so one tumbling window has those of one window.
    return counts.key_by(0).window(TumblingEventTimeWindows.of(SLIDE)).apply(Most())
