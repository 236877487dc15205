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
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor

DAY = 86_400_000


class Statistics(KeyedProcessFunction[Any, Any]):
    """Of (channel, day, bidder, auction, price), by channel and day."""

    def open(self, runtime_context: RuntimeContext) -> None:
        # Bids, bidders and auctions: of all prices, then of each rank.
        counts = ValueStateDescriptor("counts", Types.LIST(Types.LONG()))
        self.counts = runtime_context.get_state(counts)
        # (place of its count, bidder or auction): the ranks it was seen in, as bits.
        seen = MapStateDescriptor("seen", Types.PICKLED_BYTE_ARRAY(), Types.LONG())
        self.seen = runtime_context.get_map_state(seen)

    def process_element(self, value: Any, ctx: Any) -> None:
        _, day, bidder, auction, price = value
        rank = 1 if price < 10_000 else 2 if price < 1_000_000 else 3
        counts = list(self.counts.value() or [0] * 12)
        if counts[0] == 0:
            ctx.timer_service().register_event_time_timer((day + 1) * DAY - 1)
        counts[0] += 1
        counts[rank] += 1
        for place, number in ((4, bidder), (8, auction)):
            seen = self.seen.get((place, number)) or 0
            if not seen & 1 << rank:
                self.seen.put((place, number), seen | 1 << rank)
                counts[place] += not seen
                counts[place + rank] += 1
        self.counts.update(counts)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield (*ctx.get_current_key(), *self.counts.value())
        self.counts.clear()
        self.seen.clear()


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(channel, day, bids: all and by rank, bidders: likewise, auctions: likewise)"""
    rows = bids(events).map(lambda b: (b.channel, b.time // DAY, b.bidder, b.auction, b.price))
    return rows.key_by(lambda row: (row[0], row[1])).process(Statistics())
