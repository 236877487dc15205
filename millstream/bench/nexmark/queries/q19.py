"""Auction top ten: the ten highest bids of each auction. They change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Types
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor


class TopTen(KeyedProcessFunction[Any, Any]):
    """Keeps rows (-price, ...) in order: a bid that is among them comes in, and what was the tenth goes out."""

    def open(self, runtime_context: RuntimeContext) -> None:
        rows = Types.LIST(Types.PICKLED_BYTE_ARRAY())
        self.top = runtime_context.get_state(ValueStateDescriptor("top", rows))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        top = self.top.value() or []
        if len(top) == 10 and value >= top[9]:
            return
        after = sorted([*top, value])
        if len(after) > 10:
            yield (-1, *after.pop())
        self.top.update(after)
        yield (1, *value)


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(change, -price, time, bidder, auction, channel, url, extra)"""
    rows = bids(events).map(
        lambda b: (-b.price, b.time, b.bidder, b.auction, b.channel, b.url, b.extra)
    )
    return rows.key_by(lambda row: row[3]).process(TopTen())
