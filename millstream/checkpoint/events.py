"""What the checkpoint coordinator is told: all its input, one frozen object per thing that has happened.

`Event` is closed: `Coordinator.handle` has a case for each of them, and the type checker says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from millstream.checkpoint.manifest import Feedback, Manifest, SplitTimes
from millstream.checkpoint.statefile import StateFile

__all__ = [
    "Acknowledgement",
    "Cleaned",
    "Committed",
    "Compacted",
    "CompactionFailed",
    "Delivered",
    "Event",
    "Intended",
    "Next",
    "Offsets",
    "Pinned",
    "Planned",
    "Published",
    "Ran",
    "Resume",
    "Unpinned",
]

Offsets: TypeAlias = dict[str, dict[str, int]]
"""How far each split is read, by source and split."""


@dataclass(frozen=True)
class Resume:
    """The driver starts from a manifest (or from nothing); `kept` are all that are there, oldest first."""

    manifest: Manifest | None
    kept: Sequence[Manifest] = ()


@dataclass(frozen=True)
class Next:
    """Begin the next epoch. `extra` is what the engine wants to find in its manifest again."""

    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """The epoch's ranges end at `offsets`; of what was fed back before it, it leaves `unread` to the next one.

    With `drain` its tasks are told that all input has ended, so that the job can be stopped; the input itself goes on,
    and whoever starts from this checkpoint reads the rest."""

    offsets: Offsets
    unread: Feedback = field(default_factory=dict)
    drain: bool = False


@dataclass(frozen=True)
class Intended:
    """The intent is published."""


@dataclass(frozen=True)
class Acknowledgement:
    """One task's report, as far as checkpoints are concerned."""

    level: int
    subtask: int
    attempt: str
    stores: dict[str, StateFile | None]
    registered: dict[str, dict[str, dict[str, Any]]]
    committables: dict[str, list[bytes]]
    input_ended: bool
    feedback: Feedback = field(default_factory=dict)


@dataclass(frozen=True)
class Ran:
    """All tasks are done, at the time `at`; `times` are the watermark generators of the epoch's splits. An epoch of
    several rounds has gone further than was planned when it began: to `offsets`."""

    reports: Sequence[Acknowledgement]
    times: SplitTimes = field(default_factory=dict)
    at: float = 0.0
    offsets: Offsets | None = None


@dataclass(frozen=True)
class Published:
    """The manifest is there."""


@dataclass(frozen=True)
class Committed:
    """The sinks have committed."""


@dataclass(frozen=True)
class Delivered:
    """The driver's consumers have their records."""


@dataclass(frozen=True)
class Cleaned:
    """What was to be removed is removed, or left to the next start; `claimed` if what the job had claimed is gone."""

    claimed: bool = False


@dataclass(frozen=True)
class Compacted:
    """A store's segments have been compacted; `file.covers` is the last of them."""

    store: str
    file: StateFile


@dataclass(frozen=True)
class CompactionFailed:
    """A store's segments could not be compacted, or the result is gone: they stay as they are."""

    store: str


@dataclass(frozen=True)
class Pinned:
    """Files must stay although no retained manifest may name them soon: a savepoint is being copied."""

    files: frozenset[str]


@dataclass(frozen=True)
class Unpinned:
    """The savepoint that had pinned these files is done, or has failed."""

    files: frozenset[str]


Event: TypeAlias = (
    Resume
    | Next
    | Planned
    | Intended
    | Ran
    | Published
    | Committed
    | Delivered
    | Cleaned
    | Compacted
    | CompactionFailed
    | Pinned
    | Unpinned
)
