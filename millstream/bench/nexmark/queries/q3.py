"""Local items: who sells things of category 10 in Oregon, Idaho and California.

A join of two streams without a window. A person stays; an auction waits for its seller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import auctions, persons
from millstream.common import Types
from millstream.datastream import DataStream, KeyedCoProcessFunction, RuntimeContext
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor

STATES = {"OR", "ID", "CA"}
WAIT = 600_000  # how long an auction waits, as in Beam


class SellersAndAuctions(KeyedCoProcessFunction):
    """A seller (id, name, city, state) meets auctions (seller, id)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.person = runtime_context.get_state(
            ValueStateDescriptor("person", Types.PICKLED_BYTE_ARRAY())
        )
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", pair))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.person.update(value[1:])
        for auction, _ in self.waiting:
            yield (*value[1:], auction)
        self.waiting.clear()

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        person = self.person.value()
        if person is not None:
            yield (*person, value[1])
        else:
            until = ctx.timestamp() + WAIT
            self.waiting.add((value[1], until))
            ctx.timer_service().register_event_time_timer(until)

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        self.waiting.update([waiting for waiting in self.waiting if waiting[1] > timestamp])


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(name, city, state, auction)"""
    local = persons(events).filter(lambda person: person.state in STATES)
    sellers = local.map(lambda person: (person.id, person.name, person.city, person.state))
    of_category = auctions(events).filter(lambda auction: auction.category == 10)
    items = of_category.map(lambda auction: (auction.seller, auction.id))
    both = sellers.key_by(0).connect(items.key_by(0))
    found: DataStream[Any] = both.process(SellersAndAuctions())
    return found
