"""What the checkpoint coordinator says: all its output, one frozen object per thing that is to be done.

`Command` is closed: whoever drives the coordinator has a case for each of them, and the type checker says so. Each
command says with which event it is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from millstream.checkpoint.events import Offsets
from millstream.checkpoint.manifest import Feedback, Manifest
from millstream.checkpoint.statefile import StateFile

__all__ = [
    "Command",
    "Commit",
    "Compact",
    "Deliver",
    "Finish",
    "Intend",
    "Plan",
    "Publish",
    "Remove",
    "Run",
    "Step",
]


@dataclass(frozen=True)
class Plan:
    """Decide what epoch `epoch` reads; answer with `Planned`, or not at all if no epoch is due: `Next` asks again."""

    epoch: int


@dataclass(frozen=True)
class Intend:
    """Publish that the ranges up to `offsets` are about to be read; answer with `Intended`."""

    epoch: int
    offsets: Offsets
    unread: Feedback = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """Run all tasks; answer with `Ran`."""

    epoch: int


@dataclass(frozen=True)
class Publish:
    """Write the manifest, create-only; answer with `Published`."""

    manifest: Manifest


@dataclass(frozen=True)
class Commit:
    """Commit the manifest's committables to the sinks, under the job and epoch that have made them (`Manifest.made`);
    answer with `Committed`. `again` if they may have been committed before. The manifest is published, but not under
    AT_LEAST_ONCE."""

    manifest: Manifest
    again: bool = False


@dataclass(frozen=True)
class Deliver:
    """Hand over what the manifest's epoch has for the driver; answer with `Delivered`. `again` if the epoch is one that
    a former attempt has completed, and may have delivered."""

    manifest: Manifest
    again: bool = False


@dataclass(frozen=True)
class Remove:
    """At the end of `epoch`, remove manifests, then files; answer with `Cleaned`.

    `claimed`: also what the job was started from and has claimed. `keep`, seldom: also every state file of former
    epochs that is not among these, which attempts have left behind."""

    epoch: int
    epochs: Sequence[int]
    files: Sequence[str]
    claimed: bool = False
    keep: frozenset[str] | None = None


@dataclass(frozen=True)
class Compact:
    """Write one segment in place of these, some time; tell with `Compacted` or `CompactionFailed`. Expects no answer
    now."""

    store: str
    segments: Sequence[StateFile]


@dataclass(frozen=True)
class Finish:
    """The epoch is over; the job too if `ended`. Always the last command of an epoch."""

    ended: bool


Step: TypeAlias = Plan | Intend | Run | Publish | Commit | Deliver | Remove | Compact
"""What is to be done within an epoch."""

Command: TypeAlias = Step | Finish
