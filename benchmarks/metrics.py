"""What it costs to watch a job: everything on, against everything that can be turned off.

Usage: python benchmarks/metrics.py [--rounds 5] [--pairs 6] [--cases keyed,tumbling] [--quick]

On: REST and dashboard, latency markers each second, Prometheus' page read each second. Off: none of them. Short jobs
run in one warm Spark session, one watched and one not, in turns; epochs have a fixed number of records, so that both do
the same. The ratio is taken within a pair, of the clock and of the processor time that driver, JVM and workers took
together; a round is the median of its pairs. What tasks count for every job is in both; `compare.py` holds it against
another tree. All that watching adds but a marker a second is done by the driver: what it took more than the unwatched
one's, as a share of what the whole job took, is told too, and is not disturbed by what else goes on in the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import compare
import harness
from harness import BenchmarkError, say

sys.path.insert(0, str(harness.HERE.parent))
sys.path.insert(0, str(harness.PEERS))
os.environ["PYTHONPATH"] = harness.child_environment()["PYTHONPATH"]

from millstream_in_process import build
from tally_sink import UNLIMITED
from window_workload import merge_windows
from workload import CHECKPOINT_MS, digest, merge

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.driver.run import JobRun

RECORDS = {"keyed": 3_000_000, "tumbling": 2_000_000, "sliding10": 1_000_000, "session": 1_500_000}
EPOCH = 250_000
WARM_UP = 0.15
OFF = {"millstream.rest.enabled": "false", "metrics.latency.interval": "0 ms"}


def on(port: int) -> dict[str, str]:
    """Everything, with Prometheus' page at a port."""
    return {
        "millstream.rest.enabled": "true",
        "rest.port": "0",
        "metrics.latency.interval": "1 s",
        "metrics.reporters": "prom",
        "metrics.reporter.prom.port": str(port),
    }


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def scraped(port: int, pages: list[int]) -> Iterator[None]:
    """Read the page each second; `pages` gets the sizes of those that were there."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1):
            with contextlib.suppress(OSError):
                address = f"http://127.0.0.1:{port}/metrics"
                with urllib.request.urlopen(address, timeout=1) as page:
                    pages.append(len(page.read()))

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True)
class Moment:
    """How far a job was, and when."""

    records: int = 0
    clock: float = 0.0
    processor: float = 0.0
    driver: float = 0.0


@dataclass(frozen=True)
class Cost:
    """Seconds for a million records: by the clock, of the processor, and what of the latter the driver took."""

    clock: float
    processor: float
    driver: float


def processor_seconds() -> float:
    """What this process and all below it have taken so far."""
    ticks = 0
    for pid in harness.descendants(os.getpid()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            # With the children that have ended and been waited for.
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def steady(job: JobRun, records: int) -> Cost:
    """What a record costs in a job that has begun, until it has ended. How it starts and ends is not in it."""
    first, last = Moment(), Moment()
    while not job.done:
        metrics = job.metrics
        done = 0 if metrics is None else metrics.records
        if done > last.records:
            last = Moment(done, time.monotonic(), processor_seconds(), time.process_time())
            first = last if first.records < records * WARM_UP else first
        time.sleep(0.002)
    millions = (last.records - first.records) / 1e6
    if not millions:
        raise BenchmarkError("the job was over before it had begun: give it more epochs")
    return Cost(
        (last.clock - first.clock) / millions,
        (last.processor - first.processor) / millions,
        (last.driver - first.driver) / millions,
    )


def run(case: str, records: int, settings: dict[str, str]) -> Cost:
    """What one job costs, whose result must be right."""
    fixed = {"millstream.epoch.records": str(EPOCH), "parallelism.default": "2", **settings}
    with tempfile.TemporaryDirectory() as out:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(fixed))
        env.enable_checkpointing(CHECKPOINT_MS)
        build(env, case, records, out, UNLIMITED)
        client = env.execute_async(f"{case}, watched or not")
        job = client._run
        assert isinstance(job, JobRun)
        cost = steady(job, records)
        client.get_job_execution_result().result()
        if case == "keyed":
            tally = merge(out)
            found = digest(tally.last, tally.emitted, tally.total)
        else:
            found = merge_windows(out).digest()
    if found != compare.expected(case, records):
        raise BenchmarkError(f"{case}: a wrong result")
    return cost


def ratios(watched: Cost, alone: Cost) -> tuple[float, float, float]:
    """Watched over not watched: by the clock, of the processor, and if only the driver had done more."""
    more = watched.driver - alone.driver
    return (
        watched.clock / alone.clock,
        watched.processor / alone.processor,
        (alone.processor + more) / alone.processor,
    )


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--pairs", type=int, default=6)
    args.add_argument("--cases", default="keyed,tumbling")
    args.add_argument("--quick", action="store_true")
    opts = args.parse_args()
    names = opts.cases.split(",")
    records = {name: 200_000 if opts.quick else RECORDS[name] for name in names}
    rounds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    pages: list[int] = []
    for name in names * (1 if opts.quick else 4):
        # Classes, compiled code and workers: a JVM grows faster for minutes.
        run(name, records[name], OFF)
    for number in range(opts.rounds):
        for name in names:
            pairs = []
            for pair in range(opts.pairs):
                took: dict[bool, Cost] = {}
                for watched in (False, True) if (number + pair) % 2 else (True, False):
                    port = free_port()
                    with scraped(port, pages) if watched else contextlib.nullcontext():
                        took[watched] = run(name, records[name], on(port) if watched else OFF)
                pairs.append(ratios(took[True], took[False]))
            clock, processor, driver = (
                statistics.median(pair[i] for pair in pairs) for i in range(3)
            )
            rounds[name].append((clock, processor, driver))
            say(
                f"round {number + 1}, {name}: clock {clock:.3f}, processor {processor:.3f}, "
                f"driver {driver:.3f}"
            )
    if not pages:
        raise BenchmarkError("nobody has read Prometheus' page")
    say(f"{len(pages)} pages were read, the largest of {max(pages):,} bytes")
    print("| case | watched / not | median | min | max |\n|---|---|---|---|---|")
    for name, found in rounds.items():
        for index, what in enumerate(("clock", "processor time", "the driver's part of it")):
            each = [pair[index] for pair in found]
            low, middle, high = min(each), statistics.median(each), max(each)
            print(f"| {name} | {what} | {middle:.3f} | {low:.3f} | {high:.3f} |")


if __name__ == "__main__":
    main()
