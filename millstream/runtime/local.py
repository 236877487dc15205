"""The in-process runner: the same plan, the same tasks, the same buffers, no Spark and no second process.

For tests and for debugging: breakpoints in user functions work. Jobs run on Spark.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from millstream.errors import UnsupportedOperation
from millstream.runtime.epochs import EpochCommitter, EpochRow
from millstream.runtime.job import Job, JobSpec
from millstream.runtime.rows import RowBatch
from millstream.runtime.run import JobRun
from millstream.runtime.sources import SourceCoordinator, SubtaskRanges
from millstream.runtime.task import LevelTask, close_run

__all__ = ["InProcessRun"]

_POLL = 0.005

Row = tuple[int, int, int, int, bytes]


class InProcessRun(JobRun):
    """Runs a job's epochs one after the other in one thread."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        if job.frame_sources:
            msg = "from_dataframe reads a Spark frame and cannot run in-process"
            raise UnsupportedOperation(msg, hint="set execution.target to 'spark'")

    def _run(self) -> None:
        folder = self.job.settings.state_dir or tempfile.mkdtemp(prefix="millstream-state-")
        spec = self.job.spec(folder)
        committer = EpochCommitter(self.job, spec)
        self.metrics = committer.metrics
        settings = self.job.settings
        sources = SourceCoordinator(
            self.job.split_sources, settings.epoch_interval, fixed=settings.epoch_records
        )
        try:
            offset, epoch, ended = sources.initial(), 0, False
            while not ended and not self._cancelled.is_set():
                end = sources.next(offset, everything=self.job.one_epoch)
                if end == offset:
                    time.sleep(_POLL)
                    continue
                rows = run_epoch(spec, epoch, sources.ranges(offset, end))
                ended = committer.complete(epoch, [EpochRow(r[3], r[2], r[1], r[4]) for r in rows])
                sources.commit(end)
                offset, epoch = end, epoch + 1
        finally:
            sources.close()
            committer.close()
            close_run(spec.run_id)
            if settings.state_dir is None:
                shutil.rmtree(folder, ignore_errors=True)


def run_epoch(spec: JobSpec, epoch: int, work: Iterable[SubtaskRanges]) -> list[Row]:
    """All levels of one epoch; the rows that come out of the last."""
    rows: list[Row] = []
    for ranges in work:
        rows.extend(_rows(LevelTask(spec, 0, ranges.subtask, epoch).run_source(ranges)))
    for index in range(1, len(spec.levels)):
        parallelism = spec.levels[index].parallelism
        by_target: list[RowBatch] = [RowBatch() for _ in range(parallelism)]
        for row in rows:
            by_target[row[0] % parallelism].add(*row)
        rows = []
        for subtask, batch in enumerate(by_target):
            rows.extend(_rows(LevelTask(spec, index, subtask, epoch).run([batch.take()])))
    return rows


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
