"""The checkpoint coordinator: what happens in an epoch, in which order, and what is kept (Flink's
`CheckpointCoordinator`).

It is a pure state machine: `handle(event)` gives the commands that follow, and whoever drives it carries them out and
reports back with the next event. Events are all it is told (`millstream.checkpoint.events`), commands all it says
(`millstream.checkpoint.commands`). It reads no clock, no file and no random number, so a simulation can drive it
through any order of crashes.

The steps of epoch n, under EXACTLY_ONCE:

1. `Plan`: decide how far each split is read. Nothing has happened yet.
2. `Run`: run all tasks. Each reads state n-1, writes its changes under a name of its own, and reports. They may run
   in rounds, one after the other: then 1 is about the first of them, and only the last writes and reports here.
3. Check the reports: every task of every level, once.
4. `Publish`: the manifest of checkpoint n, create-only. **From here on the epoch is complete; before, it never was.**
5. `Commit`: the sinks, with the committables that the manifest holds.
6. `Deliver`: records for `print` and `execute_and_collect`.
7. `Remove`: manifests beyond the retained ones, and files that none of the others names.
8. `Compact`: the segments of a store that have become many are compacted into one, beside the job; the result joins a
   later manifest.

Savepoints are copies of a complete checkpoint. The driver takes them between two epochs, and has the files pinned
meanwhile (`Pinned`, `Unpinned`).

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
- 8: the segments stay as they are and are compacted another time.
- A savepoint without its manifest, which is written last, is no savepoint; the request fails, the job goes on.

AT_LEAST_ONCE commits (5) before it publishes (4): results are visible sooner, and doubled if the driver dies between.
AT_MOST_ONCE publishes the ranges of the epoch before it runs (an *intent*, between 1 and 2): after a failure they are
skipped, so a record may be lost but is never processed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from millstream.checkpoint.commands import (
    Command,
    Commit,
    Compact,
    Deliver,
    Finish,
    Intend,
    Plan,
    Publish,
    Remove,
    Run,
)
from millstream.checkpoint.events import (
    Cleaned,
    Committed,
    Compacted,
    CompactionFailed,
    Delivered,
    Event,
    Intended,
    Next,
    Offsets,
    Pinned,
    Planned,
    Published,
    Ran,
    Resume,
    Unpinned,
)
from millstream.checkpoint.manifest import Feedback, Manifest, OperatorInfo, StoreState
from millstream.checkpoint.statefile import StateFile
from millstream.errors import EngineError

__all__ = ["Coordinator", "Layout"]


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
    tasks of epoch n read the one of n-1 while n is published). `extend` gives the segments of a store after
    an epoch and its file, `must_compact` says whether they are too many, and every `sweep_every`-th epoch
    looks for what attempts have left."""

    def __init__(
        self,
        layout: Layout,
        *,
        mode: str = "EXACTLY_ONCE",
        retained: int = 1,
        must_compact: Callable[[Sequence[StateFile]], bool] = lambda segments: False,
        extend: Callable[[Sequence[StateFile], StateFile | None], list[StateFile]],
        sweep_every: int = 256,
    ) -> None:
        self._layout = layout
        self._mode = mode
        self._retained = max(2, retained)
        self._must_compact = must_compact
        self._extend = extend
        self._sweep_every = sweep_every
        self._epoch = 0
        self._last: Manifest | None = None
        self._kept: list[Manifest] = []
        self._next: Manifest | None = None
        self._extra: dict[str, Any] = {}
        self._offsets: Offsets = {}
        self._unread: Feedback = {}
        self._draining = False
        # Stores whose segments are being compacted; until the last of them is done all their files stay.
        self._compacting: set[str] = set()
        self._held: set[str] = set()
        # By store, the file that stands for its segments as soon as its next report names them anew.
        self._compacted: dict[str, StateFile] = {}
        self._pins: list[frozenset[str]] = []
        self._resuming = False
        # What the job has claimed and still has to remove.
        self._claims = ""

    @property
    def manifest(self) -> Manifest | None:
        """The latest complete checkpoint."""
        return self._last

    @property
    def epoch(self) -> int:
        """The number of the epoch at hand."""
        return self._epoch

    def handle(self, event: Event) -> list[Command]:
        """The commands that follow from an event."""
        match event:
            case Resume(manifest, kept):
                return self._resume(manifest, kept)
            case Next(extra):
                self._extra = extra
                return [Plan(self._epoch)]
            case Planned():
                return self._planned(event)
            case Intended():
                return [Run(self._epoch)]
            case Ran():
                return self._ran(event)
            case Published():
                return self._published()
            case Committed():
                return self._committed()
            case Delivered():
                return self._delivered()
            case Cleaned(claimed):
                return self._cleaned(claimed)
            case Compacted(store, file):
                self._compacted[store] = file
                return self._compaction_done(store)
            case CompactionFailed(store):
                return self._compaction_done(store)
            case Pinned(files):
                self._pins.append(files)
                return []
            case Unpinned(files):
                self._pins.remove(files)
                return []
            case _:
                assert_never(event)

    def _resume(self, manifest: Manifest | None, kept: Sequence[Manifest]) -> list[Command]:
        self._last = manifest
        self._kept = list(kept)
        if manifest is None:
            return []
        self._epoch = manifest.epoch + 1
        self._resuming = True
        self._claims = manifest.claims
        return [Commit(manifest, again=True)]

    def _planned(self, planned: Planned) -> list[Command]:
        """Step 1 is done."""
        self._offsets, self._unread = planned.offsets, planned.unread
        self._draining = planned.drain
        if self._mode == "AT_MOST_ONCE":
            return [Intend(self._epoch, planned.offsets, planned.unread)]
        return [Run(self._epoch)]

    def _ran(self, ran: Ran) -> list[Command]:
        """Step 3: check that every task has reported, and make the manifest."""
        by_level: dict[int, set[int]] = {}
        for report in ran.reports:
            by_level.setdefault(report.level, set()).add(report.subtask)
        for level, tasks in enumerate(self._layout.tasks):
            missing = set(range(tasks)) - by_level.get(level, set())
            if missing and level > 0:
                msg = (
                    f"epoch {self._epoch}: tasks {sorted(missing)} of level {level} did not report"
                )
                raise EngineError(msg, hint="this is a defect; the epoch was not committed")
        if ran.offsets is not None:
            self._offsets = ran.offsets
        self._next = self._manifest(ran)
        if self._mode == "AT_LEAST_ONCE":
            return [Commit(self._next)]
        return [Publish(self._next)]

    def _manifest(self, ran: Ran) -> Manifest:
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
        for report in ran.reports:
            ended = ended or report.input_ended
            for name, file in report.stores.items():
                known = stores.get(name, self._layout.stores[name])
                segments = self._replace_compacted(name, known.segments)
                stores[name] = StoreState(
                    subtask=known.subtask,
                    parallelism=known.parallelism,
                    max_parallelism=known.max_parallelism,
                    operators=known.operators,
                    segments=self._extend(segments, file),
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
            epoch=self._epoch,
            job_id=self._layout.job_id,
            job_name=self._layout.job_name,
            created_at=ran.at,
            stores=stores,
            operators=operators,
            offsets=self._offsets,
            times=ran.times,
            committables=committables,
            feedback=feedback,
            # What the end of the input has fed back has to go round once more; a drained job may be gone on with.
            ended=ended and not self._draining and not any(feedback.values()),
            extra=self._extra,
            restored_from="" if before is None else before.restored_from,
            claims=self._claims,
        )

    def _replace_compacted(self, store: str, segments: list[StateFile]) -> list[StateFile]:
        compacted = self._compacted.pop(store, None)
        if compacted is None:
            return segments
        names = [file.name for file in segments]
        if compacted.covers not in names:
            return segments
        return [compacted, *segments[names.index(compacted.covers) + 1 :]]

    def _published(self) -> list[Command]:
        assert self._next is not None
        self._last, self._next = self._next, None
        self._kept.append(self._last)
        if self._mode == "AT_LEAST_ONCE":
            return [Deliver(self._last)]
        return [Commit(self._last)]

    def _committed(self) -> list[Command]:
        if self._next is not None:
            return [Publish(self._next)]
        assert self._last is not None
        return [Deliver(self._last, again=self._resuming)]

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
        needed = self._needed()
        files = {name for manifest in gone for name in manifest.files()} - needed
        sweeps = self._epoch % self._sweep_every == self._sweep_every - 1
        remove = Remove(
            self._epoch,
            [manifest.epoch for manifest in gone],
            sorted(files),
            claimed=bool(self._claims) and self._is_self_contained(),
            keep=needed if sweeps else None,
        )
        return [remove]

    def _needed(self) -> frozenset[str]:
        """Every file that must not be removed."""
        compacted = {file.name for file in self._compacted.values()}
        named = [manifest.files() for manifest in self._kept]
        return frozenset(compacted.union(self._held, *self._pins, *named))

    def _is_self_contained(self) -> bool:
        """True if nobody needs files of another folder."""
        return not self._pins and not any(
            parent.root
            for manifest in self._kept
            for store in manifest.stores.values()
            for parent in store.parents
        )

    def _cleaned(self, claimed: bool) -> list[Command]:
        """Step 8, and the end of the epoch."""
        assert self._last is not None
        if claimed:
            self._claims = ""
        commands: list[Command] = []
        for name, store in self._last.stores.items():
            # A store that has not reported since keeps its segments; they are not compacted again meanwhile.
            known = name in self._compacting or name in self._compacted
            if not known and not store.parents and self._must_compact(store.segments):
                self._compacting.add(name)
                self._held.update(file.name for file in store.segments)
                commands.append(Compact(name, tuple(store.segments)))
        self._epoch += 1
        return [*commands, Finish(self._last.ended)]

    def _compaction_done(self, store: str) -> list[Command]:
        self._compacting.discard(store)
        if not self._compacting:
            self._held.clear()
        return []
