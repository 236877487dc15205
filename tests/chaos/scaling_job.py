"""The program that is rescaled and upgraded: `millstream run tests/chaos/scaling_job.py FOLDER VERSION RATE`.

Numbers come at a rate, in four splits. Each is counted under its key, and written once with its count. Version "1" is
the first program, "2" has an operator and a state more, and "bad" has no place for the state of the others."""

from __future__ import annotations

import sys

from millstream.common import Configuration
from millstream.common.serialization import Encoder
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.state import ValueStateDescriptor

__all__ = ["JOB", "KEYS", "SPLITS"]

JOB = "scaled"
KEYS = 97
SPLITS = 4


class Count(KeyedProcessFunction):
    """How often the key has come, this time included."""

    def __init__(self, version: str) -> None:
        self.version = version

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        if self.version == "2":
            self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if self.version == "2":
            self.last.update(value)
        yield f"{value} {ctx.get_current_key()} {count}"


def main(folder: str, version: str, rate: str) -> None:
    """Run the job."""
    config = Configuration.from_dict(
        {
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.dir": f"{folder}/checkpoints",
            "execution.checkpointing.savepoint-dir": f"{folder}/savepoints",
            "pipeline.name": JOB,
            "spark.ui.enabled": "false",
            "millstream.rest.enabled": "false",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = DataGeneratorSource(lambda n: n, rate_per_second=float(rate), splits=SPLITS)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = stream.key_by(lambda n: n % KEYS).process(Count(version))
    counted = counted.uid("other" if version == "bad" else "count")
    if version == "2":
        counted = counted.map(lambda line: line).uid("more")
    sink = FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    counted.sink_to(sink).uid("sink")
    env.execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
