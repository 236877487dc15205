"""Lines that cannot be parsed go to files of their own, with the reason; the job goes on.

A dead letter says which operator failed on which record, and where that came from. If more than a fifth of all lines
(of a hundred at least) are bad, something else is wrong than a line: then the job fails. The files of letters are
exactly-once, as all files of the sink are.
"""

import json
import sys
import tempfile
from pathlib import Path

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Encoder
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink

BAD = OutputTag("bad lines")
LINES = [
    '{"sensor": "mill", "level": 3.5}',
    '{"sensor": "weir", "level": "high"}',
    '{"sensor": "weir", "level": 2.0}',
    '{"sensor": "lock", "lev',
    '{"sensor": "mill", "level": 3.0}',
]


def parsed(line):
    reading = json.loads(line)
    return reading["sensor"], float(reading["level"])


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "letters"
letters = (
    FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    .build()
)

env = StreamExecutionEnvironment.get_execution_environment()
lines = env.from_collection(LINES)
readings = lines.map(parsed).name("parse").on_error(ErrorPolicy.dead_letter(BAD, max_share=0.2))
readings.key_by(lambda reading: reading[0]).max(1).print()
bad = readings.get_side_output(BAD)
bad.map(lambda letter: f"{letter.operator}, {letter.error}: {letter.record}").sink_to(letters)
env.execute("dead letters")

print("".join(part.read_text() for part in sorted(folder.iterdir())), end="")
