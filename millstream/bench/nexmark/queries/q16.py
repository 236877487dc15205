"""Channel statistics of each day: bids, bidders and auctions, in all and by three ranks of price.

Given when the day is over; the SQL form changes its results with every bid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import MapStateDescriptor

DAY = 86_400_000


class Statistics(KeyedProcessFunction[Any, Any]):
    """Of (channel, bidder, auction, price). A number's bits say in which ranks it was seen; bit 0 stands for all."""

    def open(self, runtime_context: RuntimeContext) -> None:
        def by_day(name: str, value: Any) -> Any:
            key = Types.PICKLED_BYTE_ARRAY()
            return runtime_context.get_map_state(MapStateDescriptor(name, key, value))

        self.counts = by_day("counts", Types.LIST(Types.LONG()))  # day: 4 of bids, bidders, auctions
        self.ranks = by_day("ranks", Types.LONG())  # (day, kind, number): ranks

    def process_element(self, value: Any, ctx: Any) -> None:
        _, bidder, auction, price = value
        day = ctx.timestamp() // DAY
        rank = 1 if price < 10_000 else 2 if price < 1_000_000 else 3
        counts = self.counts.get(day)
        if counts is None:
            counts = [0] * 12
            ctx.timer_service().register_event_time_timer((day + 1) * DAY - 1)
        counts = [*counts]
        counts[0] += 1
        counts[rank] += 1
        for place, number in ((4, bidder), (8, auction)):
            seen = self.ranks.get((day, place, number)) or 0
            now = seen | 1 | 1 << rank
            if now != seen:
                self.ranks.put((day, place, number), now)
                counts[place] += not seen
                counts[place + rank] += 1
        self.counts.put(day, counts)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        day = timestamp // DAY
        yield (ctx.get_current_key(), day, *self.counts.get(day))
        self.counts.remove(day)
        for seen in [seen for seen in self.ranks.keys() if seen[0] == day]:
            self.ranks.remove(seen)


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(channel, day, bids: all and by rank, bidders: likewise, auctions: likewise)"""
    narrow = bids(events).map(lambda bid: (bid.channel, bid.bidder, bid.auction, bid.price))
    return narrow.key_by(0).process(Statistics())
