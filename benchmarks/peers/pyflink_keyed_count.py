"""PyFlink: DataStream API, process mode, in its embedded mini cluster."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import (
    FlatMapFunction,
    MapFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from workload import CHECKPOINT_MS, Pair, Tally, mark_start, merge, report, to_pair

BUNDLE_SIZE = 100_000


class ToPair(MapFunction):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        mark_start(self.directory)

    def map(self, value: int) -> Pair:
        return to_pair(value)


class TallySink(FlatMapFunction):
    """PyFlink has no Python sinks: a flat map that emits nothing, chained after the sum."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tally = Tally()

    def flat_map(self, value: Pair) -> Iterator[Pair]:
        self.tally.add((value[0], value[1]))
        return iter(())

    def close(self) -> None:
        self.tally.save(self.directory)


def environment(checkpoints: str) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("python.execution-mode", "process")
    config.set_string("python.fn-execution.bundle.size", str(BUNDLE_SIZE))
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    config.set_string("python.files", str(Path(__file__).with_name("workload.py")))
    config.set_string("execution.checkpointing.dir", Path(checkpoints).as_uri())
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.set_parallelism(2)
    env.enable_checkpointing(CHECKPOINT_MS)
    return env


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--source-only", action="store_true")
    opts = args.parse_args()
    pair_type = Types.TUPLE([Types.STRING(), Types.LONG()])
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as checkpoints:
        env = environment(checkpoints)
        source = NumberSequenceSource(0, opts.records - 1)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        pairs = numbers.map(ToPair(out), output_type=pair_type)
        if not opts.source_only:
            pairs = pairs.key_by(lambda pair: pair[0], key_type=Types.STRING()).sum(1)
        pairs.flat_map(TallySink(out), output_type=pair_type).print()
        env.execute("keyed count")
        report("pyflink", opts.records, merge(out))


if __name__ == "__main__":
    main()
