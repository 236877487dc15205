"""Bytewax: Nexmark's queries 1, 2 and 5, one worker, recovery (its checkpoints) on.

Its watermarks are of single keys, so nobody knows when all counts of a window are there before the input ends: query 5
counts with Bytewax's sliding windows as events come, and finds the highest counts at the end. With `--by-hand` it
counts in a function of its own instead, which keeps everything until the end: what a program would reach at best.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax._bytewax import cluster_main, init_db_dir
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import KeyedStream, Stream
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig
from nexmark_common import arguments, report, save

from millstream.bench.nexmark.clock import MarkedBlocks
from millstream.bench.nexmark.generator import BASE_TIME, BLOCK, Generator
from millstream.bench.nexmark.model import Bid, Event
from millstream.bench.nexmark.tally import Tally

BATCH = 400  # blocks that the source hands over at a time
CHECKPOINT = timedelta(seconds=2)
START = datetime.fromtimestamp(BASE_TIME / 1_000, UTC)
SIZE, SLIDE = timedelta(seconds=10), timedelta(seconds=2)


class BlockPartition(StatefulSourcePartition[Event, int]):
    def __init__(self, make: MarkedBlocks, first: int, end: int) -> None:
        self.make, self.next, self.end = make, first, end

    def next_batch(self) -> list[Event]:
        if self.next >= self.end:
            raise StopIteration
        numbers = range(self.next, min(self.next + BATCH, self.end))
        self.next = numbers.stop
        make = self.make
        return [event for number in numbers for event in make(number)]

    def snapshot(self) -> int:
        return self.next


class EventSource(FixedPartitionedSource[Event, int]):
    def __init__(self, make: MarkedBlocks, blocks: int) -> None:
        self.make, self.blocks = make, blocks

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> BlockPartition:
        return BlockPartition(self.make, resume_state or 0, self.blocks)


class TallyPartition(StatelessSinkPartition[Any]):
    def __init__(self, query: str, folder: str) -> None:
        self.tally, self.folder = Tally(query), folder

    def write_batch(self, items: list[Any]) -> None:
        self.tally.extend(items)

    def close(self) -> None:
        save(self.tally, self.folder)


class TallySink(DynamicSink[Any]):
    def __init__(self, query: str, folder: str) -> None:
        self.query, self.folder = query, folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> TallyPartition:
        return TallyPartition(self.query, self.folder)


class Most(op.StatefulBatchLogic[Any, Any, Any]):
    """Those of a window with the highest count, when the input ends."""

    def __init__(self, found: list[Any] | None) -> None:
        self.found: list[Any] = found or []

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        for counted in values:
            if not self.found or counted[2] > self.found[0][2]:
                self.found = [counted]
            elif counted[2] == self.found[0][2]:
                self.found.append(counted)
        return (), op.StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[Iterable[Any], bool]:
        return self.found, op.StatefulBatchLogic.DISCARD

    def snapshot(self) -> Any:
        return list(self.found)


class Panes(op.StatefulBatchLogic[Any, Any, Any]):
    """Counts an auction's bids by slide; windows are added up when the input ends."""

    def __init__(self, counts: Counter[int] | None) -> None:
        self.counts = counts or Counter()

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        self.counts.update([time // 2_000 for _, time in values])
        return (), op.StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[Iterable[Any], bool]:
        windows: Counter[int] = Counter()
        for pane, count in self.counts.items():
            for window in range(pane - 4, pane + 1):
                windows[window - BASE_TIME // 2_000] += count
        return list(windows.items()), op.StatefulBatchLogic.DISCARD

    def snapshot(self) -> Any:
        return Counter(self.counts)


def q1(bids: Stream[Bid]) -> Stream[Any]:
    return op.map(
        "euros", bids, lambda b: (b.auction, b.bidder, b.price * 908 // 1000, b.time, b.extra)
    )


def q2(bids: Stream[Bid]) -> Stream[Any]:
    some = op.filter("some", bids, lambda bid: bid.auction % 123 == 0)
    return op.map("narrow", some, lambda bid: (bid.auction, bid.price))


def in_windows(keyed: KeyedStream[Any]) -> KeyedStream[tuple[int, int]]:
    def moment(bid: Any) -> datetime:
        return datetime.fromtimestamp(bid[1] / 1_000, UTC)

    clock = win.EventClock(moment, wait_for_system_duration=timedelta(seconds=4))
    windower = win.SlidingWindower(length=SIZE, offset=SLIDE, align_to=START)
    return win.fold_window(
        "count", keyed, clock, windower, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b
    ).down


def by_hand(keyed: KeyedStream[Any]) -> KeyedStream[tuple[int, int]]:
    return op.stateful_batch("count", keyed, Panes)


def q5(bids: Stream[Bid], count: Callable[..., Any] = in_windows) -> Stream[Any]:
    def counted(found: tuple[str, tuple[int, int]]) -> tuple[str, Any]:
        auction, (window, count) = found
        end = BASE_TIME + window * 2_000 + 10_000
        return str(window), (end, int(auction), count)

    keyed: KeyedStream[Any] = op.map(
        "by auction", bids, lambda bid: (str(bid.auction), (bid.auction, bid.time))
    )
    by_window = op.map("by window", count(keyed), counted)
    return op.key_rm("without key", op.stateful_batch("most", by_window, Most))


QUERIES = {"q1": q1, "q2": q2, "q5": q5}


def main() -> None:
    opts = arguments(list(QUERIES))
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as recovery:
        flow = Dataflow("nexmark")
        make = MarkedBlocks(Generator(opts.seed), out)
        events = op.input("events", flow, EventSource(make, opts.blocks))
        bids = op.filter("bids", events, lambda event: isinstance(event, Bid))
        more = [by_hand] if opts.by_hand else []
        op.output("tally", QUERIES[opts.query](bids, *more), TallySink(opts.query, out))
        init_db_dir(Path(recovery), 1)
        config = RecoveryConfig(recovery)
        cluster_main(flow, [], 0, epoch_interval=CHECKPOINT, recovery_config=config)
        report(
            "bytewax-by-hand" if opts.by_hand else "bytewax", opts.query, opts.blocks * BLOCK, out
        )


if __name__ == "__main__":
    main()
