"""The three streams that the queries begin with."""

from __future__ import annotations

from millstream.bench.nexmark.model import Auction, Bid, Event, Person
from millstream.datastream import DataStream

__all__ = ["auctions", "bids", "persons"]


def persons(events: DataStream[Event]) -> DataStream[Person]:
    """People, when they come."""
    return events.filter(lambda event: isinstance(event, Person))  # type: ignore[return-value]


def auctions(events: DataStream[Event]) -> DataStream[Auction]:
    """Auctions, when they begin."""
    return events.filter(lambda event: isinstance(event, Auction))  # type: ignore[return-value]


def bids(events: DataStream[Event]) -> DataStream[Bid]:
    """Bids of all auctions."""
    return events.filter(lambda event: isinstance(event, Bid))  # type: ignore[return-value]
