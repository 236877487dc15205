"""Millstream: generator source, map, timestamps, windows per key, an exactly-once sink, checkpoints on."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tally_sink import UNLIMITED, TallySink
from window_workload import (
    CASES,
    Case,
    Counting,
    Event,
    Result,
    WindowTally,
    event_function,
    merge_windows,
    report_windows,
)
from workload import CHECKPOINT_MS, WARM_UP, mark_start

from millstream.common import Configuration, Time, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import (
    AggregateFunction,
    MapFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)


def number(n: int) -> int:
    return n


class ToEvent(MapFunction):
    def __init__(self, directory: str, case: str) -> None:
        self.directory, self.case = directory, case

    def open(self, runtime_context: Any) -> None:
        mark_start(self.directory)
        self.function = event_function(self.case)

    def map(self, value: int) -> Event:
        event: Event = self.function(value)
        return event


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value[1]


class Count(Counting, AggregateFunction):
    pass


class WithWindow(WindowFunction[int, Result, str, Any]):
    def apply(self, key: str, window: Any, inputs: Iterable[int]) -> Iterable[Result]:
        return [(key, window.end, count) for count in inputs]


def assigner(case: Case) -> Any:
    if case.name == "session":
        return EventTimeSessionWindows.with_gap(Time.milliseconds(case.size))
    if case.name == "tumbling":
        return TumblingEventTimeWindows.of(Time.milliseconds(case.size))
    return SlidingEventTimeWindows.of(Time.milliseconds(case.size), Time.milliseconds(case.slide))


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    args.add_argument("--case", choices=list(CASES), required=True)
    opts = args.parse_args()
    with tempfile.TemporaryDirectory() as out:
        options = dict(option.split("=", 1) for option in opts.options)
        configuration = Configuration.from_dict(options)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        env.enable_checkpointing(CHECKPOINT_MS)
        source = DataGeneratorSource(number, opts.records, UNLIMITED)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        events = numbers.map(ToEvent(out, opts.case)).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(EventTime())
        )
        windows = events.key_by(lambda event: event[0]).window(assigner(CASES[opts.case]))
        windows.aggregate(Count(), WithWindow()).sink_to(TallySink(out, WindowTally))
        env.execute(f"{opts.case} windows")
        completed = len(list(Path(out).glob("*.checkpoint")))
        # The sink's clock needs epochs to choose from; with fewer, the whole run is reported.
        share = WARM_UP if completed >= 5 else None
        tally = merge_windows(out)
        report_windows("millstream", opts.case, opts.records, tally, share, checkpoints=completed)


if __name__ == "__main__":
    main()
