"""Bytewax: one worker, records that are due by their numbers, a keyed count in state, recovery on."""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cluster_main, init_db_dir
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig
from latency_workload import KEYS, Delays

Pair = tuple[str, float]


class Due(StatefulSourcePartition[Pair, int]):
    """Gives what is due, and asks to be called again when the next one is."""

    def __init__(self, rate: int, seconds: float) -> None:
        self.rate, self.seconds, self.count = rate, seconds, int(rate * seconds)
        self.began = time.time() + 1.0
        self.sent = 0

    def next_batch(self) -> list[Pair]:
        now = time.time()
        if self.sent >= self.count or now > self.began + self.seconds + 1:
            raise StopIteration
        due = min(self.count, max(self.sent, int((now - self.began) * self.rate)))
        found = [(str(n % KEYS), self.began + n / self.rate) for n in range(self.sent, due)]
        self.sent = due
        return found

    def next_awake(self) -> datetime:
        return datetime.fromtimestamp(self.began + (self.sent + 1) / self.rate, UTC)

    def snapshot(self) -> int:
        return self.sent


class DueSource(FixedPartitionedSource[Pair, int]):
    def __init__(self, rate: int, seconds: float) -> None:
        self.rate, self.seconds = rate, seconds

    def list_parts(self) -> list[str]:
        return ["0"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Due:
        return Due(self.rate, self.seconds)


class DelayPartition(StatelessSinkPartition[Any]):
    def __init__(self, folder: str) -> None:
        self.delays = Delays(folder)

    def write_batch(self, items: list[Any]) -> None:
        for _, due in items:
            self.delays.add(due)

    def close(self) -> None:
        self.delays.save()


class DelaySink(DynamicSink[Any]):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> DelayPartition:
        return DelayPartition(self.folder)


def counted(state: int | None, due: float) -> tuple[int, float]:
    return (state or 0) + 1, due


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--rate", type=int, required=True)
    args.add_argument("--seconds", type=float, required=True)
    args.add_argument("--checkpoints", type=float, required=True)
    args.add_argument("--folder", required=True)
    opts = args.parse_args()
    with tempfile.TemporaryDirectory() as recovery:
        flow = Dataflow("latency")
        pairs = op.input("due", flow, DueSource(opts.rate, opts.seconds))
        op.output("delays", op.stateful_map("count", pairs, counted), DelaySink(opts.folder))
        init_db_dir(Path(recovery), 1)
        cluster_main(
            flow,
            [],
            0,
            epoch_interval=timedelta(seconds=opts.checkpoints),
            recovery_config=RecoveryConfig(recovery),
            worker_count_per_proc=1,
        )


if __name__ == "__main__":
    main()
