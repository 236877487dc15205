"""The in-process runner: the same plan, the same tasks, the same buffers, no Spark and no second process.

For tests and for debugging: breakpoints in user functions work. Jobs run on Spark.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from millstream.errors import UnsupportedOperation
from millstream.graph.operators import CollectOp
from millstream.runtime.epochs import EpochCommitter, EpochRow
from millstream.runtime.job import Job, JobSpec
from millstream.runtime.planner import EpochPlanner
from millstream.runtime.rows import RowBatch
from millstream.runtime.run import JobRun
from millstream.runtime.sources import SubtaskRanges
from millstream.runtime.task import LevelTask, close_run

__all__ = ["InProcessRun"]

_log = logging.getLogger(__name__)

Row = tuple[int, int, int, int, bytes]


class InProcessRun(JobRun):
    """Runs a job's epochs one after the other in one thread."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        if job.frame_sources:
            msg = "from_dataframe reads a Spark frame and cannot run in-process"
            raise UnsupportedOperation(msg, hint="set execution.target to 'spark'")
        for node in job.graph.nodes.values():
            if isinstance(node.operator, CollectOp) and node.operator.schema is not None:
                msg = (
                    f"'{node.name}' hands a Spark frame to a Spark writer and cannot run in-process"
                )
                raise UnsupportedOperation(msg, hint="set execution.target to 'spark'")

    def _run(self) -> None:
        folder = self.job.settings.state_dir or tempfile.mkdtemp(prefix="millstream-state-")
        try:
            self._run_in(self.job.spec(folder))
        finally:
            if self.job.settings.state_dir is None:
                shutil.rmtree(folder, ignore_errors=True)

    def _run_in(self, spec: JobSpec) -> None:
        with ExitStack() as closing:
            closing.push(_closing(lambda: close_run(spec.run_id)))
            committer = EpochCommitter(self.job, spec)
            closing.push(_closing(committer.close))
            self.metrics = committer.metrics
            planner = EpochPlanner(self.job)
            closing.push(_closing(planner.close))
            epoch, ended = 0, False
            while not ended and (work := planner.plan(self._cancelled)) is not None:
                rows = run_epoch(spec, epoch, work)
                ended = committer.complete(epoch, [EpochRow(r[3], r[2], r[1], r[4]) for r in rows])
                planner.done()
                epoch += 1


def _closing(close: Callable[[], None]) -> Callable[[Any, BaseException | None, Any], None]:
    """A job fails with what failed first, not with what fails while it is closed after that."""

    def leave(kind: Any, failure: BaseException | None, trace: Any) -> None:
        try:
            close()
        except Exception:
            if failure is None:
                raise
            _log.warning("closing a failed job failed too", exc_info=True)

    return leave


def run_epoch(spec: JobSpec, epoch: int, work: Iterable[SubtaskRanges]) -> list[Row]:
    """All levels of one epoch; the rows that come out of the last."""
    rows: list[Row] = []
    for ranges in work:
        rows.extend(_rows(_source_task(spec, epoch, ranges)))
    for index in range(1, len(spec.levels)):
        parallelism = spec.levels[index].parallelism
        by_target: list[RowBatch] = [RowBatch() for _ in range(parallelism)]
        for row in rows:
            by_target[row[0] % parallelism].add(*row)
        rows = []
        for subtask, batch in enumerate(by_target):
            rows.extend(_rows(LevelTask(spec, index, subtask, epoch).run([batch.take()])))
    return rows


def _source_task(spec: JobSpec, epoch: int, work: SubtaskRanges) -> Iterator[pa.RecordBatch]:
    return LevelTask(spec, 0, work.subtask, epoch, source=work.node).run_source(work)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
