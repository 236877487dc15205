"""The driver's view of all split-based sources of a job (Flink's `SourceCoordinator`).

An *offset* is a plain dictionary: for each source (by node id), the position of each of its splits, in the
order in which they were discovered. The planner takes it from and puts it into manifests, where sources go by
uid. A split's place in that order is its channel number, for ever. A split that has ended at position p is
written as ~p, a negative number, so that its end alone is reason enough for an epoch.

How much of what is available goes into an epoch is decided here: as much as, at the rate seen so far, takes
about the epoch's interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.api.source import SplitEnumerator
from millstream.checkpoint.manifest import SplitTimes
from millstream.errors import MillstreamError, SourceError, told
from millstream.runtime.base.user_lines import user_line
from millstream.runtime.driver.split_times import SplitClocks
from millstream.runtime.wire.ranges import SourceSpec, SplitRange, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress

__all__ = [
    "Offset",
    "SourceCoordinator",
]

Offset = dict[str, dict[str, int]]

_FIRST_EPOCH = 5_000
_GROWTH = 8.0
_WARM_UP = 2


class SourceCoordinator:
    """Plans epochs. One thread uses it at a time."""

    def __init__(
        self,
        specs: Sequence[SourceSpec],
        interval: float,
        *,
        fixed: int | None = None,
    ) -> None:
        self._specs = {str(spec.node): spec for spec in specs}
        self._enumerators: dict[str, SplitEnumerator] = {}
        self._interval = interval
        self._admitted = 0
        self.limited = False
        self._epochs = 0
        self._fixed = fixed
        self._budget = fixed or _FIRST_EPOCH
        self.clocks = SplitClocks(self._specs)
        # By source, the splits that the planned epoch's operators have heard of, and whether that it has ended.
        self._tells: dict[str, tuple[list[str], bool]] = {}

    def _enumerator(self, name: str, positions: dict[str, int]) -> SplitEnumerator:
        if name not in self._enumerators:
            spec = self._specs[name]
            with _naming(spec):
                enumerator = spec.source.create_enumerator(spec.parallelism)
                enumerator.restored(dict(positions))
            self._enumerators[name] = enumerator
        return self._enumerators[name]

    def initial(self) -> Offset:
        """Where a new job begins: no split is known yet."""
        return {name: {} for name in self._specs}

    def discover(self, offset: Offset) -> Offset:
        """The offset with splits that are new since, each where it begins. Done before `next`, so that an epoch
        begins where the enumerator has said, and it is not asked again."""
        result: Offset = {}
        for name, spec in self._specs.items():
            positions = dict(offset.get(name, {}))
            with _naming(spec):
                enumerator = self._enumerator(name, positions)
                for split in enumerator.discover():
                    if split not in positions:
                        positions[split] = enumerator.start(split)
            result[name] = positions
        return result

    def next(self, start: Offset, *, everything: bool = False) -> Offset:
        """How far the next epoch goes. Equal to `start` if there is nothing to read."""
        offset = self._next(start, everything=everything)
        # A source may have further splits once those before are read to their end.
        while everything and not self.ended(offset):
            further = self._next(offset, everything=True)
            if further == offset:
                break
            offset = further
        return offset

    def _next(self, start: Offset, *, everything: bool) -> Offset:
        offset = self.discover(start)
        budget = None if everything else self._budget
        ahead = [
            (name, split, position, self._available(name, split, position))
            for name, positions in offset.items()
            for split, position in positions.items()
            if position >= 0
        ]
        # A split that is held back is not silent.
        held = self.clocks.ahead((name, split) for name, split, _, _ in ahead)
        waiting = [one for one in ahead if one[3] > one[2] and one[:2] not in held]
        for name, split, position, available in ahead:
            if (name, split) not in held:
                self.clocks.saw(name, split, records=available > position)
        self._admitted = 0
        self.limited = False
        for number, (name, split, position, available) in enumerate(waiting):
            end = available
            if budget is not None:
                share = max(1, budget // (len(waiting) - number))
                end = min(available, position + share)
                budget = max(0, budget - (end - position))
            offset[name][split] = end
            self._admitted += end - position
            self.limited |= end < available
        for name, split, _, _ in ahead:
            end = offset[name][split]
            with _naming(self._specs[name], split):
                if self._enumerators[name].finished(split, end):
                    offset[name][split] = ~end
        return offset

    def _available(self, name: str, split: str, position: int) -> int:
        spec = self._specs[name]
        with _naming(spec, split):
            enumerator = self._enumerators[name]
            available = enumerator.available(split, position)
        if available < position:
            msg = f"the source '{spec.name}' has fewer records than were read from it before"
            raise SourceError(
                msg,
                source=spec.name,
                split=split,
                position=position,
                available=available,
                hint="data that was there is gone; restore it, or start the job anew",
            )
        return available

    def epoch_took(self, seconds: float) -> None:
        """Learn from the epoch that has just ended how many records fit into the interval."""
        if not self._admitted or self._fixed:
            return
        self._epochs += 1
        if self._epochs <= _WARM_UP and seconds > self._interval:
            # The first epochs also start workers and compile; their time says nothing about the records.
            return
        rate = self._admitted / max(1e-3, seconds)
        full = self._admitted >= self._budget * 0.9
        # An epoch that was not full says little about how fast a full one would be.
        if full or seconds > self._interval * 1.5:
            wanted = rate * self._interval
            if seconds < self._interval * 0.9:
                # Part of the time is the same however many records there are.
                wanted = max(wanted, self._budget * 1.5)
            self._budget = max(1_000, int(min(wanted, self._budget * _GROWTH)))

    def ranges(
        self, start: Offset, end: Offset, *, last: bool | None = None, hold: bool = False
    ) -> list[SubtaskRanges]:
        """The reading that an epoch consists of, per subtask. `last` says whether the job ends with it, if it does not
        end with its sources; with `hold`, event time too goes on to its end only with the job."""
        result: list[SubtaskRanges] = []
        all_ended = self.ended(end)
        ended = all_ended if last is None else last
        self._tells = {}
        for name, positions in end.items():
            spec = self._specs[name]
            enumerator = self._enumerator(name, positions)
            before = start.get(name, {})
            by_subtask: dict[int, list[SplitRange]] = {}
            for channel, (split, stop) in enumerate(positions.items()):
                with _naming(spec, split):
                    begin = before[split] if split in before else enumerator.start(split)
                    new = begin >= 0 and self.clocks.is_new(name, split)
                    silence = self.clocks.tell_silence(name, split)
                    if begin == stop and not new and not silence:
                        continue
                    finished = stop < 0
                    stop = ~stop if finished else stop
                    records = enumerator.fetch(split, begin, stop) if stop > begin else []
                    backlog = 0 if finished else enumerator.available(split, stop) - stop
                times = self.clocks.of(name, split)
                progress = SplitProgress(
                    spec.node, split, begin, stop, finished, max(0, backlog), times
                )
                by_subtask.setdefault(channel % spec.parallelism, []).append(
                    SplitRange(channel, progress, records, new, silence)
                )
            over = not (hold and all_ended) and self.clocks.is_over(
                name, self._source_ended(name, positions)
            )
            self._tells[name] = list(positions), over
            # The last epoch reaches every subtask, so that all of them learn of the end.
            subtasks = range(spec.parallelism) if ended or over else sorted(by_subtask)
            result.extend(
                SubtaskRanges(spec.node, subtask, tuple(by_subtask.get(subtask, ())), ended, over)
                for subtask in subtasks
            )
        return result

    def has_news(self, offset: Offset) -> bool:
        """True if the operators have to be told something although there is nothing to read."""
        return self.clocks.any_silence() or any(
            self.clocks.is_over(name, self._source_ended(name, offset.get(name, {})))
            for name in self._specs
        )

    def rewind(self, offset: Offset, times: SplitTimes) -> None:
        """Go on from another offset. Enumerators that are there keep what they hold, and are asked again for what has
        not been committed; others learn of the offset when they are made."""
        self._admitted = 0
        self.limited = False
        self.clocks.rewind(times)
        for name, positions in offset.items():
            known = self._enumerators.get(name)
            if known is None:
                self._enumerator(name, positions)
            else:
                with _naming(self._specs[name]):
                    known.rewound(dict(positions))

    def empty_ranges(self, *, ended: bool) -> list[SubtaskRanges]:
        """The reading of an epoch that reads nothing, and tells nobody of splits."""
        self._tells = {}
        return [
            SubtaskRanges(spec.node, subtask, (), ended)
            for spec in self._specs.values()
            for subtask in range(spec.parallelism)
        ]

    def commit(self, offset: Offset) -> None:
        """Everything before `offset` is done."""
        for name, positions in offset.items():
            enumerator = self._enumerator(name, positions)
            if self._specs[name].timed and name in self._tells:
                splits, over = self._tells[name]
                self.clocks.told_of(name, splits, over=over)
            for split, position in positions.items():
                with _naming(self._specs[name], split):
                    enumerator.commit(split, ~position if position < 0 else position)

    def ended(self, offset: Offset) -> bool:
        """True if nothing will ever come after `offset`."""
        return all(self._source_ended(name, offset.get(name, {})) for name in self._specs)

    def _source_ended(self, name: str, positions: dict[str, int]) -> bool:
        if any(position >= 0 for position in positions.values()):
            return False
        enumerator = self._enumerator(name, positions)
        with _naming(self._specs[name]):
            return enumerator.exhausted() and not set(enumerator.discover()) - positions.keys()

    def close(self) -> None:
        """Let go of files, sockets and threads."""
        for enumerator in self._enumerators.values():
            enumerator.close()


class _naming:
    """Turns whatever a source raises into an error that names it."""

    def __init__(self, spec: SourceSpec, split: str | None = None) -> None:
        self._spec = spec
        self._split = split

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, MillstreamError) or not isinstance(error, Exception):
            return
        msg = f"the source '{self._spec.name}' failed: {told(error)}"
        line = user_line(error.__traceback__)
        raise SourceError(msg, source=self._spec.name, split=self._split, line=line) from error
