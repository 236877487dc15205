"""Last bid: of each bidder in each auction. It changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor


class Last(KeyedProcessFunction[Any, Any]):
    """The latest by time, whenever it comes; of those of one time the one that is greater field by field."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(
            ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        last = self.last.value()
        if last is None or value > last:
            if last is not None:
                yield (-1, *last)
            self.last.update(value)
            yield (1, *value)


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(change, time, bidder, auction, price, channel, url, extra)"""
    rows = bids(events).map(
        lambda b: (b.time, b.bidder, b.auction, b.price, b.channel, b.url, b.extra)
    )
    return rows.key_by(lambda row: (row[1], row[2])).process(Last())
