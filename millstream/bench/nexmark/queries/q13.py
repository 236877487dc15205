"""Bounded side input join: bids with what a table of 10,000 rows says of their auction.

The table is read when a subtask opens, as Flink's file lookup does.
"""

from __future__ import annotations

from typing import Any

from millstream.bench.nexmark.catalogue import side_input
from millstream.bench.nexmark.model import Bid, Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.datastream import DataStream, MapFunction, RuntimeContext


class Lookup(MapFunction[Bid, Any]):
    """A dictionary for each subtask."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.table = side_input()

    def map(self, value: Bid) -> Any:
        found = self.table[value.auction % len(self.table)]
        return value.auction, value.bidder, value.price, value.time, found


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, bidder, price, time, value of the table)"""
    return bids(events).map(Lookup())
