"""A job that is running: its status, its end, its cancellation. What carries it out is a subclass."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from millstream.common.job_status import JobStatus
from millstream.errors import JobCancelled, JobError
from millstream.runtime.job import Job
from millstream.runtime.metrics import JobMetrics

__all__ = ["JobRun"]

_INTERRUPT_EVERY = 0.2


class JobRun(ABC):
    """Runs a job in a thread of its own."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.status = JobStatus.CREATED
        self.error: BaseException | None = None
        self.metrics: JobMetrics | None = None
        self.seconds = 0.0
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._on_done: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin, and return once the job is known to be running or to have failed."""
        self._thread = threading.Thread(
            target=self._main, name=f"millstream-{self.job.id[:8]}", daemon=True
        )
        self._thread.start()

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
            self.status = JobStatus.CANCELED if self._cancelled.is_set() else JobStatus.FINISHED
        except BaseException as error:
            if self._cancelled.is_set():
                self.status = JobStatus.CANCELED
            else:
                self.error = error if isinstance(error, Exception) else _exit_of(error)
                self.status = JobStatus.FAILED
        finally:
            self.seconds = time.monotonic() - started
            with self._lock:
                self._done.set()
            for call in self._on_done:
                call()

    @abstractmethod
    def _run(self) -> None:
        """Carry out the job; return when it has ended or `_cancelled` is set."""

    def _interrupt(self) -> None:
        """Make `_run` return soon. Called until it does; may find nothing to interrupt, or an engine that is gone."""

    @property
    def done(self) -> bool:
        """True once the job has ended."""
        return self._done.is_set()

    def cancel(self) -> None:
        """Stop the job and wait until nothing of it runs any more."""
        self._cancelled.set()
        # More than once: what is to be interrupted may only just be about to start.
        while not self._done.is_set():
            self._interrupt()
            self._done.wait(_INTERRUPT_EVERY)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; True if it has come. Short waits, so that Ctrl-C is heard."""
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


def _exit_of(error: BaseException) -> JobError:
    """A function of the job called `exit`: that is the job's failure, not the client's end."""
    msg = f"the job was ended by {type(error).__name__}: {error}"
    failure = JobError(msg, hint="raise an exception instead of calling exit() in a function")
    failure.__cause__ = error
    return failure
