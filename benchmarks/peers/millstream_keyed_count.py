"""Millstream: generator source, map, key by, running sum, an exactly-once sink, checkpoints on."""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from tally_sink import UNLIMITED, TallySink, report_epochs
from workload import CHECKPOINT_MS, Pair, mark_start, to_pair

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource


def number(n: int) -> int:
    return n


class ToPair(MapFunction):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, runtime_context: Any) -> None:
        mark_start(self.directory)

    def map(self, value: int) -> Pair:
        return to_pair(value)


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    args.add_argument("--source-only", action="store_true")
    args.add_argument("--one-epoch", action="store_true", help="no checkpoints on the way")
    args.add_argument("--batch", action="store_true", help="in batch mode: each key's last sum")
    opts = args.parse_args()
    with tempfile.TemporaryDirectory() as out:
        options = dict(option.split("=", 1) for option in opts.options)
        configuration = Configuration.from_dict(options)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        if opts.batch:
            env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        else:
            env.enable_checkpointing(CHECKPOINT_MS)
        rate = None if opts.one_epoch or opts.batch else UNLIMITED
        source = DataGeneratorSource(number, opts.records, rate)
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        pairs = numbers.map(ToPair(out))
        if not opts.source_only:
            pairs = pairs.key_by(lambda pair: pair[0]).sum(1)
        pairs.sink_to(TallySink(out))
        env.execute("keyed count")
        name = "millstream-one-epoch" if opts.one_epoch else "millstream"
        report_epochs(name, opts.records, out)


if __name__ == "__main__":
    main()
