"""Winning bids: of each auction, with all that is known of the auction."""

from __future__ import annotations

from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.closing import winning_bids
from millstream.datastream import DataStream


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(the auction's fields, bidder, price, time)"""
    return winning_bids(events).map(lambda won: (*won[0], *won[1][1:]))
