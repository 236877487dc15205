"""What queries 4, 6 and 9 have in common: the winning bid of each auction, when the auction ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Auction, Event
from millstream.bench.nexmark.queries.streams import auctions, bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedCoProcessFunction, RuntimeContext
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor

__all__ = ["winning_bids"]


class WinningBid(KeyedCoProcessFunction):
    """An auction meets its bids (auction, bidder, price, time), some of which come before it does."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction", pickled))
        self.best = runtime_context.get_state(ValueStateDescriptor("best", pickled))
        self.early = runtime_context.get_list_state(ListStateDescriptor("early", pickled))

    def process_element1(self, value: Auction, ctx: Any) -> None:
        self.auction.update(value)
        for bid in self.early:
            self.offer(value, bid)
        self.early.clear()
        ctx.timer_service().register_event_time_timer(value.expires)

    def process_element2(self, value: Any, ctx: Any) -> None:
        auction = self.auction.value()
        if auction is not None:
            self.offer(auction, value)
        else:
            # The auction may come as long as the watermark has not reached the bid.
            self.early.add(value)
            ctx.timer_service().register_event_time_timer(value[3])

    def offer(self, auction: Auction, bid: Any) -> None:
        """The highest bid wins; of equal ones the earliest."""
        _, bidder, price, time = bid
        if auction.time <= time <= auction.expires:
            best = self.best.value()
            if best is None or (-price, time, bidder) < (-best[2], best[3], best[1]):
                self.best.update(bid)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        auction = self.auction.value()
        if auction is None:
            self.early.update([bid for bid in self.early if bid[3] > timestamp])
        elif timestamp == auction.expires:
            best = self.best.value()
            if best is not None:
                yield auction, best
            self.auction.clear()
            self.best.clear()


def winning_bids(events: DataStream[Event]) -> DataStream[Any]:
    """(auction, its winning bid) of each auction that has one."""
    offers = bids(events).map(lambda bid: (bid.auction, bid.bidder, bid.price, bid.time))
    both = auctions(events).key_by(lambda auction: auction.id).connect(offers.key_by(0))
    return both.process(WinningBid())
