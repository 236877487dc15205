"""Carries out what the coordinator decides: plans, runs, publishes, commits, delivers, saves, removes.

A runner (on Spark, or in-process) holds one `EpochDriver` for a job. It calls `begin` for each attempt, then `epoch`
until that says that the job has ended, with a function that runs an epoch's tasks and gives the rows of the last level.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, assert_never

import msgspec

from millstream.checkpoint import commands, events
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.manifest import Feedback, Manifest, manifest_name, write_manifest
from millstream.checkpoint.statefile import StateFile
from millstream.common.completable_future import CompletableFuture
from millstream.common.rescale_result import RescaleResult
from millstream.errors import CheckpointFailed, JobLocked, StateError
from millstream.redaction import get_logger
from millstream.runtime.base import clock
from millstream.runtime.base.failpoints import reached
from millstream.runtime.codegen.bad_records import check_share
from millstream.runtime.driver.at_most_once import after_intent, write_intent
from millstream.runtime.driver.flow import RANGE_SECONDS, Flow
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.job_folder import JobFolder
from millstream.runtime.driver.loops import fed_back_to
from millstream.runtime.driver.metrics import JobMetrics
from millstream.runtime.driver.outputs import EpochRow, JobOutputs
from millstream.runtime.driver.plan_file import (
    EpochPlan,
    LaterRound,
    bytes_of,
    planned,
    write_plan,
)
from millstream.runtime.driver.planner import EpochPlanner
from millstream.runtime.driver.requests import Ticket, taken
from millstream.runtime.driver.rescale import Rescales
from millstream.runtime.driver.rounds import Rounds, can_have_rounds, longest_round
from millstream.runtime.driver.savepoints import SavepointRequests
from millstream.runtime.state.store import extend_segments, needs_compaction
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges, round_of
from millstream.runtime.wire.reports import TaskReport
from millstream.runtime.wire.rows import REPORT
from millstream.storage.storage import shown_root

__all__ = ["EpochDriver", "Outcome", "epoch_counts"]

_log = get_logger("millstream.job")

_SWEEP_EVERY = 256

RunTasks = Callable[[int, Sequence[SubtaskRanges]], Iterable[EpochRow]]


class Outcome(Enum):
    """What follows after an epoch."""

    GO_ON = "go on"
    ENDED = "ended"
    STOPPED = "stopped"


class EpochDriver:
    """The driver's half of a job, for all its attempts."""

    def __init__(
        self,
        job: Job,
        folder: JobFolder,
        cancelled: threading.Event,
        compact: Callable[[str, Sequence[StateFile]], None] | None = None,
        *,
        in_rounds: bool = False,
    ) -> None:
        """`in_rounds` says that subtasks keep their processes, so that epochs may have rounds."""
        self._job = job
        self.folder = folder
        self._cancelled = cancelled
        self._compact = compact
        self.outputs = JobOutputs(job)
        self.metrics = JobMetrics(job.plan)
        self.savepoints = SavepointRequests(folder, self.metrics.checkpoint_log)
        self.planner = EpochPlanner(job)
        settings = job.settings
        in_rounds = in_rounds and can_have_rounds(job)
        self._rounds = Rounds(settings.epoch_interval if in_rounds else None)
        if in_rounds:
            self.planner.in_rounds(settings.round_interval, longest_round(settings))
        if job.pipelined:
            self.planner.let_flow(RANGE_SECONDS)
        self.rescales = Rescales(job, folder.storage, folder.own_parallelism)
        self.savepoints.on_rescale = self.rescale_when_asked
        self.rescaling = False
        """True once the attempt has ended so that the job can be rescaled."""
        # When the last epoch was complete.
        self._done_at = time.monotonic()
        self._coordinator: Coordinator | None = None
        # What other threads tell the coordinator of the attempt at hand.
        self._told: deque[events.Event] = deque()
        self._compacted: deque[tuple[str, StateFile | None]] = deque()
        self._work: Sequence[SubtaskRanges] = ()
        # What the epoch that ran last has for the driver.
        self._rows: deque[EpochRow] = deque()
        self._ran: int | None = None
        # Its number, what its tasks have said, and whether there was more to read.
        self._reports: tuple[int, Sequence[TaskReport], bool] = (-1, (), False)
        self._look_up(job)
        self._apart = fed_back_to(job.graph)
        self._restoring = False
        self._draining = False
        self.ended = False
        self.interrupt: Callable[[], None] = lambda: None
        """Makes the engine end the tasks of the epoch; set by the runner."""
        self.flow: Flow | None = None
        """Where records flow through all levels at once: the tasks of the attempt; set by the runner."""
        self._timeout = job.settings.checkpoint_timeout
        # What the engine has put into the manifest that this attempt goes on from.
        self.extra: dict[str, Any] = {}
        # What goes into the manifest of the epoch at hand beside that.
        self._noted: dict[str, Any] = {}
        self._spec: JobSpec | None = None
        # As it was written last, and how many bytes of records are in it.
        self._plan_written: EpochPlan | None = None
        self._planned_bytes = 0
        self.replayable: int | None = None
        """The epoch whose tasks run, if its plan has been written down."""

    def _look_up(self, job: Job) -> None:
        self._nodes = {node.uid: node for node in job.graph.nodes.values()}
        self._sources = {spec.vertex: spec.uid for spec in job.split_sources}
        self._heads = {vertex.id: vertex.head.uid for vertex in job.plan.vertices}

    # -- another parallelism --------------------------------------------------------------------------------

    def rescale_when_asked(
        self, parallelism: int, savepoint: str | None = None, ticket: Ticket | None = None
    ) -> CompletableFuture[RescaleResult]:
        """Have the job rescaled between two epochs, after a savepoint if a folder for it is given."""
        if savepoint is None:
            return self.rescales.ask(parallelism, begin=lambda: self._begin(ticket))
        self.rescales.check(parallelism)
        future: CompletableFuture[RescaleResult] = CompletableFuture()

        def rescaled(done: CompletableFuture[RescaleResult]) -> None:
            failure = done.exception()
            if failure is None:
                future.set_result(done.result())
            else:
                future.set_exception(failure)

        def saved(taken: CompletableFuture[str]) -> None:
            try:
                asked = self.rescales.ask(parallelism, savepoint=taken.result())
            except BaseException as error:
                future.set_exception(error)
            else:
                asked.add_done_callback(rescaled)

        self.savepoints.ask(savepoint, ticket=ticket).add_done_callback(saved)
        return future

    def _begin(self, ticket: Ticket | None) -> bool:
        """True if a request is to be carried out; from here on it cannot be taken back."""
        return taken(ticket, self.folder.storage)

    def rescale(self) -> Job:
        """Between two attempts: the job at the parallelism that was asked for last, or as it is."""
        self.rescaling = False
        manifest = None if self._coordinator is None else self._coordinator.manifest
        job = self.rescales.take(self._done_at, None if manifest is None else manifest.epoch)
        if job is not None:
            self._use(job)
        return self._job

    def back_from_rescaling(self, error: BaseException) -> bool:
        """After a failure: True if the job was being rescaled, and is what it was before."""
        job = self.rescales.failed(error)
        if job is None or isinstance(error, JobLocked) or not isinstance(error, Exception):
            return False
        self._use(job)
        return True

    def _use(self, job: Job) -> None:
        self._job = job
        self._look_up(job)
        self.folder.use(job)
        self.metrics.rescale(job.plan)
        self.planner.rescale(job)

    # -- an attempt -----------------------------------------------------------------------------------------

    def begin(self) -> JobSpec:
        """Start, or start again, from the last complete checkpoint; the job for the workers."""
        start = self.folder.start(exactly_once=self.outputs.exactly_once)
        reached("restore")
        job_id = self.folder.job_id
        self._coordinator = Coordinator(
            self._job.layout(job_id),
            mode=self._job.settings.mode,
            retained=self._job.settings.retained,
            must_compact=needs_compaction if self._compact is not None else lambda segments: False,
            extend=extend_segments,
            sweep_every=_SWEEP_EVERY,
        )
        # A new one, because what is told of a former attempt may still come.
        self._told = deque()
        self.savepoints.attempt(self._told.append)
        self._compacted.clear()
        # An epoch that was to be the last and failed has told nobody.
        self._draining = False
        self._rounds.reset()
        self.metrics.take_back()
        manifest = start.manifest
        if manifest is not None:
            self.outputs.starts_from(manifest.made.job_id, manifest.made.epoch)
            self.metrics.checkpoint_log.restore(manifest.epoch, self._path_of(manifest))
        self._carry_out(self._tell(events.Resume(manifest, start.kept)), _no_tasks)
        offsets, feedback = self._go_on_after(manifest)
        self.planner.rewind(offsets, manifest.times if manifest else None, feedback)
        self.ended = start.finished or (manifest is not None and manifest.ended)
        self.extra = {} if manifest is None else manifest.extra
        # Before anything is read, an empty epoch shows that all state can be opened and fits the program.
        self._restoring = start.restored
        self.replayable = None
        self._spec = self._job.spec(
            self.folder.storage.root,
            job_id=job_id,
            durable=self.folder.durable,
            first_epoch=start.first_epoch,
            base_epoch=None if manifest is None else manifest.epoch,
            restored=start.restored,
        )
        return self._spec

    @property
    def latest(self) -> int | None:
        """The number of the last complete checkpoint; None if there is none."""
        manifest = None if self._coordinator is None else self._coordinator.manifest
        return None if manifest is None else manifest.epoch

    def _path_of(self, manifest: Manifest) -> str:
        """Where a checkpoint is, for people."""
        return shown_root(f"{self.folder.storage.root}/{manifest_name(manifest.epoch)}")

    def _go_on_after(self, manifest: Manifest | None) -> tuple[events.Offsets | None, Feedback]:
        if self._job.settings.mode == "AT_MOST_ONCE":
            return after_intent(self.folder.storage, manifest)
        return (None, {}) if manifest is None else (manifest.offsets, manifest.feedback)

    def epoch(self, run: RunTasks, extra: dict[str, Any] | None = None) -> Outcome:
        """One epoch, steps 1 to 8 of the coordinator, or one round of it; `extra` goes into its manifest."""
        while self._compacted:
            store, file = self._compacted.popleft()
            # A sweep, at a restart or in between, may have met the file before anybody knew of it.
            if file is None or self.folder.storage.size(file.name) != file.size:
                self._tell(events.CompactionFailed(store))
            else:
                self._tell(events.Compacted(store, file))
        outcome = None
        while outcome is None:
            if self._cancelled.is_set():
                return Outcome.STOPPED
            if self._rounds.open:
                outcome = self._next_round(run)
            else:
                # Whoever asks for a savepoint while there is nothing to read is served without an epoch.
                if self._serve_savepoints():
                    return Outcome.STOPPED
                if self.rescales.is_due():
                    self.rescaling = True
                    return Outcome.STOPPED
                self._noted = dict(extra or {})
                outcome = self._carry_out(self._tell(events.Next(self._noted)), run)
            if outcome is None and self._rounds.open:
                return Outcome.GO_ON
        self._done_at = time.monotonic()
        self.rescales.completed()
        if self._draining:
            stopped = self._serve_savepoints()
            # A job whose savepoint could not be written goes on, and may end later.
            self._draining = False
            return Outcome.STOPPED if stopped else Outcome.GO_ON
        return Outcome.ENDED if outcome.ended else Outcome.GO_ON

    def _tell(self, event: events.Event) -> list[commands.Command]:
        """What the coordinator says to an event, and to what other threads had for it before."""
        assert self._coordinator is not None
        said: list[commands.Command] = []
        while self._told:
            said += self._coordinator.handle(self._told.popleft())
        return said + self._coordinator.handle(event)

    def _carry_out(self, said: list[commands.Command], run: RunTasks) -> commands.Finish | None:
        """Do what the coordinator says until it says no more; None if there was no epoch."""
        pending = deque(said)
        while pending:
            command = pending.popleft()
            if isinstance(command, commands.Finish):
                return command
            event = self._do(command, run)
            if event is not None:
                pending.extend(self._tell(event))
        return None

    def _do(self, command: commands.Step, run: RunTasks) -> events.Event | None:
        match command:
            case commands.Plan():
                return self._plan()
            case commands.Intend(epoch=epoch, offsets=offsets, unread=unread):
                self.folder.check_lease()
                write_intent(self.folder.storage, epoch, offsets, unread)
                return events.Intended()
            case commands.Run(epoch=epoch):
                return self._run(epoch, run)
            case commands.Publish(manifest=manifest):
                reached("before manifest")
                self.folder.check_lease()
                try:
                    size = write_manifest(self.folder.storage, manifest)
                except FileExistsError:
                    raise self.folder.overtaken(manifest.epoch) from None
                except OSError as error:
                    msg = f"checkpoint {manifest.epoch} could not be written: {error}"
                    raise CheckpointFailed(
                        msg, folder=shown_root(self.folder.storage.root)
                    ) from error
                reached("after manifest")
                self.metrics.update(*self._reports)
                self.metrics.checkpoint(manifest, size, self._path_of(manifest))
                return events.Published()
            case commands.Commit():
                # Who has taken over may be epochs ahead, and what is put back by key would go back with it.
                self.folder.check_lease()
                self._commit(command)
                reached("after commit")
                return events.Committed()
            case commands.Deliver():
                self._deliver(command)
                return events.Delivered()
            case commands.Remove():
                reached("cleaning up")
                return self._remove(command)
            case commands.Compact(store=store, segments=segments):
                assert self._compact is not None
                self._compact(store, segments)
                return None
            case _:
                assert_never(command)

    def _plan(self) -> events.Planned | None:
        assert self._coordinator is not None
        if self._restoring:
            self._restoring = False
            self._work = self.planner.plan_empty()
        elif self.savepoints.begin_drain():
            self._draining = True
            self._work = self.planner.plan_empty(ended=True)
        elif self.savepoints.waiting and self._coordinator.manifest is None:
            # A savepoint of a job that has no checkpoint yet, which its first epochs may have failed to make.
            self._work = self.planner.plan_empty()
        elif self.flow is not None:
            self._work = self.planner.plan_open()
        else:
            work = self.planner.plan(self._cancelled, wake=self._is_asked)
            if work is None:
                return None
            self._work = work
        return events.Planned(
            self.planner.end_offsets(), self.planner.unread(), drain=self._draining
        )

    def _is_asked(self) -> bool:
        return self.savepoints.waiting or self.rescales.waiting

    def _next_round(self, run: RunTasks) -> commands.Finish | None:
        """Another round of the epoch at hand: of what there is to read, or to end it."""
        assert self._coordinator is not None

        def ends() -> bool:
            return self._rounds.due or self._is_asked() or self.planner.waits_for_commit()

        work = None if ends() else self.planner.plan(self._cancelled, wake=ends)
        if self._cancelled.is_set():
            return None
        last = work is None
        self._work = self.planner.plan_empty() if work is None else work
        event = self._run_round(self._coordinator.epoch, run, last=last)
        return None if event is None else self._carry_out(self._tell(event), run)

    def _run(self, epoch: int, run: RunTasks) -> events.Ran | None:
        reached("source read")
        if self.flow is not None:
            return self._run_flow(epoch, self.flow, last=not self.planner.counts)
        # What is planned without a look at the sources is an epoch of its own.
        return self._run_round(epoch, run, last=not self.planner.counts)

    def _run_round(self, epoch: int, run: RunTasks, *, last: bool) -> events.Ran | None:
        """Run the planned work; what is to be told of the epoch, if it has ended with it."""
        rounds = self._rounds
        self._work = rounds.begin(self._work, last=last, takes=self.planner.takes)
        last = round_of(self._work).last
        self._write_plan(epoch)
        log = self.metrics.checkpoint_log
        if last:
            log.begin(epoch)
        with self._in_time(epoch):
            ordered = sorted(run(epoch, self._work))
        reports = [TaskReport.decode(row.payload) for row in ordered if row.edge == REPORT]
        if not last:
            self._round_ran(reports, ordered)
            return None
        rows = [row for row in ordered if row.edge != REPORT]
        offsets = self.planner.end_offsets() if rounds.number else None
        return self._epoch_ran(epoch, reports, [*rounds.rows, *rows], offsets)

    def _epoch_ran(
        self,
        epoch: int,
        reports: Sequence[TaskReport],
        rows: Iterable[EpochRow],
        offsets: events.Offsets | None,
    ) -> events.Ran:
        """An epoch has run; `offsets` is where it ended, if that was not known before."""
        self._rows, self._ran = deque(rows), epoch
        made = [self._apart(report.committables) for report in reports]
        acknowledgements = [
            events.Acknowledgement(
                level=report.level,
                subtask=report.subtask,
                attempt=report.attempt,
                stores=report.stores,
                registered=report.registered,
                committables=committables,
                input_ended=report.input_ended,
                feedback=feedback,
            )
            for report, (committables, feedback) in zip(reports, made, strict=True)
        ]
        times = self.planner.take_reports(reports)
        self._warn_of_late(reports)
        if not self._draining:
            # What waits in the savepoint of a job that was drained waits on.
            self._warn_of_waiting(reports)
        self.metrics.checkpoint_log.ran(reports)
        # Counted once the epoch is complete: if it is run again, so are its records.
        self._reports = epoch, reports, self.planner.limited
        for uid, (bad, seen) in self.metrics.bad_with(reports).items():
            node = self._nodes[uid]
            check_share(node.name, node.error_policy, bad, seen)
        if self.replayable is not None:
            self._noted["counts"] = self._rounds.count(epoch_counts(self._heads, reports))
            self.replayable = None
        self._rounds.reset()
        return events.Ran(acknowledgements, times, at=time.time(), offsets=offsets)

    def _round_ran(self, reports: Sequence[TaskReport], rows: Sequence[EpochRow]) -> None:
        """A round has run that is not the epoch's last."""
        self.planner.take_reports(reports)
        self._take_reports_of_round(reports)
        self._rounds.count(epoch_counts(self._heads, reports))
        for row in rows:
            if row.edge == REPORT:
                continue
            if self.outputs.waits(row):
                self._rounds.rows.append(row)
            else:
                self.outputs.deliver(row)
        self.planner.round_done()

    def _take_reports_of_round(self, reports: Sequence[TaskReport]) -> None:
        self._warn_of_late(reports)
        self.metrics.update_round(reports, self.planner.limited)
        for uid, (bad, seen) in self.metrics.bad_records.items():
            node = self._nodes[uid]
            check_share(node.name, node.error_policy, bad, seen)

    def _run_flow(self, epoch: int, flow: Flow, *, last: bool) -> events.Ran | None:
        """Run an epoch in which records flow through all levels at once; None if the job is to stop in the middle of
        it. With `last` it is only begun and ended."""
        rows: list[EpochRow] = []
        told: list[TaskReport] = []

        def take_rows(new: Sequence[EpochRow]) -> None:
            for row in new:
                if self.outputs.waits(row):
                    rows.append(row)
                else:
                    self.outputs.deliver(row)

        def take_report(payload: bytes) -> None:
            told.append(TaskReport.decode(payload))
            if len(told) >= flow.tasks:
                self._take_reports_of_round(told)
                told.clear()

        flow.on_rows, flow.on_report = take_rows, take_report
        stopped = self._cancelled.is_set
        if not flow.open(epoch, self._work, stopped):
            return None
        ended: bool | None = any(ranges.ended for ranges in self._work)
        if not last:
            until = time.monotonic() + self._job.settings.epoch_interval
            ended = flow.run(
                self.planner,
                lambda: (
                    time.monotonic() >= until
                    or self.planner.is_full
                    or self._is_asked()
                    or self.planner.waits_for_commit()
                ),
                stopped,
            )
        if ended is None:
            return None
        self.metrics.checkpoint_log.begin(epoch)
        with self._in_time(epoch):
            reports = flow.close(ended, stopped)
        if reports is None:
            return None
        if told:
            self._take_reports_of_round(told)
        return self._epoch_ran(
            epoch, [TaskReport.decode(each) for each in reports], rows, self.planner.end_offsets()
        )

    def _write_plan(self, epoch: int) -> None:
        """Before the tasks run: what they are going to do, for whoever wants to see it again."""
        spec = self._spec
        if spec is None or not self.folder.durable:
            return
        # It is beside a checkpoint from which another leader may go on by now.
        self.folder.check_lease()
        if self._rounds.number and self.replayable is None:
            # Without its first rounds nothing can be said of the others.
            return
        self.replayable = None
        try:
            if self._rounds.number and self._plan_written is not None:
                work = planned(self._work, self._sources, self._planned_bytes)
                later = [*self._plan_written.later, LaterRound(clock.now(), work)]
                plan = msgspec.structs.replace(self._plan_written, later=later)
            else:
                self._planned_bytes = 0
                work = planned(self._work, self._sources)
                plan = EpochPlan(
                    token=uuid.uuid4().hex[:16],
                    epoch=epoch,
                    base=spec.base_epoch if epoch == spec.first_epoch else epoch - 1,
                    job_id=spec.job_id,
                    at=clock.now(),
                    first=epoch == spec.first_epoch,
                    strict=spec.strict,
                    operators={node.uid: node.parallelism for node in self._nodes.values()},
                    work=work,
                )
            self._plan_written = plan
            self._planned_bytes += bytes_of(work)
            write_plan(self.folder.storage, plan)
        except Exception as error:
            # The job does not need it.
            _log.warning("epoch %d cannot be replayed, its plan was not written: %s", epoch, error)
            return
        self._noted["plan"] = plan.token
        self.replayable = epoch

    @contextlib.contextmanager
    def _in_time(self, epoch: int) -> Iterator[None]:
        """Give the epoch up when its time is over. Where the engine cannot be interrupted, that is when it is done."""
        if self._timeout is None:
            yield
            return
        over = threading.Event()

        def give_up() -> None:
            over.set()
            self.interrupt()

        # A timeout that means "never" may be longer than a thread can wait.
        timer = threading.Timer(min(self._timeout, threading.TIMEOUT_MAX), give_up)
        timer.daemon = True
        timer.start()
        cause: Exception | None = None
        try:
            yield
        except Exception as error:
            if not over.is_set():
                raise
            cause = error
        finally:
            timer.cancel()
        if over.is_set() and not self._cancelled.is_set():
            self.planner.gave_up()
            raise CheckpointFailed(
                f"epoch {epoch} took longer than a checkpoint may",
                timeout=f"{self._timeout:g} s",
                hint="raise execution.checkpointing.timeout, or lower execution.checkpointing.interval: an epoch reads "
                "about as much as can be processed in that time",
            ) from cause
        if cause is not None:
            raise cause

    def _warn_of_late(self, reports: Sequence[TaskReport]) -> None:
        """Say once for each operator that it has begun to drop records."""
        late: Counter[str] = Counter()
        for report in reports:
            late.update(report.late_records)
        for uid, count in late.items():
            if not self.metrics.late_records.get(uid):
                _log.warning(
                    "'%s' has dropped %d late record%s: they came after the watermark had passed what they belong "
                    "to. Allow more disorder in the watermark strategy, or use allowed_lateness or a side output "
                    "for late data",
                    self._nodes[uid].name,
                    count,
                    "" if count == 1 else "s",
                )

    def _warn_of_waiting(self, reports: Sequence[TaskReport]) -> None:
        """Say at the end of the input what has waited for the clock in vain (rule 15)."""
        waiting: Counter[str] = Counter()
        for report in reports:
            waiting.update(report.waiting)
        for uid, count in waiting.items():
            _log.warning(
                "the input of '%s' has ended before the clock came to %d of its windows or timers of processing time, "
                "which give nothing. Use event time, BATCH mode, or an input that goes on",
                self._nodes[uid].name,
                count,
            )

    def _commit(self, command: commands.Commit) -> None:
        manifest, again = command.manifest, command.again
        made = manifest.made
        self.outputs.commit(made.epoch, manifest.committables, job_id=made.job_id, again=again)
        # What a former driver has left is committed now; the manifest of an epoch to come would tell, if it came.
        self.folder.committed(manifest, write=again)

    def _deliver(self, command: commands.Deliver) -> None:
        """Hand over what the epoch has for the driver. If that, or the commit before it, failed, the next attempt finds
        the epoch complete, and the rest of its rows here."""
        while self._ran == command.manifest.made.epoch and self._rows:
            self.outputs.deliver(self._rows[0])
            self._rows.popleft()
        if not command.again:
            self.planner.done(command.manifest.feedback)

    def _remove(self, command: commands.Remove) -> events.Cleaned:
        claimed = False
        try:
            self.folder.check_lease()
            self.folder.remove(list(command.epochs), list(command.files))
            if command.claimed:
                self.folder.check_lease()
                self.folder.remove_claimed()
                claimed = True
            if command.keep is not None:
                self.folder.check_lease()
                self.folder.sweep(command.keep, before=command.epoch)
        except OSError as error:
            # What stays is removed at the next start.
            _log.warning("old checkpoints could not be removed: %s", error)
        return events.Cleaned(claimed)

    # -- around the epochs --------------------------------------------------------------------------------------

    def compacted(self, store: str, file: StateFile | None) -> None:
        """A store's segments have been compacted (None: they could not be). Called from any thread."""
        self._compacted.append((store, file))

    def _serve_savepoints(self) -> bool:
        """Write the savepoints that were asked for; True if the job is to stop with one."""
        assert self._coordinator is not None
        manifest = self._coordinator.manifest
        if manifest is None or not self.savepoints.waiting:
            return False
        # Who starts from the savepoint must not repeat what a driver that took over has done since.
        self.folder.check_lease()
        return self.savepoints.serve(manifest, drained=self._draining)

    def may_fall_back(self, error: BaseException) -> bool:
        """After a failure: True if it was a damaged file and an older checkpoint stands in."""
        # Who has lost the lease finds files gone, and must not remove those of another. Any other trouble with the
        # lease's file is no reason to give up.
        with contextlib.suppress(OSError):
            self.folder.check_lease()
        if not isinstance(error, StateError) or error.code != "STATE_DAMAGED":
            return False
        return self.folder.fall_back(error, exactly_once=self.outputs.exactly_once)

    def close(self, *, finished: bool, cancelled: bool) -> None:
        """The job is over."""
        try:
            self.outputs.close()
        finally:
            self.planner.close()
            self.rescales.close()
            self.savepoints.close()
            self.folder.close(finished=finished, cancelled=cancelled)


def epoch_counts(heads: Mapping[int, str], reports: Sequence[TaskReport]) -> dict[str, list[int]]:
    """What an epoch came to, by the uid of operators: records in and out as far as the tasks tell, of the first of a
    chain the records in at least."""
    counts: dict[str, list[int]] = {}
    for report in reports:
        for vertex, records in report.records_in.items():
            if heads[vertex] not in report.operators:
                counts[heads[vertex]] = [counts.get(heads[vertex], [0])[0] + records]
        for uid, (records, results) in report.operators.items():
            before = counts.get(uid, [0, 0])
            counts[uid] = [before[0] + records, before[1] + results]
    return counts


def _no_tasks(epoch: int, work: Sequence[SubtaskRanges]) -> Any:
    raise AssertionError("no tasks run before the first epoch")
