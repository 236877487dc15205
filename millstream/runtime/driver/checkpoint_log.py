"""What the driver remembers of its checkpoints: the last of them one by one, and counts of all (Flink's
`CheckpointStatsTracker`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.runtime.wire.reports import TaskReport

__all__ = ["CheckpointLog", "CheckpointRecord", "TaskRecord"]

KEPT = 100
"""How many checkpoints are remembered one by one."""


@dataclass(frozen=True)
class TaskRecord:
    """One task's part in a checkpoint: when it had finished its records, how long it wrote state and prepared its sinks
    then, how long it waited for the slowest task of its level after that, and the bytes of state it has written."""

    level: int
    subtask: int
    vertices: tuple[int, ...]
    at: float
    seconds: float
    waited: float
    size: int


@dataclass
class CheckpointRecord:
    """One checkpoint, or savepoint. `seconds` is what it cost: until the slowest task had written its state, and from
    the end of the last task until the manifest was there. `size` is what was written, `full_size` all it consists
    of."""

    id: int
    started_at: float
    savepoint: bool = False
    status: str = "IN_PROGRESS"
    """IN_PROGRESS, COMPLETED or FAILED, as Flink says it."""
    ended_at: float | None = None
    seconds: float = 0.0
    size: int = 0
    full_size: int = 0
    path: str = ""
    failure: str = ""
    tasks: tuple[TaskRecord, ...] = ()

    @property
    def slowest(self) -> TaskRecord | None:
        """The task that the checkpoint waited for longest."""
        return max(self.tasks, key=lambda task: task.seconds, default=None)

    @property
    def alignment(self) -> float:
        """How long tasks waited for the slowest of their level, at most, in seconds."""
        return max((task.waited for task in self.tasks), default=0.0)


@dataclass
class CheckpointLog:
    """The checkpoints of a job since its driver was started, the newest last."""

    clock: Callable[[], float] = time.time
    completed: int = 0
    failed: int = 0
    savepoints: int = 0
    restored: int = 0
    restored_id: int | None = None
    restored_at: float | None = None
    restored_path: str = ""
    records: deque[CheckpointRecord] = field(default_factory=lambda: deque(maxlen=KEPT))
    _ran_at: float = 0.0
    _current: CheckpointRecord | None = None

    def restore(self, epoch: int, path: str) -> None:
        """The job goes on from a checkpoint."""
        self.restored += 1
        self.restored_id, self.restored_at, self.restored_path = epoch, self.clock(), path

    @property
    def in_progress(self) -> int:
        """How many are on their way."""
        return sum(record.status == "IN_PROGRESS" for record in self.records)

    @property
    def latest_id(self) -> int | None:
        """The checkpoint that a failure now would lead back to."""
        done = [r.id for r in list(self.records) if r.status == "COMPLETED" and not r.savepoint]
        return done[-1] if done else self.restored_id

    def begin(self, epoch: int) -> None:
        """An epoch begins, and with it the checkpoint at its end."""
        self.fail("the epoch was given up")
        self._current = CheckpointRecord(epoch, self.clock())
        self.records.append(self._current)

    def ran(self, reports: Sequence[TaskReport]) -> None:
        """All tasks of the epoch are done."""
        self._ran_at = self.clock()
        ends = {
            level: max(r.started_at + r.seconds for r in reports if r.level == level)
            for level in {r.level for r in reports}
        }
        if self._current is not None:
            self._current.tasks = tuple(
                TaskRecord(
                    report.level,
                    report.subtask,
                    tuple(report.busy),
                    report.started_at + report.seconds - report.snapshot,
                    report.snapshot,
                    max(0.0, ends[report.level] - report.started_at - report.seconds),
                    sum(file.size for file in report.stores.values() if file is not None),
                )
                for report in reports
            )

    def complete(self, size: int, full_size: int, path: str) -> None:
        """The manifest is there."""
        record, self._current = self._current, None
        if record is None:
            return
        record.ended_at = now = self.clock()
        slowest = record.slowest
        record.seconds = (0.0 if slowest is None else slowest.seconds) + max(0, now - self._ran_at)
        record.size, record.full_size, record.path = size, full_size, path
        record.status = "COMPLETED"
        self.completed += 1

    def fail(self, failure: str) -> None:
        """The checkpoint on its way has failed, if there is one."""
        record, self._current = self._current, None
        if record is not None:
            record.status, record.ended_at, record.failure = "FAILED", self.clock(), failure
            record.seconds = record.ended_at - record.started_at
            self.failed += 1

    def begin_savepoint(self, epoch: int) -> CheckpointRecord:
        """A savepoint is being copied from the checkpoint of an epoch."""
        record = CheckpointRecord(epoch, self.clock(), savepoint=True)
        self.records.append(record)
        return record

    def end_savepoint(
        self, record: CheckpointRecord, *, path: str = "", size: int = 0, failure: str = ""
    ) -> None:
        """A savepoint is complete, or has failed."""
        record.ended_at = self.clock()
        record.seconds = record.ended_at - record.started_at
        record.path, record.failure = path, failure
        record.size = record.full_size = size
        record.status = "FAILED" if failure else "COMPLETED"
        if failure:
            self.failed += 1
        else:
            self.savepoints += 1
