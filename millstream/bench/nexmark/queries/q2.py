"""Selection: bids of some auctions."""

from __future__ import annotations

from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.datastream import DataStream


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, price) of each bid"""
    some = bids(events).filter(lambda bid: bid.auction % 123 == 0)
    return some.map(lambda bid: (bid.auction, bid.price))
