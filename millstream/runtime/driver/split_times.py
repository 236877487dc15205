"""Time as the driver sees it: one clock per split of every source.

A split's watermark generator goes wherever the split is read next, so its state travels through here, and into every
checkpoint, beside the split's position. Here it is also noticed that a split has fallen silent (rule 8), that it runs
ahead of its group, that a source has ended, and which splits the operators have not heard of yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from millstream.checkpoint.manifest import GeneratorState, SplitTimes
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.runtime.wire.reports import SplitProgress

if TYPE_CHECKING:
    from millstream.runtime.wire.ranges import SourceSpec

__all__ = ["SplitClocks"]

Split = tuple[str, str]


class SplitClocks:
    """The clocks of all splits; sources go by their uids."""

    def __init__(
        self, specs: Mapping[str, SourceSpec], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._specs = specs
        self._now = now
        self._timeouts = {
            uid: sorted({s.idle_timeout_ms for s in spec.strategies if s.idle_timeout_ms})
            for uid, spec in specs.items()
        }
        self._aligned = any(s.alignment for spec in specs.values() for s in spec.strategies)
        self._times: dict[str, dict[str, dict[str, GeneratorState]]] = {}
        self._announced: set[Split] = set()
        self._quiet: dict[Split, float] = {}
        # The silence that the planned epoch tells of, and that those before it have.
        self._telling: dict[Split, int] = {}
        self._told: dict[Split, int] = {}
        self._over: set[str] = set()

    def rewind(self, times: SplitTimes) -> None:
        """Go on from a checkpoint. Everything is told again: the operators may be other ones."""
        self._times = {uid: dict(splits) for uid, splits in times.items() if uid in self._specs}
        self._announced.clear()
        self._quiet.clear()
        self._telling.clear()
        self._told.clear()
        self._over.clear()

    def times(self) -> SplitTimes:
        """The generators of all splits, for a checkpoint."""
        return {uid: dict(splits) for uid, splits in self._times.items()}

    def take_progress(self, splits: Iterable[SplitProgress]) -> None:
        """Learn from the tasks of an epoch how far the generators of splits have come."""
        for split in splits:
            if not split.times:
                continue
            known = self._times.setdefault(split.source, {})
            if split.finished:
                known.pop(split.split, None)
            else:
                known[split.split] = split.times

    def of(self, uid: str, split: str) -> dict[str, GeneratorState]:
        """A split's generators."""
        return self._times.get(uid, {}).get(split, {})

    # -- splits and sources that others have to hear of ---------------------------------------------------------

    def is_new(self, uid: str, split: str) -> bool:
        """True if no operator has heard of the split."""
        return self._specs[uid].timed and (uid, split) not in self._announced

    def told_of(self, uid: str, splits: Iterable[str], *, over: bool) -> None:
        """The epoch that told operators of these splits, and with `over` of the source's end, is complete."""
        self._announced.update((uid, split) for split in splits)
        for split in splits:
            if (uid, split) in self._telling:
                self._told[uid, split] = self._telling.pop((uid, split))
        if over:
            self._over.add(uid)

    def is_over(self, uid: str, ended: bool) -> bool:
        """True if it is news that a source has ended."""
        return ended and self._specs[uid].timed and uid not in self._over

    # -- idleness -----------------------------------------------------------------------------------------------

    def saw(self, uid: str, split: str, *, records: bool) -> None:
        """A split was looked at, and had records or none."""
        if not self._timeouts[uid]:
            return
        if records:
            self._quiet.pop((uid, split), None)
            self._told.pop((uid, split), None)
            self._telling.pop((uid, split), None)
        else:
            self._quiet.setdefault((uid, split), self._now())

    def silence(self, uid: str, split: str) -> int:
        """For how many milliseconds a split has been silent, if it is time to say so; else 0."""
        since = self._quiet.get((uid, split))
        if since is None:
            return 0
        quiet = round((self._now() - since) * 1000)
        passed = [timeout for timeout in self._timeouts[uid] if timeout <= quiet]
        return quiet if passed and passed[-1] > self._told.get((uid, split), 0) else 0

    def tell_silence(self, uid: str, split: str) -> int:
        """As `silence`, for the epoch that is being planned."""
        quiet = self.silence(uid, split)
        if quiet:
            self._telling[uid, split] = quiet
        return quiet

    def any_silence(self) -> bool:
        """True if there is a split to be told of."""
        return any(self.silence(uid, split) for uid, split in self._quiet)

    # -- alignment ----------------------------------------------------------------------------------------------

    def ahead(self, splits: Iterable[Split]) -> set[Split]:
        """Of these splits, those that have to wait for others of their group."""
        if not self._aligned:
            return set()
        least: dict[str, int] = {}
        aligned: list[tuple[Split, str, int, int]] = []
        for uid, split in splits:
            alignment = next(
                (s.alignment for s in self._specs[uid].strategies if s.alignment), None
            )
            if alignment is None:
                continue
            generators = self.of(uid, split).values()
            watermark = max((g.watermark for g in generators), default=NO_TIME)
            aligned.append(((uid, split), alignment.group, watermark, alignment.max_drift_ms))
            if not any(g.idle for g in generators):
                group = alignment.group
                least[group] = min(watermark, least.get(group, MAX_TIME))
        return {
            split
            for split, group, watermark, drift in aligned
            if watermark > least.get(group, MAX_TIME) + drift
        }
