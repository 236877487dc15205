"""A handle on a submitted job (Flink's `JobClient`)."""

from __future__ import annotations

from typing import Any, Protocol

from millstream.common.completable_future import CompletableFuture
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.common.notebook import job_client
from millstream.common.rescale_result import RescaleResult

__all__ = ["JobClient", "RunningJob"]


class RunningJob(Protocol):
    """What a client needs of whatever runs the job."""

    status: JobStatus
    metrics: Any

    def cancel(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def result(self) -> float: ...
    def on_done(self, call: Any) -> None: ...
    def savepoint(
        self, path: str | None, *, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]: ...
    def rescale(
        self, parallelism: int, savepoint: str | None = None
    ) -> CompletableFuture[RescaleResult]: ...


class JobClient:
    """Ask a running job how it is, and stop it."""

    def __init__(self, job_id: str, name: str, run: RunningJob) -> None:
        self._job_id = JobID(job_id)
        self._name = name
        self._run = run

    def _repr_html_(self) -> str:
        return job_client(self)

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
        """Stop the job with a savepoint, whose path the future gives. If told to advance to the end of event time, all
        operators are told that their input has ended before it is taken."""
        return self._run.savepoint(
            savepoint_directory, stop=True, drain=advance_to_end_of_event_time
        )

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint of the running job, which goes on; the future gives its path."""
        return self._run.savepoint(savepoint_directory)

    def rescale(
        self, parallelism: int, savepoint_directory: str | None = None
    ) -> CompletableFuture[RescaleResult]:
        """Give the running job another default parallelism: it finishes its epoch and goes on from that checkpoint, in
        the same process. Operators whose parallelism the program has set keep it. If a folder is given, a savepoint is
        taken there first. Raises at once if the job cannot have that parallelism; the future fails if it turns out so
        later, and the job goes on as it was.

        >>> from millstream.common.watermark_strategy import WatermarkStrategy
        >>> from millstream.connectors.datagen import DataGeneratorSource
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> numbers = DataGeneratorSource(lambda n: n, rate_per_second=100)
        >>> stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
        >>> sink = stream.key_by(lambda n: n % 7).reduce(max).add_sink(lambda n: None)
        >>> client = env.execute_async("numbers")
        >>> result = client.rescale(3).result(30)
        >>> result.before, result.after
        (1, 3)
        >>> client.cancel().result()
        """
        return self._run.rescale(parallelism, savepoint_directory)

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
