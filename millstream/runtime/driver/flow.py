"""The driver's half of an epoch in which records flow through all levels at once.

```
            ┌────────────── until the epoch is due ───────────────┐
Begin ──▶ all have Opened ──▶ Work to whoever is idle ──▶ Progress ┘──▶ End ──▶ all have Closed ──▶ manifest, commit
```

What is read stays the planner's decision: it looks at the sources every few milliseconds and hands each subtask a range
of its splits, one at a time. So any source can be read, also one whose records only the driver has; the driver always
knows how far each split was read; and a subtask that is held up gets no more to read.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from millstream.errors import EngineError, JobError
from millstream.errors import decode as decode_error
from millstream.redaction import get_logger
from millstream.runtime.driver.outputs import EpochRow
from millstream.runtime.driver.planner import EpochPlanner
from millstream.runtime.wire.link import (
    Begin,
    Closed,
    End,
    Failed,
    FromTask,
    HubAddress,
    Leave,
    Link,
    LinkClosed,
    Opened,
    Progress,
    Rows,
    TaskId,
    Work,
    receive_hello,
)
from millstream.runtime.wire.ranges import SubtaskRanges
from millstream.runtime.wire.rows import REPORT

__all__ = ["RANGE_SECONDS", "Flow", "Hub"]

_log = get_logger("millstream.job")

# How often sources are asked for more, in seconds; of many splits that takes time of its own, and is done less often.
_POLL = 0.002
_SHARE = 10
# What a subtask is told to read at a time takes about so long. An epoch cannot end in the middle of it.
RANGE_SECONDS = 0.05
# How long all tasks may take to be there: Spark has to start their processes.
_START_SECONDS = 120.0
# A task whose line breaks has failed, and Spark knows why a moment later.
_WHY_SECONDS = 10.0


class Hub:
    """Where the tasks of an attempt call in. Messages of all of them end up in one queue."""

    def __init__(self, host: str) -> None:
        self._server = socket.create_server((host, 0), backlog=512)
        self._secret = secrets.token_bytes(32)
        self._host = host
        self._links: dict[TaskId, Link] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.lines = 0
        """How many tasks are there."""
        self.inbox: queue.SimpleQueue[tuple[TaskId, FromTask | LinkClosed]] = queue.SimpleQueue()
        threading.Thread(target=self._accept, name="millstream-hub", daemon=True).start()

    @property
    def address(self) -> HubAddress:
        """What tasks have to know."""
        return HubAddress(self._host, self._server.getsockname()[1], self._secret)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(
                target=self._listen, args=(sock,), name="millstream-line", daemon=True
            ).start()

    def _listen(self, sock: socket.socket) -> None:
        try:
            task, link = receive_hello(sock, self._secret)
        except (OSError, ValueError) as error:
            _log.warning("a connection was turned away: %s", error)
            sock.close()
            return
        with self._changed:
            if self._closed:
                link.close()
                return
            self._links[task] = link
            self.lines += 1
            self._changed.notify_all()
        try:
            while True:
                self.inbox.put((task, link.from_task()))
        except (LinkClosed, ValueError) as error:
            with self._changed:
                self.lines -= 1
            broken = error if isinstance(error, LinkClosed) else LinkClosed(str(error))
            self.inbox.put((task, broken))

    def wait_for(self, tasks: Collection[TaskId], check: Callable[[], None]) -> None:
        """Wait until all of these have called in; `check` raises if they never will."""
        until = time.monotonic() + _START_SECONDS
        while True:
            with self._changed:
                missing = set(tasks) - self._links.keys()
                if not missing:
                    return
                self._changed.wait(0.05)
            check()
            if time.monotonic() > until:
                raise EngineError(
                    f"{len(missing)} of {len(tasks)} tasks have not started in {_START_SECONDS:.0f} s",
                    hint="all tasks of a pipelined job run at the same time: see whether Spark has as many free slots",
                )

    def tell(self, task: TaskId, message: Begin | Work | End | Leave) -> None:
        """Send a message to a task."""
        self._links[task].tell_task(message)

    def close(self) -> None:
        """Let all tasks go."""
        with self._changed:
            self._closed = True
            links = list(self._links.values())
        for link in links:
            try:
                link.tell_task(Leave())
            except LinkClosed:
                # It is gone already.
                continue
        # Closing alone does not wake the thread that waits for somebody to call.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def hang_up(self) -> None:
        """Close all lines: who still waits for a message learns that none will come."""
        for link in self._links.values():
            link.close()


class Flow:
    """Runs the epochs of an attempt."""

    def __init__(
        self,
        hub: Hub,
        tasks: Sequence[Sequence[tuple[int, int]]],
        check: Callable[[], None],
    ) -> None:
        """`check` raises if the engine has failed."""
        self._hub = hub
        self._check = check
        self._sources: list[TaskId] = [(0, vertex, subtask) for vertex, subtask in tasks[0]]
        self._all: list[TaskId] = [
            (level, vertex, subtask)
            for level, of_level in enumerate(tasks)
            for vertex, subtask in of_level
        ]
        # By task, how often it was told something and has not answered. News may come to who still reads.
        self._busy: Counter[TaskId] = Counter()
        self._opened: set[TaskId] = set()
        self._done: set[TaskId] = set()
        self.on_rows: Callable[[list[EpochRow]], None] = lambda rows: None
        """Gets the rows for the driver, but reports, as they come."""
        self.on_report: Callable[[bytes], None] = lambda report: None
        """Gets what a task says of itself in the middle of an epoch."""
        self.on_read: Callable[[TaskId, Progress], None] = lambda task, progress: None
        """Told when a source has read what it was told to."""
        self._reports: dict[TaskId, bytes] = {}

    @property
    def busy(self) -> set[tuple[int, int]]:
        """The subtasks of sources that have not read all they were told to, as (vertex, subtask)."""
        return {(vertex, subtask) for _, vertex, subtask in self._busy}

    def open(self, epoch: int, work: Sequence[SubtaskRanges], stopped: Callable[[], bool]) -> bool:
        """Begin an epoch; returns when all tasks are ready for records, or False if it is to be stopped."""
        self._hub.wait_for(self._all, self._check)
        self._busy.clear()
        self._opened.clear()
        self._done.clear()
        self._reports.clear()
        by_task = {(0, ranges.vertex, ranges.subtask): ranges for ranges in work}
        for task in self._sources:
            ranges = by_task.get(task) or SubtaskRanges(task[1], task[2], (), False)
            self._hub.tell(task, Begin(epoch, replace(ranges, ended=False)))
        return self._until(lambda: len(self._opened) == len(self._all), stopped)

    @property
    def tasks(self) -> int:
        """How many there are."""
        return len(self._all)

    def run(
        self, planner: EpochPlanner, due: Callable[[], bool], stopped: Callable[[], bool]
    ) -> bool | None:
        """Have everything read that comes until the epoch is due; True if nothing follows in any source, None if it is
        to be stopped."""
        self.on_read = lambda task, progress: planner.has_read(
            task[1:], progress.splits, progress.seconds
        )
        look_at = 0.0
        while not stopped():
            began = time.monotonic()
            if began >= look_at:
                if planner.at_end:
                    return True
                if due():
                    return False
                self.send(planner.plan_more(self.busy))
                look_at = began + max(_POLL, _SHARE * (time.monotonic() - began))
            self.listen(max(0.0, look_at - time.monotonic()))
        return None

    def send(self, work: Sequence[SubtaskRanges]) -> None:
        """Have sources read."""
        for ranges in work:
            task = (0, ranges.vertex, ranges.subtask)
            self._busy[task] += 1
            self._hub.tell(task, Work(replace(ranges, ended=False)))

    def close(self, ended: bool, stopped: Callable[[], bool]) -> list[bytes] | None:
        """End the epoch; the reports of all tasks, None if it is to be stopped."""
        if not self._until(lambda: not self._busy, stopped):
            return None
        for task in self._sources:
            self._hub.tell(task, End(ended))
        if not self._until(lambda: len(self._done) == len(self._all), stopped):
            return None
        return [self._reports[task] for task in self._all]

    def _until(self, done: Callable[[], bool], stopped: Callable[[], bool]) -> bool:
        while not done():
            if stopped():
                return False
            self.listen(0.05)
        return True

    def listen(self, seconds: float) -> None:
        """Take what tasks have said, and wait up to so long if they have said nothing."""
        try:
            message = self._hub.inbox.get(timeout=seconds)
        except queue.Empty:
            self._check()
            return
        while True:
            self._take(*message)
            try:
                message = self._hub.inbox.get_nowait()
            except queue.Empty:
                return

    def _take(self, task: TaskId, message: FromTask | LinkClosed) -> None:
        match message:
            case Opened():
                self._opened.add(task)
            case Progress():
                self._busy[task] -= 1
                if self._busy[task] <= 0:
                    del self._busy[task]
                self.on_read(task, message)
            case Rows(rows=rows, last=last):
                self._take_rows(task, rows, last=last)
            case Closed():
                self._done.add(task)
            case Failed(error=text):
                raise decode_error(text) or JobError("a task failed and did not say why")
            case LinkClosed():
                self._wait_for_reason(message)

    def _take_rows(
        self, task: TaskId, rows: Sequence[tuple[int, int, int, bytes]], *, last: bool
    ) -> None:
        others: list[EpochRow] = []
        for edge, sequence, channel, payload in rows:
            if edge != REPORT:
                others.append(EpochRow(edge, sequence, channel, payload))
            elif last:
                self._reports[task] = payload
            else:
                self.on_report(payload)
        if others:
            self.on_rows(others)

    def _wait_for_reason(self, broken: LinkClosed) -> None:
        """A line broke: what the task failed with may stand behind it in the queue, or Spark knows."""
        until = time.monotonic() + _WHY_SECONDS
        while time.monotonic() < until:
            self._check()
            try:
                task, message = self._hub.inbox.get(timeout=0.05)
            except queue.Empty:
                continue
            if isinstance(message, Failed):
                self._take(task, message)
        raise EngineError("a task of the job has ended", cause=str(broken)) from broken
