"""Highest bid: of every ten seconds; of equal bids all.

The highest of each auction first, so that the one subtask that sees all auctions sees little.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Time
from millstream.datastream import AggregateFunction, AllWindowFunction, DataStream
from millstream.datastream.window import TumblingEventTimeWindows

SIZE = Time.seconds(10)


class Highest(AggregateFunction[Any, list[Any], list[Any]]):
    """All bids (auction, price, ..) of the highest price."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        if not accumulator or value[1] > accumulator[0][1]:
            return [value]
        if value[1] == accumulator[0][1]:
            return [*accumulator, value]
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        for bid in acc_b:
            acc_a = self.add(bid, acc_a)
        return acc_a


class HighestOfAll(AllWindowFunction[Any, Any, Any]):
    """The same of all auctions."""

    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        found = [bid for of_auction in inputs for bid in of_auction]
        price = max(bid[1] for bid in found)
        return [bid for bid in found if bid[1] == price]


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, price, bidder, time, extra)"""
    offers = bids(events).map(lambda b: (b.auction, b.price, b.bidder, b.time, b.extra))
    windows = offers.key_by(0).window(TumblingEventTimeWindows.of(SIZE))
    return (
        windows.aggregate(Highest())
        .window_all(TumblingEventTimeWindows.of(SIZE))
        .apply(HighestOfAll())
    )
