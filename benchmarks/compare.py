"""Two versions of Millstream side by side: has a change made counts or windows slower?

Usage: git worktree add ../before REVISION
       python benchmarks/compare.py --before ../before [--rounds 5] [--cases keyed,batch,tumbling,session]
       python benchmarks/compare.py --before ../before --instructions

Every round runs every case in both trees, one right after the other, every other round in reverse; the ratio is taken
within a round, because the two runs of a round are neighbours in time. Outputs are checked by their hashes.

On a machine with neighbours the clock tells little. ``--instructions`` counts instead: the same programs in one thread
without Spark, under valgrind, at two sizes; the difference is what a record takes. Whoever waits for the job looks ten
times a second, which counts too: the more records between the two sizes, the less of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import BenchmarkError, Peer, say

sys.path.insert(0, str(harness.PEERS))
import window_workload
import workload

CASES = {
    "keyed": Peer("keyed", "keyed count", "millstream_keyed_count.py", 15_000_000, 200_000),
    "batch": Peer(
        "batch",
        "batch count",
        "millstream_keyed_count.py",
        15_000_000,
        200_000,
        args=("--batch",),
    ),
    **{
        case: Peer(
            case, f"{case} windows", "millstream_windows.py", events, 300_000, args=("--case", case)
        )
        for case, events in {
            "tumbling": 12_000_000,
            "sliding10": 6_000_000,
            "session": 9_000_000,
        }.items()
    },
}
FEW, MANY = 20_000, 260_000  # records of the two runs of which instructions are counted


def expected(name: str, records: int) -> str:
    """The right hash of a case."""
    if name in ("keyed", "batch"):
        return workload.expected_digest(records, batch=name == "batch")
    return window_workload.expected_digest(name, records)


def run(case: Peer, tree: Path, records: int) -> float:
    """Records a second of one run in one tree."""
    # Workers look into the working folder first, which must hold neither tree.
    os.chdir(tree.anchor)
    harness.HERE = tree / "benchmarks"
    result = harness.run_peer(case, records)
    if result["hash"] != expected(case.name, records):
        raise BenchmarkError(f"{case.label} in {tree}: a wrong result")
    rate: float = result["records"] / result["seconds"]
    return rate


def instructions(name: str, tree: Path) -> float:
    """What a record takes in one tree."""
    harness.HERE = tree / "benchmarks"
    script = [sys.executable, str(harness.PEERS / "millstream_in_process.py"), "--case", name]
    counts = []
    # The first run compiles what has changed, and does not count.
    for records in 1_000, FEW, MANY:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            counting = [
                "valgrind",
                "--tool=callgrind",
                f"--log-file={log}",
                f"--callgrind-out-file={folder}/counts",
            ]
            done = subprocess.run(
                [*(counting if records >= FEW else []), *script, "--records", str(records)],
                env=harness.child_environment() | {"PYTHONHASHSEED": "0"},
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            )
            if records < FEW:
                continue
            if done.stdout.split()[-1] != expected(name, records):
                raise BenchmarkError(f"{name} in {tree}: a wrong result")
            counts.append(int(log.read_text().rpartition("Collected : ")[2].split()[0]))
    return (counts[1] - counts[0]) / (MANY - FEW)


def compare_instructions(names: list[str], trees: dict[str, Path]) -> None:
    """Print the table of ``--instructions``."""
    print("| case | before (instructions a record) | after | before / after |\n|---|---|---|---|")
    for name in names:
        before, after = (instructions(name, tree) for tree in trees.values())
        print(f"| {name} | {before:,.0f} | {after:,.0f} | {before / after:.3f} |", flush=True)


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--before", type=Path, required=True, help="the other tree")
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--cases", default=",".join(CASES))
    args.add_argument("--quick", action="store_true")
    args.add_argument("--instructions", action="store_true", help="count, without Spark")
    opts = args.parse_args()
    trees = {"before": opts.before.resolve(), "after": harness.HERE.parent}
    names = opts.cases.split(",")
    if opts.instructions:
        compare_instructions(names, trees)
        return
    rates: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(opts.rounds):
        for name in names:
            order: Any = list(trees.items())
            pair: dict[str, float] = {}
            for label, tree in order[:: -1 if number % 2 else 1]:
                pair[label] = run(CASES[name], tree, CASES[name].size(opts.quick))
            say(f"round {number + 1}, {name}: {pair['after'] / pair['before']:.3f}")
            rates[name].append(pair)
    print("| case | before (median/s) | after | after / before (median) | min | max |")
    print("|---|---|---|---|---|---|")
    for name in names:
        ratios = [pair["after"] / pair["before"] for pair in rates[name]]
        medians = [statistics.median(pair[label] for pair in rates[name]) for label in trees]
        print(
            f"| {CASES[name].label} | {medians[0]:,.0f} | {medians[1]:,.0f} | {statistics.median(ratios):.3f} "
            f"| {min(ratios):.3f} | {max(ratios):.3f} |"
        )


if __name__ == "__main__":
    main()
