"""Processing time windows: how many bids somebody made in ten seconds of the clock.

At the end of the input nothing waits for the clock, and windows of processing time would be lost; so this is a function
with two timers: one of the clock, and one of event time for the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.queries.streams import bids
from millstream.common import Types
from millstream.common.constants import MAX_TIME
from millstream.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor

SIZE = 10_000


class CountByClock(KeyedProcessFunction[Any, Any]):
    """Keeps (start of the window, count)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.window = runtime_context.get_state(ValueStateDescriptor("window", pair))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        service = ctx.timer_service()
        now = service.current_processing_time()
        start = now - now % SIZE
        window = self.window.value()
        if window is not None and window[0] != start:
            yield ctx.get_current_key(), window[1], window[0]
            window = None
        if window is None:
            service.register_processing_time_timer(start + SIZE)
            service.register_event_time_timer(MAX_TIME)
        self.window.update((start, window[1] + 1 if window else 1))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        window = self.window.value()
        if window is not None and window[0] + SIZE <= timestamp:
            yield ctx.get_current_key(), window[1], window[0]
            self.window.clear()


def query(events: DataStream[Event]) -> DataStream[Any]:
    """(bidder, bids, start)"""
    return bids(events).map(lambda bid: (bid.bidder,)).key_by(0).process(CountByClock())
