"""Files of each hour, exactly once: the job fails in the middle, goes on from its checkpoint, and no line is there
twice.

Files appear when the checkpoint of their epoch is complete. What a failed attempt had written is not seen by anybody.
"""

import sys
import tempfile
from pathlib import Path

from millstream.common import Configuration, Encoder, WatermarkStrategy
from millstream.datastream import MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource


class FailsOnce(MapFunction):
    """The failure: at reading 250, if it has not happened before."""

    def __init__(self, marker):
        self.marker = marker

    def map(self, number):
        if number == 250 and not self.marker.exists():
            self.marker.touch()
            raise OSError("the network is gone")
        return f"{number // 60:02d}:{number % 60:02d} reading {number}"


class ByHour(BucketAssigner):
    """By the record's own hour. The default is the hour in which it is written."""

    def get_bucket_id(self, line):
        return f"hour={line[:2]}"


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
settings = {
    "millstream.epoch.records": "40",  # small epochs, so that there are some before the failure
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 s",
}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
env.enable_checkpointing("1 s")
sink = (
    FileSink.for_row_format(str(folder / "readings"), Encoder.simple_string_encoder())
    .with_bucket_assigner(ByHour())
    .build()
)
numbers = env.from_source(
    NumberSequenceSource(0, 299), WatermarkStrategy.no_watermarks(), "numbers"
)
numbers.map(FailsOnce(folder / "failed")).sink_to(sink).uid("readings")
env.execute("hourly files")

for hour in sorted((folder / "readings").glob("hour=*")):
    lines = [line for part in sorted(hour.iterdir()) for line in part.open()]
    print(f"{hour.name}: {len(lines)} lines, {len(set(lines))} different")
print("failed once:", (folder / "failed").exists())
