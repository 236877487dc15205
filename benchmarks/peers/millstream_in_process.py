"""Millstream in one thread without Spark: the same programs, to count what the processor does. Prints the hash."""

from __future__ import annotations

import argparse
import tempfile

from millstream_windows import Count, EventTime, ToEvent, WithWindow, assigner, number
from tally_sink import TallySink
from window_workload import CASES, WindowTally, merge_windows
from workload import digest, merge, to_pair

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource


def build(
    env: StreamExecutionEnvironment, case: str, records: int, out: str, rate: float | None = None
) -> None:
    """The program of a case, into an environment; its sink writes tallies to a folder."""
    source = DataGeneratorSource(number, records, rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    if case == "batch":
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    if case in ("keyed", "batch"):
        pairs = numbers.map(to_pair).key_by(lambda pair: pair[0]).sum(1)
        pairs.sink_to(TallySink(out))
        return
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    events = numbers.map(ToEvent(out, case)).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(EventTime())
    )
    windows = events.key_by(lambda event: event[0]).window(assigner(CASES[case]))
    windows.aggregate(Count(), WithWindow()).sink_to(TallySink(out, WindowTally))


def run(case: str, records: int) -> str:
    """The hash of the results."""
    with tempfile.TemporaryDirectory() as out:
        conf = Configuration().set_string("execution.target", "in-process")
        env = StreamExecutionEnvironment.get_execution_environment(conf)
        env.set_parallelism(2)
        build(env, case, records, out)
        env.execute(f"{case}, in process")
        if case in ("keyed", "batch"):
            tally = merge(out)
            return digest(tally.last, tally.emitted, tally.total)
        return merge_windows(out).digest()


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--case", choices=["keyed", "batch", *CASES], required=True)
    opts = args.parse_args()
    print(run(opts.case, opts.records))


if __name__ == "__main__":
    main()
