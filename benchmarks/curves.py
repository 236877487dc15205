"""What a record costs as a job grows in one direction, and how long results take: the curves of docs/performance.md.

Usage: python benchmarks/curves.py [--only keys,size] [--rounds 3] [--quick] [--out docs/images/curves]

All jobs run one after another in one warm Spark session; a round goes through all points of a curve, and the median of
the rounds is shown. The cost is processor time of driver, JVM and workers together for a record in a job that has
begun, which tells more than the clock where others use the machine too. Every job's result is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from harness import BenchmarkError, say
from metrics import OFF, Cost, steady
from tally_sink import UNLIMITED

from millstream.bench.figures import machine
from millstream.common import Configuration, Time, TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    SinkFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.base import Committer, Sink, SinkWriter, WriterContext
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import SlidingEventTimeWindows
from millstream.notebook.svg import draw
from millstream.runtime.driver.run import JobRun

RECORDS = 1_500_000
EPOCHS = 10
# Neighbours are far apart, as they are in real keys.
_SPREAD = 2_654_435_761
_STEP_MS = 10


# -- the programs ----------------------------------------------------------------------------------------------------


class Counting(SinkWriter):
    """Counts."""

    def __init__(self) -> None:
        self._count = 0

    def write(self, value: object) -> None:
        self._count += 1

    def prepare_commit(self) -> bytes | None:
        return str(self._count).encode()


class Adding(Committer):
    """Writes down what was counted."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        (self._folder / str(epoch)).write_text(str(sum(map(int, committables))))


class CountingSink(Sink):
    """How many results there were, exactly once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return Counting()

    def create_committer(self) -> Committer:
        return Adding(self._folder)


class Count(AggregateFunction[Any, int, int]):
    """As many as there were."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Second(TimestampAssigner):
    """The time stands in the second place."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        moment: int = value[1]
        return moment


class Keep(KeyedProcessFunction):
    """A kilobyte for each key."""

    def open(self, runtime_context: Any) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("kept"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        self._state.update(b"%01000d" % value)
        yield value


def of_keys(numbers: DataStream, keys: int) -> DataStream:
    return numbers.map(lambda n: (n * _SPREAD % keys, 1)).key_by(lambda pair: pair[0]).sum(1)


def of_size(numbers: DataStream, size: int) -> DataStream:
    payload = bytes(size)
    return (
        numbers.map(lambda n: (n % 1000, payload + b"%d" % n))
        .key_by(lambda pair: pair[0])
        .map(lambda pair: len(pair[1]))
    )


def of_maps(numbers: DataStream, length: int) -> DataStream:
    for _ in range(length):
        numbers = numbers.map(lambda n: n + 1)
    return numbers


def of_levels(numbers: DataStream, levels: int) -> DataStream:
    for level in range(levels):
        numbers = numbers.key_by(_key_of(level)).map(lambda n: n)
    return numbers


def _key_of(level: int) -> Callable[[int], int]:
    return lambda n: (n + level) % 1000


def of_windows(numbers: DataStream, ratio: int) -> DataStream:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    length = 600 * _STEP_MS
    window = SlidingEventTimeWindows.of(
        Time.milliseconds(length), Time.milliseconds(length // ratio)
    )
    return (
        numbers.map(lambda n: (n % 100, n * _STEP_MS // 100))
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda pair: pair[0])
        .window(window)
        .aggregate(Count())
    )


def of_state(numbers: DataStream, keys: int) -> DataStream:
    return numbers.key_by(lambda n: n * _SPREAD % keys).process(Keep())


@dataclass(frozen=True)
class Curve:
    """A program with one number in it, and the numbers that are tried."""

    title: str
    axis: str
    points: tuple[int, ...]
    program: Callable[[DataStream, int], DataStream]
    results: Callable[[int, int], int] = lambda records, point: records
    share: Callable[[int], float] = lambda point: 1.0
    """How many records a point has, as a part of the usual number."""
    parallelism: bool = False
    """True if the number is the parallelism."""


def windows_of(records: int, ratio: int) -> int:
    """How many windows have a record, over all keys."""
    slide = 600 * _STEP_MS // ratio
    length = slide * ratio
    found = 0
    for key in range(100):
        if key >= records:
            break
        last = (key + (records - 1 - key) // 100 * 100) * _STEP_MS // 100
        first = key * _STEP_MS // 100
        # Each window [start, start + length) with start a multiple of the slide; records come every _STEP_MS.
        found += last // slide - (first - length) // slide
    return found


CURVES = {
    "keys": Curve(
        "Keyed sum, by the number of keys", "keys", (100, 10_000, 100_000, 1_000_000), of_keys
    ),
    "size": Curve(
        "One exchange, by the size of a record",
        "bytes",
        (10, 100, 1_000, 10_000),
        of_size,
        share=lambda size: 0.05 if size > 1_000 else 0.4,
    ),
    "maps": Curve("Maps in a chain", "maps", (1, 2, 5, 10, 20), of_maps),
    "levels": Curve("Exchanges one after another", "exchanges", (0, 1, 2, 3), of_levels),
    "windows": Curve(
        "Sliding windows, by size over slide",
        "size / slide",
        (1, 2, 6, 20, 60),
        of_windows,
        results=windows_of,
        share=lambda ratio: 0.4,
    ),
    "state": Curve(
        "A kilobyte of state for each key, all of it changing, checkpoints each second",
        "keys",
        (1_000, 10_000, 100_000),
        of_state,
        share=lambda keys: 0.2,
    ),
    "parallelism": Curve(
        "Keyed sum of 1,000 keys, by parallelism",
        "subtasks",
        (1, 2),
        lambda numbers, _: of_keys(numbers, 1000),
        parallelism=True,
    ),
}


def measure(curve: Curve, point: int, records: int) -> Cost:
    """One job."""
    parallelism = point if curve.parallelism else 2
    settings = {
        "millstream.epoch.records": str(records // EPOCHS),
        "parallelism.default": str(parallelism),
        **OFF,
    }
    with tempfile.TemporaryDirectory() as folder:
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict(settings)
        )
        env.enable_checkpointing(1000)
        source = DataGeneratorSource(lambda n: n, records, UNLIMITED)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        curve.program(numbers, point).sink_to(CountingSink(folder))
        client = env.execute_async(curve.title)
        job = client._run
        assert isinstance(job, JobRun)
        cost = steady(job, records)
        client.get_job_execution_result().result()
        found = sum(int(file.read_text()) for file in Path(folder).iterdir())
    wanted = curve.results(records, point)
    if found != wanted:
        raise BenchmarkError(f"{curve.title}, {point}: {found} results, not {wanted}")
    return cost


# -- latency ---------------------------------------------------------------------------------------------------------


class Steady(SourceFunction):
    """So many records a second, each with the time at which it was due: a source that is late counts too."""

    def __init__(self, rate: int, seconds: float) -> None:
        self._rate, self._seconds = rate, seconds
        self._running = True

    def run(self, ctx: SourceFunction.SourceContext) -> None:
        began, number = time.time(), 0
        while self._running and number < self._rate * self._seconds:
            due = min(int((time.time() - began) * self._rate), int(self._rate * self._seconds))
            for n in range(number, due):
                ctx.collect((n % 1000, began + n / self._rate))
            number = max(number, due)
            time.sleep(0.001)

    def cancel(self) -> None:
        self._running = False


class Delays(SinkFunction):
    """Writes down how late records were, each epoch's in a file; milliseconds."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: Any) -> None:
        self._seen: list[float] = []

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        self._seen.append((time.time() - value[1]) * 1000)

    def flush(self) -> None:
        if self._seen:
            (Path(self._folder) / f"{time.time_ns()}").write_text(json.dumps(self._seen))
            self._seen = []


@dataclass
class Latency:
    """What a rate came to, in milliseconds."""

    rate: int
    epoch: str
    percentiles: dict[str, float] = field(default_factory=dict)


def latency(rate: int, seconds: float, interval: str) -> Latency:
    """One exchange, a keyed sum, a sink that sees records at the end of each epoch's work."""
    settings = {
        "parallelism.default": "2",
        "execution.checkpointing.interval": interval,
        "millstream.epoch.interval": interval,
        **OFF,
    }
    with tempfile.TemporaryDirectory() as folder:
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict(settings)
        )
        source = env.add_source(Steady(rate, seconds), "steady")
        source.key_by(lambda pair: pair[0]).map(lambda pair: pair).add_sink(Delays(folder))
        env.execute("latency")
        found = [
            delay
            for file in sorted(Path(folder).iterdir())
            for delay in json.loads(file.read_text())
        ]
    wanted = int(rate * seconds)
    if len(found) != wanted:
        raise BenchmarkError(f"latency at {rate}: {len(found)} records, not {wanted}")
    # The first epochs of a job make its workers.
    found = sorted(found[len(found) // 4 :])
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    picked = {name: found[min(len(found) - 1, int(len(found) * part))] for name, part in at.items()}
    return Latency(rate, interval, picked)


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--only", default=",".join([*CURVES, "latency"]))
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--seconds", type=float, default=20.0)
    args.add_argument("--quick", action="store_true")
    args.add_argument("--out", type=Path, default=harness.HERE.parent / "docs/images/curves")
    opts = args.parse_args()
    names = opts.only.split(",")
    records = 30_000 if opts.quick else RECORDS
    print(machine())
    if not opts.quick:
        for _ in range(4):
            measure(CURVES["keys"], 1000, records)
    opts.out.mkdir(parents=True, exist_ok=True)
    for name in (name for name in names if name != "latency"):
        curve = CURVES[name]
        costs: dict[int, list[Cost]] = {point: [] for point in curve.points}
        for _ in range(1 if opts.quick else opts.rounds):
            for point in curve.points:
                costs[point].append(measure(curve, point, int(records * curve.share(point))))
        middle = [statistics.median(c.processor for c in costs[p]) for p in curve.points]
        clock = [statistics.median(c.clock for c in costs[p]) for p in curve.points]
        say(f"{curve.title}: done")
        print(
            f"\n{curve.title}\n\n| {curve.axis} | us a record | records a second |\n|---|---|---|"
        )
        for point, cost, took in zip(curve.points, middle, clock, strict=True):
            print(f"| {point:,} | {cost:.2f} | {1e6 / took:,.0f} |", flush=True)
        points = [(f"{point:,}", cost) for point, cost in zip(curve.points, middle, strict=True)]
        (opts.out / f"{name}.svg").write_text(
            draw("bars", {"us a record": points}, curve.title, curve.axis, "us a record") + "\n"
        )
    if "latency" in names:
        print(
            "\n| records a second | epochs of | p50 | p95 | p99 | p99.9 | max |\n|---|---|---|---|---|---|---|"
        )
        seconds = 3.0 if opts.quick else opts.seconds
        for rate in (1_000,) if opts.quick else (1_000, 10_000, 100_000):
            found = latency(rate, seconds, "200 ms")
            cells = " | ".join(f"{value:,.0f} ms" for value in found.percentiles.values())
            print(f"| {rate:,} | {found.epoch} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
