"""How long a record takes from its source to a sink: pipelined mode beside micro-batches and other systems.

Usage: python benchmarks/latency.py [--rates 1000,10000,50000] [--seconds 60] [--modes pipelined,micro-batch]
       [--checkpoints 30] [--quick]
Modes: pipelined, pipelined-2 (buffers go after 2 ms, and not 5; any number), micro-batch, pyflink-process,
pyflink-thread, bytewax.

A record is due at a moment that its number gives, whoever is late to read it, so nothing is left out: neither the time
between two epochs nor that of a checkpoint. It goes through one exchange and a keyed function with state to a sink that
is called record by record. State is exactly-once. The first quarter of each run is the warm-up and not counted. One
who cannot follow is ended after `--seconds`, and how many records came through is said beside the figures.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import PEERS, BenchmarkError, end, environment, say, start
from metrics import OFF

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.bench.figures import machine
from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor

KEYS = 1000
PARTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class Due(Source):
    """Numbers, each with the moment that it is due."""

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate, self.count = rate, int(rate * seconds)

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def paced(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return DueSplits(self.rate, self.count)

    def create_reader(self) -> SourceReader:
        return DueReader(self.rate)

    def keeps_records(self) -> bool:
        return False


class DueSplits(SplitEnumerator):
    """One split, whose name says when it began."""

    def __init__(self, rate: int, count: int) -> None:
        self._rate, self._count = rate, count
        # Workers are there by then.
        self._began = time.time() + 1.0

    def discover(self) -> list[str]:
        return [repr(self._began)]

    def available(self, split: str, position: int) -> int:
        due = int((time.time() - float(split)) * self._rate)
        return max(position, min(due, self._count))

    def finished(self, split: str, position: int) -> bool:
        return position == self._count


class DueReader(SourceReader):
    """The numbers of a range."""

    def __init__(self, rate: int) -> None:
        self._rate = rate

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        began, rate = float(split), self._rate
        return [(number % KEYS, began + number / rate) for number in range(start, end)]


class Counting(KeyedProcessFunction):
    """How many there were of the key, in state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self._count.update((self._count.value() or 0) + 1)
        yield value


class Delays(SinkFunction):
    """Writes down how late each record is, in milliseconds, with the moment that it was due."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()
        self._found = array("d")

    def invoke(self, value: Any, context: Any) -> None:
        self._found.extend((value[1], (time.time() - value[1]) * 1000))

    def close(self) -> None:
        path = Path(self._folder) / f"{self._subtask}-{time.time_ns()}"
        path.write_bytes(self._found.tobytes())


PEER_ARGS = {
    "pyflink-process": ("pyflink", "latency_pyflink.py", "--execution", "process"),
    "pyflink-thread": ("pyflink", "latency_pyflink.py", "--execution", "thread"),
    "bytewax": ("bytewax", "latency_bytewax.py"),
}


def run_peer(mode: str, rate: int, seconds: float, checkpoints: float, folder: str) -> None:
    """One run of another system, in an environment of its own."""
    name, script, *more = PEER_ARGS[mode]
    settings = {"rate": rate, "seconds": seconds, "checkpoints": checkpoints, "folder": folder}
    given = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    command = [str(environment(name)), str(PEERS / script), *given, *more]
    with tempfile.TemporaryFile() as told:
        process = start(command, subprocess.DEVNULL, told)
        try:
            code: int | str = process.wait(seconds * 2 + 120)
        except subprocess.TimeoutExpired:
            code = "none, it took too long"
        finally:
            end(process)
        if code != 0:
            told.seek(0)
            lines = told.read().decode(errors="replace").splitlines()[-30:]
            raise BenchmarkError("\n".join([f"{mode} at {rate}: exit code {code}", *lines]))


def run_millstream(mode: str, rate: int, seconds: float, checkpoints: float, folder: str) -> None:
    """One run of ours."""
    settings = {
        "parallelism.default": "1",
        "execution.checkpointing.interval": f"{int(checkpoints * 1000)} ms",
        **OFF,
    }
    mode, _, timeout = mode.partition("-") if mode.startswith("pipelined") else (mode, "", "")
    settings["execution.mode"] = mode
    if timeout:
        settings["execution.buffer-timeout.interval"] = f"{timeout} ms"
    if mode != "pipelined":
        settings["millstream.epoch.interval"] = "100 ms"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = env.from_source(Due(rate, seconds), WatermarkStrategy.no_watermarks(), "due")
    source.key_by(lambda pair: pair[0]).process(Counting()).add_sink(Delays(folder))
    env.execute("latency")


def run(mode: str, rate: int, seconds: float, checkpoints: float) -> dict[str, float]:
    """Percentiles of one run, and the part of the records that came through."""
    with tempfile.TemporaryDirectory() as folder:
        one_run = run_peer if mode in PEER_ARGS else run_millstream
        one_run(mode, rate, seconds, checkpoints, folder)
        found = array("d")
        for file in Path(folder).iterdir():
            found.frombytes(file.read_bytes())
    due, late = found[::2], found[1::2]
    count = int(rate * seconds)
    if not due or (len(due) != count and mode not in PEER_ARGS):
        raise BenchmarkError(f"{mode} at {rate}: {len(due)} records, not {count}")
    begin = min(due) + seconds / 4
    counted = sorted(ms for at, ms in zip(due, late, strict=True) if at >= begin)
    if not counted:
        # It was so slow that nothing but the warm-up came through: then that is what there is.
        counted = sorted(late)
    percentiles = {
        name: counted[min(len(counted) - 1, int(len(counted) * part))]
        for name, part in PARTS.items()
    }
    return {**percentiles, "through": len(due) / count}


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--rates", default="1000,10000,50000")
    args.add_argument("--modes", default="pipelined,micro-batch")
    args.add_argument("--seconds", type=float, default=60.0)
    args.add_argument("--checkpoints", type=float, default=30.0)
    args.add_argument("--json", type=Path)
    args.add_argument("--quick", action="store_true")
    opts = args.parse_args()
    if opts.quick:
        opts.rates, opts.seconds, opts.checkpoints = "1000", 10.0, 3.0
    print(machine())
    print(f"\n| records a second | mode | {' | '.join(PARTS)} | came through |")
    print(f"|---|---|{'---|' * len(PARTS)}---|", flush=True)
    figures: dict[str, dict[str, float]] = {}
    for rate in map(int, opts.rates.split(",")):
        for mode in opts.modes.split(","):
            found = run(mode, rate, opts.seconds, opts.checkpoints)
            figures[f"{mode} {rate}"] = found
            cells = " | ".join(f"{found[name]:,.1f} ms" for name in PARTS)
            print(f"| {rate:,} | {mode} | {cells} | {found['through']:.0%} |", flush=True)
            say(f"{mode} at {rate}: done")
    if opts.json:
        opts.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
