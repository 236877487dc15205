"""The driver's view of all split-based sources of a job (Flink's `SourceCoordinator`).

An *offset* is a plain dictionary: for each source (by uid), the position of each of its splits, in the order in which
they were discovered. A split's place in that order is its channel number, for ever. Whether the split has ended is part
of its position, so that its end alone is reason enough for an epoch. Manifests hold the same dictionary with numbers
for positions (`numbered`, `positions_of`).

How much of what is available goes into an epoch is decided by its `EpochSize`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from millstream.api.source import SplitEnumerator, SplitPosition
from millstream.checkpoint.manifest import SplitTimes
from millstream.errors import MillstreamError, SourceError, told
from millstream.runtime.base.user_lines import user_line
from millstream.runtime.driver.epoch_size import EpochSize
from millstream.runtime.driver.split_times import SplitClocks
from millstream.runtime.wire.ranges import SourceSpec, SplitRange, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress

__all__ = [
    "Offset",
    "SourceCoordinator",
    "numbered",
    "positions_of",
]

Offset = dict[str, dict[str, SplitPosition]]


def numbered(positions: Mapping[str, SplitPosition]) -> dict[str, int]:
    """The positions of a source's splits as manifests hold them, and as enumerators are given them.

    >>> numbered({"a": SplitPosition(3), "b": SplitPosition(2, ended=True)})
    {'a': 3, 'b': -3}
    """
    return {split: position.number for split, position in positions.items()}


def positions_of(numbers: Mapping[str, int]) -> dict[str, SplitPosition]:
    """The positions that a manifest holds of a source's splits.

    >>> positions_of({"a": 3, "b": -3})["b"]
    SplitPosition(at=2, ended=True)
    """
    return {split: SplitPosition.of(number) for split, number in numbers.items()}


class SourceCoordinator:
    """Plans epochs. One thread uses it at a time."""

    def __init__(
        self,
        specs: Sequence[SourceSpec],
        interval: float,
        *,
        fixed: int | None = None,
        batch: bool = False,
    ) -> None:
        self._batch = batch
        self._specs = {spec.uid: spec for spec in specs}
        self._enumerators: dict[str, SplitEnumerator] = {}
        self._size = EpochSize(interval, fixed)
        # Where records flow: of each subtask, since one may take a thousand times as long as another.
        self._sizes: dict[tuple[int, int], EpochSize] = {}
        self._range_seconds = 0.0
        self.admitted = 0
        """How many records what was planned last has."""
        self.limited = False
        self.clocks = SplitClocks(self._specs)
        # By source, the splits that the planned epoch's operators have heard of, and whether that it has ended.
        self._tells: dict[str, tuple[list[str], bool]] = {}
        self._reaches_all = False
        self._flows = False

    def in_rounds(self, length: float) -> None:
        """Ranges are those of rounds, which take about `length` seconds and reach all subtasks."""
        self._size.change(length)
        self._reaches_all = True

    def _enumerator(self, uid: str, positions: dict[str, SplitPosition]) -> SplitEnumerator:
        if uid not in self._enumerators:
            spec = self._specs[uid]
            with _naming(spec):
                enumerator = spec.source.create_enumerator(spec.parallelism)
                if self._flows:
                    enumerator.flows()
                if self._batch:
                    enumerator.at_once()
                enumerator.restored(numbered(positions))
            self._enumerators[uid] = enumerator
        return self._enumerators[uid]

    def rescale(self, specs: Sequence[SourceSpec]) -> None:
        """The same sources with another parallelism. Enumerators, and what they hold, stay: to them it is a hint."""
        self._specs.update({spec.uid: spec for spec in specs})

    def initial(self) -> Offset:
        """Where a new job begins: no split is known yet."""
        return {uid: {} for uid in self._specs}

    def discover(self, offset: Offset) -> Offset:
        """The offset with splits that are new since, each where it begins. Done before `next`, so that an epoch
        begins where the enumerator has said, and it is not asked again."""
        result: Offset = {}
        for uid, spec in self._specs.items():
            positions = dict(offset.get(uid, {}))
            with _naming(spec):
                enumerator = self._enumerator(uid, positions)
                for split in enumerator.discover():
                    if split not in positions:
                        positions[split] = SplitPosition(enumerator.start(split))
            result[uid] = positions
        return result

    def next(
        self,
        start: Offset,
        *,
        everything: bool = False,
        busy: Collection[tuple[int, int]] = (),
        at_most: int | None = None,
    ) -> Offset:
        """How far the next epoch goes. Equal to `start` if there is nothing to read. Nothing more is read by subtasks
        that are `busy`, which go by their vertex and number, and `at_most` so many records by all others."""
        offset = self._next(start, everything=everything, busy=busy, at_most=at_most)
        # A source may have further splits once those before are read to their end.
        while everything and not self.ended(offset):
            further = self._next(offset, everything=True)
            if further == offset:
                break
            offset = further
        return offset

    def _next(
        self,
        start: Offset,
        *,
        everything: bool,
        busy: Collection[tuple[int, int]] = (),
        at_most: int | None = None,
    ) -> Offset:
        offset = self.discover(start)
        unread = [
            (uid, split, position.at, self._reader(uid, channel))
            for uid, positions in offset.items()
            for channel, (split, position) in enumerate(positions.items())
            if not position.ended
        ]
        # Others wait also for a split that is being read.
        held = self.clocks.ahead((uid, split) for uid, split, _, _ in unread)
        ahead = [
            (uid, split, at, reader, self._available(uid, split, at))
            for uid, split, at, reader in unread
            if reader not in busy
        ]
        # What may be read together, by who reads it if that counts.
        waiting: dict[tuple[int, int] | None, list[tuple[str, str, int, int]]] = {}
        apart = self._flows and at_most is None
        for uid, split, position, reader, available in ahead:
            # A split that is held back is not silent.
            if (uid, split) not in held:
                self.clocks.saw(uid, split, records=available > position)
                if available > position:
                    part = uid, split, position, available
                    waiting.setdefault(reader if apart else None, []).append(part)
        self.admitted = 0
        self.limited = False
        for reader_of, parts in waiting.items():
            budget = self._size.records if at_most is None else at_most
            if reader_of is not None:
                budget = self._size_of(reader_of).records
            self._admit(offset, parts, None if everything else budget)
        for uid, split, _, _, _ in ahead:
            end = offset[uid][split].at
            with _naming(self._specs[uid], split):
                if self._enumerators[uid].finished(split, end):
                    offset[uid][split] = SplitPosition(end, ended=True)
        return offset

    def _admit(
        self, offset: Offset, waiting: list[tuple[str, str, int, int]], budget: int | None
    ) -> None:
        """Move on in splits that have records, as far as the budget goes."""
        for number, (uid, split, position, available) in enumerate(waiting):
            end = available
            if budget is not None:
                share = max(1, budget // (len(waiting) - number))
                end = min(available, position + share)
                budget = max(0, budget - (end - position))
            offset[uid][split] = SplitPosition(end)
            self.admitted += end - position
            self.limited |= end < available

    def _reader(self, uid: str, channel: int) -> tuple[int, int]:
        """The subtask that reads a split."""
        spec = self._specs[uid]
        return spec.vertex, channel % spec.parallelism

    def _available(self, uid: str, split: str, position: int) -> int:
        spec = self._specs[uid]
        with _naming(spec, split):
            enumerator = self._enumerators[uid]
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

    def let_flow(self, seconds: float) -> None:
        """Records are read as they come; what is read at a time is to take about so long."""
        self._flows = True
        self._range_seconds = seconds

    def _size_of(self, reader: tuple[int, int]) -> EpochSize:
        if reader not in self._sizes:
            self._sizes[reader] = EpochSize.of_range(self._range_seconds)
        return self._sizes[reader]

    def learn(self, reader: tuple[int, int], records: int, seconds: float) -> None:
        """A subtask, by vertex and number, has read so many records in so long."""
        self._size_of(reader).learn(records, seconds)

    def learn_rate(self, seconds: float) -> None:
        """Learn from the epoch that has just ended how many records the next may have."""
        self._size.learn(self.admitted, seconds)

    def ranges(
        self,
        start: Offset,
        end: Offset,
        *,
        last: bool | None = None,
        hold: bool = False,
        everyone: bool = False,
    ) -> list[SubtaskRanges]:
        """The reading that an epoch consists of, per subtask. `last` says whether the job ends with it, if it does not
        end with its sources; with `hold`, event time too goes on to its end only with the job. With `everyone` it
        reaches subtasks that have nothing to read too."""
        result: list[SubtaskRanges] = []
        all_ended = self.ended(end)
        ended = all_ended if last is None else last
        self._tells = {}
        for uid, positions in end.items():
            spec = self._specs[uid]
            enumerator = self._enumerator(uid, positions)
            before = start.get(uid, {})
            by_subtask: dict[int, list[SplitRange]] = {}
            for channel, (split, final) in enumerate(positions.items()):
                with _naming(spec, split):
                    first = before.get(split)
                    if first is None:
                        first = SplitPosition(enumerator.start(split))
                    new = not first.ended and self.clocks.is_new(uid, split)
                    silence = self.clocks.tell_silence(uid, split)
                    if first == final and not new and not silence:
                        continue
                    start_at, end_at, finished = first.at, final.at, final.ended
                    records = enumerator.fetch(split, start_at, end_at) if end_at > start_at else []
                    backlog = 0 if finished else enumerator.available(split, end_at) - end_at
                times = self.clocks.of(uid, split)
                progress = SplitProgress(
                    uid, split, start_at, end_at, finished, max(0, backlog), times
                )
                by_subtask.setdefault(channel % spec.parallelism, []).append(
                    SplitRange(channel, progress, records, new, silence)
                )
            over = not (hold and all_ended) and self.clocks.is_over(
                uid, self._source_ended(uid, positions)
            )
            self._tells[uid] = list(positions), over
            # The last epoch reaches every subtask, so that all of them learn of the end.
            reaches_all = ended or over or everyone or self._reaches_all
            subtasks = range(spec.parallelism) if reaches_all else sorted(by_subtask)
            result.extend(
                SubtaskRanges(spec.vertex, subtask, tuple(by_subtask.get(subtask, ())), ended, over)
                for subtask in subtasks
            )
        return result

    def has_news(self, offset: Offset) -> bool:
        """True if the operators have to be told something although there is nothing to read."""
        return self.clocks.any_silence() or any(
            self.clocks.is_over(uid, self._source_ended(uid, offset.get(uid, {})))
            for uid in self._specs
        )

    def rewind(self, offset: Offset, times: SplitTimes) -> None:
        """Go on from another offset. Enumerators that are there keep what they hold, and are asked again for what has
        not been committed; others learn of the offset when they are made."""
        self.admitted = 0
        self.limited = False
        self.clocks.rewind(times)
        for uid, positions in offset.items():
            known = self._enumerators.get(uid)
            if known is None:
                self._enumerator(uid, positions)
            else:
                with _naming(self._specs[uid]):
                    known.rewound(numbered(positions))

    def empty_ranges(self, *, ended: bool) -> list[SubtaskRanges]:
        """The reading of an epoch that reads nothing, and tells nobody of splits."""
        self._tells = {}
        return [
            SubtaskRanges(spec.vertex, subtask, (), ended)
            for spec in self._specs.values()
            for subtask in range(spec.parallelism)
        ]

    def told(self, offset: Offset) -> None:
        """The operators have heard of what was planned up to `offset`."""
        for uid in offset:
            if self._specs[uid].timed and uid in self._tells:
                splits, over = self._tells[uid]
                self.clocks.told_of(uid, splits, over=over)

    def waits_for_commit(self, offset: Offset) -> bool:
        """True if a split has been read as far as it goes before somebody says that this is done."""
        for uid, enumerator in self._enumerators.items():
            for split, position in offset.get(uid, {}).items():
                with _naming(self._specs[uid], split):
                    if not position.ended and enumerator.waits_for_commit(split, position.at):
                        return True
        return False

    def commit(self, offset: Offset) -> None:
        """Everything before `offset` is done."""
        self.told(offset)
        for uid, positions in offset.items():
            enumerator = self._enumerator(uid, positions)
            with _naming(self._specs[uid]):
                enumerator.commit_all({split: where.at for split, where in positions.items()})

    def ended(self, offset: Offset) -> bool:
        """True if nothing will ever come after `offset`."""
        return all(self._source_ended(uid, offset.get(uid, {})) for uid in self._specs)

    def _source_ended(self, uid: str, positions: dict[str, SplitPosition]) -> bool:
        if not all(position.ended for position in positions.values()):
            return False
        enumerator = self._enumerator(uid, positions)
        with _naming(self._specs[uid]):
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
