"""Runs an epoch of the past again, in this process: what went in, what came out, what it did to state.

```
chk-6/_plan       ──▶ the same ranges to the same subtasks, the clock standing where the epoch began
chk-6/_metadata   ──▶ the same state, read through an overlay: whatever is written goes to a temporary folder
sinks             ──▶ muted: their records are counted and shown, no writer is made, no SinkFunction called
chk-7/_metadata   ──▶ if the epoch was completed: did it do the same?
```

No lease is taken and nothing is written to the job's folder, so a running job does not notice. It may remove what is
read here meanwhile, which is told.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from millstream.checkpoint import events
from millstream.checkpoint.commands import Publish
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.manifest import (
    Manifest,
    encode_manifest,
    is_damage,
    manifest_name,
    read_manifest,
)
from millstream.checkpoint.restore import fits_as_is
from millstream.errors import (
    StateDamaged,
    StateMismatch,
    StateNotFound,
    UnsupportedOperation,
)
from millstream.runtime.base import clock
from millstream.runtime.driver.epochs import epoch_counts
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.local import run_epoch
from millstream.runtime.driver.muted import muted, muted_sinks, without_states
from millstream.runtime.driver.plan_file import (
    EpochPlan,
    PlannedWork,
    as_ranges,
    plan_name,
    read_plan,
    replayable,
)
from millstream.runtime.operators.registry import watching
from millstream.runtime.operators.watching import Watcher
from millstream.runtime.state.changes import StateChange, changes
from millstream.runtime.state.store import extend_segments
from millstream.runtime.task.dependencies import prepare, staged_path
from millstream.runtime.task.failure import exit_of
from millstream.runtime.task.slot import close_run
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import Round, SubtaskRanges
from millstream.runtime.wire.reports import TaskReport
from millstream.runtime.wire.rows import REPORT
from millstream.storage.overlay import OverlayStorage
from millstream.storage.storage import LocalStorage, Storage, shown_root

__all__ = ["Replay", "replay_epoch"]

_RETAINED = "execution.checkpointing.num-retained"

Run = Callable[[], list[Any]]
_Round = tuple[int, list[SubtaskRanges]]
"""When it began, and what was read in it."""


@dataclass(frozen=True)
class Replay:
    """An epoch that has been run again. `error` is what it failed with; then nothing is known of its state."""

    job: Job
    plan: EpochPlan
    watcher: Watcher
    """What every operator got and gave."""
    error: Exception | None
    changes: Sequence[StateChange]
    """What the epoch does to state."""
    completed: bool
    """The first run has completed the epoch, and its checkpoint is there."""
    differences: Sequence[StateChange]
    """What state is after the first run and not after this one, if it was completed: `before` is the first run's."""
    counts: Mapping[str, tuple[Sequence[int], Sequence[int]]]
    """Operators, by uid, that have got or given other numbers of records in the first run: its numbers and ours."""


def replay_epoch(
    job: Job,
    storage: Storage,
    epoch: int,
    watcher: Watcher,
    around: Callable[[Run], list[Any]] = lambda run: run(),
) -> Replay:
    """Run an epoch of a job again, whose folder is `storage`; `around` is handed what runs the tasks."""
    _check_kind(job)
    plan = _plan_of(storage, epoch)
    with _told_if_gone(storage, plan):
        base = None if plan.base is None else read_manifest(storage, plan.base)
        if base is not None:
            maximums = {uid: info.max_parallelism for uid, info in base.operators.items()}
            job = job.with_max_parallelism(maximums)
        _check_program(job, plan, base)
        rounds = _rounds(job, plan)
        folder = tempfile.mkdtemp(prefix="millstream-replay-")
        try:
            overlay = OverlayStorage(storage, LocalStorage(folder, durable=False))
            return _replayed(job, storage, overlay, plan, base, rounds, watcher, around)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _replayed(
    job: Job,
    storage: Storage,
    overlay: OverlayStorage,
    plan: EpochPlan,
    base: Manifest | None,
    rounds: Sequence[_Round],
    watcher: Watcher,
    around: Callable[[Run], list[Any]],
) -> Replay:
    sinks = muted_sinks(job)
    if base is not None:
        # Nobody asks for the state of sinks that do not run.
        base = without_states(base, sinks)
        overlay.write(manifest_name(base.epoch), encode_manifest(base, overlay.seal))
    spec = _spec(muted(job), plan, overlay)
    prepared = prepare(job.dependencies, staged_path, first=False)
    error: Exception | None = None
    rows: list[Any] = []
    try:
        with watching(watcher), _inside(prepared.working_folder):
            for at, work in rounds:
                with clock.standing_at(at):
                    rows += around(partial(run_epoch, spec, plan.epoch, work))
    except Exception as raised:
        if is_damage(raised):
            raise
        error = raised
    except SystemExit as raised:
        error = exit_of(raised)
    finally:
        _close(spec, failed=error is not None)
    first = _first_run(storage, plan)
    if error is not None:
        return Replay(job, plan, watcher, error, [], first is not None, [], {})
    reports = [TaskReport.decode(row[4]) for row in rows if row[3] == REPORT]
    after = _completed(job, plan, base, reports)
    heads = {vertex.id: vertex.head.uid for vertex in job.plan.vertices}
    return Replay(
        job,
        plan,
        watcher,
        None,
        changes(overlay, base, after, without=sinks),
        first is not None,
        [] if first is None else changes(overlay, first, after, without=sinks),
        {} if first is None else _other_counts(first, epoch_counts(heads, reports), without=sinks),
    )


def _close(spec: JobSpec, *, failed: bool) -> None:
    try:
        close_run(spec.run_id)
    except Exception:
        if not failed:
            raise


def _inside(folder: str | None) -> AbstractContextManager[None]:
    return nullcontext() if folder is None else chdir(folder)


# -- what is there ------------------------------------------------------------------------------------------


def _check_kind(job: Job) -> None:
    if job.batch:
        raise UnsupportedOperation(
            "a job in BATCH mode has no epochs that could be replayed: it keeps no checkpoints",
            hint="run it in STREAMING mode, or with execution.target: in-process to debug it",
        )
    for vertex in job.frame_sources:
        raise UnsupportedOperation(
            f"'{vertex.head.name}' is a Spark frame, whose rows only Spark can read again",
            declared_at=vertex.head.declared_at,
            hint="epochs of jobs that read all their records through sources can be replayed",
        )


def _plan_of(storage: Storage, epoch: int) -> EpochPlan:
    first = _plan_from_nothing(storage, epoch)
    plan = first if first is not None and first.epoch == epoch else read_plan(storage, epoch - 1)
    if plan is not None and plan.epoch == epoch:
        return plan
    can = replayable(storage)
    listed = ", ".join(map(str, can)) or "none"
    where = shown_root(storage.root)
    if epoch > 0 and storage.exists(manifest_name(epoch - 1)):
        raise StateNotFound(
            f"nothing is written down about epoch {epoch}",
            folder=where,
            can_be_replayed=listed,
            hint="it has not begun yet, or it was run by a version that did not write epochs down",
        )
    raise StateNotFound(
        f"epoch {epoch} cannot be replayed: the checkpoint that it goes on from is not there",
        folder=where,
        can_be_replayed=listed,
        hint=f"{_RETAINED} keeps more checkpoints; all of a job that has ended in order are gone"
        if not can or epoch < can[-1]
        else "this epoch has not begun yet",
    )


def _plan_from_nothing(storage: Storage, epoch: int) -> EpochPlan | None:
    """The plan of the epoch that went on from nothing. If it is damaged, the others can be read all the same."""
    try:
        return read_plan(storage, None)
    except StateDamaged:
        if not storage.exists(plan_name(epoch - 1)):
            raise
        return None


@contextmanager
def _told_if_gone(storage: Storage, plan: EpochPlan) -> Iterator[None]:
    """A running job removes old checkpoints, this one perhaps while it is read."""
    try:
        yield
    except Exception as error:
        if plan.base is None or not is_damage(error) or storage.exists(manifest_name(plan.base)):
            raise
        raise StateNotFound(
            f"checkpoint {plan.base} was removed while epoch {plan.epoch} was being replayed",
            folder=shown_root(storage.root),
            hint=f"the job is running and keeps only its last checkpoints: {_RETAINED} keeps more",
        ) from error


def _first_run(storage: Storage, plan: EpochPlan) -> Manifest | None:
    """The checkpoint that the first run of the epoch ended with, if it did and it is there."""
    if not storage.exists(manifest_name(plan.epoch)):
        return None
    manifest = read_manifest(storage, plan.epoch)
    return manifest if manifest.extra.get("plan") == plan.token else None


def _check_program(job: Job, plan: EpochPlan, base: Manifest | None) -> None:
    """The program may have other functions, but the operators must be those that the epoch ran with."""
    then, now = plan.operators, {n.uid: n.parallelism for n in job.graph.nodes.values()}
    if then == now:
        if base is None or fits_as_is(base, job.layout(plan.job_id)):
            return
        raise StateMismatch(
            f"the operators of epoch {plan.epoch} were chained in another way, or have other key groups",
            hint="replay with the settings that the job ran with",
        )
    if then.keys() == now.keys():
        other = sorted({then[uid] for uid in then if then[uid] != now[uid]})
        raise StateMismatch(
            f"epoch {plan.epoch} ran with another parallelism than the program has now",
            found=_told({uid: then[uid] for uid in then if then[uid] != now[uid]}),
            wanted=_told({uid: now[uid] for uid in now if then[uid] != now[uid]}),
            hint=f"replay with -p {other[0]}" if len(other) == 1 else "set it as it was",
        )
    raise StateMismatch(
        f"the program has other operators than the one that ran epoch {plan.epoch}",
        gone=_told({uid: then[uid] for uid in then if uid not in now}) or None,
        new=_told({uid: now[uid] for uid in now if uid not in then}) or None,
        hint="functions may have changed since, operators and their uids may not",
    )


def _told(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{uid} (parallelism {count})" for uid, count in operators.items())


def _rounds(job: Job, plan: EpochPlan) -> list[_Round]:
    rounds = [(plan.at, plan.work), *((later.at, later.work) for later in plan.later)]
    return [
        (at, [_work(job, part, plan, Round(number, number == len(rounds) - 1)) for part in work])
        for number, (at, work) in enumerate(rounds)
    ]


def _work(job: Job, work: PlannedWork, plan: EpochPlan, of_epoch: Round) -> SubtaskRanges:
    """What a subtask read, with the records that only the driver had."""
    source = next(spec for spec in job.split_sources if spec.uid == work.source)
    for part in work.ranges:
        if part.left_out:
            raise UnsupportedOperation(
                f"epoch {plan.epoch} cannot be replayed: the records of '{source.name}' are gone",
                split=part.progress.split,
                records=part.progress.end - part.progress.start,
                hint="this source gives its records only once, and so many are not kept; sources that can be read "
                "again, as files and Kafka, have no such limit",
            )
    records = [None if p.records is None else pickle.loads(p.records) for p in work.ranges]
    return as_ranges(work, source.vertex, records, of_epoch)


@dataclass(frozen=True)
class _ReplaySpec(JobSpec):
    """A job whose tasks find their state in a storage of this process."""

    overlay: Storage | None = None

    def storage(self) -> Storage:
        assert self.overlay is not None
        return self.overlay


def _spec(job: Job, plan: EpochPlan, overlay: OverlayStorage) -> JobSpec:
    spec = job.spec(
        overlay.root,
        job_id=plan.job_id,
        first_epoch=plan.epoch if plan.first else plan.epoch - 1,
        base_epoch=plan.base,
    )
    facts = {each.name: getattr(spec, each.name) for each in fields(spec)}
    # What a backend keeps on this machine is shared by all tasks of a job, and this is not one of them.
    facts |= {"local_dir": overlay.root, "strict": plan.strict}
    return _ReplaySpec(**facts, overlay=overlay)


# -- what has come of it ------------------------------------------------------------------------------------


def _completed(
    job: Job, plan: EpochPlan, base: Manifest | None, reports: Sequence[TaskReport]
) -> Manifest:
    """The checkpoint that the epoch would end with."""
    coordinator = Coordinator(job.layout(plan.job_id), extend=extend_segments)
    coordinator.handle(events.Resume(base))
    if base is not None:
        coordinator.handle(events.Committed())
        coordinator.handle(events.Delivered())
    coordinator.handle(events.Next())
    coordinator.handle(events.Planned({}))
    (publish,) = coordinator.handle(
        events.Ran(
            [
                events.Acknowledgement(
                    level=report.level,
                    subtask=report.subtask,
                    attempt=report.attempt,
                    stores=report.stores,
                    registered=report.registered,
                    committables={},
                    input_ended=report.input_ended,
                )
                for report in reports
            ]
        )
    )
    assert isinstance(publish, Publish)
    return publish.manifest


def _other_counts(
    first: Manifest, counts: Mapping[str, Sequence[int]], without: Mapping[str, str]
) -> dict[str, tuple[Sequence[int], Sequence[int]]]:
    then: Mapping[str, Sequence[int]] = first.extra.get("counts", {})
    uids = (then.keys() & counts.keys()) - without.keys()
    return {uid: (then[uid], counts[uid]) for uid in sorted(uids) if list(then[uid]) != counts[uid]}
