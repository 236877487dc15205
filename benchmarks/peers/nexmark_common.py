"""What the Nexmark scripts of other systems share: arguments, and the JSON line of a run.

The generator, the tally and the clock are Millstream's, which need nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Sequence
from pathlib import Path

from millstream.bench.nexmark.clock import mark_end, timed
from millstream.bench.nexmark.generator import BLOCK
from millstream.bench.nexmark.tally import Tally


def arguments(queries: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=list(queries), required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sql", action="store_true", help="PySpark: Spark's own operators")
    parser.add_argument("--by-hand", action="store_true", help="Bytewax: no windows of its own")
    opts = parser.parse_args()
    opts.blocks = opts.records // BLOCK
    return opts


def keep(tally: Tally, folder: str) -> None:
    Path(folder, f"{uuid.uuid4().hex}.tally").write_bytes(tally.encode())


def save(tally: Tally, folder: str) -> None:
    """Called by each subtask of a sink when it has seen everything."""
    keep(tally, folder)
    mark_end(folder)


def report(system: str, query: str, records: int, folder: str, passes: int = 1) -> None:
    """`passes`: how often the system makes each event."""
    tally = Tally(query).merge([path.read_bytes() for path in Path(folder).glob("*.tally")])
    line = {"system": system, "query": query, **timed(folder, records, passes)}
    line |= {"hash": tally.digest(), "results": tally.results}
    print(json.dumps(line), flush=True)
