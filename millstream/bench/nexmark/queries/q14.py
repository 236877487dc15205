"""Calculation: bids of some prices in euros, with the time of day, and how often a letter is in their text."""

from __future__ import annotations

from typing import Any

from millstream.bench.nexmark.model import Bid, Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.datastream import DataStream


def time_of_day(time: int) -> str:
    """By the hour in UTC."""
    hour = time // 3_600_000 % 24
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def calculate(bid: Bid) -> Any:
    """The row of a bid."""
    euros = bid.price * 908 // 1000
    day = time_of_day(bid.time)
    return bid.auction, bid.bidder, euros, day, bid.time, bid.extra, bid.extra.count("c")


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, bidder, price in euro cents, time of day, time, extra, letters c)"""
    dear = bids(events).filter(lambda bid: 1_000_000 < bid.price * 908 // 1000 < 50_000_000)
    return dear.map(calculate)
