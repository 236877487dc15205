"""PyFlink: DataStream windows, process mode, in its embedded mini cluster."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    FlatMapFunction,
    MapFunction,
    RuntimeContext,
    WindowFunction,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from pyflink_keyed_count import environment
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
from workload import WARM_UP, mark_start

STATE_CACHE = 200_000


class ToEvent(MapFunction):
    """Its source gives each of two subtasks one half of the numbers, so the halves are interleaved
    here: else one subtask would be half the input ahead of the other in event time."""

    def __init__(self, directory: str, case: str, records: int) -> None:
        self.directory, self.case, self.half = directory, case, records // 2

    def open(self, runtime_context: RuntimeContext) -> None:
        mark_start(self.directory)
        self.function = event_function(self.case)

    def map(self, value: int) -> Event:
        return self.function(value % self.half * 2 + value // self.half)


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value[1]


class Count(Counting, AggregateFunction):
    pass


class WithWindow(WindowFunction):
    def apply(self, key: str, window: Any, inputs: Iterable[int]) -> Iterable[Result]:
        return [(key, window.end, count) for count in inputs]


class TallySink(FlatMapFunction):
    """PyFlink has no Python sinks: a flat map that emits nothing, chained after the windows."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tally = WindowTally()

    def flat_map(self, value: Result) -> Iterator[Result]:
        self.tally.add((value[0], value[1], value[2]))
        return iter(())

    def close(self) -> None:
        self.tally.save(self.directory)


def assigner(case: Case) -> Any:
    if case.name == "session":
        return EventTimeSessionWindows.with_gap(Time.milliseconds(case.size))
    if case.name == "tumbling":
        return TumblingEventTimeWindows.of(Time.milliseconds(case.size))
    return SlidingEventTimeWindows.of(Time.milliseconds(case.size), Time.milliseconds(case.slide))


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--case", choices=list(CASES), required=True)
    opts = args.parse_args()
    records = opts.records // 2 * 2
    event_type = Types.TUPLE([Types.STRING(), Types.LONG()])
    result_type = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as checkpoints:
        env = environment(checkpoints)
        # All open windows fit in the Python side's cache of state; by default, 1,000 do.
        more = Configuration()
        more.set_string("python.state.cache-size", str(STATE_CACHE))
        env.configure(more)
        env.add_python_file(str(Path(__file__).with_name("window_workload.py")))
        source = NumberSequenceSource(0, records - 1)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        events = numbers.map(ToEvent(out, opts.case, records), output_type=event_type)
        timed = events.assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(EventTime())
        )
        keyed = timed.key_by(lambda event: event[0], key_type=Types.STRING())
        counts = keyed.window(assigner(CASES[opts.case])).aggregate(
            Count(), WithWindow(), accumulator_type=Types.LONG(), output_type=result_type
        )
        counts.flat_map(TallySink(out), output_type=result_type).print()
        env.execute(f"{opts.case} windows")
        report_windows("pyflink", opts.case, records, merge_windows(out), WARM_UP)


if __name__ == "__main__":
    main()
