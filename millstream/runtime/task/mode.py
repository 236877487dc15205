"""Which task runs a level's subtask: that of a stream, or that of a batch."""

from __future__ import annotations

from millstream.runtime.task.batch import BatchTask
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.task.task import LevelTask
from millstream.runtime.wire.ranges import ONLY, Round

__all__ = ["task_for"]


def task_for(
    job: JobSpec, level: int, subtask: int, epoch: int, *, source: int = -1, of_epoch: Round = ONLY
) -> LevelTask:
    """The task that runs a level's subtask, in the job's mode."""
    if job.batch:
        return BatchTask(job, level, subtask, epoch, source=source)
    return LevelTask(job, level, subtask, epoch, source=source, of_epoch=of_epoch)
