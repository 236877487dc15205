"""How long a first result takes: `python examples/word_count.py` beside plain PySpark, and a second job in a session.

Ten alternating runs, each in a new process: the time from its start until the first line is printed, and the CPU time
of all its processes until then. PySpark counts the same words in two ways, as a frame and with RDDs.

Usage: python benchmarks/startup.py [--repetitions N] [--quick] [--markdown]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import harness

EXAMPLE = str(harness.HERE.parent / "examples" / "word_count.py")

SESSION = """
from pyspark.sql import SparkSession, functions as sf
builder = SparkSession.builder
for key, value in {
    "spark.master": "local[*]", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR",
}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
text = ["the mill grinds grain", "the water turns the mill"]
"""
FRAME = (
    SESSION
    + """
words = spark.createDataFrame([(line,) for line in text], ["line"]).select(
    sf.explode(sf.split("line", " ")).alias("word")
)
for row in words.groupBy("word").count().collect():
    print(tuple(row), flush=True)
"""
)
RDD = (
    SESSION
    + """
words = spark.sparkContext.parallelize(text, 2).flatMap(str.split).map(lambda word: (word, 1))
for pair in words.reduceByKey(lambda a, b: a + b).collect():
    print(pair, flush=True)
"""
)
STATEFUL = (
    SESSION
    + """
import pandas as pd
def counted(frames):
    for frame in frames:
        yield frame["line"].str.split().explode().to_frame("word")
def total(key, frame):
    return pd.DataFrame({"word": [key[0]], "count": [len(frame)]})
words = spark.createDataFrame([(line,) for line in text], ["line"]).mapInPandas(counted, "word string")
for row in words.groupBy("word").applyInPandas(total, "word string, count long").collect():
    print(tuple(row), flush=True)
"""
)

# The same word count again and again in one process: what is left when everything is warm.
AGAIN = """
import sys, time
from millstream.datastream import StreamExecutionEnvironment
times = []
for _ in range(12):
    started = time.perf_counter()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    text = ["the mill grinds grain", "the water turns the mill"]
    words = env.from_collection(text).flat_map(str.split).map(lambda word: (word, 1))
    words.key_by(lambda pair: pair[0]).sum(1).print()
    env.execute("word count")
    times.append(time.perf_counter() - started)
print("TIMES", *times, file=sys.stderr)
"""


def first_line(command: Sequence[str]) -> tuple[float, float]:
    """Seconds until the first line, and CPU seconds of all processes by then."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    took = time.perf_counter() - started
    cpu = sum(map(cpu_seconds, harness.descendants(process.pid)))
    process.stdout.read()
    process.wait()
    harness.end(process)
    if not line:
        raise harness.BenchmarkError(f"{command} printed nothing")
    return took, cpu


def cpu_seconds(pid: int) -> float:
    try:
        fields = (harness.PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.set_defaults(repetitions=10)
    opts = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = {"Millstream, examples/word_count.py": [sys.executable, EXAMPLE]}
        texts = {"frame": FRAME, "RDDs": RDD, "frame with Python functions": STATEFUL}
        for name, text in texts.items():
            path = Path(folder) / f"{name.replace(' ', '_')}.py"
            path.write_text(text)
            commands[f"PySpark, {name}"] = [sys.executable, str(path)]
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(1 if opts.quick else opts.repetitions + 1):
            for name, command in commands.items():
                took = first_line(command)
                harness.say(f"round {number}: {name}: {took[0]:.2f} s, {took[1]:.1f} s of CPU")
                # The first of each reads files that nobody has read yet.
                if number or opts.quick:
                    found[name].append(took)
    own = next(iter(found))
    rows = []
    for name, times in found.items():
        seconds = sorted(took for took, _ in times)
        later = [mine[0] - theirs[0] for mine, theirs in zip(found[own], times, strict=True)]
        rows.append(
            [
                name,
                f"{statistics.median(seconds):.2f} s",
                f"{seconds[0]:.2f} to {seconds[-1]:.2f}",
                f"{statistics.median(cpu for _, cpu in times):.1f} s",
                "" if name == own else f"{statistics.median(later):+.2f} s",
            ]
        )
    header = ["first line of", "median", "range", "CPU", "Millstream's is later by"]
    print(harness.facts() + "\n")
    print(harness.table(header, rows, opts.markdown))
    again = subprocess.run(
        [sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True
    )
    line = next(line for line in again.stderr.splitlines() if line.startswith("TIMES"))
    jobs = [float(part) for part in line.split()[1:]]
    print(
        f"\nJobs in one session: first {jobs[0]:.2f} s, second {jobs[1]:.2f} s, "
        f"then {statistics.median(jobs[2:]):.2f} s (median of {len(jobs) - 2})"
    )


if __name__ == "__main__":
    main()
