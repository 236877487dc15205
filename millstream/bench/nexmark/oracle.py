"""The right results of every query, found slowly: plain Python over the events in the order of their times.

Nothing here knows of streams, windows, state or parallelism, nor of the programs that are held against it. An oracle
takes the events, which it may go through several times, and gives rows; where results change, those that remain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from millstream.bench.nexmark.catalogue import CHANGES, QUERIES, TOTAL, side_input
from millstream.bench.nexmark.model import Auction, Bid, Event, Person
from millstream.bench.nexmark.tally import Tally

__all__ = ["digest", "rows"]

Rows = Iterator[tuple[Any, ...]]


def _bids(events: Iterable[Event]) -> Iterator[Bid]:
    return (event for event in events if isinstance(event, Bid))


def _auctions(events: Iterable[Event]) -> Iterator[Auction]:
    return (event for event in events if isinstance(event, Auction))


def _persons(events: Iterable[Event]) -> Iterator[Person]:
    return (event for event in events if isinstance(event, Person))


def _q0(events: Iterable[Event]) -> Rows:
    yield from map(tuple, _bids(events))


def _q1(events: Iterable[Event]) -> Rows:
    for bid in _bids(events):
        yield bid.auction, bid.bidder, bid.price * 908 // 1000, bid.time, bid.extra


def _q2(events: Iterable[Event]) -> Rows:
    for bid in _bids(events):
        if bid.auction % 123 == 0:
            yield bid.auction, bid.price


def _q3(events: Iterable[Event]) -> Rows:
    people = {person.id: person for person in _persons(events)}
    for auction in _auctions(events):
        seller = people.get(auction.seller)
        if auction.category == 10 and seller is not None and seller.state in ("OR", "ID", "CA"):
            yield seller.name, seller.city, seller.state, auction.id


def _won(events: Iterable[Event]) -> Iterator[tuple[Auction, Bid]]:
    """Each auction that somebody bid for while it was open, and the best bid."""
    known = {auction.id: auction for auction in _auctions(events)}
    offers: dict[int, Bid] = {}
    for bid in _bids(events):
        auction = known.get(bid.auction)
        if auction is not None and auction.time <= bid.time <= auction.expires:
            best = offers.setdefault(bid.auction, bid)
            if bid.price > best.price or (
                bid.price == best.price and (bid.time, bid.bidder) < (best.time, best.bidder)
            ):
                offers[bid.auction] = bid
    for number, best in offers.items():
        yield known[number], best


def _q4(events: Iterable[Event]) -> Rows:
    prices = defaultdict(list)
    for auction, bid in _won(events):
        prices[auction.category].append(bid.price)
    for category, found in prices.items():
        yield category, sum(found) // len(found)


def _q5(events: Iterable[Event]) -> Rows:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in _bids(events):
        first = bid.time // 2_000 * 2_000 + 2_000  # the end of the first window it is in
        for end in range(first, first + 10_000, 2_000):
            counts[end][bid.auction] += 1
    for end, counter in counts.items():
        most = max(counter.values())
        yield from ((end, auction, n) for auction, n in counter.items() if n == most)


def _q6(events: Iterable[Event]) -> Rows:
    closed = defaultdict(list)
    for auction, bid in _won(events):
        closed[auction.seller].append((auction.expires, auction.id, bid.price))
    for seller, found in closed.items():
        prices = [price for _, _, price in sorted(found)[-10:]]
        yield seller, sum(prices) // len(prices)


def _q7(events: Iterable[Event]) -> Rows:
    highest: dict[int, int] = {}
    for bid in _bids(events):
        window = bid.time // 10_000
        highest[window] = max(bid.price, highest.get(window, 0))
    for bid in _bids(events):
        if bid.price == highest[bid.time // 10_000]:
            yield bid.auction, bid.price, bid.bidder, bid.time, bid.extra


def _q8(events: Iterable[Event]) -> Rows:
    sold = {(auction.seller, auction.time // 10_000) for auction in _auctions(events)}
    for person in _persons(events):
        if (person.id, person.time // 10_000) in sold:
            yield person.id, person.name, person.time // 10_000 * 10_000


def _q9(events: Iterable[Event]) -> Rows:
    for auction, bid in _won(events):
        yield (*auction, bid.bidder, bid.price, bid.time)


def _q11(events: Iterable[Event]) -> Rows:
    times = defaultdict(list)
    for bid in _bids(events):
        times[bid.bidder].append(bid.time)
    for bidder, found in times.items():
        found.sort()
        start, count = found[0], 0
        for at, following in zip(found, [*found[1:], None], strict=True):
            count += 1
            if following is None or following - at > 10_000:
                yield bidder, count, start, at + 10_000
                start, count = following or 0, 0


def _q12(events: Iterable[Event]) -> Rows:
    # When the clock strikes is not known; how many bids there are is.
    yield None, sum(1 for _ in _bids(events))


def _q13(events: Iterable[Event]) -> Rows:
    table = side_input()
    for bid in _bids(events):
        yield bid.auction, bid.bidder, bid.price, bid.time, table[bid.auction % 10_000]


def _q14(events: Iterable[Event]) -> Rows:
    names = dict.fromkeys(range(8, 19), "dayTime") | {7: "otherTime", 19: "otherTime"}
    for bid in _bids(events):
        price = bid.price * 908 // 1000
        if 1_000_000 < price < 50_000_000:
            day = names.get(datetime.fromtimestamp(bid.time / 1_000, UTC).hour, "nightTime")
            letters = sum(letter == "c" for letter in bid.extra)
            yield bid.auction, bid.bidder, price, day, bid.time, bid.extra, letters


def _q16(events: Iterable[Event]) -> Rows:
    limits = [(0, 10**18), (0, 10_000), (10_000, 1_000_000), (1_000_000, 10**18)]
    found = defaultdict(list)
    for bid in _bids(events):
        found[bid.channel, bid.time // 86_400_000].append((bid.price, bid.bidder, bid.auction))
    for key, offers in found.items():
        ranks = [[bid for bid in offers if low <= bid[0] < high] for low, high in limits]
        sizes = [len(rank) for rank in ranks]
        bidders = [len({bid[1] for bid in rank}) for rank in ranks]
        yield (*key, *sizes, *bidders, *(len({bid[2] for bid in rank}) for rank in ranks))


def _q18(events: Iterable[Event]) -> Rows:
    last: dict[tuple[int, int], tuple[Any, ...]] = {}
    for bid in _bids(events):
        key = (bid.bidder, bid.auction)
        row = (bid.time, *key, bid.price, bid.channel, bid.url, bid.extra)
        last[key] = max(row, last.get(key, row))
    yield from last.values()


def _q19(events: Iterable[Event]) -> Rows:
    offers = defaultdict(list)
    for b in _bids(events):
        row = (-b.price, b.time, b.bidder, b.auction, b.channel, b.url, b.extra)
        offers[b.auction].append(row)
        if len(offers[b.auction]) > 1_000:  # a hot one has many, and needs no more than ten
            offers[b.auction] = sorted(offers[b.auction])[:10]
    for found in offers.values():
        yield from sorted(found)[:10]


def _q20(events: Iterable[Event]) -> Rows:
    known = {auction.id: auction for auction in _auctions(events) if auction.category == 10}
    for bid in _bids(events):
        if bid.auction in known:
            yield (*bid, *known[bid.auction])


def rows(query: str, events: Iterable[Event]) -> Rows:
    """The results of a query over events that can be gone through again."""
    oracle: Callable[[Iterable[Event]], Rows] = globals()[f"_{query}"]
    return oracle(events)


def digest(query: str, events: Iterable[Event]) -> str:
    """The hash that a run of the query must have."""
    tally = Tally(query)
    changes = QUERIES[query].results == CHANGES
    tally.extend((1, *row) if changes else row for row in rows(query, events))
    assert QUERIES[query].results != TOTAL or tally.sum == 0
    return tally.digest()
