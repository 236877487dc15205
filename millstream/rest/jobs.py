"""The jobs of this process that REST shows: those that run, and the last that have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.common.job_status import JobStatus
from millstream.errors import MillstreamError, told
from millstream.redaction import get_logger, is_secret_name, shown
from millstream.rest.shape import JobShape, VertexShape, shape_of
from millstream.rest.values import LastValues, job_values, task_values, values_at
from millstream.runtime.driver.job import Job, JobSettings
from millstream.runtime.driver.metrics import JobMetrics
from millstream.runtime.driver.run import Failure, JobRun

__all__ = ["KEPT", "FailureText", "Jobs", "ShownJob", "hidden"]

KEPT = 20
"""So many jobs that have ended stay visible."""

_log = get_logger("millstream.rest")


def hidden(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings as everybody may see them, in the order of their names.

    >>> hidden({"s3.secret-key": "abc", "parallelism.default": "2"})
    {'parallelism.default': '2', 's3.secret-key': '******'}
    """
    return {
        key: "******" if is_secret_name(key) else shown(value)
        for key, value in sorted(settings.items())
    }


@dataclass(frozen=True)
class FailureText:
    """What an attempt failed with, without the exception, which holds on to the frames it passed."""

    at: float
    code: str
    what: str
    text: str
    epoch: int
    evidence: Mapping[str, str]


class ShownJob:
    """One job, as REST sees it. Whatever is read here is changed by the driver's thread meanwhile: collections are
    copied in one step before anybody walks through them, and `run` is looked at once, for it goes when the job ends."""

    def __init__(self, run: JobRun, configuration: Mapping[str, str]) -> None:
        self.id = run.job.id
        self.run: JobRun | None = run
        self.configuration = hidden(configuration)
        self.cancelling = False
        self._job: Job | None = run.job
        self._shape = shape_of(run.job)
        self._settings = run.job.settings
        self.batch = run.job.batch
        self._since: dict[JobStatus, float] = {}
        self._failures: list[FailureText] = []
        self._texts: list[tuple[Failure, FailureText]] = []
        self._metrics: JobMetrics | None = None
        self._status = run.status
        self._engine: dict[str, str] | None = None
        self._values: LastValues = {}

    @property
    def name(self) -> str:
        """The job's name."""
        return shown(self._settings.name)

    @property
    def settings(self) -> JobSettings:
        """What the configuration came to."""
        return self._settings

    @property
    def shape(self) -> JobShape:
        """Vertices and edges. The number of key groups may change when the job adopts a checkpoint's."""
        run = self.run
        if run is not None and run.job is not self._job:
            self._job = run.job
            self._shape = shape_of(run.job)
        return self._shape

    @property
    def metrics(self) -> JobMetrics | None:
        """The figures; None before the job has begun."""
        run = self.run
        return self._metrics if run is None else run.metrics

    @property
    def state(self) -> str:
        """Flink's word for where the job stands."""
        run = self.run
        status = self._status if run is None else run.status
        if self.cancelling and not status.is_terminal_state():
            return JobStatus.CANCELLING.name
        return status.name

    @property
    def ended(self) -> bool:
        """True once the job is over."""
        run = self.run
        return run is None or run.done

    @property
    def since(self) -> dict[str, float]:
        """When the job last came to each state."""
        run = self.run
        since = self._since if run is None else run.since
        return {status.name: at for status, at in since.copy().items()}

    @property
    def started_at(self) -> float:
        """In seconds since 1970."""
        return self.since.get("CREATED", 0.0)

    @property
    def ended_at(self) -> float | None:
        """In seconds since 1970; None while it runs."""
        since = self.since
        return next(
            (since[name] for name in ("FINISHED", "CANCELED", "FAILED") if name in since), None
        )

    @property
    def failures(self) -> list[FailureText]:
        """What its attempts failed with, the newest first."""
        run = self.run
        if run is None:
            return self._failures
        # A job that restarts without end has many, and each is asked for every second.
        found = list(run.failures)
        known = {id(failure): (failure, text) for failure, text in self._texts}
        self._texts = [known.get(id(failure)) or (failure, _as_text(failure)) for failure in found]
        return [text for _, text in reversed(self._texts)]

    @property
    def engine(self) -> dict[str, str]:
        """What is known of the engine; asked for once, for it may be far away or gone."""
        run = self.run
        if self._engine is None and run is not None:
            try:
                self._engine = run.engine()
            except Exception as error:  # of any class a gateway has
                _log.debug("the engine does not say what it is: %s", error)
                self._engine = {}
        return self._engine or {}

    def values(self, now: float) -> dict[str, float]:
        """The figures of the job as a whole, by the names of the catalogue."""
        run = self.run
        return self._values.get(None, {}) if run is None else job_values(run, now)

    def values_of(self, vertex: VertexShape, subtask: int) -> dict[str, float]:
        """The figures of one subtask of a vertex, by the names of the catalogue."""
        run = self.run
        if run is None:
            return self._values.get((vertex.number, subtask), {})
        return task_values(run, vertex.number, subtask)

    def archive(self) -> None:
        """The job has ended: keep what is shown, and let go of the program and its data."""
        run = self.run
        if run is None:
            return
        self._engine = self.engine
        self._values = values_at(run)
        self._since = run.since.copy()
        self._failures = self.failures
        self._metrics = run.metrics
        self._status = run.status
        self._job = None
        self._texts = []
        self.run = None


class Jobs:
    """All of them, in the order in which they came."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._jobs: dict[str, ShownJob] = {}
        self._lock = threading.Lock()
        self.started_at = time.time()

    def add(self, run: JobRun, configuration: Mapping[str, str]) -> ShownJob:
        """Show a job from now on."""
        job = ShownJob(run, configuration)
        with self._lock:
            # Behind all others, also where a job comes back under its id.
            self._jobs.pop(job.id, None)
            self._jobs[job.id] = job
        run.on_done(lambda: self._ended(job))
        return job

    def get(self, id_: str) -> ShownJob | None:
        """The job with that id."""
        return self._jobs.get(id_)

    def all(self) -> list[ShownJob]:
        """Every job, the oldest first."""
        return list(self._jobs.values())

    def _ended(self, job: ShownJob) -> None:
        job.archive()
        with self._lock:
            ended = [other.id for other in self._jobs.values() if other.ended]
            for id_ in ended[: max(0, len(ended) - self._kept)]:
                del self._jobs[id_]


def _as_text(failure: Failure) -> FailureText:
    error = failure.error
    text = shown(str(error) if isinstance(error, MillstreamError) else told(error))
    if not isinstance(error, MillstreamError):
        return FailureText(failure.at, type(error).__name__, text, text, failure.epoch, {})
    evidence = {name: shown(str(value)) for name, value in list(error.evidence.items())}
    return FailureText(failure.at, error.code, error.what, text, failure.epoch, evidence)
