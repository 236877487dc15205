"""An epoch in rounds: results every second, a checkpoint every ten (Flink's records flow between two barriers).

```
epoch 7   round 0          round 1          …          last round
          read, all levels read, all levels            read, all levels, state written, sinks prepared ──▶ checkpoint 7
          print, sinks that do not wait ──▶             sinks that wait for the checkpoint, execute_and_collect ──▶
```

Between two rounds everything stays in the processes of the subtasks: state, timers, open files of sinks. So an epoch
has rounds only where a subtask keeps its process (`JobRun.keeps_subtasks`), and a process that ends in mid-epoch costs
the job a restart from the last checkpoint, as it does in Flink. An epoch no longer than a round is in one piece.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from millstream.common.restart_strategy import NoRestartStrategyConfiguration
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.job import Job, JobSettings
from millstream.runtime.driver.outputs import EpochRow
from millstream.runtime.operators.feedback import FeedbackSource
from millstream.runtime.wire.ranges import Round, SubtaskRanges

__all__ = ["Rounds", "can_have_rounds", "longest_round"]

# An epoch of which nothing more is to be read is ended before anybody might think that its processes are not needed.
_IDLE = 60.0
# For the same reason rounds do not become longer than that by themselves: a process may have done its part of a round
# early, and wait for others that have not. Beside a minute, what a round costs is nothing.
_LONGEST = 60.0


def longest_round(settings: JobSettings) -> float:
    """How long rounds may become while a job is behind, in seconds."""
    return max(settings.round_interval, min(settings.epoch_interval, _LONGEST))


def can_have_rounds(job: Job) -> bool:
    """True if epochs of the job may have rounds, where subtasks keep their processes."""
    settings = job.settings
    return (
        settings.checkpoint_interval is not None
        and settings.epoch_interval > settings.round_interval
        and settings.epoch_records is None
        # What is read in an epoch is known to everybody before it is read.
        and settings.mode != "AT_MOST_ONCE"
        # A process that ends must not be the end of the job.
        and not isinstance(settings.restart, NoRestartStrategyConfiguration)
        and not (job.one_epoch or job.batch or job.pipelined)
        # Spark says what a frame's micro-batch is, and a writer's frame is that of an epoch.
        and not job.frame_sources
        and not any(isinstance(spec.source, FeedbackSource) for spec in job.split_sources)
        and not any(
            isinstance(node.operator, CollectOp) and node.operator.schema is not None
            for node in job.graph.nodes.values()
        )
    )


class Rounds:
    """The rounds of the epoch at hand. Without `interval` every epoch is in one piece."""

    def __init__(
        self,
        interval: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._began = 0.0
        self._last_work = 0.0
        self.number = -1
        """Of the round that has run last; -1 if no epoch is open."""
        self.rows: list[EpochRow] = []
        """What the rounds so far have for the driver and has to wait for the checkpoint."""
        self.counts: dict[str, list[int]] = {}

    @property
    def open(self) -> bool:
        """True if an epoch has begun and not ended."""
        return self.number >= 0

    @property
    def due(self) -> bool:
        """True if the epoch at hand is to end."""
        now = self._clock()
        return self._interval is None or (
            now - self._began >= self._interval or now - self._last_work >= _IDLE
        )

    def reset(self) -> None:
        """No epoch is open."""
        self.number = -1
        self.rows = []
        self.counts = {}

    def begin(
        self, work: Sequence[SubtaskRanges], *, last: bool, takes: float = 0.0
    ) -> list[SubtaskRanges]:
        """The work of the next round, which says so. With `last` it is known to be the last one; it is too if the epoch
        would be due in the first half of the `takes` seconds that the round will take."""
        now = self._clock()
        if not self.open:
            self._began = now
        self._last_work = now
        ends = (
            self._interval is None
            or last
            or any(ranges.ended for ranges in work)
            or now + takes / 2 - self._began >= self._interval
        )
        self.number += 1
        of_round = Round(self.number, ends)
        return [_in_round(ranges, of_round) for ranges in work]

    def count(self, counts: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Add up what the rounds come to, by operator."""
        for uid, numbers in counts.items():
            before = self.counts.get(uid, [0] * len(numbers))
            self.counts[uid] = [a + b for a, b in zip(before, numbers, strict=False)]
        return self.counts


def _in_round(ranges: SubtaskRanges, of_round: Round) -> SubtaskRanges:
    return SubtaskRanges(
        ranges.vertex, ranges.subtask, ranges.ranges, ranges.ended, ranges.over, of_round
    )
