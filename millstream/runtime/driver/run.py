"""A job that is running: its status, its end, its cancellation. What carries it out is a subclass."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.statefile import StateFile
from millstream.common.completable_future import CompletableFuture
from millstream.common.job_status import JobStatus
from millstream.common.rescale_result import RescaleResult
from millstream.errors import JobCancelled, JobError, MillstreamError
from millstream.redaction import get_logger, shown
from millstream.runtime.driver.epochs import EpochDriver
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.job_folder import JobFolder
from millstream.runtime.driver.leading import Leading
from millstream.runtime.driver.metrics import JobMetrics
from millstream.runtime.driver.plan_file import replay_command
from millstream.runtime.driver.proof import prove
from millstream.runtime.driver.reactive import at_slots, check_reactive, follow_slots
from millstream.runtime.driver.requests import Ticket
from millstream.runtime.driver.restart import Restarts
from millstream.runtime.task.failure import exit_of
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges
from millstream.storage.storage import Storage

__all__ = ["TERM_GRACE", "Failure", "JobRun"]

_log = get_logger("millstream.job")

_INTERRUPT_EVERY = 0.2
# How long the tasks of an epoch may go on that nobody will publish: to interrupt them ends their processes, and who is
# elected again a moment later would have to start new ones.
TERM_GRACE = 0.5
# How many failures are remembered one by one.
_FAILURES = 100


@dataclass(frozen=True)
class Failure:
    """What an attempt failed with, and when; `epoch` is the last one that had run."""

    at: float
    error: BaseException
    epoch: int


class JobRun(ABC):
    """Runs a job in a thread of its own."""

    def __init__(self, job: Job) -> None:
        self.job = job
        # When the job last came to each status, in seconds since 1970.
        self.since: dict[JobStatus, float] = {}
        self.status = JobStatus.CREATED
        self.failures: deque[Failure] = deque(maxlen=_FAILURES)
        self.error: BaseException | None = None
        self.metrics: JobMetrics | None = None
        self.seconds = 0.0
        # While the status is RESTARTING: what the last attempt failed with, and when the next one begins.
        self.failure: BaseException | None = None
        self.restart_at = 0.0
        # Where the job can be looked at with a browser, if a REST server of this process shows it.
        self.web_address: str | None = None
        # True once an attempt has found everything that it goes on from.
        self.begun = False
        # Told what a user should know while the job runs.
        self.say: Callable[[str], None] = lambda text: None
        self._cancelled = threading.Event()
        # Ends the attempt at hand: the job is cancelled, or this driver does not lead it any more.
        self._stop = threading.Event()
        self.leading: Leading | None = None
        """This driver's part in the election of the job's leader, if there is one; set before the start."""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_done: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._driver: EpochDriver | None = None
        self._term_over = threading.Event()

    @property
    def status(self) -> JobStatus:
        """Where the job stands."""
        return self._status

    @status.setter
    def status(self, status: JobStatus) -> None:
        self.since[status] = time.time()
        self._status = status

    def _failed(self, error: BaseException) -> None:
        """An attempt has failed."""
        epoch = -1 if self.metrics is None else self.metrics.epoch
        if self.metrics is not None:
            self.metrics.checkpoint_log.fail(str(error))
        self.failures.append(Failure(time.time(), error, epoch))

    def _say_how_to_replay(self, error: BaseException, epoch: int | None) -> None:
        """Add to an error, wherever it will be shown, the command that runs the failed epoch again."""
        program = self.job.settings.program
        if isinstance(error, MillstreamError) and epoch is not None and program is not None:
            error.evidence["replay"] = shown(replay_command(program, epoch))

    def slots(self) -> int | None:
        """How many tasks can run at the same time, if that may change while the job runs."""
        return None

    def keeps_subtasks(self) -> bool:
        """True if a subtask runs in the same process in every epoch, as long as that lives."""
        return False

    def engine(self) -> dict[str, str]:
        """What there is to know of the engine: names and values, `ui` among them if it has a page of its own."""
        return {}

    def start(self) -> None:
        """Begin, and return once the job is known to be running or to have failed."""
        try:
            if self.job.reactive:
                check_reactive(self.job, self.slots)
        except BaseException as error:
            self.refuse(error)
            raise
        self._thread = threading.Thread(
            target=self._main, name=f"millstream-{self.job.id[:8]}", daemon=True
        )
        self._thread.start()

    def refuse(self, error: BaseException) -> None:
        """The job will not start: whoever has seen it hears that it has ended, and why."""
        if self._cancelled.is_set():
            self.status = JobStatus.CANCELED
        else:
            self.error = error if isinstance(error, Exception) else exit_of(error)
            self._failed(self.error)
            self.status = JobStatus.FAILED
        self._say_done()

    def on_done(self, call: Callable[[], None]) -> None:
        """Have something called when the job has ended in any way; at once if it has."""
        with self._lock:
            if not self._done.is_set():
                self._on_done.append(call)
                return
        call()

    def _main(self) -> None:
        started = time.monotonic()
        self.status = JobStatus.RUNNING
        try:
            self._run()
            left = self.leading is not None and self.leading.left
            ended = JobStatus.SUSPENDED if left else JobStatus.FINISHED
            self.status = JobStatus.CANCELED if self._cancelled.is_set() else ended
        except BaseException as error:
            if self._cancelled.is_set():
                self.status = JobStatus.CANCELED
            else:
                self.error = error if isinstance(error, Exception) else exit_of(error)
                if self.error is not error and self._driver is not None:
                    self._say_how_to_replay(self.error, self._driver.replayable)
                self._failed(self.error)
                self.status = JobStatus.FAILED
        finally:
            self.seconds = time.monotonic() - started
            self._say_done()

    def _say_done(self) -> None:
        with self._lock:
            self._done.set()
        for call in self._on_done:
            call()

    def _run(self) -> None:
        if self.leading is not None:
            self.leading.run(self)
            return
        temporary = None if self.job.settings.checkpoint_dir else self._temporary_folder()
        try:
            self.run_job(JobFolder(self.job, temporary))
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def run_job(self, folder: JobFolder) -> None:
        """Run the job, and run it again after a failure if its restart strategy says so."""
        folder.open()
        try:
            self.job = folder.adopt()
            if self.job.reactive:
                self.job = at_slots(self.job, self.slots, self._stop)
                folder.use(self.job)
            driver = EpochDriver(
                self.job, folder, self._stop, self._compact, in_rounds=self.keeps_subtasks()
            )
        except BaseException:
            folder.close(finished=False, cancelled=False)
            raise
        self._driver = driver
        driver.interrupt = self._interrupt
        driver.savepoints.on_cancel = self._cancel_soon
        driver.savepoints.watch()
        if self.job.reactive:
            follow_slots(driver.rescales, self.slots)
        self.metrics = driver.metrics
        failure: BaseException | None = None
        try:
            self._attempts(driver)
        except BaseException as error:
            failure = error
            raise
        finally:
            over = self.leading is None or self.leading.ending(self, driver, failure)
            ended = failure is None and not self._cancelled.is_set()
            finished = over and ended and not self.handed_over
            try:
                self._release()
                driver.close(finished=finished, cancelled=over and self._cancelled.is_set())
            except Exception:
                if finished:
                    raise
                # A job fails with what failed first, not with what fails while it is closed after that.
                _log.warning("closing a failed job failed too", exc_info=True)

    @property
    def handed_over(self) -> bool:
        """True if the job has stopped so that another program can go on from its checkpoint."""
        if self.leading is not None and self.leading.handed_over:
            return True
        return self._driver is not None and self._driver.savepoints.handed_over

    def _attempts(self, driver: EpochDriver) -> None:
        settings = self.job.settings
        restarts = Restarts(
            settings.restart,
            checkpointing=settings.checkpoint_interval is not None,
            tolerable=settings.tolerable_failures,
        )
        while True:
            try:
                self.job = driver.rescale()
                spec = driver.begin()
                if self.leading is not None:
                    self.leading.begun(driver)
                self.begun = True
                if driver.folder.origin:
                    self.say(driver.folder.origin)
                    driver.folder.origin = ""
                self.status = JobStatus.RUNNING
                if not driver.ended:
                    self._attempt(spec, driver)
                if not driver.rescaling:
                    return
            except BaseException as failure:
                error = self._translate(failure)
                self._say_how_to_replay(error, driver.replayable)
                if self._stop.is_set() or not (self.leading is None or self.engine_lives()):
                    raise error from _cause(error, failure)
                if driver.back_from_rescaling(error):
                    continue
                epoch = driver.metrics.epoch
                pause = 0.0 if driver.may_fall_back(error) else restarts.pause(error, epoch)
                if pause is None:
                    raise error from _cause(error, failure)
                driver.metrics.restarts += 1
                self._failed(error)
                self.restart_at = time.monotonic() + pause
                self.failure = error
                self.status = JobStatus.RESTARTING
                _log.warning("the job failed and starts again in %.1f s: %s", pause, error)
                if self._stop.wait(min(pause, threading.TIMEOUT_MAX)):
                    return

    # -- a driver among several (`leading.py`) ---------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """True once the job is to be cancelled."""
        return self._cancelled.is_set()

    def set_cancelled(self) -> None:
        """The job was cancelled, here or under another driver."""
        self._cancelled.set()

    def warm_up(self) -> None:
        """Have the engine do once, with data of its own, all that a job needs of it."""

    def engine_lives(self) -> bool:
        """False if nothing will ever run in this process any more."""
        return True

    def begin_term(self) -> None:
        """This driver leads the job from now on."""
        self._stop = threading.Event()
        self._term_over = threading.Event()
        if self._cancelled.is_set() or (self.leading is not None and self.leading.left):
            self._stop.set()

    def end_term(self) -> None:
        """This driver does not lead the job any more: end what runs, whatever it is doing. Nothing of it can be
        published or committed from now on."""
        self._stop.set()
        over = self._term_over

        def interrupt() -> None:
            over.wait(TERM_GRACE)
            while not over.is_set():
                self._interrupt()
                over.wait(_INTERRUPT_EVERY)

        threading.Thread(target=interrupt, name="millstream-term", daemon=True).start()

    def term_ended(self) -> None:
        """Nothing of the term runs any more."""
        self._term_over.set()
        self._driver = None

    def leave(self) -> None:
        """End this driver: alone, it cancels the job; among several, it leaves the job to them."""
        if self.leading is None:
            self.cancel()
            return
        self.leading.stop(leave=True)
        self._end_all()

    @abstractmethod
    def _attempt(self, spec: JobSpec, driver: EpochDriver) -> None:
        """Run epochs until the job has ended, is to be stopped, or fails."""

    def _run_empty(
        self, job: Job, spec: JobSpec, epoch: int, work: Sequence[SubtaskRanges]
    ) -> Iterable[object]:
        """Run the tasks of an epoch that reads nothing, of a job that is not running; what comes out of them."""
        raise NotImplementedError

    def prove(self, storage: Storage, manifest: Manifest) -> None:
        """Raise if the job, which is not started, could not go on from a checkpoint of the folder `storage`."""
        job = self.job
        if job.reactive:
            job = at_slots(job, self.slots, self._cancelled)
        try:
            prove(job, storage, manifest, self._run_empty)
        except BaseException as failure:
            error = self._translate(failure)
            raise error from _cause(error, failure)

    def _translate(self, error: BaseException) -> BaseException:
        """What the engine raised, as an error of ours."""
        return error

    def _temporary_folder(self) -> str:
        return tempfile.mkdtemp(prefix="millstream-state-")

    @abstractmethod
    def _compact(self, store: str, segments: Sequence[StateFile]) -> None:
        """Compact the segments of a store, some time; tell the driver."""

    def _release(self) -> None:
        """The job is over: let go of what the attempts have used."""

    def _asked(self) -> EpochDriver:
        """The driver, for whoever wants something of it."""
        if self.leading is not None and self.leading.standing_by is not None:
            raise JobError(self.leading.standing_by, hint="ask its leader")
        while self._driver is None and not self._done.wait(0.01):
            pass
        if self._driver is None or self._done.is_set():
            raise JobError(f"the job '{self.job.settings.name}' is not running", job_id=self.job.id)
        return self._driver

    def savepoint(
        self,
        path: str | None,
        *,
        stop: bool = False,
        drain: bool = False,
        ticket: Ticket | None = None,
    ) -> CompletableFuture[str]:
        """Ask for a savepoint, and to stop with it; who has the `ticket` may take it back."""
        taken = self._asked().savepoints.ask(path, stop=stop, drain=drain, ticket=ticket)
        return self._once_stopped(taken) if stop else taken

    def rescale(
        self, parallelism: int, savepoint: str | None = None, ticket: Ticket | None = None
    ) -> CompletableFuture[RescaleResult]:
        """Ask for another default parallelism, after a savepoint if a folder for it is given."""
        return self._asked().rescale_when_asked(parallelism, savepoint, ticket)

    def _once_stopped(self, taken: CompletableFuture[str]) -> CompletableFuture[str]:
        """The path of a savepoint, once the job has stopped with it."""
        stopped: CompletableFuture[str] = CompletableFuture()

        def ended() -> None:
            if self.error is None:
                stopped.set_result(taken.result())
                return
            failure = JobError(
                f"the savepoint is complete, but the job '{self.job.settings.name}' failed while it stopped",
                savepoint=taken.result(),
                cause=str(self.error),
            )
            failure.__cause__ = self.error
            stopped.set_exception(failure)

        def answered(done: CompletableFuture[str]) -> None:
            failure = done.exception()
            if failure is not None:
                stopped.set_exception(failure)
            else:
                self.on_done(ended)

        taken.add_done_callback(answered)
        return stopped

    def _interrupt(self) -> None:
        """Make `_run` return soon. Called until it does; may find nothing to interrupt, or an engine that is gone."""

    @property
    def done(self) -> bool:
        """True once the job has ended."""
        return self._done.is_set()

    def cancel(self) -> None:
        """Stop the job and wait until nothing of it runs any more. A driver that stands by only ends itself."""
        self._cancelled.set()
        if self.leading is not None:
            self.leading.stop()
        self._end_all()

    def _end_all(self) -> None:
        self._stop.set()
        # More than once: what is to be interrupted may only just be about to start.
        while not self._done.is_set():
            self._interrupt()
            self._done.wait(_INTERRUPT_EVERY)

    def _cancel_soon(self) -> None:
        """As `cancel`, for whoever cannot wait."""
        self._cancelled.set()
        threading.Thread(target=self.cancel, name="millstream-cancel", daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the job; True if it has come. Short waits, so that Ctrl-C is heard."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done.wait(0.1):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def result(self) -> float:
        """The seconds the job took; raises what it failed with."""
        self.wait()
        if self.status is JobStatus.CANCELED:
            msg = f"the job '{self.job.settings.name}' was cancelled"
            raise JobCancelled(msg, job_id=self.job.id)
        if self.error is not None:
            raise self.error
        return self.seconds


def _cause(error: BaseException, failure: BaseException) -> BaseException | None:
    """What an error came from: what the engine raised, or, if that is the error itself, its own cause."""
    return error.__cause__ if error is failure else failure
