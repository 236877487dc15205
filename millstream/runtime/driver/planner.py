"""When the next epoch begins and what it reads (the timer half of Flink's `CheckpointCoordinator`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from millstream.checkpoint.manifest import Feedback, SplitTimes
from millstream.runtime.base import clock
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.loops import Loops
from millstream.runtime.driver.sources import Offset, SourceCoordinator, numbered, positions_of
from millstream.runtime.operators.feedback import FeedbackSource
from millstream.runtime.wire.ranges import SourceSpec, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress, TaskReport

__all__ = ["EpochPlanner"]

_POLL = 0.005
# Rounds of an epoch begin at least so far apart, if there is not more to read than one takes.
_ROUND_PAUSE = 0.1


class EpochPlanner:
    """Plans one epoch after the other, on the driver.

    With a checkpoint interval, epochs begin that far apart; at once if the last one took longer, could not take all
    that was there, or fed something back. Without, an epoch begins as soon as there is something to read. A planner
    lives as long as its job, through restarts: a source whose records only the driver has keeps them until they are
    committed.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        settings = job.settings
        specs, loops = _apart(job)
        self._sources = SourceCoordinator(
            specs, settings.epoch_interval, fixed=settings.epoch_records, batch=job.batch
        )
        self._loops = Loops(loops)
        self._unread: Feedback = {}
        self._endless = bool(self._loops) and bool(job.frame_sources)
        self._uids = {spec.uid for spec in specs}
        self._everything = job.one_epoch
        self._has_sources = bool(specs)
        self._clock = clock
        self._pause = settings.checkpoint_interval or 0.0
        self._min_pause = settings.min_pause
        # The least and the greatest length of rounds, if there are any; that of the next one.
        self._lengths: tuple[float, float] | None = None
        self._length = 0.0
        self._flows = False
        # How many records an epoch may have, and the one at hand still may.
        self._fixed = self._left = settings.epoch_records
        self._ended_at: float | None = None
        self._started: float | None = None
        self._counts = False
        # When the clock has to be looked at although nothing may have come, in its milliseconds.
        self._wake_at: int | None = None
        self.offset: Offset = self._sources.initial()
        self._end: Offset = self.offset

    def in_rounds(self, length: float, longest: float) -> None:
        """Epochs have rounds that take about `length` seconds: they begin soon after each other, and all subtasks of
        sources take part in each. While there is more to read than they take they become longer, up to `longest`: what
        has waited for long need not be there in a second, and every round costs the same time beside its records."""
        self._pause = min(self._pause, _ROUND_PAUSE)
        self._min_pause = 0.0
        self._lengths = length, longest
        self._length = length
        self._sources.in_rounds(length)

    @property
    def takes(self) -> float:
        """How long the planned round will take, as far as that is known."""
        return self._length if self.limited else 0.0

    def _fit_rounds(self) -> None:
        if not self._counts or self._lengths is None:
            return
        shortest, longest = self._lengths
        length = min(2 * self._length, longest) if self._sources.limited else shortest
        if length != self._length:
            self._length = length
            self._sources.in_rounds(length)

    def rewind(
        self,
        offsets: dict[str, dict[str, int]] | None,
        times: SplitTimes | None = None,
        feedback: Feedback | None = None,
    ) -> None:
        """Go on from the offsets of a checkpoint, its clocks and what it feeds back; None is the beginning."""
        saved = offsets or {}
        self.offset = {uid: positions_of(saved.get(uid, {})) for uid in self._sources.initial()}
        self._end = self.offset
        self._started = None
        # Only the tasks know what waits for the clock there, and it may be overdue: they are asked at once (rule 69).
        self._wake_at = None if offsets is None else clock.now()
        self._sources.rewind(self.offset, times or {})
        self._loops.take(feedback or {})

    def rescale(self, job: Job) -> None:
        """The same job with another parallelism, which is then rewound."""
        specs, loops = _apart(job)
        self._sources.rescale(specs)
        self._loops = Loops(loops)

    @property
    def limited(self) -> bool:
        """True if there was more to read than the planned epoch takes."""
        return self._counts and self._sources.limited

    @property
    def counts(self) -> bool:
        """True if the planned epoch was planned by what there is to read."""
        return self._counts

    def waits_for_commit(self) -> bool:
        """True if a source gives nothing more before there is a checkpoint of what it has given."""
        return self._sources.waits_for_commit(self.offset)

    def end_offsets(self) -> dict[str, dict[str, int]]:
        """Where the planned epoch ends, for a manifest."""
        return {uid: numbered(positions) for uid, positions in self._end.items()}

    def unread(self) -> Feedback:
        """What was fed back before the planned epoch and is not read in it."""
        return self._unread

    def plan(
        self, stop: threading.Event, wake: Callable[[], bool] = lambda: False
    ) -> list[SubtaskRanges] | None:
        """Wait until an epoch is due and there is something to read; None once `stop` is set or `wake` says so."""
        while not stop.is_set() and not wake():
            now = self._clock()
            wait = 0.0 if self._started is None else self._started + self._pause - now
            if self._min_pause and self._ended_at is not None:
                wait = max(wait, self._ended_at + self._min_pause - now)
            due = self._wake_at is not None and self._wake_at <= clock.now()
            if wait > 0 and not self._sources.limited and not due and not self._turns():
                stop.wait(min(wait, 0.05))
                continue
            self.offset = self._sources.discover(self.offset)
            self._end = self._sources.next(self.offset, everything=self._everything)
            # A source may learn of its end only after its last record: that is an epoch too.
            ended = self._ends(due=due)
            news = due or self._sources.has_news(self._end)
            unread = bool(self._loops.pending)
            if self._end != self.offset or ended or news or unread or not self._has_sources:
                self._started = now
                self._counts = True
                self._wake_at = None
                self._unread = {}
                last = ended if self._loops else None
                # What still goes round must not come too late for windows.
                hold = bool(self._loops) and not self._endless
                work = self._sources.ranges(self.offset, self._end, last=last, hold=hold)
                return [*work, *self._loops.ranges(ended=ended)]
            stop.wait(_POLL)
        return None

    # -- where records flow through all levels at once ------------------------------------------------------------

    def let_flow(self, seconds: float) -> None:
        """What a subtask is told to read at a time is to take about so long."""
        self._flows = True
        self._sources.let_flow(seconds)

    def plan_open(self) -> list[SubtaskRanges]:
        """The beginning of an epoch: nothing to read, but all splits that are known."""
        self._started = self._clock()
        self._counts = True
        self._wake_at = None
        self._unread = {}
        self._left = self._fixed
        self.offset = self._end = self._sources.discover(self.offset)
        work = self._sources.ranges(self.offset, self.offset, everyone=True, last=False)
        self._sources.told(self.offset)
        return work

    def plan_more(self, busy: Collection[tuple[int, int]]) -> list[SubtaskRanges]:
        """What is to be read now, and what is to be told, of subtasks that are not `busy`."""
        self.offset = self._sources.discover(self.offset)
        end = self._sources.next(self.offset, busy=busy, at_most=self._left)
        if end == self.offset and not self._sources.has_news(end):
            return []
        work = self._sources.ranges(self.offset, end, last=False)
        self._sources.told(end)
        self.offset = self._end = end
        if self._left is not None:
            self._left -= self._sources.admitted
        return work

    @property
    def is_full(self) -> bool:
        """True if the epoch has all the records that it may have."""
        return self._left is not None and self._left <= 0

    def has_read(
        self, reader: tuple[int, int], splits: Sequence[SplitProgress], seconds: float
    ) -> None:
        """A subtask of a source, by vertex and number, has read what it was told to."""
        self._sources.clocks.take_progress(splits)
        self._sources.learn(reader, sum(split.end - split.start for split in splits), seconds)

    @property
    def at_end(self) -> bool:
        """True if all sources have been read to their end."""
        return self._sources.ended(self.offset)

    def _turns(self) -> bool:
        """True if a loop has work, or nothing else than its end is left: neither waits for a checkpoint to be due."""
        return bool(self._loops) and (bool(self._loops.pending) or self._sources.ended(self.offset))

    def _ends(self, *, due: bool) -> bool:
        """True if the planned epoch is the last one. What an epoch feeds back is known only after it, so the last epoch
        of a loop is one that has nothing to do."""
        if not self._sources.ended(self._end):
            return False
        if not self._loops:
            return True
        return self._end == self.offset and not (due or self._endless or self._loops.pending)

    def take_reports(self, reports: Sequence[TaskReport]) -> SplitTimes:
        """What the tasks of the planned epoch say about time; the clocks as they are now."""
        self._wake_at = min((r.wake_at for r in reports if r.wake_at is not None), default=None)
        self._sources.clocks.take_progress(
            split for report in reports for split in report.splits if split.source in self._uids
        )
        return self._sources.clocks.times()

    def plan_empty(self, *, ended: bool = False) -> list[SubtaskRanges]:
        """An epoch that reads nothing but reaches every source; `ended` tells all operators that it was the last."""
        self._end = self.offset
        self._started = self._clock()
        self._counts = False
        self._unread = self._loops.pending
        return [*self._sources.empty_ranges(ended=ended), *self._loops.empty_ranges(ended=ended)]

    def round_done(self) -> None:
        """The round that was planned last has run; the next one goes on where it ended."""
        assert self._started is not None
        if self._counts:
            self._sources.learn_rate(self._clock() - self._started)
        self._fit_rounds()
        self._sources.told(self._end)
        self.offset = self._end

    def done(self, feedback: Feedback | None = None) -> None:
        """The epoch that was planned last is complete; the next one reads what it feeds back."""
        assert self._started is not None
        self._ended_at = self._clock()
        if self._counts and not self._flows:
            self._sources.learn_rate(self._ended_at - self._started)
        self._fit_rounds()
        self._sources.commit(self._end)
        self._loops.take(feedback or {})
        self.offset = self._end

    def gave_up(self) -> None:
        """The planned epoch took too long: the next one reads less."""
        if self._counts and self._started is not None:
            self._sources.learn_rate(self._clock() - self._started)

    def close(self) -> None:
        """Let go of files, sockets and threads."""
        self._sources.close()


def _apart(job: Job) -> tuple[list[SourceSpec], list[SourceSpec]]:
    """The sources that read from outside, and the beginnings of loops."""
    outside: list[SourceSpec] = []
    loops: list[SourceSpec] = []
    for spec in job.split_sources:
        (loops if isinstance(spec.source, FeedbackSource) else outside).append(spec)
    return outside, loops
