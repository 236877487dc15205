"""Takes programs, runs each in a process of its own, knows their jobs and what became of them (Flink's `Dispatcher`).

What one program does, also to itself, does not touch another: it has its own process, its own way into the engine, its
own share of the executors, and its own folder for what is temporary, which go when the process ends, in whatever way.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from millstream.common import options
from millstream.errors import MillstreamError, SessionError
from millstream.redaction import get_logger, shown
from millstream.session.engine import JobEngine, SessionEngine
from millstream.session.history import JobHistory, JobRecord
from millstream.session.process import ENDED, JobProcess
from millstream.session.programs import SubmittedProgram, home_of, unpack
from millstream.session.registry import Registry, Submission

__all__ = ["Dispatcher", "Places", "Submitted"]

_log = get_logger("millstream.session")

# The caller's environment is the program's, but for what leads to this session and its engine.
_OWN = ("PYSPARK_", "SPARK_", "JAVA_HOME", "MILLSTREAM_SESSION", "MILLSTREAM_ATTACH", "TMPDIR")
_BEGINNINGS = (
    "execution.state-recovery.path",
    "execution.state-recovery.claim-mode",
    "millstream.recovery.resume",
)
# A job that has not been cancelled by then is, with its process.
_FORCE_AFTER = 30.0
FOLDER = "MILLSTREAM_JOB_FOLDER"
"""The variable with a folder that is there for as long as the process of a job."""


@dataclass(frozen=True)
class Places:
    """Where a session keeps what it needs for its programs."""

    programs: Path
    logs: Path
    temporary: Path
    log_size: int = 16 << 20


@dataclass(frozen=True)
class Submitted:
    """What became of a program that was submitted: the id of its first job, or why there is none."""

    id: str
    job: str | None
    error: str | None


class Dispatcher:
    """The programs of a session."""

    def __init__(
        self,
        engine: SessionEngine,
        registry: Registry,
        history: JobHistory,
        places: Places,
        command: Sequence[str],
        settings: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self.history = history
        self._places = places
        self._command = tuple(command)
        # What counts in every job's process, whatever its program says.
        self._settings = dict(settings or {})
        # What counts if neither the program nor who has submitted it says anything.
        self._defaults = dict(defaults or {})
        self._processes: dict[str, JobProcess] = {}
        self._submissions: dict[str, Submission] = {}
        self._engines: dict[str, JobEngine] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._left = False

    # -- taking programs ------------------------------------------------------------------------------------

    def submit(
        self,
        program: SubmittedProgram,
        package: bytes,
        environment: Mapping[str, str] | None = None,
    ) -> JobProcess:
        """Run a program; returns once its process has been started."""
        unpacked, name = unpack(program, package, self._places.programs)
        submission = Submission(
            id=uuid.uuid4().hex, program=program, package=name, submitted_at=time.time()
        )
        with self._lock:
            self._submissions[submission.id] = submission
        try:
            self._registry.add(submission, package)
            return self._start(submission, unpacked, environment)
        except BaseException:
            self._forget(submission.id)
            raise

    def wait(
        self, process: JobProcess, gone: Callable[[], bool] = lambda: False
    ) -> Submitted | None:
        """Wait until a job of the program runs, or the program has ended; None if whoever asked has `gone`, and the
        program has been ended for that."""
        while not process.known.wait(0.05):
            if gone():
                process.cancelled = True
                process.kill()
                process.over.wait()
                return None
        if process.begun is not None:
            return Submitted(process.id, process.begun, None)
        if any(id_ != process.id for id_ in process.jobs):
            # All of a short job: it ran before anybody has looked.
            job = next(iter(process.jobs.values()))
            if job.status == "FINISHED":
                return Submitted(process.id, job.id, None)
            return Submitted(process.id, None, process.error or job.error or f"it is {job.status}")
        error = process.error or "the program has ended without a job"
        return Submitted(process.id, None, error)

    def recover(self) -> list[JobProcess]:
        """Start all programs again that ran when an earlier session died; their jobs go on from their checkpoints."""
        processes = []
        for submission in self._registry.all():
            if submission.id in self._submissions:
                continue
            try:
                package = self._registry.package(submission.package)
                if not os.path.isdir(submission.program.folder):
                    # It may name files beside that folder: run elsewhere it would not find its checkpoints.
                    _log.error(
                        "'%s' is not started again, since the folder in which it was submitted is not here: %s",
                        submission.program.name,
                        submission.program.folder,
                    )
                    continue
                program = msgspec.structs.replace(submission.program, upgrade=False)
                if submission.checkpointed:
                    program = _going_on(program)
                unpacked, _ = unpack(program, package, self._places.programs)
                with self._lock:
                    self._submissions[submission.id] = submission
                processes.append(self._start(submission, unpacked, None, again=True))
            except (OSError, MillstreamError) as error:
                _log.error("'%s' cannot be started again: %s", submission.program.name, error)
                self._forget(submission.id)
        return processes

    def forget_all(self) -> list[str]:
        """Let go of what an earlier session has left; the names of programs that are not started again."""
        left = self._registry.all()
        for submission in left:
            self._registry.remove(submission.id)
        return [submission.program.name for submission in left]

    def clean(self) -> None:
        """Remove packages that no program needs."""
        needed = {submission.package for submission in self._registry.all()}
        for name in self._registry.packages():
            if name not in needed:
                self._registry.remove_package(name)
        for folder in self._places.programs.iterdir():
            if folder.name not in needed:
                shutil.rmtree(folder, ignore_errors=True)

    def _start(
        self,
        submission: Submission,
        program: SubmittedProgram,
        environment: Mapping[str, str] | None,
        *,
        again: bool = False,
    ) -> JobProcess:
        process = JobProcess(submission.id, program.name, on_job=self._news, on_end=self._ended)
        with self._lock:
            if self._closing:
                raise SessionError(
                    "the session is ending and takes no more programs",
                    hint="if others stand by for it, one of them may go on with it: see millstream list --session",
                )
        engine = self._engine.open()
        temporary = self._places.temporary / submission.id
        temporary.mkdir(mode=0o700)
        with self._lock:
            self._engines[submission.id] = engine
            self._processes[submission.id] = process
        # The session that ran it before may have been paused, and its process not.
        waits = again and options.HA_TYPE.key in self._settings
        message = {
            "program": program,
            "job": submission.job if again else None,
            "defaults": self._defaults,
            "home": str(home_of(submission.package, self._places.programs)),
            "settings": self._settings | ({options.HA_STANDBY.key: "true"} if waits else {}),
        }
        own = {**_environment(environment), **engine.environment}
        try:
            process.start(
                self._command,
                {**own, "TMPDIR": str(temporary), FOLDER: str(temporary)},
                program.folder,
                self._places.logs / f"{submission.id}.log",
                self._places.log_size,
                message,
            )
        except BaseException:
            self._release(process)
            raise
        return process

    # -- what processes say ------------------------------------------------------------------------------

    def _news(self, process: JobProcess, record: JobRecord) -> None:
        if self._left:
            # Its job goes on elsewhere.
            return
        submission = self._submissions.get(process.id)
        if submission is not None and record.id != process.id:
            checkpointed = submission.checkpointed or record.checkpoint >= 0
            known = msgspec.structs.replace(
                submission, checkpointed=checkpointed, job=submission.job or record.id
            )
            if known != submission:
                with self._lock:
                    self._submissions[process.id] = known
                self._registry.update(known)
        if record.status in ENDED:
            archive = process.archives.get(record.id)
            if archive:
                self.history.archive(record.id, archive)
            self._prune(self.history.add(record))

    def _prune(self, forgotten: Sequence[JobRecord]) -> None:
        """Logs of jobs that are forgotten go too."""
        if not forgotten:
            return
        kept = {record.log for record in self.history.all()} | {
            f"{id_}.log" for id_ in self._processes
        }
        for name in {record.log for record in forgotten} - kept:
            for path in (self._places.logs / name, self._places.logs / f"{name}.1"):
                path.unlink(missing_ok=True)

    def _ended(self, process: JobProcess) -> None:
        """The process is gone: so is everything that it had."""
        self._release(process)
        # With the engine gone the program did not end of itself: a later session may start it again.
        self._forget(process.id, keep=self._left or not self._engine.alive())

    def _release(self, process: JobProcess) -> None:
        """Let go of what a process had, here and in the engine."""
        engine = self._engines.pop(process.id, None)
        if engine is not None:
            try:
                self._engine.close(engine, [*process.jobs, process.id], process.held)
            except Exception as error:  # of any class a gateway has
                _log.warning("the engine has not let go of '%s': %s", process.name, error)
        shutil.rmtree(self._places.temporary / process.id, ignore_errors=True)

    def _forget(self, id_: str, *, keep: bool = False) -> None:
        with self._lock:
            self._processes.pop(id_, None)
            submission = self._submissions.pop(id_, None)
            package = None if submission is None else submission.package
            used = {other.package for other in self._submissions.values()}
            if keep or package is None:
                return
            self._registry.remove(id_)
            if package not in used:
                self._registry.remove_package(package)
                shutil.rmtree(self._places.programs / package, ignore_errors=True)

    # -- asking ----------------------------------------------------------------------------------------------

    def processes(self) -> list[JobProcess]:
        """The processes that run, the oldest first."""
        with self._lock:
            return list(self._processes.values())

    def running(self) -> list[JobRecord]:
        """The jobs that have not ended; of programs that have none yet, the program."""
        found = []
        for process in self.processes():
            jobs = list(process.jobs.values())
            found += [job for job in jobs if job.status not in ENDED]
            if not jobs:
                found.append(
                    JobRecord(
                        id=process.id,
                        name=process.name,
                        status="INITIALIZING",
                        program=process.name,
                        submission=process.id,
                        started_at=process.started_at,
                        log=f"{process.id}.log",
                    )
                )
        return found

    def jobs(self) -> list[JobRecord]:
        """All jobs, those that have ended first."""
        ended = self.history.all()
        known = {record.id for record in ended}
        return [*ended, *(job for job in self.running() if job.id not in known)]

    def log_of(self, record: JobRecord) -> Path:
        """Where the output of a job's program is."""
        return self._places.logs / record.log

    def process_of(self, job: str) -> JobProcess | None:
        """The process that has a job now."""
        return next(
            (process for process in self.processes() if job in process.jobs or job == process.id),
            None,
        )

    def find(self, wanted: str) -> JobRecord:
        """The job with a name or an id (its first digits are enough); those that run come before those that ran."""
        return find(wanted, self.running(), self.history.all())

    def ask(self, wanted: str, action: str, timeout: float, **more: Any) -> dict[str, Any]:
        """Ask a job for something; its answer."""
        record = self.find(wanted)
        process = self.process_of(record.id)
        if process is None or record.status in ENDED:
            raise SessionError(
                f"the job '{record.name}' is not running: it is {record.status}", job_id=record.id
            )
        if record.id == process.id:
            if action != "cancel":
                raise SessionError(f"'{record.name}' has not come to a job yet", hint="wait for it")
            self._end(process)
            return {}
        try:
            patience = min(timeout, _FORCE_AFTER) if action == "cancel" else timeout
            answer = process.ask(record.id, action, patience, **more)
        except SessionError:
            if action != "cancel":
                raise
            # It does not hear, or is gone already.
            self._end(process)
            return {"forced": True}
        if answer.get("error"):
            raise SessionError(
                f"the job '{record.name}' has not done what it was asked for ({action})",
                it_says=answer["error"],
            )
        return answer

    def _end(self, process: JobProcess) -> None:
        process.cancelled = True
        process.kill()
        process.over.wait()

    def close(self, grace: float = 20.0) -> list[JobRecord]:
        """Cancel all jobs, take no more, and wait for the ends of their processes; the jobs that were running."""
        with self._lock:
            self._closing = True
        running = self.running()
        processes = self.processes()
        threads = [
            threading.Thread(target=self._cancel, args=(process, grace), daemon=True)
            for process in processes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return running

    def _cancel(self, process: JobProcess, grace: float) -> None:
        process.cancelled = True
        deadline = time.monotonic() + grace
        for job in list(process.jobs.values()):
            if job.status not in ENDED:
                try:
                    process.ask(job.id, "cancel", max(0.1, deadline - time.monotonic()))
                except MillstreamError as error:
                    _log.warning("'%s' is ended by force: %s", process.name, error)
        process.kill()
        process.over.wait()

    def leave(self, grace: float = 20.0) -> None:
        """End all processes, take no more, and leave what they ran to another session."""
        with self._lock:
            self._closing = self._left = True
        processes = self.processes()
        for process in processes:
            process.kill()
        for process in processes:
            process.over.wait(grace)

    def kill(self) -> None:
        """End all processes at once."""
        for process in self.processes():
            process.cancelled = True
            process.kill()


def find(wanted: str, running: Sequence[JobRecord], ended: Sequence[JobRecord]) -> JobRecord:
    """The job with a name or an id, of which the first digits are enough. Of those that have ended the last counts."""
    for jobs in (running, ended):
        # Names are kept as they are shown.
        named = {job.id: job for job in jobs if job.name in (wanted, shown(wanted))}
        found = named or {
            job.id: job
            for job in jobs
            if wanted and (job.id.startswith(wanted) or job.submission == wanted)
        }
        if len(found) == 1 or (found and jobs is ended):
            return list(found.values())[-1]
        if found:
            raise SessionError(
                f"{wanted!r} stands for several jobs",
                found=", ".join(f"{job.id} ({job.name})" for job in found.values()),
                hint="give more of its id: millstream list shows them",
            )
    names = ", ".join(f"'{job.name}'" for job in running) or "none"
    raise SessionError(
        f"the session has no job {wanted!r}", running=names, hint="millstream list shows its jobs"
    )


def _going_on(program: SubmittedProgram) -> SubmittedProgram:
    """The program without where it was told to begin: its job has checkpoints of its own by now."""
    kept = {key: value for key, value in program.overrides.items() if key not in _BEGINNINGS}
    return msgspec.structs.replace(program, overrides=kept)


def _environment(callers: Mapping[str, str] | None) -> dict[str, str]:
    """The variables of a program's process: the caller's, with the session's own for Python and the engine."""
    if callers is None:
        return dict(os.environ)
    own = {key: value for key, value in os.environ.items() if key.startswith(_OWN)}
    others = {key: value for key, value in callers.items() if not key.startswith(_OWN)}
    path = [os.environ.get("PYTHONPATH"), callers.get("PYTHONPATH")]
    known = os.pathsep.join(part for part in path if part)
    return {**others, **own, **({"PYTHONPATH": known} if known else {})}
