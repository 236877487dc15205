"""Tasks that live for many epochs, while records flow through all levels at once.

```
driver     Begin(7)              Work Work Work …            End                 manifest 7 published     Begin(8)
source     splits, OPENED ─┐     records as they are read    CLOSED ─┐           report ──▶ driver
level 1                    └▶ opens state, OPENED ─┐   …             └▶ state written, report, CLOSED ─┐
level 2                                            └▶ …                                               └▶ …
```

`OPENED` and `CLOSED` travel between the records, from every task to every task of the next level, as Flink's barriers
do. Nobody reads in between: a source is told of the next epoch when the checkpoint of the one before is published. So
nothing has to be aligned, and state that could not be opened is noticed before the first record.

Inside of the epoch it is the same `LevelTask` as with epochs in one piece. What is new here is what happens when:
buffers go out after `execution.buffer-timeout`, timers of the clock fire when they are due, and every second a task
tells the driver how it is doing, which is to it the end of one round and the beginning of the next.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator

import msgspec
import pyarrow as pa

from millstream.errors import EngineError, JobError, MillstreamError, encode, told
from millstream.runtime.base import clock
from millstream.runtime.base.failpoints import look_again
from millstream.runtime.task.chain import Chain
from millstream.runtime.task.failure import exit_of
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.task.task import LevelTask
from millstream.runtime.wire.input import Received, rows_of
from millstream.runtime.wire.link import (
    Begin,
    Closed,
    End,
    Failed,
    Leave,
    Link,
    LinkClosed,
    Opened,
    Progress,
    Rows,
    Work,
)
from millstream.runtime.wire.ranges import Round, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress
from millstream.runtime.wire.rows import CLOSED, NUDGE, OPENED, RowBatch, for_driver

__all__ = ["LevelFlow", "SourceFlow", "tasks_of"]

_REPORT_EVERY = 1.0
# Bytes that wait for a task. Who sends more has to wait too: that is the back pressure. What waits has to be worked off
# before a checkpoint.
_WAITING = 512 << 10
# How long a task waits at most before it looks around.
_LOOK_EVERY = 0.25


def tasks_of(job: JobSpec) -> list[list[tuple[int, int]]]:
    """The tasks of each level, as (source vertex, subtask), in the order of their numbers.

    The sources of level 0 have tasks of their own; below, -1 stands in the place of the vertex.
    """
    sources = [
        (vertex.id, subtask)
        for vertex in job.levels[0].vertices
        if vertex.splits
        for subtask in range(vertex.parallelism)
    ]
    deeper = [[(-1, n) for n in range(level.parallelism)] for level in job.levels[1:]]
    return [sources, *deeper]


class _Flow:
    """What both kinds of tasks have in common."""

    def __init__(self, job: JobSpec, link: Link, level: int, number: int) -> None:
        tasks = tasks_of(job)
        self._job = job
        self._link = link
        self._level = level
        self._number = number
        self._source, self._subtask = tasks[level][number]
        self._senders = len(tasks[level - 1]) if level else 0
        self._receivers = len(tasks[level + 1]) if level + 1 < len(tasks) else 0
        self._task: LevelTask | None = None
        self._epoch = -1
        self._round = 0
        self._reported = 0.0
        # When the first buffer is due that waits for more records.
        self._due: float | None = None
        # Who has got rows without a nudge behind them.
        self._touched: set[int] = set()
        self._ending = False
        self.stage = -1

    # -- what goes out --------------------------------------------------------------------------------------

    def _give(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows for the driver go there at once, the others on."""
        for batch in batches:
            edges = batch.column(3).to_pylist()
            if not edges:
                continue
            if any(map(for_driver, edges)):
                _, channels, sequences, _, payloads = (c.to_pylist() for c in batch.columns)
                mine = [i for i, edge in enumerate(edges) if for_driver(edge)]
                self._link.tell_driver(
                    Rows(
                        [(edges[i], sequences[i], channels[i], payloads[i]) for i in mine],
                        self._ending,
                    )
                )
                others = [i for i, edge in enumerate(edges) if not for_driver(edge)]
                if not others:
                    continue
                batch = batch.take(pa.array(others))
            self._touched.update(batch.column(0).to_pylist())
            yield batch

    def _flush(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """Send the buffers that have waited long enough, and see that Spark does."""
        task = self._task
        assert task is not None
        now = time.monotonic()
        self._due = None
        for chain in task.chains.values():
            for writer in chain.writers.values():
                if not writer.waits:
                    continue
                due = writer.last_flush + writer.timeout
                if everything or due <= now:
                    writer.last_flush = now
                    writer.flush_all()
                elif self._due is None or due < self._due:
                    self._due = due
        # One batch with all of it: each costs Spark about as much as a buffer.
        targets = self._touched.union(task.rows.targets) if self._receivers else ()
        for target in targets:
            task.rows.add(target, 0, 0, NUDGE, b"")
        yield from self._give(task.rows_left())
        self._touched.clear()

    def _nudge(self) -> Iterator[pa.RecordBatch]:
        if self._touched and self._receivers:
            rows = RowBatch()
            for target in self._touched:
                rows.add(target, 0, 0, NUDGE, b"")
            self._touched.clear()
            yield rows.take()

    def _tell_all(self, kind: int) -> Iterator[pa.RecordBatch]:
        """A mark to every task of the next level, behind everything that was sent."""
        if self._receivers:
            rows = RowBatch()
            for target in range(self._receivers):
                rows.add(target, self._number, self._epoch, kind, b"")
            self._touched.update(range(self._receivers))
            yield rows.take()

    def _patience(self) -> float:
        """How long to wait for input at most."""
        if self._task is None:
            return _LOOK_EVERY
        until = self._reported + _REPORT_EVERY
        if self._due is not None:
            until = min(until, self._due)
        return min(max(until - time.monotonic(), 0.0), _LOOK_EVERY)

    # -- epochs ---------------------------------------------------------------------------------------------

    def _new_task(self, epoch: int, number: int) -> LevelTask:
        self._epoch, self._round = epoch, number
        self._reported = time.monotonic()
        look_again()
        task = LevelTask(
            self._job,
            self._level,
            self._subtask,
            epoch,
            source=self._source,
            of_epoch=Round(number, last=False),
        )
        task.stage = self.stage
        self._task = task
        return task

    def _opened(self) -> Iterator[pa.RecordBatch]:
        yield from self._tell_all(OPENED)
        yield from self._nudge()
        self._link.tell_driver(Opened(self._epoch))

    def _end_epoch(
        self, splits: list[SplitProgress], *, ended: bool | None = None
    ) -> Iterator[pa.RecordBatch]:
        task = self._task
        assert task is not None
        self._ending = True
        yield from self._give(task.finish(splits, ended=ended, last=True))
        self._ending = False
        yield from self._tell_all(CLOSED)
        yield from self._nudge()
        self._task = None
        self._due = None
        self._link.tell_driver(Closed(self._epoch))

    def _guarded(self, steps: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """On failure the driver hears of it at once, and nothing is left of what the task has touched."""
        try:
            for rows in steps:
                left = time.perf_counter()
                yield rows
                if self._task is not None:
                    self._task.was_away(time.perf_counter() - left)
        except LinkClosed as error:
            self._drop()
            raise EngineError(f"the driver is gone: {error}") from error
        except BaseException as error:
            # Nobody wants more of a generator that is closed; all else, exit() in a function too, is a failure.
            if not isinstance(error, GeneratorExit):
                self._say(error)
            self._drop()
            raise
        finally:
            self._link.close()

    def _say(self, error: BaseException) -> None:
        if isinstance(error, MillstreamError):
            failed = error
        elif isinstance(error, Exception):
            failed = JobError(f"a task failed: {told(error)}")
        else:
            failed = exit_of(error)
        with contextlib.suppress(LinkClosed):
            self._link.tell_driver(Failed(encode(failed)))

    def _drop(self) -> None:
        if self._task is not None:
            self._task.give_up()
            self._task = None


class SourceFlow(_Flow):
    """A task of a source: reads what the driver tells it to, when it does."""

    def run(self) -> Iterator[pa.RecordBatch]:
        """All epochs, until there are no more."""
        return self._guarded(self._run())

    def _run(self) -> Iterator[pa.RecordBatch]:
        chain: Chain | None = None
        splits: dict[str, SplitProgress] = {}
        while True:
            message = self._link.from_driver(self._patience())
            match message:
                case Begin(epoch=epoch, work=work):
                    chain = self._new_task(epoch, 0).open_source(self._source)
                    splits = {}
                    yield from self._read(chain, work, splits)
                    yield from self._flush(everything=True)
                    yield from self._opened()
                case Work(work=work):
                    assert chain is not None
                    yield from self._read(chain, work, splits)
                    yield from self._flush()
                case End(ended=ended):
                    yield from self._end_epoch(list(splits.values()), ended=ended)
                case Leave():
                    return
                case None:
                    if self._task is not None:
                        yield from self._flush()
            if self._task is not None and time.monotonic() - self._reported >= _REPORT_EVERY:
                chain = yield from self._next_round(splits)

    def _read(
        self, chain: Chain, work: SubtaskRanges, splits: dict[str, SplitProgress]
    ) -> Iterator[pa.RecordBatch]:
        task = self._task
        assert task is not None
        began = time.monotonic()
        steps = task.read(chain, work)
        progress: list[SplitProgress] = []
        while True:
            try:
                batch = next(steps)
            except StopIteration as done:
                progress = done.value
                break
            yield from self._give([batch])
        for split in progress:
            known = splits.get(split.split)
            splits[split.split] = (
                split if known is None else msgspec.structs.replace(split, start=known.start)
            )
        self._link.tell_driver(Progress(progress, time.monotonic() - began))

    def _next_round(
        self, splits: dict[str, SplitProgress]
    ) -> Generator[pa.RecordBatch, None, Chain]:
        task = self._task
        assert task is not None
        yield from self._give(task.finish(list(splits.values()), last=False))
        splits.clear()
        yield from self._nudge()
        return self._new_task(self._epoch, self._round + 1).open_source(self._source)


class LevelFlow(_Flow):
    """A task of a deeper level: takes buffers as they come, each channel's in order."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All epochs, until the input ends."""
        waiting = _Waiting()
        threading.Thread(
            target=waiting.receive, args=(batches,), name="millstream-input", daemon=True
        ).start()
        return self._guarded(self._until_left(waiting))

    def _until_left(self, waiting: _Waiting) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._run(waiting)
        finally:
            waiting.close()

    def _run(self, waiting: _Waiting) -> Iterator[pa.RecordBatch]:
        opened: set[int] = set()
        closed: set[int] = set()
        # What sources have said before all of them have opened the epoch.
        early: list[Received] = []
        wake = 0.0
        while True:
            batch = waiting.get(self._wait(wake, idle=waiting.empty))
            if batch is None and waiting.ended:
                return
            for row in rows_of(() if batch is None else (batch,)):
                if row.edge == NUDGE:
                    continue
                if row.edge == OPENED:
                    opened.add(row.channel)
                    if len(opened) == self._senders:
                        opened.clear()
                        yield from self._open(row.sequence, early)
                        early.clear()
                elif row.edge == CLOSED:
                    closed.add(row.channel)
                    if len(closed) == self._senders:
                        closed.clear()
                        yield from self._end_epoch([])
                elif self._task is None:
                    early.append(row)
                else:
                    yield from self._give(self._task.take(row))
            if self._task is None or self._task.input_ended:
                # Nothing is left but the ends of others, and no clock matters any more.
                continue
            if batch is not None and waiting.empty:
                # Nothing more to do for now than to wait for what is under way.
                self._task.settle()
            wake = yield from self._look_at_clock()
            yield from self._flush()
            if time.monotonic() - self._reported >= _REPORT_EVERY:
                yield from self._next_round()

    def _wait(self, wake: float, *, idle: bool) -> float:
        if not idle:
            return 0.0
        patience = self._patience()
        if wake and self._task is not None:
            patience = min(patience, max(0.0, wake - clock.now() / 1000))
        return patience

    def _open(self, epoch: int, early: list[Received]) -> Iterator[pa.RecordBatch]:
        task = self._new_task(epoch, 0)
        yield from self._give(task.open_level())
        for row in early:
            yield from self._give(task.take(row))
        task.begin_time()
        yield from self._flush(everything=True)
        yield from self._opened()

    def _look_at_clock(self) -> Generator[pa.RecordBatch, None, float]:
        """Fire timers that are due, notice streams that are idle; when to look again, in seconds."""
        task = self._task
        assert task is not None
        times: list[int] = []
        for chain in task.chains.values():
            yield from self._give(task.tick(chain))
            times += [at for at in (chain.time.next_tick(), task.probe(chain)) if at is not None]
        return min(times) / 1000 if times else 0.0

    def _next_round(self) -> Iterator[pa.RecordBatch]:
        task = self._task
        assert task is not None
        yield from self._give(task.finish([], last=False))
        yield from self._nudge()
        task = self._new_task(self._epoch, self._round + 1)
        yield from self._give(task.open_level())
        task.begin_time()


class _Waiting:
    """Batches between the thread that receives and the one that works, bounded by their bytes."""

    def __init__(self) -> None:
        self._batches: deque[pa.RecordBatch] = deque()
        self._held = 0
        self._changed = threading.Condition()
        self._over = False
        self._error: BaseException | None = None

    @property
    def empty(self) -> bool:
        """True if nothing waits."""
        return not self._batches

    @property
    def ended(self) -> bool:
        """True if nothing waits, and nothing will."""
        return self._over and not self._batches

    def receive(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take all of them in, as fast as they are wanted."""
        try:
            for batch in batches:
                with self._changed:
                    while self._held >= _WAITING and not self._over:
                        self._changed.wait()
                    if self._over:
                        return
                    self._batches.append(batch)
                    self._held += batch.nbytes
                    self._changed.notify_all()
        except BaseException as error:
            self._error = error
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody takes any more: let the thread go that waits for room."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def get(self, timeout: float) -> pa.RecordBatch | None:
        """The next batch; None if there is none in time. Raises what receiving has failed with."""
        with self._changed:
            if not self._batches and not self._over and timeout > 0:
                self._changed.wait(timeout)
            if self._batches:
                batch = self._batches.popleft()
                self._held -= batch.nbytes
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None
