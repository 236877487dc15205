"""The checkpoint coordinator: what happens in an epoch, in which order, and what is kept (Flink's
`CheckpointCoordinator`).

It is a pure state machine: `handle(event)` gives the commands that follow, and whoever drives it carries them out and
reports back with the next event. It reads no clock, no file and no random number, so a simulation can drive it through
any order of crashes.

The steps of epoch n, under EXACTLY_ONCE:

1. `Plan`: decide how far each split is read. Nothing has happened yet.
2. `Run`: run all tasks. Each reads state n-1, writes its changes under a name of its own, and reports.
3. Check the reports: every task of every level, once.
4. `Publish`: the manifest of checkpoint n, create-only. **From here on the epoch is complete; before, it never was.**
5. `Commit`: the sinks, with the committables that the manifest holds.
6. `Deliver`: records for `print` and `execute_and_collect`.
7. `Remove`: manifests beyond the retained ones, and files that none of the others names.
8. `Fold`: chains that have become long are folded into one file beside the job; the result joins a later manifest.

Savepoints are copies of a complete checkpoint. The driver takes them between two epochs, and has the files pinned
meanwhile.

What if step k fails, or the driver dies in it?

- 1, 2, 3: there is no manifest n. The next attempt starts from n-1, and what tasks have written is swept away.
- 4: either the manifest is there, and the next driver goes on with 5, or it is not, and n never was. If another driver
  has published n, this one stops (`FileExistsError`): it has lost its lease.
- 5: whoever starts from the manifest commits again, by name or by path; commits are idempotent by (job, sink, epoch),
  and what a job of another id or layout begins with says whose committables it carries (`Manifest.origin`). Only the
  latest manifest can be uncommitted, because n+1 is not planned before 5 is done.
- 6: an attempt that failed in 5 or 6 leaves its records to the next one. What was not delivered is lost with the
  driver, as `print` and `execute_and_collect` belong to it.
- 7: what is left over is removed by the sweep at the next start. A manifest goes before the files it names.
- 8: the chain stays as it is and is folded another time.
- A savepoint without its manifest, which is written last, is no savepoint; the request fails, the job goes on.

AT_LEAST_ONCE commits (5) before it publishes (4): results are visible sooner, and doubled if the driver dies between.
AT_MOST_ONCE publishes the ranges of the epoch before it runs (an *intent*, between 1 and 2): after a failure they are
skipped, so a record may be lost but is never processed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.checkpoint.manifest import (
    Feedback,
    Manifest,
    OperatorInfo,
    SplitTimes,
    StoreState,
)
from millstream.checkpoint.statefile import StateFile
from millstream.errors import EngineError

__all__ = [
    "Cleaned",
    "Commit",
    "Committed",
    "Coordinator",
    "Deliver",
    "Delivered",
    "Finish",
    "Fold",
    "Folded",
    "Intend",
    "Intended",
    "Next",
    "Plan",
    "Planned",
    "Publish",
    "Published",
    "Ran",
    "Remove",
    "Resume",
    "Run",
]

Offsets = dict[str, dict[str, int]]


# -- events --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resume:
    """The driver starts from a manifest (or from nothing); `kept` are all that are there, oldest first."""

    manifest: Manifest | None
    kept: Sequence[Manifest] = ()


@dataclass(frozen=True)
class Next:
    """Begin the next epoch."""


@dataclass(frozen=True)
class Planned:
    """The epoch's ranges end at `offsets`; of what was fed back before it, it leaves `unread` to the next one."""

    offsets: Offsets
    unread: Feedback = field(default_factory=dict)


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
    """All tasks are done."""

    reports: Sequence[Acknowledgement]


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
    """What was to be removed is removed."""


@dataclass(frozen=True)
class Folded:
    """A chain has been folded; `file.covers` is its last file."""

    store: str
    file: StateFile


# -- commands ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Decide what epoch `epoch` reads; answer with `Planned`."""

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
    """Commit the sinks; answer with `Committed`. `epoch` and `job_id` are those in which the committables were written;
    `again` if they may have been committed before."""

    epoch: int
    committables: dict[str, list[bytes]]
    job_id: str = ""
    again: bool = False


@dataclass(frozen=True)
class Deliver:
    """Hand over what is for the driver; answer with `Delivered`."""

    epoch: int


@dataclass(frozen=True)
class Remove:
    """Remove manifests, then files; answer with `Cleaned`."""

    epochs: Sequence[int]
    files: Sequence[str]


@dataclass(frozen=True)
class Fold:
    """Fold a chain some time; tell with `Folded`. Expects no answer now."""

    store: str
    chain: Sequence[StateFile]


@dataclass(frozen=True)
class Finish:
    """The epoch is over; the job too if `ended`."""

    ended: bool


Event = Any
Command = Any


@dataclass(frozen=True)
class Layout:
    """What a job looks like to its coordinator: tasks per level (of level 0, those that must report are not known
    beforehand), for every store what it is, and the operators that are committed."""

    job_id: str
    job_name: str
    tasks: Sequence[int]
    stores: dict[str, StoreState] = field(default_factory=dict)
    operators: dict[str, OperatorInfo] = field(default_factory=dict)
    sinks: frozenset[str] = frozenset()


class Coordinator:
    """Decides. `mode` is EXACTLY_ONCE, AT_LEAST_ONCE or AT_MOST_ONCE; `retained` manifests stay (two at least, because
    tasks of epoch n read the one of n-1 while n is published)."""

    def __init__(
        self,
        layout: Layout,
        *,
        mode: str = "EXACTLY_ONCE",
        retained: int = 1,
        must_fold: Callable[[Sequence[StateFile]], bool] = lambda chain: False,
        extend: Callable[[Sequence[StateFile], StateFile | None], list[StateFile]],
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._layout = layout
        self._mode = mode
        self._retained = max(2, retained)
        self._must_fold = must_fold
        self._extend = extend
        self._now = now
        self._last: Manifest | None = None
        self._kept: list[Manifest] = []
        self._next: Manifest | None = None
        self._offsets: Offsets = {}
        self._unread: Feedback = {}
        self._folding: dict[str, str] = {}
        self._folded: dict[str, StateFile] = {}
        self._pinned: set[str] = set()
        self._saving: list[frozenset[str]] = []
        self._resuming = False
        self.epoch = 0
        # What the engine wants to find in the manifest again.
        self.extra: dict[str, Any] = {}
        # What the job has claimed and still has to remove.
        self.claims = ""
        # The watermark generators of the epoch's splits, set with its acknowledgements.
        self.times: SplitTimes = {}

    @property
    def manifest(self) -> Manifest | None:
        """The latest complete checkpoint."""
        return self._last

    @property
    def committing(self) -> Manifest | None:
        """The checkpoint whose committables are being committed, which is not always complete yet."""
        return self._next or self._last

    def handle(self, event: Event) -> list[Command]:
        """The commands that follow from an event."""
        match event:
            case Resume():
                return self._resume(event)
            case Next():
                return [Plan(self.epoch)]
            case Planned(offsets=offsets, unread=unread):
                self._offsets, self._unread = offsets, unread
                if self._mode == "AT_MOST_ONCE":
                    return [Intend(self.epoch, offsets, unread)]
                return [Run(self.epoch)]
            case Intended():
                return [Run(self.epoch)]
            case Ran(reports=reports):
                return self._ran(reports)
            case Published():
                return self._published()
            case Committed():
                return self._committed()
            case Delivered():
                return self._delivered()
            case Cleaned():
                return self._finish()
            case Folded(store=store, file=file):
                return self._take_fold(store, file)
        raise AssertionError(event)

    def _resume(self, event: Resume) -> list[Command]:
        self._last = event.manifest
        self._kept = list(event.kept)
        if event.manifest is None:
            self.epoch = 0
            return []
        self.epoch = event.manifest.epoch + 1
        self._resuming = True
        self.claims = event.manifest.claims
        made = event.manifest.made
        return [Commit(made.epoch, event.manifest.committables, made.job_id, again=True)]

    def _ran(self, reports: Sequence[Acknowledgement]) -> list[Command]:
        """Step 3."""
        by_level: dict[int, set[int]] = {}
        for report in reports:
            by_level.setdefault(report.level, set()).add(report.subtask)
        for level, tasks in enumerate(self._layout.tasks):
            missing = set(range(tasks)) - by_level.get(level, set())
            if missing and level > 0:
                msg = f"epoch {self.epoch}: tasks {sorted(missing)} of level {level} did not report"
                raise EngineError(msg, hint="this is a defect; the epoch was not committed")
        self._next = self._manifest(reports)
        if self._mode == "AT_LEAST_ONCE":
            return [Commit(self.epoch, self._next.committables, self._layout.job_id)]
        return [Publish(self._next)]

    def _manifest(self, reports: Iterable[Acknowledgement]) -> Manifest:
        before = self._last
        stores = dict(before.stores) if before is not None else {}
        operators = {**(before.operators if before is not None else {}), **self._layout.operators}
        if before is not None:
            # What an operator has registered once is known for good.
            operators = {
                uid: OperatorInfo(
                    name=info.name,
                    parallelism=info.parallelism,
                    max_parallelism=info.max_parallelism,
                    states={**before.operators[uid].states, **info.states},
                )
                if uid in before.operators
                else info
                for uid, info in operators.items()
            }
        committables: dict[str, list[bytes]] = {}
        feedback = {uid: list(files) for uid, files in self._unread.items()}
        ended = False
        for report in reports:
            ended = ended or report.input_ended
            for name, file in report.stores.items():
                known = stores.get(name, self._layout.stores[name])
                chain = self._replace_folded(name, known.chain)
                stores[name] = StoreState(
                    subtask=known.subtask,
                    parallelism=known.parallelism,
                    max_parallelism=known.max_parallelism,
                    operators=known.operators,
                    chain=self._extend(chain, file),
                    parents=[] if file is not None and file.full else known.parents,
                    attempt=report.attempt,
                )
            for uid, states in report.registered.items():
                info = operators[uid]
                operators[uid] = OperatorInfo(
                    name=info.name,
                    parallelism=info.parallelism,
                    max_parallelism=info.max_parallelism,
                    states={**info.states, **states},
                )
            for uid, made in report.committables.items():
                committables.setdefault(uid, []).extend(made)
            for uid, files in report.feedback.items():
                feedback.setdefault(uid, []).extend(files)
        return Manifest(
            epoch=self.epoch,
            job_id=self._layout.job_id,
            job_name=self._layout.job_name,
            created_at=self._now(),
            stores=stores,
            operators=operators,
            offsets=self._offsets,
            times=self.times,
            committables=committables,
            feedback=feedback,
            # What the end of the input has fed back has to go round once more.
            ended=ended and not any(feedback.values()),
            extra=self.extra,
            restored_from="" if before is None else before.restored_from,
            claims=self.claims,
        )

    def _replace_folded(self, store: str, chain: list[StateFile]) -> list[StateFile]:
        folded = self._folded.pop(store, None)
        if folded is None:
            return chain
        names = [file.name for file in chain]
        if folded.covers not in names:
            return chain
        return [folded, *chain[names.index(folded.covers) + 1 :]]

    def _published(self) -> list[Command]:
        assert self._next is not None
        self._last, self._next = self._next, None
        self._kept.append(self._last)
        if self._mode == "AT_LEAST_ONCE":
            return [Deliver(self.epoch)]
        return [Commit(self.epoch, self._last.committables, self._layout.job_id)]

    def _committed(self) -> list[Command]:
        if self._next is not None:
            return [Publish(self._next)]
        assert self._last is not None
        return [Deliver(self._last.epoch)]

    def _delivered(self) -> list[Command]:
        if self._resuming:
            # That was what a former attempt had left to do; the first epoch is still to come.
            self._resuming = False
            return []
        return self._clean_up()

    def _clean_up(self) -> list[Command]:
        """Step 7: a manifest goes first, then what only it named."""
        gone = self._kept[: -self._retained]
        self._kept = self._kept[-self._retained :]
        needed = self._pinned.union(*self._saving)
        for manifest in self._kept:
            needed |= manifest.files()
        files = {name for manifest in gone for name in manifest.files()} - needed
        return [Remove([manifest.epoch for manifest in gone], sorted(files))]

    def _finish(self) -> list[Command]:
        """Step 8, and the end of the epoch."""
        assert self._last is not None
        commands: list[Command] = []
        for name, store in self._last.stores.items():
            # A store that has not reported since keeps its chain; it is not folded again meanwhile.
            known = name in self._folding or name in self._folded
            if not known and not store.parents and self._must_fold(store.chain):
                self._folding[name] = store.chain[-1].name
                self._pinned.update(file.name for file in store.chain)
                commands.append(Fold(name, tuple(store.chain)))
        self.epoch += 1
        return [*commands, Finish(self._last.ended)]

    def _take_fold(self, store: str, file: StateFile) -> list[Command]:
        self._folding.pop(store, None)
        self._folded[store] = file
        if not self._folding:
            self._pinned.clear()
        return []

    def fold_failed(self, store: str) -> None:
        """The chain stays as it is."""
        self._folding.pop(store, None)
        if not self._folding:
            self._pinned.clear()

    def pin(self, files: Iterable[str]) -> None:
        """Keep files although no retained manifest may name them soon: a savepoint is being copied."""
        self._saving.append(frozenset(files))

    def unpin(self, files: Iterable[str]) -> None:
        """The savepoint is done."""
        self._saving.remove(frozenset(files))

    @property
    def self_contained(self) -> bool:
        """True if nobody needs files of another folder."""
        return not self._saving and not any(
            parent.root
            for manifest in self._kept
            for store in manifest.stores.values()
            for parent in store.parents
        )

    def needed(self) -> set[str]:
        """Every file that must not be removed."""
        files = self._pinned.union(*self._saving) | {file.name for file in self._folded.values()}
        for manifest in self._kept:
            files |= manifest.files()
        return files
