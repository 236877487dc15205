"""Which task runs a level's subtask: that of a stream, or that of a batch."""

from __future__ import annotations

from millstream.runtime.task.batch import BatchTask
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.task.task import LevelTask

__all__ = ["task_for"]


def task_for(job: JobSpec, level: int, subtask: int, epoch: int, *, source: int = -1) -> LevelTask:
    """The task that runs a level's subtask, in the job's mode."""
    make = BatchTask if job.batch else LevelTask
    return make(job, level, subtask, epoch, source=source)
