"""The tasks of a pipelined job as threads of this process, for tests and for debugging.

What Spark's exchange does there, queues do here: rows go to the task that they are for, those of one sender in order,
and who sends faster than others receive has to wait.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

from millstream.runtime.driver.flow import Flow, Hub
from millstream.runtime.task.flow import LevelFlow, SourceFlow, tasks_of
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.link import connect
from millstream.runtime.wire.rows import RowBatch

__all__ = ["LocalFlow"]

_WAITING = 2
# Of a job that is cancelled, tasks may wait for room that nobody makes any more.
_LEAVE_SECONDS = 1.0
_JOIN_SECONDS = 10.0


class _Unwanted(BaseException):
    """Nobody wants what a task has to give."""


class LocalFlow:
    """All tasks of an attempt."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._hub = Hub("127.0.0.1")
        self._tasks = tasks_of(spec)
        self._inputs: list[list[queue.Queue[pa.RecordBatch | None]]] = [
            [queue.Queue(_WAITING) for _ in tasks] for tasks in self._tasks
        ]
        self._running = [len(tasks) for tasks in self._tasks]
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(level, number),
                name=f"millstream-task-{level}-{number}",
                daemon=True,
            )
            for level, tasks in enumerate(self._tasks)
            for number in range(len(tasks))
        ]
        self.flow = Flow(self._hub, self._tasks, lambda: None)

    def start(self) -> None:
        """Have all tasks call in."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the tasks end, and wait for them."""
        self._hub.close()
        _join(self._threads[: len(self._tasks[0])], _LEAVE_SECONDS)
        self._stopped.set()
        self._hub.hang_up()
        _join(self._threads, _JOIN_SECONDS)

    def _run(self, level: int, number: int) -> None:
        # What fails here is told to the driver through the task's line, exit() in a function too.
        with contextlib.suppress(BaseException):
            link = connect(self._hub.address, (level, *self._tasks[level][number]))
            steps = (
                LevelFlow(self._spec, link, level, number).run(self._received(level, number))
                if level
                else SourceFlow(self._spec, link, level, number).run()
            )
            for batch in steps:
                self._send(level + 1, batch)
        self._ended(level)

    def _received(self, level: int, number: int) -> Iterator[pa.RecordBatch]:
        waiting = self._inputs[level][number]
        while not self._stopped.is_set():
            try:
                batch = waiting.get(timeout=0.05)
            except queue.Empty:
                continue
            if batch is None:
                return
            yield batch

    def _send(self, level: int, batch: pa.RecordBatch) -> None:
        receivers = self._inputs[level]
        rows = [RowBatch() for _ in receivers]
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            rows[row[0] % len(receivers)].add(*row)
        for receiver, theirs in zip(receivers, rows, strict=True):
            if len(theirs):
                self._put(receiver, theirs.take())

    def _put(
        self, receiver: queue.Queue[pa.RecordBatch | None], batch: pa.RecordBatch | None
    ) -> None:
        while True:
            try:
                receiver.put(batch, timeout=0.05)
            except queue.Full:
                if self._stopped.is_set():
                    raise _Unwanted from None
            else:
                return

    def _ended(self, level: int) -> None:
        with self._lock:
            self._running[level] -= 1
            last = self._running[level] == 0
        if last and level + 1 < len(self._inputs):
            with contextlib.suppress(_Unwanted):
                for receiver in self._inputs[level + 1]:
                    self._put(receiver, None)


def _join(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait so long for all of them together."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
