"""Nexmark beside other systems: what `millstream bench nexmark --peers ...` calls.

All systems make the same events with the same generator and hand results to the same tally; each run's hash is held
against the oracle's for its number of events.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import BenchmarkError, Peer

from millstream.bench.figures import Figures
from millstream.bench.nexmark.generator import BLOCK
from millstream.bench.nexmark.measure import expected
from millstream.errors import InvalidArgument, JobError

TIMEOUT = 1_800


class System(NamedTuple):
    """How a system is run, which queries it has, and which share of the events it gets: slow ones get fewer."""

    label: str
    script: str
    env: str | None
    share: float
    queries: str
    args: tuple[str, ...] = ()


SYSTEMS = {
    "pyflink": System(
        "PyFlink 2.3.0, process mode",
        "nexmark_pyflink.py",
        "pyflink",
        0.1,
        "q0 q1 q2 q5 q7 q8 q11",
    ),
    "pyspark": System(
        "PySpark 4.3.0, Python functions, transformWithStateInPandas",
        "nexmark_pyspark.py",
        "tws",
        0.5,
        "q0 q1 q2 q5 q8 q11 q19",
    ),
    "spark-sql": System(
        "Spark SQL 4.3.0 on events made in Python",
        "nexmark_pyspark.py",
        "tws",
        1,
        "q0 q1 q2 q3 q5 q7 q8 q11 q13 q14 q20",
        ("--sql",),
    ),
    "bytewax": System("Bytewax 0.21.1", "nexmark_bytewax.py", "bytewax", 0.25, "q1 q2 q5"),
    "bytewax-by-hand": System(
        "Bytewax 0.21.1, counting by hand",
        "nexmark_bytewax.py",
        "bytewax",
        1,
        "q5",
        ("--by-hand",),
    ),
}


def peers_of(
    query: str, names: Sequence[str], events: int, own: Sequence[str], common: Sequence[str]
) -> list[Peer]:
    """Millstream and those of the systems that have the query."""

    def peer(name: str, system: System, args: Sequence[str]) -> Peer:
        # Whole batches of PySpark's, and as many blocks for each of up to 4 subtasks.
        size = max(round(events * system.share) // (4 * BLOCK), 1) * 4 * BLOCK
        given = ("--query", query, *args)
        return Peer(
            name, system.label, system.script, size, size, system.env, given, timeout=TIMEOUT
        )

    millstream = System("Millstream", "millstream_nexmark.py", None, 1, query)
    found = [peer("millstream", millstream, own)]
    having = [name for name in names if query in SYSTEMS[name].queries.split()]
    found += [peer(name, SYSTEMS[name], (*common, *SYSTEMS[name].args)) for name in having]
    return found


def measure(
    queries: Sequence[str],
    names: Sequence[str],
    events: int,
    rounds: int,
    seed: int,
    parallelism: int,
    own: Sequence[str],
) -> list[Figures]:
    """Run every system with every query that it has, `rounds` times, in turn. `own` are Millstream's arguments."""
    unknown = sorted(set(names) - set(SYSTEMS))
    if unknown:
        raise InvalidArgument("there is no such system", got=unknown, systems=list(SYSTEMS))
    common = ("--parallelism", str(parallelism), "--seed", str(seed))
    plan = {query: peers_of(query, names, events, own, common) for query in queries}
    found: dict[tuple[str, str], Figures] = {}

    def right(result: dict[str, Any]) -> str:
        return expected(result["query"], result["total_records"], seed)

    def run(peer: Peer, records: int) -> dict[str, Any]:
        result = harness.run_peer(peer, records)
        key = (result["query"], peer.name)
        figures = found.setdefault(key, Figures(*key, result["total_records"]))
        if result["hash"] == right(result):
            figures.add(result)
        return result

    try:
        for env in sorted({peer.env for peers in plan.values() for peer in peers if peer.env}):
            harness.environment(env)
        # All queries of a round before the next round, so that no query has a quiet hour of its own.
        for number in range(1, rounds + 1):
            for query, peers in plan.items():
                harness.say(f"round {number} of {rounds}, {query}")
                order = peers if number % 2 else peers[::-1]
                harness.alternate(order, 1, False, right, run)
    except BenchmarkError as error:
        raise JobError(str(error)) from error
    return [found[query, peer.name] for query, peers in plan.items() for peer in peers]
