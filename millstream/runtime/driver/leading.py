"""A job that several drivers could run: stand by until elected, run it for a term, stand by again.

Answers to what Flink's `JobMasterServiceLeadershipRunner` does. The program has been run up to `execute()` and the
engine is warm when the term begins, so that a driver that takes over has nothing to start. A term that ends before
the job does leaves everything as it is: the attempt is interrupted, nothing is published, committed or removed any
more, and this driver stands by again. When the job has ended, the leader writes down how (`millstream.ha.records`),
cleans up, and those that stand by end in the same way.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace
from typing import Protocol

from millstream.checkpoint.manifest import list_epochs
from millstream.common.job_status import JobStatus
from millstream.errors import (
    ConfigurationError,
    EngineError,
    JobError,
    JobLocked,
    KeyClassNotFound,
    MillstreamError,
    StateMismatch,
    UnsupportedOperation,
    decode,
    encode,
    told,
)
from millstream.ha.election import Candidate, LeaderElection, Term
from millstream.ha.records import JobRecords, JobResult, RunRecord, new_id
from millstream.ha.services import HighAvailability, join
from millstream.redaction import get_logger, shown
from millstream.runtime.driver.epochs import EpochDriver
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.job_folder import JobFolder, job_folder_name
from millstream.storage.storage import shown_root

__all__ = ["Leading", "take_part"]

_log = get_logger("millstream.job")

# Spark ends Python workers that have been idle for a minute.
_WARM_EVERY = 25.0
_WARM_AGAIN = 3.0
_LOOK_AT_RESULT = 0.25
# What state says to a program that has not written it.
_OTHERS = (StateMismatch, KeyClassNotFound)


def take_part(job: Job) -> Leading | None:
    """Take part in the election of a job, if its configuration says so. Called before the engine is started, so that
    what is wrong with it is an error of execute()."""
    settings = job.settings.high_availability
    if settings is None:
        return None
    if job.batch:
        if settings.optional:
            return None
        raise UnsupportedOperation(
            "a job in BATCH mode has no checkpoints that another driver could go on from",
            hint="run it in STREAMING mode, or without high availability",
        )
    election, records = join(settings, job_folder_name(job.settings.name))
    return Leading(settings, election, records)


class LedRun(Protocol):
    """What is needed of a job's run (`millstream.runtime.driver.run.JobRun`)."""

    job: Job
    status: JobStatus

    def run_job(self, folder: JobFolder) -> None:
        """Run the job to its end, or to that of the term."""

    def begin_term(self) -> None:
        """This driver leads from now on."""

    def end_term(self) -> None:
        """This driver does not lead any more: end what runs."""

    def term_ended(self) -> None:
        """Nothing of the term runs any more."""

    def warm_up(self) -> None:
        """Have the engine do once what a job needs."""

    def engine_lives(self) -> bool:
        """False if nothing will ever run in this process any more."""

    @property
    def cancelled(self) -> bool:
        """True once the job is to be cancelled."""

    def set_cancelled(self) -> None:
        """The job was cancelled under another driver."""

    @property
    def handed_over(self) -> bool:
        """True if the job has stopped so that another program can go on from its checkpoint."""


class Leading:
    """The part of one driver in it."""

    def __init__(
        self, settings: HighAvailability, election: LeaderElection, records: JobRecords
    ) -> None:
        self._settings = settings
        self._election = election
        self._records = records
        self._run: LedRun | None = None
        # What there was when this driver came is of an earlier run.
        result, run = records.result(), records.run()
        self._old_result = None if result is None else result.id
        self._old_run = None if run is None else run.id
        self._old_term = 0
        # The last term that there was in the job's folder, as far as this driver has seen.
        self._seen_term = 0
        self._run_id = ""
        self._waited = False
        self._waits_since = 0.0
        self._took_over = False
        self._began_at: int | None = None
        self._led = False
        self._begun = 0
        self._stopped = threading.Event()
        self._looked = 0.0
        self._found: JobResult | None = None
        self._ended: JobResult | None = None
        self._failure: BaseException | None = None
        self._warm: threading.Event | None = None
        self._told: str | None = None
        self.term: Term | None = None
        self.standing_by: str | None = None
        """While this driver stands by: a line that says so."""
        self.left = False

    # -- the loop -------------------------------------------------------------------------------------------

    def run(self, run: LedRun) -> None:
        """Take part until the job has ended or this driver leaves."""
        self._run = run
        try:
            while not self._stopped.is_set():
                term = self._stand_by(run)
                if term is None:
                    break
                if self._lead(run, term):
                    break
            self._end(run)
        finally:
            self._stop_warming()
            self._election.close()

    def _stand_by(self, run: LedRun) -> Term | None:
        run.status = JobStatus.CREATED
        self._seen_term = max(self._seen_term, JobFolder(run.job).latest_term())
        try:
            return self._election.lead(self._stopped, self._wait, self._seen_term)
        finally:
            self._stop_warming()
            self.standing_by = None

    def _wait(self, leader: Candidate | None) -> None:
        """Called several times a second while another leads."""
        assert self._run is not None
        if leader is not None:
            self._waited = True
            self._check_wanted(leader)
        name = self._run.job.settings.name
        who = "nobody can be asked who leads" if leader is None else f"leader is {leader}"
        self.standing_by = f"{name}: standing by, {who}"
        if self._told != who:
            self._told = who
            self._write_line(self.standing_by)
        if self._warm is None:
            self._warm = threading.Event()
            threading.Thread(
                target=self._keep_warm, args=(self._warm,), name="millstream-warm", daemon=True
            ).start()
        now = time.monotonic()
        if now - self._looked >= _LOOK_AT_RESULT:
            self._looked = now
            self._seen_term = max(self._seen_term, JobFolder(self._run.job).latest_term())
            result = self._new_result()
            if result is not None and not result.dirty:
                self._found = result
                self._stopped.set()

    def _check_wanted(self, leader: Candidate) -> None:
        """Raise if a leader lives, and nobody has said that others may stand by."""
        assert self._run is not None
        now = time.monotonic()
        self._waits_since = self._waits_since or now
        waited = now - self._waits_since
        if self._settings.optional and not self._settings.quiet and waited > self._settings.timeout:
            name = self._run.job.settings.name
            raise JobLocked(
                f"the job '{name}' is running already",
                leader=str(leader),
                hint="it may be this program, started again by a session that has taken over: millstream list shows "
                "the jobs of each (--session)",
            )

    def _keep_warm(self, over: threading.Event) -> None:
        assert self._run is not None
        # Whoever has led is warm, or has tasks that are only about to end.
        pause, said = (_WARM_AGAIN if self._led else 0.0), False
        while not over.wait(pause):
            pause = _WARM_EVERY
            try:
                self._run.warm_up()
                if not said and not over.is_set():
                    said = True
                    self._write_line(f"{self._run.job.settings.name}: ready to take over")
            except Exception as error:
                if not self._run.engine_lives():
                    self._failure = EngineError(
                        f"the engine of a driver that stood by has died: {told(error)}"
                    )
                    self._stopped.set()
                    return
                _log.warning("warming up failed: %s", error)

    def _stop_warming(self) -> None:
        if self._warm is not None:
            self._warm.set()
            self._warm = None

    # -- a term ---------------------------------------------------------------------------------------------

    def _lead(self, run: LedRun, term: Term) -> bool:
        """Run the job for a term; False if the term has ended and the job has not."""
        self._told = None
        try:
            if self._is_over(run, term):
                return True
            if not self._storage_is_there(run, term):
                return self._stopped.is_set()
            self._say(f"{run.job.settings.name}: leading, term {term.number}")
            takes_over = self._took_over = self._takes_over(run)
            self.term = term
            run.begin_term()
            term.on_end(run.end_term)
            run.run_job(self._folder(run, term, takes_over=takes_over))
        except BaseException as error:
            if self._ended is not None and isinstance(error, JobLocked):
                # The job is over, and its next leader has been left to clean up.
                return True
            if term.over is None or self._ended is not None or self._stopped.is_set():
                raise
            self._log_loss(run, term)
            return False
        finally:
            run.term_ended()
            self.term = None
        if self._ended is not None:
            if term.over is None:
                self._records.clean(self._ended)
            return True
        if self._stopped.is_set():
            return True
        self._log_loss(run, term)
        return False

    def _log_loss(self, run: LedRun, term: Term) -> None:
        # Whatever the attempt has failed with came of that.
        _log.warning("%s: not leading any more: %s", run.job.settings.name, term.over)

    def _say(self, text: str) -> None:
        if self._waited or self._settings.quiet:
            self._write_line(text)

    @staticmethod
    def _write_line(text: str) -> None:
        sys.stderr.write(f"{shown(text)}\n")
        sys.stderr.flush()

    def _storage_is_there(self, run: LedRun, term: Term) -> bool:
        """Wait for the job's folder, if it lacks a term that is known to have begun in it: what was mounted there is
        not, and beginning anew in its place would do everything twice. False if the term has ended meanwhile."""
        said = False
        while True:
            record, folder = self._records.run(), JobFolder(run.job)
            known = self._seen_term
            if record is not None and record.folder == folder.storage.root:
                known = max(known, record.term)
            if folder.latest_term() >= known:
                return True
            if not said:
                said = True
                where = shown_root(folder.storage.root)
                self._write_line(
                    f"{run.job.settings.name}: waiting for the folder of its checkpoints, which is away: {where}"
                )
            if self._stopped.wait(_LOOK_AT_RESULT) or term.over is not None:
                return False

    def _is_over(self, run: LedRun, term: Term) -> bool:
        """True if the job has ended while this driver stood by. What a leader has left to clean up is cleaned up."""
        result = self._records.result()
        if result is None:
            return False
        new = self._new_result() is not None
        if result.dirty and (new or self._records.run() is None):
            folder = self._folder(run, term)
            folder.open()
            folder.close(
                finished=result.status == JobStatus.FINISHED.name and not result.handed_over,
                cancelled=result.status == JobStatus.CANCELED.name,
            )
            term.check()
            self._records.clean(result)
        if new:
            self._found = result
        return new

    def _new_result(self) -> JobResult | None:
        """How the run that this driver takes part in has ended. What a leader has written that was paused, and came
        back when another led, does not count."""
        result = self._records.result()
        if result is None or result.id == self._old_result or result.term <= self._old_term:
            return None
        run = self._records.run()
        if run is None or run.term <= result.term:
            return result
        # A program that has taken over may have begun before those that stood by have looked.
        return result if result.handed_over and run.id != result.run else None

    def _folder(self, run: LedRun, term: Term, *, takes_over: bool = False) -> JobFolder:
        place = self._election.place
        return JobFolder(run.job, None, term, elected_by=place, takes_over=takes_over)

    def _takes_over(self, run: LedRun) -> bool:
        """True if a run is under way. Whoever goes on with it does not begin it as the user has said at its start."""
        record = self._records.run()
        if record is not None and (self._led or self._waited or record.id != self._old_run):
            _check_folder(run.job, record)
            settings = replace(run.job.settings, resume="auto", recovery_path=None)
            run.job = replace(run.job, settings=settings)
            return True
        self._records.forget_run()
        return False

    def begun(self, driver: EpochDriver) -> None:
        """The job runs, from now on under this leader."""
        assert self._run is not None
        assert self.term is not None
        if self._begun == self.term.number:
            return
        before = self._records.run()
        self._begun, self._led = self.term.number, True
        self._began_at = driver.latest
        folder = driver.folder
        self._run_id = new_id() if before is None else before.id
        record = RunRecord(
            id=self._run_id,
            job_name=self._run.job.settings.name,
            job_id=folder.job_id,
            folder=folder.storage.root,
            term=self.term.number,
            leader=_here(),
            epoch=driver.latest,
            at=time.time(),
        )
        if before is None:
            self._records.begin(record)
        else:
            # Who leads is for people to know, and the job need not wait for it.
            threading.Thread(target=self._records.begin, args=(record,), daemon=True).start()

    # -- the end --------------------------------------------------------------------------------------------

    def ending(self, run: LedRun, driver: EpochDriver, failure: BaseException | None) -> bool:
        """The job is over, or its term is. True if it is the job, which is written down before anything is cleaned
        up."""
        assert self.term is not None
        if self.left or self.term.over is not None:
            return False
        if failure is not None and not run.cancelled and not run.engine_lives():
            # That is this driver's failure: another goes on.
            self.left = True
            return False
        if isinstance(failure, _OTHERS) and self._took_over and self._stands(driver):
            # Its program is another one: the job is for those that were started with its own.
            self.left = True
            return False
        status = JobStatus.FINISHED
        if run.cancelled:
            status = JobStatus.CANCELED
        elif failure is not None:
            status = JobStatus.FAILED
        result = JobResult(
            id=new_id(),
            status=status.name,
            term=self.term.number,
            leader=_here(),
            job_id=driver.folder.job_id,
            error="" if status is not JobStatus.FAILED else _encoded(failure),
            run=self._run_id,
            handed_over=run.handed_over and status is JobStatus.FINISHED,
            at=time.time(),
        )
        try:
            driver.folder.check_lease()
            self._records.end(result)
        except JobLocked:
            return False
        self._ended = result
        return True

    def _stands(self, driver: EpochDriver) -> bool:
        """True if nothing has come of the term."""
        assert self.term is not None
        return self._begun != self.term.number or driver.latest == self._began_at

    def _end(self, run: LedRun) -> None:
        """End as the job has, if another driver has ended it."""
        if self._failure is not None:
            raise self._failure
        result = self._found
        if result is None:
            return
        if result.status == JobStatus.CANCELED.name:
            run.set_cancelled()
        elif result.status == JobStatus.FAILED.name:
            failure = decode(result.error) or JobError("the job has failed under another driver")
            failure.evidence["leader"] = result.leader
            raise failure

    def goes_on_from(self, term: int) -> None:
        """How the leader of a term has ended, and those before it, is not for this driver: its program takes over
        from theirs."""
        self._old_term = term

    @property
    def handed_over(self) -> bool:
        """True if the run has ended so that another program can go on from its checkpoint."""
        result = self._ended or self._found
        return result is not None and result.handed_over

    def stop(self, *, leave: bool = False) -> None:
        """The job is cancelled, or this driver leaves it to the others."""
        self.left = self.left or leave
        self._stopped.set()


def _check_folder(job: Job, record: RunRecord) -> None:
    """Raise if this driver would begin anew what another has begun, since it looks for checkpoints elsewhere."""
    storage = JobFolder(job).storage
    if storage.root != record.folder and not list_epochs(storage):
        raise ConfigurationError(
            "this driver was elected to go on with a job, and has none of the job's checkpoints",
            job=record.job_name,
            folder=shown_root(storage.root),
            leader_had=shown_root(record.folder),
            hint="give all drivers of a job the same execution.checkpointing.dir",
        )


def _encoded(failure: BaseException | None) -> str:
    if isinstance(failure, MillstreamError):
        return encode(failure)
    return encode(JobError("the job failed" if failure is None else told(failure)))


def _here() -> str:
    from millstream.checkpoint.lease import this_process

    return str(Candidate.of(this_process("", 0.0)))
