"""Average selling price: of the last ten auctions of each seller that have ended. The average changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.closing import EXPIRES, ID, SELLER, winning_bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor


def mean(closed: list[tuple[int, int, int]]) -> int:
    """The mean price, rounded down."""
    return sum(price for _, _, price in closed) // len(closed)


class LastTen(KeyedProcessFunction[Any, Any]):
    """Keeps (end, auction, price) of the last ten by time, in whichever order they come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        triple = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LIST(triple)))

    def process_element(self, value: tuple[int, int, int, int], ctx: Any) -> Iterator[Any]:
        seller, *closed = value
        before = self.last.value() or []
        after = sorted([*before, tuple(closed)])[-10:]
        self.last.update(after)
        if before:
            yield -1, seller, mean(before)
        yield 1, seller, mean(after)


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(change, seller, mean price)"""
    prices = winning_bids(events).map(lambda w: (w[0][SELLER], w[0][EXPIRES], w[0][ID], w[1][2]))
    return prices.key_by(0).process(LastTen())
