"""Bytewax: one process, ``--workers`` threads, recovery (its checkpoints) on."""

from __future__ import annotations

import argparse
import tempfile
from datetime import timedelta
from itertools import accumulate
from pathlib import Path

import bytewax.operators as op
from bytewax._bytewax import cluster_main, init_db_dir
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig
from workload import CHECKPOINT_MS, Pair, Tally, mark_start, merge, report, to_pair


class Numbers(StatefulSourcePartition[int, int]):
    """Numbers first, first + step, ... below the end, handed over a list at a time."""

    def __init__(self, first: int, step: int, end: int, batch: int) -> None:
        self.next, self.step, self.end, self.batch = first, step, end, batch

    def next_batch(self) -> list[int]:
        if self.next >= self.end:
            raise StopIteration
        stop = min(self.next + self.step * self.batch, self.end)
        numbers = list(range(self.next, stop, self.step))
        self.next += self.step * self.batch
        return numbers

    def snapshot(self) -> int:
        return self.next


class NumberSource(FixedPartitionedSource[int, int]):
    def __init__(self, records: int, partitions: int, batch: int, directory: str) -> None:
        self.records, self.partitions, self.batch = records, partitions, batch
        self.directory = directory

    def list_parts(self) -> list[str]:
        return [str(i) for i in range(self.partitions)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Numbers:
        mark_start(self.directory)
        first = int(for_part) if resume_state is None else resume_state
        return Numbers(first, self.partitions, self.records, self.batch)


class TallyPartition(StatelessSinkPartition[Pair]):
    def __init__(self, directory: str) -> None:
        self.directory, self.tally = directory, Tally()

    def write_batch(self, items: list[Pair]) -> None:
        self.tally.extend(items)

    def close(self) -> None:
        self.tally.save(self.directory)


class TallySink(DynamicSink[Pair]):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def build(self, step_id: str, worker_index: int, worker_count: int) -> TallyPartition:
        return TallyPartition(self.directory)


class RunningSum(op.StatefulBatchLogic[int, int, int]):
    """Its fastest stateful form: one call per key and batch."""

    def __init__(self, total: int | None) -> None:
        self.total = total or 0

    def on_batch(self, values: list[int]) -> tuple[list[int], bool]:
        sums = list(accumulate(values, initial=self.total))[1:]
        self.total = sums[-1]
        return sums, op.StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        return self.total


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--workers", type=int, default=1)
    args.add_argument("--batch", type=int, default=200_000)
    args.add_argument("--source-only", action="store_true")
    opts = args.parse_args()
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as recovery:
        flow = Dataflow("keyed_count")
        source = NumberSource(opts.records, opts.workers, opts.batch, out)
        numbers = op.input("numbers", flow, source)
        pairs = op.map("pair", numbers, to_pair)
        if not opts.source_only:
            pairs = op.stateful_batch("sum", pairs, RunningSum)
        op.output("tally", pairs, TallySink(out))
        init_db_dir(Path(recovery), opts.workers)
        cluster_main(
            flow,
            [],
            0,
            epoch_interval=timedelta(milliseconds=CHECKPOINT_MS),
            recovery_config=RecoveryConfig(recovery),
            worker_count_per_proc=opts.workers,
        )
        name = "bytewax" if opts.workers == 1 else f"bytewax-{opts.workers}"
        report(name, opts.records, merge(out))


if __name__ == "__main__":
    main()
