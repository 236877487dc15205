"""A job that runs for an hour: memory, open files, threads and processor time of its processes, then of an idle job.

Usage: python benchmarks/soak.py [--minutes 60] [--rate 5000] [--idle 5] [--mode pipelined|micro-batch] [--quick]

Records go through one exchange and a keyed function with state to a sink that is called record by record; checkpoints
are exactly-once, to disk. Every ten seconds all processes are looked at. In the last `--idle` minutes nothing comes.
What is printed is each figure in every sixth of the time: one that only grows is a leak. Java's memory grows to what it
was given and falls again, so how much of its heap is in use after a collection is asked at the beginning and the end,
and how many objects of Spark's RPC endpoints there are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import PROC, descendants, table
from latency import Counting, Due, DueSplits

from millstream.api.source import Boundedness, SplitEnumerator
from millstream.bench.figures import machine
from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import SinkFunction, StreamExecutionEnvironment

INTERVAL = 10.0
SIXTHS = 6


class Endless(Due):
    """Numbers, each with the moment that it is due; after the last one nothing comes, and the source does not end."""

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return EndlessSplits(self.rate, self.count)


class EndlessSplits(DueSplits):
    """A split that has no end."""

    def finished(self, split: str, position: int) -> bool:
        return False


class Nothing(SinkFunction):
    """Takes records and forgets them."""

    def invoke(self, value: Any, context: Any) -> None:
        return


def look(pid: int) -> dict[str, float]:
    """One process: memory in MiB, open files, threads, processor seconds so far."""
    folder = PROC / str(pid)
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    times = (folder / "stat").read_text().rpartition(")")[2].split()
    return {
        "MiB": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(list((folder / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "seconds": (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
    }


def role(pid: int) -> str:
    """Which part of a job a process is."""
    if pid == os.getpid():
        return "driver"
    command = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[0]
    return "Java" if command.endswith(b"java") else "workers"


def sample() -> dict[str, dict[str, float]]:
    """All processes, added up by role, and how many there are."""
    found: dict[str, dict[str, float]] = {}
    for pid in descendants(os.getpid()):
        try:
            name, figures = role(pid), look(pid)
        except (OSError, KeyError):
            continue
        of_role = found.setdefault(name, dict.fromkeys([*figures, "processes"], 0.0))
        for what, value in [*figures.items(), ("processes", 1)]:
            of_role[what] += value
    return found


def java() -> int:
    return next(pid for pid in descendants(os.getpid()) if role(pid) == "Java")


def java_objects() -> dict[str, float]:
    """Bytes of Java's heap in use after a collection, and objects of RPC endpoints."""
    told = subprocess.run(
        ["jcmd", str(java()), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split() for line in told.splitlines() if ":" in line]
    rows = [(int(words[1]), int(words[2]), words[3]) for words in lines if len(words) >= 4]
    return {
        "heap in use, MiB": sum(size for _, size, _ in rows) / (1 << 20),
        "RPC endpoints": sum(count for count, _, name in rows if name.endswith("RpcEndpointRef")),
    }


def watch(client: Any, seconds: float) -> list[dict[str, dict[str, float]]]:
    """Samples of some time, in which the job has to run."""
    samples = [sample()]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(INTERVAL, max(0.0, until - time.monotonic())))
        if client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()
            raise SystemExit("the job has ended")
        samples.append(sample())
    return samples


def show(samples: list[dict[str, dict[str, float]]], seconds: float) -> str:
    """A row for each role and figure; processor time as part of a core."""
    size = max(1, len(samples) // SIXTHS)
    parts = [samples[at : at + size + 1] for at in range(0, size * SIXTHS, size)]
    parts = [part for part in parts if len(part) > 1]
    rows = []
    for name in samples[-1]:
        for what in ("MiB", "files", "threads", "processes"):
            cells = [
                statistics.median(one[name][what] for one in part if name in one) for part in parts
            ]
            rows.append([name, what, *(f"{cell:,.0f}" for cell in cells)])
        span = seconds / (len(samples) - 1)
        used = [
            (part[-1][name]["seconds"] - part[0][name]["seconds"]) / (span * (len(part) - 1))
            for part in parts
            if name in part[0]
        ]
        rows.append([name, "of a core", *(f"{share:.1%}" for share in used)])
    return table(
        ["process", "figure", *(f"{n + 1}/{SIXTHS}" for n in range(len(parts)))], rows, True
    )


def run(mode: str, rate: int, seconds: float, idle: float, folder: str) -> dict[str, Any]:
    """The whole run, and what was seen of it."""
    settings = {
        "parallelism.default": "2",
        "execution.mode": mode,
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.dir": os.path.join(folder, "checkpoints"),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = env.from_source(Endless(rate, seconds), WatermarkStrategy.no_watermarks(), "due")
    source.key_by(lambda pair: pair[0]).process(Counting()).add_sink(Nothing())
    client = env.execute_async("soak")
    while (metrics := client.get_metrics()) is None or metrics.records == 0:
        time.sleep(0.5)
    time.sleep(min(60.0, seconds / 10))
    before = java_objects()
    left = seconds - min(60.0, seconds / 10)
    busy = watch(client, left)
    after = java_objects()
    print(f"\n{rate:,} records a second, {left / 60:,.0f} minutes, {mode}\n")
    print(show(busy, left), flush=True)
    # What was on its way when the last record was due.
    time.sleep(15)
    records = client.get_metrics().records
    quiet = watch(client, idle)
    print(f"\nNothing comes, {idle / 60:,.0f} minutes\n")
    print(show(quiet, idle))
    for what, value in before.items():
        print(f"\nJava, {what}: {value:,.0f} at first, {after[what]:,.0f} after the records")
    print(
        f"\n{records:,} of {int(rate * seconds):,} records; {client.get_metrics().epoch:,} epochs"
    )
    client.cancel().result()
    return {"busy": busy, "idle": quiet, "before": before, "after": after, "records": records}


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--minutes", type=float, default=60.0)
    args.add_argument("--idle", type=float, default=5.0, help="minutes in which nothing comes")
    args.add_argument("--rate", type=int, default=5000)
    args.add_argument("--mode", default="pipelined")
    args.add_argument("--json", type=Path)
    args.add_argument("--quick", action="store_true")
    opts = args.parse_args()
    if opts.quick:
        opts.minutes, opts.idle = 1.0, 0.5
    if shutil.which("jcmd") is None:
        raise SystemExit("jcmd is missing: it comes with a JDK")
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="millstream-soak-") as folder:
        found = run(opts.mode, opts.rate, opts.minutes * 60, opts.idle * 60, folder)
    if opts.json:
        opts.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
