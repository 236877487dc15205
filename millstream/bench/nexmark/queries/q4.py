"""Average price for a category: of the winning bids of its auctions that have ended. The average changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.closing import CATEGORY, winning_bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor


class Average(KeyedProcessFunction[Any, Any]):
    """The mean of all prices so far, rounded down, as changes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.sums = runtime_context.get_state(ValueStateDescriptor("sums", pair))

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Any]:
        category, price = value
        total, count = self.sums.value() or (0, 0)
        if count:
            yield -1, category, total // count
        self.sums.update((total + price, count + 1))
        yield 1, category, (total + price) // (count + 1)


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(change, category, mean price)"""
    prices = winning_bids(events).map(lambda won: (won[0][CATEGORY], won[1][2]))
    return prices.key_by(0).process(Average())
