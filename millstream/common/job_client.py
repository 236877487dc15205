"""A handle on a submitted job (Flink's `JobClient`)."""

from __future__ import annotations

from typing import Any, Protocol

from millstream.common.completable_future import CompletableFuture
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.errors import NotSupportedYet

__all__ = ["JobClient", "RunningJob"]


class RunningJob(Protocol):
    """What a client needs of whatever runs the job."""

    status: JobStatus
    metrics: Any

    def cancel(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def result(self) -> float: ...
    def on_done(self, call: Any) -> None: ...


class JobClient:
    """Ask a running job how it is, and stop it."""

    def __init__(self, job_id: str, name: str, run: RunningJob) -> None:
        self._job_id = JobID(job_id)
        self._name = name
        self._run = run

    def get_job_id(self) -> JobID:
        """The job's id, 32 hex digits."""
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Where the job stands."""
        future: CompletableFuture[JobStatus] = CompletableFuture()
        future.set_result(self._run.status)
        return future

    def cancel(self) -> CompletableFuture[None]:
        """Stop the job; done when nothing of it runs any more."""
        self._run.cancel()
        future: CompletableFuture[None] = CompletableFuture()
        future.set_result(None)
        return future

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stop the job with a savepoint."""
        raise _no_savepoints("stop_with_savepoint")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint of the running job."""
        raise _no_savepoints("trigger_savepoint")

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """The job's accumulators; there are none in Python."""
        future: CompletableFuture[dict[str, Any]] = CompletableFuture()
        future.set_result({})
        return future

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """The result once the job has finished; fails as the job fails."""
        future: CompletableFuture[JobExecutionResult] = CompletableFuture()

        def finish() -> None:
            try:
                seconds = self._run.result()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(JobExecutionResult(self._job_id, round(seconds * 1000)))

        self._run.on_done(finish)
        return future

    def get_metrics(self) -> Any:
        """Records, bytes, epoch and lag of the running job, or None before its first epoch."""
        return self._run.metrics


def _no_savepoints(call: str) -> NotSupportedYet:
    msg = f"JobClient.{call} is not available yet"
    return NotSupportedYet(msg, hint="cancel() stops the job without a savepoint")
