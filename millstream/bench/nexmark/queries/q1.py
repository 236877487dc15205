"""Currency conversion: prices of bids in euros."""

from __future__ import annotations

from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.datastream import DataStream


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, bidder, price in euro cents, time, extra)"""
    return bids(events).map(lambda b: (b.auction, b.bidder, b.price * 908 // 1000, b.time, b.extra))
