"""The three kinds of events. Times are milliseconds since 1970, prices whole cents."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["Auction", "Bid", "Event", "Person"]


class Person(NamedTuple):
    """Somebody who may sell and bid has come."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    time: int
    extra: str


class Auction(NamedTuple):
    """Something is for sale, from `time` until `expires`."""

    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    time: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    """Somebody offers a price in an auction, which may not have begun or may be over."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    time: int
    extra: str


Event: TypeAlias = Person | Auction | Bid
