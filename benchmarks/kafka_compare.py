"""Kafka to Kafka, side by side on one broker: Millstream, Bytewax, Quix Streams, PySpark's transformWithState.

Usage: python benchmarks/kafka_compare.py [--quick] [--markdown] [--systems millstream,bytewax]

Records of 100 bytes with 10,000 keys in two partitions, a map, a running count per key, into a topic. Rates are by the
times at which the broker took the results, the same for all: from a point after the warm-up to the last one (see
README.md). The broker shares the machine with the job, and takes part of every rate.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import harness
import kafka
from harness import Peer, say

from millstream.testing import kafka_broker

sys.path.insert(0, str(harness.PEERS))
from kafka_workload import KEYS, PARTITIONS, expected_digest
from workload import timed

PEERS = [
    Peer(
        "millstream",
        "Millstream, exactly once",
        "millstream_kafka.py",
        records=1_000_000,
        quick_records=100_000,
    ),
    Peer(
        "millstream-alo",
        "Millstream, at least once",
        "millstream_kafka.py",
        records=1_000_000,
        quick_records=100_000,
        args=("--guarantee", "at-least-once"),
    ),
    Peer(
        "bytewax",
        "Bytewax 0.21.1, 2 processes, recovery, at least once",
        "bytewax_kafka.py",
        records=1_000_000,
        quick_records=100_000,
        env="bytewax-kafka",
        args=("--processes", "2"),
    ),
    Peer(
        "bytewax-1",
        "Bytewax 0.21.1, 1 worker, recovery, at least once",
        "bytewax_kafka.py",
        records=1_000_000,
        quick_records=100_000,
        env="bytewax-kafka",
    ),
    Peer(
        "quix",
        "Quix Streams 3.28.1, 2 processes, exactly once",
        "quix_kafka.py",
        records=300_000,
        quick_records=50_000,
        env="quix-kafka",
    ),
    Peer(
        "quix-alo",
        "Quix Streams 3.28.1, 2 processes, at least once",
        "quix_kafka.py",
        records=300_000,
        quick_records=50_000,
        env="quix-kafka",
        args=("--guarantee", "at-least-once"),
    ),
    Peer(
        "pyspark",
        "PySpark 4.2.0 transformWithState, rows, RocksDB, at least once",
        "pyspark_kafka.py",
        records=600_000,
        quick_records=50_000,
        env="pyspark-kafka",
    ),
]
OPTIONAL = [
    Peer(
        "bytewax-threads",
        "Bytewax 0.21.1, 2 workers in a process, recovery, at least once",
        "bytewax_kafka.py",
        records=1_000_000,
        quick_records=100_000,
        env="bytewax-kafka",
        args=("--workers", "2"),
    ),
    Peer(
        "pyspark-pandas",
        "PySpark 4.2.0 transformWithStateInPandas, RocksDB, at least once",
        "pyspark_kafka.py",
        records=600_000,
        quick_records=50_000,
        env="pyspark-kafka",
        args=("--form", "pandas"),
    ),
]
TICKS = os.sysconf("SC_CLK_TCK")


class CpuWatch(threading.Thread):
    """CPU seconds of all processes below this one while the block runs; those there before are the broker's.

    Sampled four times a second: what a process does after its last sample is not seen.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()
        self._seen: dict[int, float] = {}
        self._sample()
        self._before = dict(self._seen)

    def __enter__(self) -> CpuWatch:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.25):
            self._sample()
        self._sample()

    def _sample(self) -> None:
        for pid in harness.descendants(os.getpid()):
            try:
                stat = (harness.PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            self._seen[pid] = (int(stat[11]) + int(stat[12])) / TICKS

    def broker(self) -> float:
        return sum(
            self._seen[pid] - used for pid, used in self._before.items() if pid != os.getpid()
        )

    def job(self) -> float:
        return sum(used for pid, used in self._seen.items() if pid not in self._before)


class Bench:
    """One broker, the topics that are read, and a new topic for every run."""

    def __init__(self, servers: str, peers: list[Peer], quick: bool) -> None:
        self.servers = servers
        self.cpu: dict[str, list[tuple[float, float]]] = {peer.name: [] for peer in peers}
        self._numbers = count()
        for records in sorted({peer.size(quick) for peer in peers}):
            kafka.fill(servers, f"in-{records}", records)

    def run(self, peer: Peer, records: int) -> dict[str, Any]:
        """Run a peer once; its result is what is in its topic."""
        target = f"out-{next(self._numbers)}"
        kafka.create(self.servers, target)
        topics = ["--servers", self.servers, "--source", f"in-{records}", "--target", target]
        if peer.env == "pyspark-kafka":
            topics += ["--jars", str(harness.jars(peer.env))]
        began = time.time()
        with CpuWatch() as watch:
            harness.run_peer(peer, records, *topics)
        _, _, seen = kafka.read(self.servers, target)
        if not seen.emitted:
            raise harness.BenchmarkError(f"{peer.name}: nothing was written")
        result = timed(records, seen)
        result["whole_seconds"] = seen.samples[-1][0] - began
        millions = records / 1e6
        self.cpu[peer.name].append((watch.job() / millions, watch.broker() / millions))
        return result

    def cpu_rows(self, peers: list[Peer]) -> list[list[str]]:
        """Medians of CPU seconds per million records."""
        rows = []
        for peer in peers:
            columns = zip(*self.cpu[peer.name], strict=True)
            rows.append([peer.label, *(f"{statistics.median(column):.1f}" for column in columns)])
        return rows


def expected(result: dict[str, Any]) -> str:
    return expected_digest(result["total_records"])


def main() -> None:
    known = {peer.name: peer for peer in [*PEERS, *OPTIONAL]}
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--systems", default=",".join(peer.name for peer in PEERS))
    opts = parser.parse_args()
    unknown = set(opts.systems.split(",")) - set(known)
    if unknown:
        parser.error(f"unknown systems {sorted(unknown)}; there are {sorted(known)}")
    peers = [known[name] for name in opts.systems.split(",")]
    repetitions = 1 if opts.quick else opts.repetitions
    facts = harness.facts()
    for peer in peers:
        if peer.env:
            harness.environment(peer.env)
    with kafka_broker() as servers, tempfile.TemporaryDirectory() as folder:
        try:
            bench = Bench(servers, peers, opts.quick)
            runs = harness.alternate(peers, repetitions, opts.quick, expected, bench.run)
        except harness.BenchmarkError as error:
            sys.exit(str(error))
        say("the clients alone ...")
        topic = f"in-{peers[0].size(opts.quick)}"
        alone = kafka.clients_alone(servers, Path(folder, "alone"), topic)
    base = next((item for item in runs if item.peer.name == "millstream"), None)
    print(
        f"Kafka to Kafka: {KEYS:,} keys, {PARTITIONS} partitions, map, key, running count. {facts}\n"
    )
    print(harness.rates_table(runs, base, opts.markdown))
    print("\n*with warm-up* is with the start of the system's processes, to the last result.")
    if any("whole" in item.clocks for item in runs):
        print("(*) from the first to the last result: see README.md")
    print("\nCPU seconds per million records, the start of the processes included:\n")
    header = ["system", "the system's processes", "the broker"]
    print(harness.table(header, bench.cpu_rows(peers), opts.markdown))
    records, reading, staging, committing = alone
    millions = records / 1e6
    print(
        f"\nMillstream's clients alone, seconds of one core per million records: reading {reading / millions:.1f}, "
        f"staging {staging / millions:.1f}, committing in one transaction, with waiting for the broker, "
        f"{committing / millions:.1f}"
    )
    if base:
        share = (reading + committing) / millions
        wall = 1e6 / base.median * PARTITIONS
        print(f"of {wall:.1f} that {PARTITIONS} cores have in that time: {share / wall:.0%}")


if __name__ == "__main__":
    main()
