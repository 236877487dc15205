"""Bids as they are: what the generator, the source and the sink cost."""

from __future__ import annotations

from millstream.bench.nexmark.model import Bid, Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.datastream import DataStream


def query(events: DataStream[Event]) -> DataStream[Bid]:
    """All bids, whole."""
    return bids(events)
