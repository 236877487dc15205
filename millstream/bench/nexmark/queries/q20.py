"""Expand bid with auction: each bid for something of category 10, with the auction.

Bids are made a fraction of a second before or after their auction begins; SQL has no bound and keeps everything, the
interval join keeps ten seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import auctions, bids
from millstream.datastream import DataStream, ProcessJoinFunction


class Expand(ProcessJoinFunction[Any, Any, Any]):
    """Both, side by side."""

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left + right


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(the bid's fields, the auction's fields)"""
    offers = bids(events).map(tuple).key_by(0)
    items = auctions(events).filter(lambda auction: auction.category == 10).map(tuple).key_by(0)
    return offers.interval_join(items).between("-10 s", "10 s").process(Expand())
