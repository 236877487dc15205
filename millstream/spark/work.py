"""How the driver tells the tasks of an epoch what to read: one small file per subtask that has something to read.

The frame of a job is built once, so nothing that changes from epoch to epoch can be part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import cloudpickle

from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SourceSpec, SubtaskRanges
from millstream.storage.seal import signed, verified
from millstream.storage.storage import Storage

__all__ = ["WorkFiles", "read_work"]


def _name(job: JobSpec, epoch: int, round_number: int, number: int, slots: int) -> str:
    # What an earlier run has left of the same epoch must not be taken for this one's.
    return f"work/{job.run_id}/{epoch:012d}-{round_number}-{number % slots}"


def slot_count(job: JobSpec) -> int:
    """How many tasks level 0 has for split-based sources."""
    return sum(vertex.parallelism for vertex in job.levels[0].vertices if vertex.splits)


def read_work(job: JobSpec, epoch: int, round_number: int, number: int) -> bytes | None:
    """In a worker: what the task with this number reads in a round of an epoch, None if nothing."""
    storage, name = job.storage(), _name(job, epoch, round_number, number, slot_count(job))
    try:
        data = storage.read(name)
    except FileNotFoundError:
        return None
    return verified(storage.seal, name, data)


class WorkFiles:
    """On the driver: writes an epoch's files before it runs, removes them after."""

    def __init__(
        self, job: JobSpec, sources: Sequence[SourceSpec], check: Callable[[], None]
    ) -> None:
        """`check` raises if this driver does not run the job any more."""
        self._job = job
        self._storage: Storage = job.storage()
        left = self._storage.list("work")
        # What a driver writes that takes over after this check is not among what was there before it.
        check()
        for run in left:
            self._storage.delete_tree(f"work/{run}")
        self._slots = slot_count(job)
        self._first: dict[int, int] = {}
        count = 0
        for source in sources:
            self._first[source.vertex] = count
            count += source.parallelism
        self._names: list[str] = []

    def write(self, epoch: int, round_number: int, works: Sequence[SubtaskRanges]) -> None:
        """Hand out the reading of a round of an epoch."""
        self._names = []
        for work in works:
            number = self._first[work.vertex] + work.subtask
            name = _name(self._job, epoch, round_number, number, self._slots)
            self._names.append(name)
            self._storage.write(name, signed(self._storage.seal, name, cloudpickle.dumps(work)))

    def remove(self) -> None:
        """Remove the files of the epoch, which is complete."""
        for name in self._names:
            self._storage.delete(name)
