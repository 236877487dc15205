"""The other end: in the process of a program, what tells its session of the jobs and hears what it asks for.

If the session is gone, so is the engine that it has: the process ends at once.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from millstream.common.completable_future import CompletableFuture
from millstream.common.job_status import JobStatus
from millstream.common.rescale_result import RescaleResult
from millstream.errors import MillstreamError, SessionError, told
from millstream.redaction import get_logger, shown
from millstream.runtime.driver.run import JobRun
from millstream.session.messages import TAKE_BACK, Channel

__all__ = ["ACTIONS", "SessionLink"]

_log = get_logger("millstream.session")

_LOOK_EVERY = 0.05
_FIGURES_EVERY = 1.0
_LAST_ANSWERS = 10.0

Asked = dict[str, Any]


def _cancel(run: JobRun, asked: Asked) -> None:
    run.cancel()


def _savepoint(run: JobRun, asked: Asked) -> CompletableFuture[str]:
    return run.savepoint(asked.get("path"), ticket=asked.get("ticket"))


def _stop(run: JobRun, asked: Asked) -> CompletableFuture[str]:
    return run.savepoint(
        asked.get("path"), stop=True, drain=bool(asked.get("drain")), ticket=asked.get("ticket")
    )


def _rescale(run: JobRun, asked: Asked) -> CompletableFuture[str]:
    told_of: CompletableFuture[str] = CompletableFuture()

    def rescaled(done: CompletableFuture[RescaleResult]) -> None:
        failure = done.exception()
        if failure is not None:
            told_of.set_exception(failure)
            return
        result = done.result()
        saved = f" (savepoint: {result.savepoint})" if result.savepoint else ""
        told_of.set_result(f"{result}{saved}")

    done = run.rescale(int(asked["parallelism"]), asked.get("path"), asked.get("ticket"))
    done.add_done_callback(rescaled)
    return told_of


ACTIONS: dict[str, Callable[[JobRun, Asked], CompletableFuture[str] | None]] = {
    "cancel": _cancel,
    "savepoint": _savepoint,
    "stop": _stop,
    "rescale": _rescale,
}
"""What a session may ask of a job: what gives a future is answered with its result, the rest when it returns."""


class _Ticket:
    """Whoever takes it first has decided: the job, that a request is carried out, or who asked, that it is not."""

    def __init__(self) -> None:
        self._one = threading.Lock()

    def take(self) -> bool:
        """True the first time."""
        return self._one.acquire(blocking=False)


class SessionLink:
    """The connection to the session."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection)
        self._runs: dict[str, JobRun] = {}
        self._said: dict[str, tuple[Any, ...]] = {}
        self._at: dict[str, float] = {}
        self._lock = threading.Lock()
        # Questions that have no answer yet.
        self._open: set[int] = set()
        self._there = self._named = ""
        # By question: what may be taken back.
        self._tickets: dict[int, _Ticket] = {}

    @property
    def had_jobs(self) -> bool:
        """True once the program has come to a job."""
        return bool(self._runs)

    def names(self, folder: str, named: str) -> None:
        """What is told of files in a folder is told of another: that of which they are copies."""
        self._there, self._named = os.path.join(folder, ""), os.path.join(named, "")

    def _readable(self, text: str) -> str:
        return shown(text.replace(self._there, self._named) if self._there else text)

    def first(self) -> dict[str, Any]:
        """What to run."""
        message = self._channel.receive()
        if message is None:
            os._exit(1)
        return dict(message)

    def begin(self) -> None:
        """Listen, and tell, from now on."""
        for work, name in ((self._listen, "listen"), (self._tell, "tell")):
            threading.Thread(target=work, name=f"millstream-session-{name}", daemon=True).start()

    def watch(self, run: JobRun) -> None:
        """A job of the program is about to start."""
        with self._lock:
            self._runs[run.job.id] = run

    def holds(self, held: dict[str, Any]) -> None:
        """Tell what this process has of the engine, and cannot let go of if it is killed."""
        self._channel.send({"event": "holds", "held": held})

    def wait_for_jobs(self) -> None:
        """Jobs that the program has started and does not wait for go on."""
        for run in list(self._runs.values()):
            run.wait()

    def end(self, error: str | None) -> None:
        """The program is over. A job that was asked to stop has stopped by now; that is to be answered first."""
        deadline = time.monotonic() + _LAST_ANSWERS
        while self._open and time.monotonic() < deadline:
            time.sleep(0.01)
        for run in list(self._runs.values()):
            if run.done:
                self._say(run)
        self._channel.send(
            {"event": "ended", "error": None if error is None else self._readable(error)}
        )

    # -- hearing -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while (asked := self._channel.receive()) is not None:
                if asked["do"] == TAKE_BACK:
                    ticket = self._tickets.get(asked["asked"])
                    back = ticket is not None and ticket.take()
                    self._channel.send({"event": "answer", "id": asked["id"], "taken_back": back})
                    continue
                self._open.add(asked["id"])
                ticket = self._tickets[asked["id"]] = _Ticket()
                asked["ticket"] = ticket.take
                # Cancelling waits, and a job that is cancelled may be asked for something else meanwhile.
                threading.Thread(
                    target=self._serve, args=(asked,), name="millstream-session-asked", daemon=True
                ).start()
        except Exception as error:
            _log.warning("the session cannot be heard any more: %s", error)
        # Not in order: whatever the program is doing, it has nothing left to do it with.
        os._exit(70)

    def _serve(self, asked: Asked) -> None:
        def answer(**more: Any) -> None:
            self._tickets.pop(asked["id"], None)
            self._channel.send({"event": "answer", "id": asked["id"], **more})
            self._open.discard(asked["id"])

        def answered(done: CompletableFuture[str]) -> None:
            failure = done.exception()
            if failure is None:
                answer(path=done.result())
            else:
                answer(error=self._text(failure))

        try:
            run = self._runs.get(asked.get("job", ""))
            action = ACTIONS.get(asked["do"])
            if run is None or action is None:
                raise SessionError("the job knows nothing of this", asked=asked["do"])
            future = action(run, asked)
            if future is None:
                answer()
            else:
                future.add_done_callback(answered)
        except BaseException as error:
            answer(error=self._text(error))

    # -- telling -----------------------------------------------------------------------------------------

    def _tell(self) -> None:
        while True:
            for run in list(self._runs.values()):
                self._say(run)
            time.sleep(_LOOK_EVERY)

    def _say(self, run: JobRun) -> None:
        """Tell of a job if there is news."""
        with self._lock:
            ended = run.done
            facts = (run.status, run.web_address, run.begun, ended)
            id_ = run.job.id
            due = time.monotonic() >= self._at.get(id_, 0.0) + _FIGURES_EVERY
            last = self._said.get(id_)
            if (last == facts and (ended or not due)) or (last is not None and last[-1]):
                return
            if run.status.is_terminal_state() and not ended:
                # Its end is told when it is over.
                return
            self._said[id_] = facts
            self._at[id_] = time.monotonic()
            self._channel.send(
                {
                    "event": "job",
                    "job": self._described(run),
                    "web": run.web_address,
                    "begun": run.begun or run.status is JobStatus.FINISHED,
                    "archive": _archive(id_) if ended and run.web_address else None,
                }
            )

    def _described(self, run: JobRun) -> dict[str, Any]:
        metrics = run.metrics
        ended = run.status.is_terminal_state()
        described: dict[str, Any] = {
            "id": run.job.id,
            "name": shown(run.job.settings.name),
            "status": run.status.name,
            "started_at": run.since.get(JobStatus.CREATED, 0.0),
            "ended_at": run.since[run.status] if ended else None,
            "error": None if run.error is None else self._text(run.error),
        }
        if run.error is None and run.status is JobStatus.RESTARTING and run.failure is not None:
            described["error"] = self._text(run.failure)
        if metrics is not None:
            described |= {
                "epoch": metrics.epoch,
                "records": metrics.records,
                "records_per_second": 0.0 if ended else metrics.records_per_second,
                "checkpoint": metrics.last_checkpoint_id,
                "checkpoint_path": run.job.settings.checkpoint_dir,
                "restarts": metrics.restarts,
            }
        return described

    def _text(self, error: BaseException) -> str:
        return self._readable(str(error) if isinstance(error, MillstreamError) else told(error))


def _archive(id_: str) -> dict[str, Any] | None:
    """What REST answers for a job that has ended, by path."""
    try:
        archive: dict[str, Any] = import_module("millstream.rest.archive").archive(id_)
    except Exception as error:  # whatever it is, the job has ended as it has
        _log.warning("what is shown of the job cannot be kept: %s", error)
        return None
    return archive
