"""User sessions: how many bids somebody made before being silent for ten seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.q5 import Count
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Time
from millstream.datastream import DataStream, WindowFunction
from millstream.datastream.window import EventTimeSessionWindows


class OfSession(WindowFunction[int, Any, int, Any]):
    """The count of a session, with the session."""

    def apply(self, key: int, window: Any, inputs: Iterable[int]) -> Iterable[Any]:
        return [(key, count, window.start, window.end) for count in inputs]


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(bidder, bids, start, end)"""
    by_bidder = bids(events).map(lambda bid: (bid.bidder,)).key_by(0)
    sessions = by_bidder.window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
    return sessions.aggregate(Count(), OfSession())
