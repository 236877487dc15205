"""What a record costs in each stage: source, user code, key, encode, decode, state, window, emit, sink.

Usage: python benchmarks/stages.py [--cases keyed-count,q1,q5,q11] [--seconds 15] [--quick] [--markdown]

The workers of a job on Spark are looked at two hundred times a second by `py-spy` while they are busy, and each look is
counted for the stage that the innermost known line belongs to. Lines of the generated loops are told apart by what they
say; the same program is run in-process before, so that their text is known. The stages share the processor time of
Python's workers a record; Java's is a row of its own. What a line waits for in the processor's caches is in it: a
dictionary of a million keys is dear in the stage that looks it up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from harness import (
    HERE,
    PEERS,
    PROC,
    BenchmarkError,
    child_environment,
    descendants,
    end,
    say,
    start,
    table,
)

from millstream.bench.figures import machine

STAGES = (
    "source",
    "user code",
    "copy",
    "time",
    "key",
    "encode",
    "exchange",
    "decode",
    "state",
    "window",
    "emit",
    "sink",
    "loop",
    "other",
)

# By what a frame's file (and function) says; the first that matches, from the innermost frame outwards.
FRAMES = [
    (re.compile(pattern), stage)
    for pattern, stage in (
        (r"nexmark/(generator|clock|model)|connectors/datagen|^number ", "source"),
        (r"tally", "sink"),
        (r"nexmark/|peers/workload", "user code"),
        (r"state/copying", "copy"),
        (r"wire/keys|wire/key_objects|codegen/keys|codegen/exchange", "key"),
        (r"^decode|wire/input|wire/link", "decode"),
        (r"wire/(codec|output|rows)", "encode"),
        (r"runtime/windows|operators/(windowing|gathering)|state/panes", "window"),
        (r"runtime/state|millstream/checkpoint|millstream/storage", "state"),
        (r"runtime/time|task/chain_time", "time"),
        (r"pyspark|pyarrow|spark/(worker|slots)|socket|importlib", "exchange"),
        (r"runtime/", "loop"),
    )
]
# By what a generated line says.
LINES = [
    (re.compile(pattern), stage)
    for pattern, stage in (
        (r"so_far|new_value|old_value|new_values|read_\d|changes", "state"),
        (r"pane|session|windows_|late_or_again|add_\d", "window"),
        (r"key_\d|canonical|key = |type\(key\)|route|find_\d|append", "key"),
        (r"send_|text_|buffer|writer_|write_", "emit"),
        (r"timestamp|stage_|checked", "time"),
        (r"= \w+_\d\(|results? in|process_|mapped|filter", "user code"),
    )
]
GENERATED = re.compile(r"\((<millstream chain .*>):(\d+)\)$")


# A million keys: without checkpoints, and with one each second.
MILLION = {"million": [], "million-1s": ["--interval", "1000"]}


def command(case: str, records: int) -> list[str]:
    """A job of its own."""
    size = ["--records", str(records)]
    if case.startswith("keyed-count"):
        mode = ["-Dexecution.mode=pipelined"] if case.endswith("-pipelined") else []
        return [sys.executable, str(PEERS / "millstream_keyed_count.py"), *size, *mode]
    if case in MILLION:
        return [sys.executable, str(HERE / "checkpoints.py"), "run", *size, *MILLION[case]]
    return [sys.executable, "-m", "millstream.bench.nexmark.job", "--query", case, *size]


# Runs a job in-process, and prints its generated loops.
PRINT_CODE = """
import json, linecache, runpy, sys
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

made = StreamExecutionEnvironment.get_execution_environment

def in_process(given=None):
    given = given or Configuration()
    given.set_string("execution.target", "in-process")
    return made(given)

StreamExecutionEnvironment.get_execution_environment = in_process
del sys.argv[0]
module = sys.argv[0] == "-m"
if module:
    del sys.argv[0]
(runpy.run_module if module else runpy.run_path)(sys.argv[0], run_name="__main__")
names = [name for name in linecache.cache if name.startswith("<millstream chain")]
print("CODE", json.dumps({name: linecache.getlines(name) for name in names}))
"""


def generated_text(case: str) -> dict[str, list[str]]:
    """The generated loops of a case by their names, as they are in-process."""
    # In a thread of its own the loop is the same.
    job = command("million" if case in MILLION else case.removesuffix("-pipelined"), 2000)[1:]
    told = subprocess.run(
        [sys.executable, "-c", PRINT_CODE, *job],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    line = next(line for line in told.splitlines() if line.startswith("CODE "))
    found: dict[str, list[str]] = json.loads(line.removeprefix("CODE "))
    return found


def stage_of(frames: list[str], text: dict[str, list[str]]) -> str:
    """The stage of one look: frames from the outermost to the innermost."""
    for frame in reversed(frames):
        if generated := GENERATED.search(frame):
            lines = text.get(generated[1], [])
            number = int(generated[2])
            line = lines[number - 1] if 0 < number <= len(lines) else ""
            return next((stage for found, stage in LINES if found.search(line)), "loop")
        for found, stage in FRAMES:
            if found.search(frame):
                return stage
    return "other"


def processor_seconds(root: int) -> tuple[float, float]:
    """Of Python's workers and of Java, so far."""
    python = java = 0.0
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            stat = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            used = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
            name = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0]
            if name.endswith(b"java"):
                java += used
            elif pid != root:
                python += used
    return python, java


def busy(root: int) -> bool:
    """True if workers do something."""
    first, _ = processor_seconds(root)
    time.sleep(0.5)
    return processor_seconds(root)[0] - first > 0.3


def spy(root: int, seconds: float, looks: Path) -> tuple[float, float, float]:
    """Look at all processes for some time: what Python and Java had used before, and how long it took."""
    command = ["py-spy", "record", "--pid", str(root), "--subprocesses", "--nonblocking"]
    command += ["--rate", "200", "--duration", str(int(seconds)), "--format", "raw"]
    told = ""
    # A process that is busy may look as if it were none of Python's, for a moment.
    for _ in range(5):
        used, java = processor_seconds(root)
        began = time.monotonic()
        spied = subprocess.run([*command, "--output", str(looks)], capture_output=True, text=True)
        if spied.returncode == 0:
            return used, java, time.monotonic() - began
        told = spied.stdout[-300:] + spied.stderr[-1000:]
    raise BenchmarkError(f"py-spy failed: {told}")


def run(case: str, records: int, seconds: float) -> dict[str, float]:
    """Microseconds of a record in each stage."""
    text = generated_text(case)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        process = start(command(case, records), output, subprocess.DEVNULL)
        try:
            while process.poll() is None and not busy(process.pid):
                pass
            # Spark's code is translated while it warms up.
            time.sleep(min(8.0, seconds))
            looks = Path(folder) / "looks"
            used, java, took = spy(process.pid, seconds, looks)
            used_after, java_after = processor_seconds(process.pid)
            if process.poll() is not None:
                raise BenchmarkError(f"{case}: it ended while it was looked at: more records")
            process.wait(600)
        finally:
            end(process)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
        told: dict[str, Any] = json.loads(next(x for x in lines if x.startswith('{"system"')))
        counted: Counter[str] = Counter()
        for line in looks.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            frames = stack.split(";")
            own = [frame for frame in frames if not frame.startswith("process ")]
            # Below the driver's processes and Java's: a worker's.
            if len(frames) - len(own) > 2:
                counted[stage_of(own, text)] += int(count)
    rate = told["records"] / told["seconds"]
    python = (used_after - used) / took / rate * 1e6
    total = sum(counted.values())
    found = {stage: python * counted[stage] / total for stage in STAGES}
    say(f"{case}: {rate:,.0f} records/s, {total:,} looks")
    return {**found, "Python's workers": python, "Java": (java_after - java) / took / rate * 1e6}


SIZES = {
    "keyed-count": 40_000_000,
    "keyed-count-pipelined": 40_000_000,
    "q1": 10_000_000,
    "q5": 8_000_000,
    "q11": 6_000_000,
    "million": 20_000_000,
    "million-1s": 20_000_000,
}


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--cases", default=",".join(SIZES))
    args.add_argument("--seconds", type=float, default=15.0)
    args.add_argument("--share", type=float, default=1.0, help="of the usual number of records")
    args.add_argument("--quick", action="store_true")
    args.add_argument("--markdown", action="store_true")
    opts = args.parse_args()
    if opts.quick:
        opts.share, opts.seconds = 0.2, 3.0
    cases = opts.cases.split(",")
    found = {case: run(case, int(SIZES[case] * opts.share), opts.seconds) for case in cases}
    print(machine(), "\n")
    rows = [
        [stage, *(f"{found[case][stage]:.2f}" for case in cases)]
        for stage in (*STAGES, "Python's workers", "Java")
    ]
    print(table(["µs a record", *cases], rows, opts.markdown))


if __name__ == "__main__":
    main()
