"""Keyed count, side by side: Millstream, PyFlink, PySpark's transformWithState, Bytewax.

Usage: python benchmarks/keyed_count.py [--quick] [--markdown] [--systems millstream,bytewax]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from typing import Any

import harness
from harness import Peer, say

sys.path.insert(0, str(harness.PEERS))
from workload import expected_digest, to_pair

PEERS = [
    Peer(
        "millstream",
        "Millstream, exactly-once",
        "millstream_keyed_count.py",
        records=20_000_000,
        quick_records=200_000,
    ),
    Peer(
        "bytewax",
        "Bytewax 0.21.1, 1 worker, recovery",
        "bytewax_keyed_count.py",
        records=5_000_000,
        quick_records=200_000,
        env="bytewax",
    ),
    Peer(
        "tws",
        "PySpark 4.3.0 transformWithStateInPandas, RocksDB",
        "tws_keyed_count.py",
        records=2_000_000,
        quick_records=100_000,
        env="tws",
    ),
    Peer(
        "pyflink",
        "PyFlink 2.3.0, process mode",
        "pyflink_keyed_count.py",
        records=300_000,
        quick_records=20_000,
        env="pyflink",
    ),
]
OPTIONAL = [
    Peer(
        "millstream-pipelined",
        "Millstream, pipelined mode, exactly-once",
        "millstream_keyed_count.py",
        records=20_000_000,
        quick_records=200_000,
        args=("-Dexecution.mode=pipelined",),
    ),
    Peer(
        "millstream-one-epoch",
        "Millstream, one epoch, no checkpoint on the way",
        "millstream_keyed_count.py",
        records=20_000_000,
        quick_records=200_000,
        args=("--one-epoch",),
    ),
    Peer(
        "bytewax-2",
        "Bytewax 0.21.1, 2 workers, recovery",
        "bytewax_keyed_count.py",
        records=5_000_000,
        quick_records=200_000,
        env="bytewax",
        args=("--workers", "2"),
    ),
]


def expected(result: dict[str, Any]) -> str:
    return expected_digest(result["total_records"])


def generator_rate(records: int) -> float:
    """Event numbers through the map function in a bare Python loop, on one core."""
    started = time.perf_counter()
    deque(map(to_pair, range(records)), maxlen=0)
    return records / (time.perf_counter() - started)


def generator_rows(peers: list[Peer], quick: bool) -> list[list[str]]:
    """Each system's source and map into its sink, without key and sum: one run each."""
    bare = [generator_rate(100_000 if quick else 2_000_000) for _ in range(3)]
    rows = [["bare Python loop, 1 core", f"{statistics.median(bare):,.0f}"]]
    for peer in peers:
        result = harness.run_peer(peer, peer.size(quick), "--source-only")
        rows.append([peer.label, f"{result['records'] / max(result['seconds'], 1e-9):,.0f}"])
        say(f"generator alone: {peer.name} {rows[-1][1]}/s")
    return rows


def main() -> None:
    known = {peer.name: peer for peer in [*PEERS, *OPTIONAL]}
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--systems", default=",".join(peer.name for peer in PEERS))
    parser.add_argument("--no-generator", action="store_true", help="leave its cost alone out")
    opts = parser.parse_args()
    unknown = set(opts.systems.split(",")) - set(known)
    if unknown:
        parser.error(f"unknown systems {sorted(unknown)}; there are {sorted(known)}")
    peers = [known[name] for name in opts.systems.split(",")]
    repetitions = 1 if opts.quick else opts.repetitions
    facts = harness.facts()
    try:
        for peer in peers:
            if peer.env:
                harness.environment(peer.env)
        runs = harness.alternate(peers, repetitions, opts.quick, expected)
        alone = [] if opts.no_generator else generator_rows(peers, opts.quick)
    except harness.BenchmarkError as error:
        sys.exit(str(error))
    base = next((item for item in runs if item.peer.name == "millstream"), None)
    print(f"Keyed count: 1,000 keys, map, key, running sum, parallelism 2. {facts}\n")
    print(harness.rates_table(runs, base, opts.markdown))
    if any("whole" in item.clocks for item in runs):
        print("\n(*) rate of the whole run, warm-up included: see README.md")
    if alone:
        print("\nGenerator and map alone:\n")
        print(harness.table(["system", "records/s"], alone, opts.markdown))


if __name__ == "__main__":
    main()
