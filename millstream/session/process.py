"""The process of one program, seen from its session: it is started, tells of its jobs, is asked, and ends.

They talk over a pair of sockets that the process inherits. The session hears its end by the end of that connection, and
so does the process that of the session.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from millstream.errors import SessionError
from millstream.redaction import get_logger
from millstream.session.history import JobRecord
from millstream.session.logs import LogPump
from millstream.session.messages import TAKE_BACK, Channel

__all__ = ["ENDED", "LINK", "JobProcess"]

_log = get_logger("millstream.session")

LINK = "MILLSTREAM_SESSION_LINK"
"""The variable that names the inherited socket."""

ENDED = ("FINISHED", "FAILED", "CANCELED")

_GRACE = 10.0
"""How long a process may take to end once its program has."""


_TAKE_BACK = 5.0
"""How long to wait for a process to say whether a question can be taken back."""


class JobProcess:
    """A program in a process of its own. `on_job` is called when there is news of one of its jobs, `on_end` once, when
    the process is gone; both in a thread of this object's."""

    def __init__(
        self,
        id_: str,
        name: str,
        *,
        on_job: Callable[[JobProcess, JobRecord], None],
        on_end: Callable[[JobProcess], None],
    ) -> None:
        self.id = id_
        self.name = name
        self.jobs: dict[str, JobRecord] = {}
        # By job: the address of the process's own REST server.
        self.web: dict[str, str] = {}
        # By job: what REST answered for it at its end.
        self.archives: dict[str, dict[str, Any]] = {}
        # What it has of the engine, by the engine's own names.
        self.held: dict[str, Any] = {}
        self.error: str | None = None
        self.cancelled = False
        # Set when a job runs, or when it is known that none will.
        self.known = threading.Event()
        self.begun: str | None = None
        self.over = threading.Event()
        self.started_at = time.time()
        self._on_job = on_job
        self._on_end = on_end
        self._ended_at: float | None = None
        self._questions = itertools.count()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        log: Path,
        log_size: int,
        message: Mapping[str, Any],
    ) -> None:
        """Start it, and tell it what to run."""
        here, there = socket.socketpair()
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                env={**environment, LINK: str(there.fileno())},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=(there.fileno(),),
                # Ctrl-C is the session's, which then asks its jobs to end.
                start_new_session=True,
            )
        except OSError as error:
            here.close()
            os.close(reading)
            raise SessionError(
                "the program cannot be started", folder=folder, cause=str(error)
            ) from None
        finally:
            there.close()
            os.close(writing)
        self._channel = Channel(here)
        self._pump = LogPump(reading, log, log_size)
        with contextlib.suppress(OSError):
            # One that is gone already is heard of below.
            self._channel.send(message)
        threading.Thread(
            target=self._listen, name=f"millstream-job-{self.id[:8]}", daemon=True
        ).start()

    @property
    def pid(self) -> int | None:
        """The process's number, once it has one."""
        return None if self._process is None else self._process.pid

    def _listen(self) -> None:
        assert self._channel is not None
        assert self._process is not None
        try:
            while (message := self._channel.receive()) is not None:
                self._hear(message)
        except SessionError as error:
            _log.warning("the process of '%s' says what nobody understands: %s", self.name, error)
        except Exception:
            _log.exception("what the process of '%s' says cannot be noted", self.name)
        self._reap()
        try:
            self._conclude(self._process.returncode)
        finally:
            self._channel.close()
            for asked in self._take_asked():
                asked.set_result({"error": f"the process of '{self.name}' has ended"})
            try:
                self._on_end(self)
            finally:
                self.over.set()
                self.known.set()

    def _hear(self, message: dict[str, Any]) -> None:
        match message.get("event"):
            case "job":
                record = msgspec.convert(
                    {
                        "program": self.name,
                        "submission": self.id,
                        "log": f"{self.id}.log",
                        **message["job"],
                    },
                    JobRecord,
                )
                self.jobs[record.id] = record
                if message.get("web"):
                    self.web[record.id] = message["web"]
                if message.get("archive"):
                    self.archives[record.id] = message["archive"]
                self._on_job(self, record)
                self.archives.pop(record.id, None)
                if message.get("begun") and self.begun is None:
                    self.begun = record.id
                    self.known.set()
            case "holds":
                self.held.update(message["held"])
            case "answer":
                with self._lock:
                    asked = self._asked.pop(message["id"], None)
                if asked is not None:
                    asked.set_result(message)
            case "ended":
                self.error = message.get("error")
                self._ended_at = time.monotonic()

    def _reap(self) -> None:
        """Wait for the process; what does not end although it has said so, or hung up, is ended."""
        assert self._process is not None
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        # What it has started and left behind, in its own group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._pump.stop()

    def _conclude(self, code: int) -> None:
        """How the program has ended, and its jobs with it."""
        if self._ended_at is None:
            self.error = f"its process was ended by {_ending(code)}"
        now = time.time()
        for record in list(self.jobs.values()):
            if record.status in ENDED:
                continue
            status = "CANCELED" if self.cancelled else "FAILED"
            ended = msgspec.structs.replace(
                record, status=status, ended_at=now, error=None if self.cancelled else self.error
            )
            self.jobs[record.id] = ended
            self._on_job(self, ended)
        told = any(record.status == "FAILED" for record in self.jobs.values())
        failed = self.error is not None and not told and not self.cancelled
        if failed or (self.cancelled and not self.jobs):
            # It failed before its first job, or between two or after the last; or it was ended before its first.
            alone = JobRecord(
                id=self.id,
                name=self.name,
                status="FAILED" if failed else "CANCELED",
                program=self.name,
                submission=self.id,
                started_at=self.started_at,
                ended_at=now,
                error=self.error if failed else None,
                log=f"{self.id}.log",
            )
            self.jobs[self.id] = alone
            self._on_job(self, alone)

    def ask(self, job: str, action: str, timeout: float, **more: Any) -> dict[str, Any]:
        """Ask one of its jobs for something, and wait for the answer."""
        answer: Future[dict[str, Any]] = Future()
        number = next(self._questions)
        with self._lock:
            if self._channel is None or self.over.is_set():
                raise SessionError(f"the process of '{self.name}' has ended")
            self._asked[number] = answer
        try:
            self._channel.send({"do": action, "id": number, "job": job, **more})
        except OSError:
            with self._lock:
                self._asked.pop(number, None)
            raise SessionError(f"the process of '{self.name}' has ended") from None
        try:
            return answer.result(timeout)
        except TimeoutError:
            with self._lock:
                self._asked.pop(number, None)
            raise SessionError(
                f"the job has not answered in {timeout:g} s",
                request=self._take_back(number),
                hint="it answers between two epochs: wait longer with --timeout, or see what keeps it busy",
            ) from None

    def _take_back(self, asked: int) -> str:
        """Take a question back; what became of it."""
        answer: Future[dict[str, Any]] = Future()
        number = next(self._questions)
        with self._lock:
            if self._channel is None or self.over.is_set():
                return "the process has ended"
            self._asked[number] = answer
        try:
            self._channel.send({"do": TAKE_BACK, "id": number, "asked": asked})
            back = answer.result(_TAKE_BACK).get("taken_back")
        except (OSError, TimeoutError):
            back = False
        finally:
            with self._lock:
                self._asked.pop(number, None)
        return "taken back" if back else "not taken back: the job may still carry it out"

    def _take_asked(self) -> list[Future[dict[str, Any]]]:
        with self._lock:
            asked, self._asked = list(self._asked.values()), {}
        return asked

    def kill(self) -> None:
        """End the process at once, and what it has started."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}, without a word"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
