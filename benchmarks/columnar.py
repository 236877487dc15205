"""Tumbling sums over Parquet files: Millstream by columns, Millstream by rows, Spark SQL's streaming aggregation.

Usage: python benchmarks/columnar.py [--systems columns,rows,sql] [--rows 32000000] [--repetitions 3] [--quick]

All three read the same files, sum and count per key and window of 10 s of event time, and write Parquet files with
exactly-once sinks; what is in the files must be what NumPy makes of the numbers. A system runs in a process of its own:
once to warm up, once over a part of the files and once over all of them. The rate is that of the difference, because
starting a job takes seconds that have nothing to do with rows; the rate of the whole run is given beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import say

SYSTEMS = {
    "columns": "Millstream, columns",
    "rows": "Millstream, rows",
    "sql": "Spark SQL, streaming aggregation",
}
KEYS = 1_000
PER_MS = 10
SIZE_MS = 10_000
BASE = 1_700_000_040_000
FILE_ROWS = 500_000
# The rows of the rows' way are fewer: they cost more.
SHARE = {"columns": 1.0, "rows": 0.25, "sql": 1.0}
SHORT = 0.25
LAST_KEY = "the end"
CHECKPOINT_MS = 2_000


# ---------------------------------------------------------------- the input, and what should come of it


def columns(low: int, high: int) -> tuple[Any, Any, Any]:
    """The keys, times and values of some rows, as numbers."""
    number = np.arange(low, high)
    return number % KEYS, BASE + number // PER_MS, (number * 7919) % 1_000_003 - 500_000


def make_files(folder: Path, rows: int) -> None:
    """Two files for each stretch of time, so that two tasks can read them side by side."""
    folder.mkdir(parents=True)
    names = np.array([f"key {number}" for number in range(KEYS)], object)
    for part, low in enumerate(range(0, rows, 2 * FILE_ROWS)):
        key, at, value = columns(low, min(rows, low + 2 * FILE_ROWS))
        for half in (0, 1):
            table = pa.table(
                {"key": pa.array(names[key[half::2]]), "ms": at[half::2], "v": value[half::2]}
            )
            pq.write_table(table, folder / f"{part:04}-{half}.parquet", row_group_size=1 << 17)
    # Behind the last row: moves Spark's watermark, so that all windows close.
    far = {"key": [LAST_KEY], "ms": [BASE + 10**10], "v": [0]}
    pq.write_table(pa.table(far), folder / "9999.parquet")


def digest(key: Any, total: Any, count: Any) -> str:
    """The same for the same results in any order."""
    weight = (key + 1) * ((total % 10_007) + 1) * ((count % 10_009) + 1)
    text = f"{len(key)} results, {int(total.sum())}, {int(count.sum())}, {int(weight.sum())}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def expected(rows: int) -> str:
    sums: dict[int, Any] = {}
    counts: dict[int, Any] = {}
    for low in range(0, rows, 1 << 20):
        key, at, value = columns(low, min(rows, low + (1 << 20)))
        windows = at // SIZE_MS
        for window in np.unique(windows).tolist():
            some = windows == window
            total = sums.setdefault(window, np.zeros(KEYS, np.int64))
            np.add.at(total, key[some], value[some])
            counted = counts.setdefault(window, np.zeros(KEYS, np.int64))
            counted += np.bincount(key[some], minlength=KEYS)
    keys, totals, numbers = [], [], []
    for window, total in sums.items():
        there = np.flatnonzero(counts[window])
        keys.append(there)
        totals.append(total[there])
        numbers.append(counts[window][there])
    return digest(np.concatenate(keys), np.concatenate(totals), np.concatenate(numbers))


def found(folder: str) -> str:
    """The digest of the files that a job has written."""
    files = list(Path(folder).rglob("part-*"))
    tables = [pq.ParquetFile(file).read() for file in files]
    table = pa.concat_tables([t for t in tables if t.num_rows])
    key = np.array(table["key"].to_pylist())
    real = key != LAST_KEY
    numbers = np.array([int(name[4:]) for name in key[real].tolist()])
    total, count = (table[name].to_numpy()[real] for name in ("total", "count"))
    return digest(numbers, total, count)


# ---------------------------------------------------------------- the systems


def in_millstream(source: str, out: str, by_columns: bool) -> None:
    from millstream.common import Configuration, Time, Types, WatermarkStrategy
    from millstream.datastream import StreamExecutionEnvironment, count, sum_of
    from millstream.datastream.connectors import FileSink, FileSource
    from millstream.datastream.formats.parquet import (
        ParquetBulkWriters,
        ParquetColumnarRowInputFormat,
    )
    from millstream.datastream.window import TumblingEventTimeWindows

    kind = Types.ROW_NAMED(["key", "ms", "v"], [Types.STRING(), Types.LONG(), Types.LONG()])
    given = {"execution.target": "spark", "millstream.columns": str(by_columns).lower()}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))
    env.set_parallelism(2)
    env.enable_checkpointing(CHECKPOINT_MS)
    files = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(kind), source).build()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("ms")
    rows = env.from_source(files, strategy, "files")
    windows = rows.key_by("key").window(TumblingEventTimeWindows.of(Time.milliseconds(SIZE_MS)))
    results = windows.aggregate_of(sum_of("v"), count())
    written = Types.ROW_NAMED(["key", "total", "count"], [Types.STRING(), *[Types.LONG()] * 2])
    results.sink_to(FileSink.for_bulk_format(out, ParquetBulkWriters.for_row_type(written)).build())
    env.execute("tumbling sums")


def in_sql(source: str, out: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.getOrCreate()
    stream = spark.readStream.schema("key string, ms long, v long")
    # As many rows in a batch as Millstream has in an epoch, about.
    rows = stream.option("maxFilesPerTrigger", 8).parquet(source)
    events = rows.withColumn("at", F.timestamp_millis("ms")).withWatermark("at", "0 seconds")
    window = F.window("at", f"{SIZE_MS} milliseconds")
    sums = events.groupBy("key", window).agg(F.sum("v").alias("total"), F.count("*").alias("count"))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = sums.select("key", "total", "count").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", checkpoint).option("path", out)
        query = writer.outputMode("append").trigger(availableNow=True).start()
        query.awaitTermination()


def session() -> Any:
    from millstream.spark.session import make_session

    spark = make_session({"spark.master": "local[2]"})
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def run_here(system: str, folder: Path, sizes: list[int]) -> dict[str, Any]:
    """The seconds that each size takes, in this process, after a run to warm up."""
    spark = session()
    run: Callable[[str, str], None] = {
        "columns": lambda source, out: in_millstream(source, out, True),
        "rows": lambda source, out: in_millstream(source, out, False),
        "sql": in_sql,
    }[system]
    seconds: list[float] = []
    hashes: list[str] = []
    for size in [sizes[0], *sizes]:
        with tempfile.TemporaryDirectory() as out:
            started = time.perf_counter()
            run(str(folder / str(size)), out)
            seconds.append(time.perf_counter() - started)
            hashes.append(found(out))
    spark.stop()
    return {"seconds": seconds[1:], "hashes": hashes[1:]}


# ---------------------------------------------------------------- side by side


def run_system(name: str, folder: Path, sizes: list[int]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--system", name, "--folder", str(folder)]
    command += ["--sizes", ",".join(map(str, sizes))]
    with tempfile.TemporaryFile() as errors:
        process = harness.start(command, subprocess.PIPE, errors)
        try:
            output, _ = process.communicate(timeout=1800)
        finally:
            harness.end(process)
        lines = [line for line in output.decode().splitlines() if line.startswith('{"seconds"')]
        if not lines:
            errors.seek(0)
            sys.exit(f"{name} failed:\n{errors.read().decode(errors='replace')[-4000:]}")
    result: dict[str, Any] = json.loads(lines[-1])
    wanted = [expected(size) for size in sizes]
    if result["hashes"] != wanted:
        sys.exit(f"{name} gave other results: {result['hashes']}, not {wanted}")
    return result


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.set_defaults(repetitions=3)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--rows", type=int, default=32_000_000)
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--sizes", help=argparse.SUPPRESS)
    opts = parser.parse_args()
    if opts.system:
        sizes = list(map(int, opts.sizes.split(",")))
        print(json.dumps(run_here(opts.system, Path(opts.folder), sizes)), flush=True)
        return
    systems = opts.systems.split(",")
    facts = harness.facts()
    rows, repetitions = (2_000_000, 1) if opts.quick else (opts.rows, opts.repetitions)
    sizes_of = {
        name: [int(rows * SHARE[name] * SHORT), int(rows * SHARE[name])] for name in systems
    }
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for size in sorted({size for sizes in sizes_of.values() for size in sizes}):
            say(f"making {size:,} rows ...")
            make_files(folder / str(size), size)
        for repetition in range(repetitions):
            for name in systems if repetition % 2 == 0 else reversed(systems):
                runs[name].append(run_system(name, folder, sizes_of[name]))
                say(f"round {repetition + 1} of {repetitions}: {name} {runs[name][-1]['seconds']}")
    print(f"Tumbling sums over Parquet files, {KEYS:,} keys. {facts}\n")
    rates: dict[str, list[float]] = {}
    table = []
    for name in systems:
        short, long = sizes_of[name]
        took = [one["seconds"] for one in runs[name]]
        # Of tiny runs the difference says nothing.
        rates[name] = [(long - short) / (b - a) if b > 1.2 * a else long / b for a, b in took]
        whole = statistics.median(long / b for _, b in took)
        middle = statistics.median(rates[name])
        ends = f"{min(rates[name]):,.0f} to {max(rates[name]):,.0f}"
        table.append([SYSTEMS[name], f"{long:,}", f"{middle:,.0f}", ends, f"{whole:,.0f}"])
    header = ["system", "rows", "rows/s (median)", "min to max", "rows/s of the whole run"]
    print(harness.table(header, table, opts.markdown))
    for other in ("rows", "sql"):
        if {"columns", other} <= set(systems):
            ratios = [a / b for a, b in zip(rates["columns"], rates[other], strict=True)]
            text = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(f"\ncolumns / {other}: {text}")


if __name__ == "__main__":
    main()
