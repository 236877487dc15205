"""Millstream: the same generator and the same function, chained into a sink that tallies."""

from __future__ import annotations

import argparse
import tempfile

from stateless_workload import OPERATIONS, StringTally, halves, keep, make, swap
from tally_sink import UNLIMITED, TallySink, report_epochs
from workload import CHECKPOINT_MS

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--operation", choices=OPERATIONS, default="map")
    opts = args.parse_args()
    with tempfile.TemporaryDirectory() as out:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        env.enable_checkpointing(CHECKPOINT_MS)
        source = DataGeneratorSource(make, opts.records, UNLIMITED)
        texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "texts")
        if opts.operation == "map":
            texts = texts.map(swap)
        elif opts.operation == "filter":
            texts = texts.filter(keep)
        else:
            texts = texts.flat_map(halves)
        texts.sink_to(TallySink(out, StringTally))
        env.execute(opts.operation)
        report_epochs("millstream", opts.records, out, StringTally, operation=opts.operation)


if __name__ == "__main__":
    main()
