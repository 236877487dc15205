"""The in-process runner: the same plan, the same tasks, the same buffers, no Spark and no second process.

For tests and for debugging: breakpoints in user functions work. Jobs run on Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, chdir, nullcontext
from typing import Any

import pyarrow as pa

from millstream.checkpoint.statefile import StateFile
from millstream.errors import UnsupportedOperation
from millstream.graph.operators import CollectOp
from millstream.redaction import get_logger
from millstream.runtime.driver.epochs import EpochDriver, Outcome
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.local_flow import LocalFlow
from millstream.runtime.driver.outputs import EpochRow
from millstream.runtime.driver.run import JobRun
from millstream.runtime.state.store import compact
from millstream.runtime.task.dependencies import prepare, staged_path
from millstream.runtime.task.mode import task_for
from millstream.runtime.task.slot import close_run
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges, round_of
from millstream.runtime.wire.rows import RowBatch

__all__ = ["InProcessRun"]

_log = get_logger(__name__)

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
        self._dependencies = prepare(job.dependencies, staged_path, first=False)

    def keeps_subtasks(self) -> bool:
        """All of them are here."""
        return True

    def _attempt(self, spec: JobSpec, driver: EpochDriver) -> None:
        closing = _closing(lambda: close_run(spec.run_id))
        with ExitStack() as stack:
            stack.push(closing)
            if self.job.pipelined:
                stack.enter_context(_inside(self._dependencies.working_folder))
                tasks = LocalFlow(spec)
                stack.callback(tasks.stop)
                tasks.start()
                driver.flow = tasks.flow

            def run(epoch: int, work: Sequence[SubtaskRanges]) -> list[EpochRow]:
                with _inside(self._dependencies.working_folder):
                    return [EpochRow(r[3], r[2], r[1], r[4]) for r in run_epoch(spec, epoch, work)]

            while not self._stop.is_set():
                if driver.epoch(run) is not Outcome.GO_ON:
                    return

    def _run_empty(
        self, job: Job, spec: JobSpec, epoch: int, work: Sequence[SubtaskRanges]
    ) -> list[Row]:
        with ExitStack() as stack, _inside(self._dependencies.working_folder):
            stack.push(_closing(lambda: close_run(spec.run_id)))
            return run_epoch(spec, epoch, work)

    def _compact(self, store: str, segments: Sequence[StateFile]) -> None:
        assert self._driver is not None
        storage = self._driver.folder.storage
        self._driver.compacted(store, compact(storage, store, segments, uuid.uuid4().hex[:16]))


def _inside(folder: str | None) -> AbstractContextManager[None]:
    """Functions find the program's archives by relative paths, here as in a worker."""
    return nullcontext() if folder is None else chdir(folder)


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
    """All levels of one epoch, or of a round of it; the rows that come out of the last."""
    work = list(work)
    of_epoch = round_of(work)
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
            task = task_for(spec, index, subtask, epoch, of_epoch=of_epoch)
            rows.extend(_rows(task.run([batch.take()])))
    return rows


def _source_task(spec: JobSpec, epoch: int, work: SubtaskRanges) -> Iterator[pa.RecordBatch]:
    task = task_for(spec, 0, work.subtask, epoch, source=work.vertex, of_epoch=work.round)
    return task.run_source(work)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
