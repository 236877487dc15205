"""Reads the lines of text files and writes those that report an error into other files."""

import argparse
import tempfile
from pathlib import Path

from pyflink.common import Encoder, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)

LOGS = {
    "monday.log": ["GET /a 200", "GET /b 404", "GET /a 200"],
    "tuesday.log": ["POST /c 500", "GET /a 200", "GET /ü 404"],
}


def main(folder: Path):
    logs, errors = folder / "logs", folder / "errors"
    logs.mkdir()
    for name, lines in LOGS.items():
        (logs / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(logs)
    ).process_static_file_set()
    sink = (
        FileSink.for_row_format(str(errors), Encoder.simple_string_encoder("UTF-8"))
        .with_rolling_policy(RollingPolicy.default_rolling_policy())
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("err").with_part_suffix(".txt").build()
        )
        .build()
    )
    lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "logs")
    lines.filter(lambda line: not line.endswith(" 200")).map(
        lambda line: line.lower(), output_type=Types.STRING()
    ).sink_to(sink)
    env.execute("errors")

    for part in sorted(errors.rglob("err*.txt")):
        for line in part.read_text(encoding="utf-8").splitlines():
            print("on disk:", line)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--folder", type=Path)
    given = arguments.parse_args().folder
    if given is not None:
        main(given)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
