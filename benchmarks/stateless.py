"""Stateless functions on 100-byte strings: Millstream against a hand-written mapInArrow loop.

Usage: python benchmarks/stateless.py [--quick] [--markdown]
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

import harness
from harness import Peer, Runs

sys.path.insert(0, str(harness.PEERS))
from stateless_workload import OPERATIONS, expected_digest, make

GOAL = 0.6
RECORDS, QUICK_RECORDS = 20_000_000, 100_000


def peer(name: str, script: str, operation: str, *args: str) -> Peer:
    return Peer(
        f"{name} {operation}",
        f"{name}, {operation}",
        script,
        RECORDS,
        QUICK_RECORDS,
        args=("--operation", operation, *args),
    )


def expected(result: dict[str, Any]) -> str:
    return expected_digest(result["operation"], result["total_records"])


def generator_rate(records: int) -> float:
    """The strings alone, in a bare Python loop on one core."""
    started = time.perf_counter()
    deque(map(make, range(records)), maxlen=0)
    return records / (time.perf_counter() - started)


def row(operation: str, ours: Runs, arrow: Runs, fused: Runs, quick: bool) -> list[str]:
    cells = [operation + (" (*)" if "whole" in ours.clocks else "")]
    for runs in (ours, arrow, fused):
        spread = f"{min(runs.rates):,.0f} - {max(runs.rates):,.0f}"
        cells.append(f"{runs.median:,.0f} ({spread})")
    ratio = ours.median / arrow.median
    verdict = "" if quick else f" ({'meets' if ratio >= GOAL else 'misses'} {GOAL:.0%})"
    cells.append(f"{ratio:.0%}{verdict}")
    cells.append(f"{ours.median / fused.median:.0%}")
    return cells


def main() -> None:
    opts = harness.arguments(__doc__ or "").parse_args()
    repetitions = 1 if opts.quick else opts.repetitions
    peers = []
    for operation in OPERATIONS:
        peers += [
            peer("millstream", "millstream_stateless.py", operation),
            peer("mapInArrow", "arrow_stateless.py", operation, "--form", "arrow"),
            peer("mapInArrow fused", "arrow_stateless.py", operation, "--form", "fused"),
        ]
    facts = harness.facts()
    try:
        runs = harness.alternate(peers, repetitions, opts.quick, expected)
    except harness.BenchmarkError as error:
        sys.exit(str(error))
    header = ["operation", "Millstream, records/s", "mapInArrow loop", "the same, sink fused in"]
    header += ["Millstream / loop", "Millstream / fused"]
    threes = zip(runs[0::3], runs[1::3], runs[2::3], strict=True)
    rows = [row(name, *three, opts.quick) for name, three in zip(OPERATIONS, threes, strict=True)]
    print(f"Stateless, 100-byte strings, parallelism 2: median (min - max). {facts}")
    print(f"Generator alone, one core: {generator_rate(RECORDS // 10):,.0f} records/s\n")
    print(harness.table(header, rows, opts.markdown))
    if any("whole" in item.clocks for item in runs):
        print("\n(*) Millstream's rate is of the whole run, warm-up included: see README.md")


if __name__ == "__main__":
    main()
