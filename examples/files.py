"""Files in, files out: count status codes in log files; parts become visible when their epoch commits."""

import sys
import tempfile
from pathlib import Path

from millstream.common import Encoder, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    StreamFormat,
)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
(folder / "logs").mkdir(parents=True, exist_ok=True)
(folder / "logs" / "a.log").write_text("GET / 200\nGET /x 404\nGET / 200\n")
(folder / "logs" / "b.log").write_text("POST /y 500\nGET / 200\n")

env = StreamExecutionEnvironment.get_execution_environment()
source = FileSource.for_record_stream_format(
    StreamFormat.text_line_format(), str(folder / "logs")
).build()
sink = (
    FileSink.for_row_format(str(folder / "errors"), Encoder.simple_string_encoder())
    .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    .build()
)
lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "logs")
lines.filter(lambda line: not line.endswith("200")).sink_to(sink)
lines.map(lambda line: (line.split()[-1], 1)).key_by(0).sum(1).print("status")
env.execute("files")

written = sorted(line for part in (folder / "errors").iterdir() for line in part.open())
print("errors on disk:", "".join(written).split("\n")[:-1])
