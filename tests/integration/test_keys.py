"""Keys of the user's own classes on Spark, where no name leads a worker to what is defined in the script."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.integration.processes import ROOT, quick_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCRIPT = """
import os, sys, time
from dataclasses import dataclass
from enum import Enum
from millstream.common import Configuration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.testing.scripted import ScriptedSource, record, watermark

class Colour(Enum):
    RED = 1
    BLUE = 2

@dataclass(frozen=True)
class Place:
    name: str
    colour: Colour

class Remind(KeyedProcessFunction):
    def __init__(self, notes):
        self.notes = notes

    def process_element(self, value, ctx):
        open(f"{self.notes}/{type(value).__name__}", "w").close()
        ctx.timer_service().register_event_time_timer(100)
        yield f"element {type(ctx.get_current_key()).__name__}"

    def on_timer(self, timestamp, ctx):
        key = ctx.get_current_key()
        if isinstance(key, Place):
            yield f"timer {key.name} {key.colour is Colour.BLUE}"
        else:
            yield f"timer {key is Colour.RED}"

def start(entries, out, parallelism, path=None):
    options = {"execution.target": "spark", "millstream.epoch.records": "10"}
    if path is not None:
        options["execution.state-recovery.path"] = path
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.set_parallelism(parallelism)
    source = ScriptedSource({"a": entries}, bounded=path is not None)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "script").uid("script")
    keyed = records.map(lambda n: Colour.RED if n == 0 else Place("home", Colour.BLUE)).uid("map")
    reminded = keyed.key_by(lambda key: key).process(Remind(sys.argv[1])).uid("remind")
    if path is not None:
        out.extend(reminded.execute_and_collect())
        return None
    reminded.print()
    return env.execute_async("keys")

if __name__ == "__main__":
    first = [record(0, at=1), record(1, at=2)]
    client = start(first, [], 2)
    deadline = time.monotonic() + 100
    while len(os.listdir(sys.argv[1])) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    path = client.stop_with_savepoint(False, sys.argv[1]).result(120)
    client.get_job_execution_result().result(60)
    out = []
    start([*first, watermark(1000)], out, 3, path)
    print("RESULT", sorted(out))
"""


def test_on_timer_sees_classes_of_the_script_after_a_restore(tmp_path):
    script = tmp_path / "keys.py"
    script.write_text(SCRIPT)
    saved = tmp_path / "saved"
    saved.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(saved)],
        capture_output=True,
        text=True,
        env=quick_environment(PYTHONPATH=str(ROOT)),
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "RESULT ['timer True', 'timer home True']" in done.stdout, done.stdout + done.stderr
