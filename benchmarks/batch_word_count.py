"""A batch word count over text larger than memory: Millstream in BATCH mode against the same functions in PySpark RDDs.

Usage: python benchmarks/batch_word_count.py [--megabytes 2048] [--words 200000] [--repetitions 3] [--quick]

Both read the same file with the same two Python functions, count, and hand the counts to the driver; the counts must be
equal. Millstream's Python workers run under a limit (`--limit`, 500 MB of private memory, by RLIMIT_DATA), the RDDs
under none. `--profile FILE` runs Millstream alone, with everything sampled by py-spy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import islice
from operator import add
from pathlib import Path
from typing import Any
from zlib import crc32

import harness
from harness import say

from millstream.api.functions import FlatMapFunction, MapFunction, RuntimeContext

LINE = 12
BLOCK = 1 << 16


# ---------------------------------------------------------------- the input


def make_text(path: Path, megabytes: int, words: int) -> int:
    """Write lines of words, common and rare as in a language; the number of words written."""
    import numpy as np

    chance = np.random.default_rng(7)
    known = [f"{crc32(str(n).encode()):x}"[: 3 + n % 6] + f"{n:x}" for n in range(words)]
    shares = 1 / np.arange(1, words + 1)
    edges = np.cumsum(shares / shares.sum())
    written = count = 0
    with path.open("w") as file:
        while written < megabytes << 20:
            chosen = np.minimum(np.searchsorted(edges, chance.random(BLOCK * LINE)), words - 1)
            named = map(known.__getitem__, chosen.tolist())
            text = "".join(" ".join(islice(named, LINE)) + "\n" for _ in range(BLOCK))
            file.write(text)
            written += len(text)
            count += BLOCK * LINE
    return count


# ---------------------------------------------------------------- the program


def split(line: str) -> list[str]:
    return line.split()


def pair(word: str) -> tuple[str, int]:
    return word, 1


def digest(counts: Iterable[tuple[str, int]]) -> str:
    """The same for the same counts in any order."""
    return f"{sum(crc32(f'{word} {count}'.encode()) for word, count in counts):x}"


class _Limited:
    """Limits the memory of the worker that it is opened in, and notes the most that was used."""

    def __init__(self, limit: int, folder: str) -> None:
        self.limit, self.folder = limit, folder

    def open(self, runtime_context: RuntimeContext) -> None:
        if self.limit:
            resource.setrlimit(resource.RLIMIT_DATA, (self.limit << 20, self.limit << 20))

    def close(self) -> None:
        status = Path("/proc/self/status").read_text().splitlines()
        peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
        (Path(self.folder) / f"{os.getpid()}").write_text(peak)


class Split(_Limited, FlatMapFunction):
    def flat_map(self, value: str) -> list[str]:
        return split(value)


class Same(_Limited, MapFunction):
    """Behind the counting, so that its workers are limited too."""

    def map(self, value: tuple[str, int]) -> tuple[str, int]:
        return value


def count_in_millstream(path: str, cores: int, limit: int) -> dict[str, Any]:
    from millstream.common.configuration import Configuration
    from millstream.common.execution_mode import RuntimeExecutionMode
    from millstream.common.watermark_strategy import WatermarkStrategy
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.datastream.connectors import FileSource, StreamFormat
    from millstream.spark.session import make_session

    session = make_session({"spark.master": f"local[{cores}]"})
    with tempfile.TemporaryDirectory() as folder:

        def run(text: str) -> tuple[float, str, int]:
            started = time.perf_counter()
            env = StreamExecutionEnvironment.get_execution_environment(
                Configuration.from_dict({"execution.target": "spark"})
            )
            env.set_parallelism(cores).set_runtime_mode(RuntimeExecutionMode.BATCH)
            source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), text)
            lines = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "text")
            words = lines.flat_map(Split(limit, folder)).map(pair)
            counts = words.key_by(lambda v: v[0]).sum(1).map(Same(limit, folder))
            with counts.execute_and_collect() as results:
                found = list(results)
            return time.perf_counter() - started, digest(found), len(found)

        warm_up(path, run)
        seconds, found, words = run(path)
        peaks = [int(file.read_text()) for file in Path(folder).iterdir()]
    session.stop()
    return {"seconds": seconds, "hash": found, "distinct": words, "peak_mb": max(peaks) // 1024}


def count_in_rdds(path: str, cores: int) -> dict[str, Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(f"local[{cores}]").getOrCreate()
    context = session.sparkContext

    def run(text: str) -> tuple[float, str, int]:
        started = time.perf_counter()
        lines = context.textFile(text, minPartitions=cores)
        counts = lines.flatMap(split).map(pair).reduceByKey(add, cores).collect()
        return time.perf_counter() - started, digest(counts), len(counts)

    warm_up(path, run)
    seconds, found, words = run(path)
    session.stop()
    return {"seconds": seconds, "hash": found, "distinct": words, "peak_mb": None}


def warm_up(path: str, run: Any) -> None:
    """Start the workers on the first lines."""
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.txt"
        with Path(path).open() as text, small.open("w") as file:
            file.writelines(line for _, line in zip(range(1000), text, strict=False))
        run(str(small))


# ---------------------------------------------------------------- side by side


def run_system(name: str, path: Path, opts: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--system", name, "--text", str(path)]
    command += ["--cores", str(opts.cores), "--limit", str(opts.limit)]
    if opts.profile:
        # Samples everything that the driver starts, the workers too.
        spy = ["py-spy", "record", "--subprocesses", "--nonblocking", "--format", "raw"]
        command = [*spy, "--rate", "50", "--output", opts.profile, "--", *command]
    # Arrow's own allocator reserves a gigabyte that it does not use, which the limit would count.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    with tempfile.TemporaryFile() as errors:
        process = harness.start(command, subprocess.PIPE, errors)
        try:
            output, _ = process.communicate(timeout=opts.timeout)
        finally:
            harness.end(process)
        found = [line for line in output.decode().splitlines() if line.startswith('{"seconds"')]
        if not found:
            errors.seek(0)
            sys.exit(f"{name} failed:\n{errors.read().decode(errors='replace')[-4000:]}")
    result: dict[str, Any] = json.loads(found[-1])
    return result


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.set_defaults(repetitions=3)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--words", type=int, default=200_000, help="distinct words")
    parser.add_argument("--limit", type=int, default=500, help="MB of a Millstream worker; 0: none")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=3600)
    parser.add_argument("--profile", help="write what py-spy saw of Millstream to this file")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--text", help="use this text, and keep it")
    opts = parser.parse_args()
    if opts.system:
        found = (
            count_in_millstream(opts.text, opts.cores, opts.limit)
            if opts.system == "millstream"
            else count_in_rdds(opts.text, opts.cores)
        )
        print(json.dumps(found), flush=True)
        return
    facts = harness.facts()
    megabytes, repetitions = (20, 1) if opts.quick else (opts.megabytes, opts.repetitions)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(opts.text or Path(folder) / "text.txt")
        if not path.exists():
            say(f"making {megabytes} MB of text ...")
            make_text(path, megabytes, opts.words)
        with path.open() as text:
            lines = sum(1 for _ in text)
        words = lines * LINE
        systems = ["millstream"] if opts.profile else ["millstream", "rdds"]
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
        for repetition in range(repetitions):
            for name in systems if repetition % 2 == 0 else reversed(systems):
                result = run_system(name, path, opts)
                runs[name].append(result)
                say(
                    f"round {repetition + 1}: {name} {words / result['seconds']:,.0f} words/s {result}"
                )
        size = path.stat().st_size / 2**20
    if len({result["hash"] for results in runs.values() for result in results}) != 1:
        sys.exit(f"the counts are not the same: {runs}")
    print(
        f"Batch word count: {size:,.0f} MB of text, {words:,} words, {opts.cores} cores, "
        f"{opts.limit or 'no'} MB limit on Millstream's workers. {facts}\n"
    )
    seconds = {name: statistics.median(r["seconds"] for r in one) for name, one in runs.items()}
    peaks = {name: max(r["peak_mb"] or 0 for r in one) for name, one in runs.items()}
    rows = [
        [name, f"{took:.1f}", f"{words / took:,.0f}", f"{size / took:.1f}", str(peaks[name] or "-")]
        for name, took in seconds.items()
    ]
    header = ["system", "seconds (median)", "words/s", "MB/s", "largest worker MB"]
    print(harness.table(header, rows, opts.markdown))
    if "rdds" in seconds:
        print(f"\nMillstream / RDDs: {seconds['rdds'] / seconds['millstream']:.2f}x")


if __name__ == "__main__":
    main()
