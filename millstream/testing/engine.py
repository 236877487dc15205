"""Runs the job of a harness, an epoch at a time, in the thread of the test.

It is the in-process runner taken apart: the same driver, tasks, state and commits, but an epoch begins when the test
says so, and the clock stands still in between.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Sequence
from unittest.mock import patch

from millstream.checkpoint.statefile import StateFile
from millstream.common.constants import NO_TIME
from millstream.runtime.base import clock
from millstream.runtime.driver.epochs import EpochDriver, Outcome
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.job_folder import JobFolder
from millstream.runtime.driver.local import run_epoch
from millstream.runtime.driver.outputs import EpochRow
from millstream.runtime.state.store import compact
from millstream.runtime.task.slot import close_run
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges
from millstream.storage.storage import Storage
from millstream.testing.inputs import HarnessInput

__all__ = ["Engine"]


class Engine:
    """A job that stands still between two calls of `advance`."""

    def __init__(self, job: Job, inputs: Sequence[HarnessInput], folder: str, time: int) -> None:
        self.time = time
        self.ended = False
        self.closed = False
        self._inputs = inputs
        self._folder = JobFolder(job, folder)
        self._folder.open()
        self._driver = EpochDriver(job, self._folder, threading.Event(), self._compact)
        self._spec: JobSpec | None = None
        try:
            self._begin()
        except BaseException:
            self.close(quietly=True)
            raise

    @property
    def storage(self) -> Storage:
        """Where the checkpoints are."""
        return self._folder.storage

    def watermark_of(self, vertex: int) -> int:
        """How far event time has come at a vertex of parallelism 1."""
        return self._driver.metrics.watermarks.get(vertex, NO_TIME)

    def advance(self) -> None:
        """Run until all steps are done. If that fails, none of them has happened."""
        try:
            # `clock.now` is what everything that wants to know the time calls, in this thread or another: it is
            # exchanged only while the epoch runs.
            with patch.object(clock, "now", lambda: self.time):
                while any(source.steps for source in self._inputs):
                    outcome = self._driver.epoch(self._run)
                    self.ended = outcome is Outcome.ENDED
        except BaseException:
            for source in self._inputs:
                source.steps.clear()
            self._begin()
            raise

    def _begin(self) -> None:
        """From the last checkpoint, or from where the job starts."""
        self._close_functions(quietly=True)
        self._spec = self._driver.begin()

    def _run(self, epoch: int, work: Sequence[SubtaskRanges]) -> list[EpochRow]:
        assert self._spec is not None
        return [EpochRow(r[3], r[2], r[1], r[4]) for r in run_epoch(self._spec, epoch, work)]

    def _compact(self, store: str, segments: Sequence[StateFile]) -> None:
        compacted = compact(self.storage, store, segments, uuid.uuid4().hex[:16])
        self._driver.compacted(store, compacted)

    def _close_functions(self, *, quietly: bool) -> None:
        if self._spec is not None:
            run_id, self._spec = self._spec.run_id, None
            with contextlib.suppress(Exception) if quietly else contextlib.nullcontext():
                close_run(run_id)

    def close(self, *, quietly: bool) -> None:
        """Close the functions and let go of everything but the folder."""
        if self.closed:
            return
        self.closed = True
        try:
            self._close_functions(quietly=quietly)
        finally:
            self._driver.close(finished=self.ended, cancelled=not self.ended)
