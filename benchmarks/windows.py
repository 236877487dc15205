"""Event-time windows per key, side by side: Millstream, PyFlink, PySpark's transformWithState.

Usage: python -m benchmarks.windows [--systems millstream,pyspark] [--cases tumbling,session]
                                    [--events N] [--pyflink-events M] [--repetitions R] [--quick]
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Peer, Runs

sys.path.insert(0, str(harness.PEERS))
from window_workload import CASES, PER_SECOND, expected_digest
from window_workload import expected as expected_sums
from workload import KEYS

SYSTEMS = {
    "millstream": "Millstream, exactly-once",
    "pyspark": "PySpark 4.3.0 transformWithStateInPandas, timers, RocksDB",
    "pyflink": "PyFlink 2.3.0, process mode",
    "spark-sql": "Spark SQL built-in windows, no Python",
}
QUICK = {"millstream": 300_000, "pyspark": 300_000, "pyflink": 10_000, "spark-sql": 300_000}
# A peer that cannot end in this time is given fewer events, not more time.
TIMEOUT = 900


def peer(system: str, case: str, events: int) -> Peer:
    """One system on one case. Sliding windows get fewer events, as each costs more."""
    env = {"millstream": None, "pyflink": "pyflink"}.get(system, "tws")
    script = {"millstream": "millstream", "pyflink": "pyflink"}.get(system, "pyspark")
    args = ("--case", case, *(("--sql",) if system == "spark-sql" else ()))
    found = CASES[case]
    share = found.pyflink_events if system == "pyflink" else found.events
    return Peer(
        system,
        SYSTEMS[system],
        f"{script}_windows.py",
        records=round(events * share) // 1_000 * 1_000,
        quick_records=round(QUICK[system] * share) // 1_000 * 1_000,
        env=env,
        args=args,
        timeout=TIMEOUT,
    )


def expected(result: dict[str, Any]) -> str:
    return expected_digest(result["case"], result["total_records"])


def results_line(case: str, items: list[Runs], quick: bool) -> str:
    """Results per record: a short run has more of them, so it is said how many more."""
    sizes = {item.peer.name: item.peer.size(quick) for item in items}
    shares = [f"{name} {expected_sums(case, n)[0] / n:.2f}" for name, n in sizes.items()]
    return f"Results per record: {', '.join(shares)}"


def cost_line(runs: dict[str, list[Runs]]) -> str | None:
    """What a record costs Millstream in windows of 60 s, against 10 s, with the same slide.

    Per round, then the median: the two runs of a round are neighbours in time.
    """
    found = [
        next((item for item in runs.get(case, []) if item.peer.name == "millstream"), None)
        for case in ("sliding10", "sliding60")
    ]
    if found[0] is None or found[1] is None:
        return None
    pairs = zip(found[0].rates, found[1].rates, strict=True)
    ratios = [short / long for short, long in pairs]
    text = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"Millstream, cost per record, 60 s by 1 s / 10 s by 1 s: {text}"


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--events", type=int, default=8_000_000)
    parser.add_argument("--pyspark-events", type=int, default=4_000_000, help="and of spark-sql")
    parser.add_argument("--pyflink-events", type=int, default=200_000)
    opts = parser.parse_args()
    systems, cases = opts.systems.split(","), opts.cases.split(",")
    for given, known in ((systems, SYSTEMS), (cases, CASES)):
        if set(given) - set(known):
            parser.error(f"there are {', '.join(known)}, but not {set(given) - set(known)}")
    sizes = {"millstream": opts.events, "pyflink": opts.pyflink_events}
    plan = [
        (case, [peer(name, case, sizes.get(name, opts.pyspark_events)) for name in systems])
        for case in cases
    ]
    repetitions = 1 if opts.quick else opts.repetitions
    facts = harness.facts()
    runs: dict[str, list[Runs]] = {}
    try:
        for env in sorted({item.env for _, peers in plan for item in peers if item.env}):
            harness.environment(env)
        # All cases of a round before the next round, so that no case has a quiet hour of its own.
        for repetition in range(repetitions):
            for case, peers in plan:
                harness.say(f"round {repetition + 1} of {repetitions}, {case}")
                one = harness.alternate(
                    peers if repetition % 2 == 0 else peers[::-1], 1, opts.quick, expected
                )
                gather(runs.setdefault(case, [Runs(item) for item in peers]), one)
    except harness.BenchmarkError as error:
        sys.exit(str(error))
    speed = f"{PER_SECOND:,} events per second of event time"
    print(f"Counts per key and window: {KEYS:,} keys, {speed}, parallelism 2. {facts}")
    for case, items in runs.items():
        base = next((item for item in items if item.peer.name == "millstream"), None)
        print(f"\n{CASES[case].title}:\n")
        print(harness.rates_table(items, base, markdown=True))
        print(f"\n{results_line(case, items, opts.quick)}")
    if any("whole" in item.clocks for items in runs.values() for item in items):
        print("\n(*) rate of the whole run, warm-up included: see README.md")
    cost = cost_line(runs)
    if cost:
        print(f"\n{cost}")


def gather(all_rounds: list[Runs], one_round: list[Runs]) -> None:
    """Add the runs of one round to those of all."""
    for found in one_round:
        item = next(item for item in all_rounds if item.peer is found.peer)
        item.rates += found.rates
        item.whole_rates += found.whole_rates
        item.clocks |= found.clocks


if __name__ == "__main__":
    main()
