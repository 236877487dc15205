"""Yesterday's files first, then what is live: one stream, whose windows and state go over the seam.

The hybrid source reads the files to their end and then goes on with the live source. An hour that began in the files
and ended live is one window. The live source here is a generator with an end, so that the example has one; a
`KafkaSource` stands in its place in earnest.
"""

import sys
import tempfile
from pathlib import Path

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.window import TumblingEventTimeWindows

# Minute and litres, up to 10:40 in the file and from 10:45 on live.
HISTORY = [(9 * 60 + 15 * n, 10) for n in range(7)] + [(10 * 60 + 40, 5)]


def live(number):
    return f"{10 * 60 + 45 + 15 * number} 20"


class Minute(TimestampAssigner):
    def extract_timestamp(self, line, record_timestamp):
        return int(line.split()[0]) * 60_000


class Litres(ProcessWindowFunction):
    def process(self, key, context, lines):
        litres = [int(line.split()[1]) for line in lines]
        yield f"from {context.window().start // 3_600_000}:00: {sum(litres)} l in {len(litres)} readings"


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "history"
folder.mkdir()
(folder / "readings.txt").write_text("".join(f"{m} {litres}\n" for m, litres in HISTORY))

files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder)).build()
source = HybridSource.builder(files).add_source(DataGeneratorSource(live, count=7)).build()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
env = StreamExecutionEnvironment.get_execution_environment()
readings = env.from_source(source, times, "readings").key_by(lambda line: "weir")
readings.window(TumblingEventTimeWindows.of("1 h")).process(Litres()).print()
env.execute("history then live")
