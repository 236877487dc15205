"""What the Nexmark scripts of other systems share: arguments, and the JSON line of a run.

The generator, the tally and the clock are Millstream's, which need nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def save(tally: Tally, folder: str) -> None:
    """Called by each subtask of a sink when it has seen everything."""
    Path(folder, f"{uuid.uuid4().hex}.tally").write_bytes(tally.encode())
    mark_end(folder)


def report(system: str, query: str, records: int, folder: str, **more: Any) -> None:
    tally = Tally(query).merge([path.read_bytes() for path in Path(folder).glob("*.tally")])
    line = {"system": system, "query": query, **timed(folder, records), "hash": tally.digest()}
    print(json.dumps({**line, "results": tally.results, **more}), flush=True)
