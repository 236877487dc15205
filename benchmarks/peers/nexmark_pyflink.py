"""PyFlink: Nexmark's queries 0, 1, 2, 5, 7, 8 and 11 with its DataStream API, process mode, embedded cluster."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nexmark_common import arguments, report, save
from pyflink.common import Configuration, Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    DataStream,
    FlatMapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    WindowFunction,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

from millstream.bench.nexmark.clock import MarkedBlocks
from millstream.bench.nexmark.generator import BLOCK, Generator
from millstream.bench.nexmark.model import Auction, Bid, Person
from millstream.bench.nexmark.tally import Tally

CHECKPOINT_MS = 2_000
BUNDLE_SIZE = 100_000
STATE_CACHE = 200_000

# Types are made where they are used: one that Java has seen cannot be sent with a function any more.


class Events(FlatMapFunction):
    """Its source gives each subtask a part of the numbers in one piece, so the parts are interleaved here: else one
    subtask would be half the input ahead of the other in event time."""

    def __init__(self, make: MarkedBlocks, blocks: int, parts: int) -> None:
        self.make, self.part, self.parts = make, blocks // parts, parts

    def flat_map(self, value: int) -> Iterable[Any]:
        return self.make(value % self.part * self.parts + value // self.part)


class TallySink(FlatMapFunction):
    """PyFlink has no Python sinks: a flat map that emits nothing, chained after the query."""

    def __init__(self, query: str, folder: str) -> None:
        self.query, self.folder = query, folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tally = Tally(self.query)

    def flat_map(self, value: Any) -> Iterator[Any]:
        self.tally.add(tuple(value))
        return iter(())

    def close(self) -> None:
        save(self.tally, self.folder)


class EventTime(TimestampAssigner):
    """All narrow rows have their time last."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[-1]


def with_time(rows: DataStream) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    return rows.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventTime()))


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class OfWindow(WindowFunction):
    def apply(self, key: int, window: Any, inputs: Iterable[int]) -> Iterable[Any]:
        return [(window.end, key, count) for count in inputs]


class OfSession(WindowFunction):
    def apply(self, key: int, window: Any, inputs: Iterable[int]) -> Iterable[Any]:
        return [(key, count, window.start, window.end) for count in inputs]


class Most(WindowFunction):
    def apply(self, key: int, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        counts = list(inputs)
        most = max(counted[2] for counted in counts)
        return [counted for counted in counts if counted[2] == most]


class Highest(AggregateFunction):
    """All bids (auction, price, ..) of the highest price."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        if not accumulator or value[1] > accumulator[0][1]:
            return [value]
        return [*accumulator, value] if value[1] == accumulator[0][1] else accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        for bid in acc_b:
            acc_a = self.add(bid, acc_a)
        return acc_a


class HighestOfAll(WindowFunction):
    def apply(self, key: int, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        found = [bid for of_auction in inputs for bid in of_auction]
        price = max(bid[1] for bid in found)
        return [(b[0], b[1], b[2], b[4], b[3]) for b in found if b[1] == price]


class NewSellers(WindowFunction):
    """Of (person, name or nothing, time): PyFlink has no co_group, so both streams are one."""

    def apply(self, key: int, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        rows = list(inputs)
        people = [row for row in rows if row[1]]
        return [(row[0], row[1], window.start) for row in people] if len(people) < len(rows) else []


def bids(events: DataStream) -> DataStream:
    return events.filter(lambda event: isinstance(event, Bid))


def q0(events: DataStream) -> DataStream:
    return bids(events)


def q1(events: DataStream) -> DataStream:
    return bids(events).map(lambda b: (b.auction, b.bidder, b.price * 908 // 1000, b.time, b.extra))


def q2(events: DataStream) -> DataStream:
    some = bids(events).filter(lambda bid: bid.auction % 123 == 0)
    return some.map(lambda bid: (bid.auction, bid.price))


def q5(events: DataStream) -> DataStream:
    rows = bids(events).map(
        lambda b: (b.auction, b.time), output_type=Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    triple = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    keyed = with_time(rows).key_by(lambda row: row[0], key_type=Types.LONG())
    windows = keyed.window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2)))
    counts = windows.aggregate(
        Count(), OfWindow(), accumulator_type=Types.LONG(), output_type=triple
    )
    by_end = counts.key_by(lambda row: row[0], key_type=Types.LONG())
    last = by_end.window(TumblingEventTimeWindows.of(Time.seconds(2)))
    return last.apply(Most(), output_type=triple)


def q7(events: DataStream) -> DataStream:
    row = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING(), Types.LONG()])
    rows = bids(events).map(
        lambda b: (b.auction, b.price, b.bidder, b.extra, b.time), output_type=row
    )
    window = TumblingEventTimeWindows.of(Time.seconds(10))
    keyed = with_time(rows).key_by(lambda bid: bid[0], key_type=Types.LONG())
    pickled = Types.PICKLED_BYTE_ARRAY()
    highest = keyed.window(window).aggregate(
        Highest(), accumulator_type=pickled, output_type=pickled
    )
    of_all = highest.key_by(lambda _: 0, key_type=Types.LONG()).window(window)
    result = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG(), Types.STRING()])
    return of_all.apply(HighestOfAll(), output_type=result)


def q8(events: DataStream) -> DataStream:
    def narrow(event: Any) -> Any:
        if isinstance(event, Person):
            return (event.id, event.name, event.time)
        return (event.seller, "", event.time)

    row = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    both = events.filter(lambda event: isinstance(event, (Person, Auction)))
    keyed = with_time(both.map(narrow, output_type=row)).key_by(
        lambda r: r[0], key_type=Types.LONG()
    )
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10)))
    return windows.apply(NewSellers(), output_type=row)


def q11(events: DataStream) -> DataStream:
    rows = bids(events).map(
        lambda b: (b.bidder, b.time), output_type=Types.TUPLE([Types.LONG(), Types.LONG()])
    )
    keyed = with_time(rows).key_by(lambda row: row[0], key_type=Types.LONG())
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
    result = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()])
    return sessions.aggregate(
        Count(), OfSession(), accumulator_type=Types.LONG(), output_type=result
    )


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q5": q5, "q7": q7, "q8": q8, "q11": q11}


def environment(checkpoints: str, parallelism: int) -> StreamExecutionEnvironment:
    config = Configuration()
    settings = {
        "python.execution-mode": "process",
        "python.fn-execution.bundle.size": str(BUNDLE_SIZE),
        # All open windows fit in the Python side's cache of state; by default, 1,000 do.
        "python.state.cache-size": str(STATE_CACHE),
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "execution.checkpointing.dir": Path(checkpoints).as_uri(),
    }
    for key, value in settings.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.set_parallelism(parallelism)
    env.enable_checkpointing(CHECKPOINT_MS)
    return env


def main() -> None:
    opts = arguments(list(QUERIES))
    blocks = opts.blocks // opts.parallelism * opts.parallelism
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as checkpoints:
        env = environment(checkpoints, opts.parallelism)
        source = NumberSequenceSource(0, blocks - 1)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "blocks")
        make = MarkedBlocks(Generator(opts.seed), out)
        events = numbers.flat_map(Events(make, blocks, opts.parallelism))
        QUERIES[opts.query](events).flat_map(TallySink(opts.query, out)).print()
        env.execute(f"nexmark {opts.query}")
        report("pyflink", opts.query, blocks * BLOCK, out)


if __name__ == "__main__":
    main()
