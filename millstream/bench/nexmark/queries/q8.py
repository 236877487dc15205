"""Monitor new users: who came and opened an auction in the same ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import auctions, persons
from millstream.common import Time
from millstream.datastream import CoGroupFunction, DataStream
from millstream.datastream.window import TumblingEventTimeWindows

SIZE = 10_000


class NewSellers(CoGroupFunction[Any, Any, Any]):
    """One result for a person, however many auctions there are."""

    def co_group(self, first: list[Any], second: list[Any]) -> Iterator[Any]:
        if second:
            for person, name, time in first:
                yield person, name, time - time % SIZE


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(person, name, start of the window)"""
    people = persons(events).map(lambda person: (person.id, person.name, person.time))
    sellers = auctions(events).map(lambda auction: (auction.seller,))
    window = TumblingEventTimeWindows.of(Time.milliseconds(SIZE))
    return people.co_group(sellers).where(0).equal_to(0).window(window).apply(NewSellers())
