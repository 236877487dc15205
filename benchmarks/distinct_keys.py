"""The memory of a worker that meets ten million keys and keeps none: what the engine remembers of keys has a bound.

Usage: python benchmarks/distinct_keys.py [--records N] [--kind text|number|tuple] [--quick]

Sender and receiver run in this process (`execution.target: in-process`), so that what is printed is both of them. The
routes of 200,000 keys are remembered for each edge and sender, some 20 MB; then memory stays as it is. The exit code
says whether the second half of the keys took more than 8 bytes each. `--quick` is a short run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from millstream.api.functions import SinkFunction
from millstream.common import Configuration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment

PAGE = 4096
MAKE = {
    "text": lambda n: (f"key-{n}", n),
    "number": lambda n: (n + 10**9, n),
    "tuple": lambda n: (("key", n), n),
}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Pass(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Measure(SinkFunction):
    def __init__(self, every: int, notes: str) -> None:
        self.every, self.notes = every, notes

    def invoke(self, value: Any, context: Any) -> None:
        if value[1] % self.every == 0:
            size = resident()
            print(f"{value[1]:>12,} keys  {size / 1e6:7.1f} MB", flush=True)
            # Functions of a script are copied, and so are its variables.
            with Path(self.notes).open("a") as notes:
                notes.write(f"{size}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=sorted(MAKE), default="text")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    count = 2_000_000 if asked.quick else asked.records
    options = {"execution.target": "in-process", "millstream.epoch.records": "100000"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.set_parallelism(2)
    with tempfile.NamedTemporaryFile() as notes:
        seconds, sizes = measured(env, count, asked.kind, notes.name)
    # The routes come and go, so that the memory rises and falls: the largest of a quarter is compared.
    quarter = len(sizes) // 4
    growth = (max(sizes[-quarter:]) - max(sizes[quarter : 2 * quarter])) / (count / 2)
    print(f"{count / seconds:,.0f} records a second; {growth:.2f} bytes a key in the second half")
    return 0 if growth < 8 else 1


def measured(
    env: StreamExecutionEnvironment, count: int, kind: str, notes: str
) -> tuple[float, list[int]]:
    source = DataGeneratorSource(MAKE[kind], count)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    records.key_by(lambda pair: pair[0]).process(Pass()).add_sink(Measure(count // 20, notes))
    started = time.perf_counter()
    env.execute("distinct keys")
    seconds = time.perf_counter() - started
    return seconds, [int(line) for line in Path(notes).read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
