"""What an epoch reads of the sources: ranges of their splits, fixed by the driver, handed to the tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.api.source import Source
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.runtime.wire.reports import SplitProgress

__all__ = ["ONLY", "Round", "SourceSpec", "SplitRange", "SubtaskRanges", "round_of"]


@dataclass(frozen=True)
class SourceSpec:
    """A source of the job: its uid, by which offsets name it, and the vertex that it is the head of."""

    uid: str
    vertex: int
    name: str
    source: Source
    parallelism: int
    timed: bool = False
    strategies: tuple[WatermarkStrategy, ...] = ()


@dataclass(frozen=True)
class SplitRange:
    """A part of a split that belongs to one epoch; `records` holds them if only the driver had them."""

    channel: int
    progress: SplitProgress
    records: list[Any] | None = None
    # Its receivers have not heard of it yet.
    new: bool = False
    # For how long the split has had no records.
    quiet_ms: int = 0


@dataclass(frozen=True)
class Round:
    """A part of an epoch that runs through all levels by itself; the epoch's checkpoint is written in the `last`."""

    number: int = 0
    last: bool = True


ONLY = Round()
"""An epoch in one piece."""


@dataclass(frozen=True)
class SubtaskRanges:
    """What one subtask of one source reads in an epoch, or in a round of it; `ended` if nothing follows in any source,
    `over` if nothing follows in this one and nobody has been told before."""

    vertex: int
    subtask: int
    ranges: tuple[SplitRange, ...]
    ended: bool
    over: bool = False
    round: Round = ONLY


def round_of(work: Sequence[SubtaskRanges]) -> Round:
    """The round that all of this is read in.

    >>> round_of([])
    Round(number=0, last=True)
    """
    return work[0].round if work else ONLY
