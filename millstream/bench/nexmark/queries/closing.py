"""What queries 4, 6 and 9 have in common: the winning bid of each auction, when the auction ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import auctions, bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedCoProcessFunction, RuntimeContext
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor

__all__ = ["CATEGORY", "EXPIRES", "ID", "SELLER", "winning_bids"]

# Fields of an auction, which is a plain tuple here: plain tuples are quicker to send and to keep than named ones.
ID, TIME, EXPIRES, SELLER, CATEGORY = 0, 5, 6, 7, 8


class WinningBid(KeyedCoProcessFunction):
    """An auction meets its bids (auction, bidder, price, time), some of which come before it does."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", pickled))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", pickled))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", pickled))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.auction.update(value)
        for bid in self.early:
            self.offer(value, bid)
        self.early.clear()
        ctx.timer_service().register_event_time_timer(value[EXPIRES])

    def process_element2(self, value: Any, ctx: Any) -> None:
        auction = self.auction.value()
        if auction:
            self.offer(auction, value)
        else:
            # The auction may come as long as the watermark has not reached the bid.
            self.early.add(value)
            ctx.timer_service().register_event_time_timer(value[3])

    def offer(self, auction: Any, bid: Any) -> None:
        # The highest bid wins; of equal ones the earliest.
        _, bidder, price, time = bid
        if auction[TIME] <= time <= auction[EXPIRES]:
            best = self.best.value()
            if best is None or (-price, time, bidder) < (-best[2], best[3], best[1]):
                self.best.update(bid)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        auction = self.auction.value()
        if not auction:
            self.early.update([bid for bid in self.early if bid[3] > timestamp])
        elif timestamp == auction[EXPIRES]:
            if self.best.value():
                yield auction, self.best.value()
            self.auction.clear()
            self.best.clear()


def winning_bids(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, its winning bid) of each auction that has one."""
    offers = bids(events).map(lambda bid: (bid.auction, bid.bidder, bid.price, bid.time))
    plain = auctions(events).map(tuple)
    won: DataStream[Any] = plain.key_by(0).connect(offers.key_by(0)).process(WinningBid())
    return won
