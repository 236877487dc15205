"""Savepoints asked of a running job, from another thread or another process (`millstream.runtime.driver.requests`).

A thread of the driver looks for requests of other processes from the time the job has its lease until it gives it
back, so that a job that starts, waits for its restart or is busy with an epoch hears too. Savepoints are written
between epochs. One that is to be drained is written only after the epoch that has ended all input (rule 69), however
the two fall together.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.checkpoint.events import Event, Pinned, Unpinned
from millstream.checkpoint.manifest import Manifest, encode_manifest
from millstream.checkpoint.savepoint import savepoint_path, write_savepoint
from millstream.common.completable_future import CompletableFuture
from millstream.common.rescale_result import RescaleResult
from millstream.errors import (
    InvalidArgument,
    JobError,
    MillstreamError,
    UnsupportedOperation,
    told,
)
from millstream.redaction import get_logger
from millstream.runtime.base.failpoints import reached
from millstream.runtime.driver.checkpoint_log import CheckpointLog
from millstream.runtime.driver.job_folder import JobFolder
from millstream.runtime.driver.requests import (
    ANSWERED,
    CONTROL,
    ControlAnswer,
    ControlRequest,
    Ticket,
    answer_name,
    read_requests,
    taken,
)
from millstream.storage.storage import Storage

__all__ = ["SavepointRequests"]

_log = get_logger("millstream.job")

_POLL = 0.25
# The copy of a manifest whose files somebody reads.
LENT = ".lent"
# Answers that nobody has come for in so many seconds are removed.
_LITTER = 3600.0


class _SavepointRequest:
    """Who asked with a `ticket` may take the request back until it is begun. With
    `hand_over` the job stops and its checkpoints stay; with `pin` nothing is copied."""

    def __init__(
        self,
        path: str | None,
        *,
        stop: bool = False,
        drain: bool = False,
        ticket: Ticket | None = None,
        hand_over: bool = False,
        pin: float | None = None,
    ) -> None:
        self.path = path
        self.stop = stop
        self.drain = drain
        self.hand_over = hand_over
        self.pin = pin
        self.ticket = ticket
        self.future: CompletableFuture[str] = CompletableFuture()

    def begin(self, storage: Storage) -> bool:
        """True if the request is to be carried out; from here on it cannot be taken back."""
        ticket, self.ticket = self.ticket, None
        try:
            return taken(ticket, storage)
        except Exception as error:  # of any class a remote file system's driver has
            msg = f"the job cannot tell whether the request still stands: {error}"
            self.future.set_exception(JobError(msg))
            return False


class SavepointRequests:
    """The requests of one job; served by its driver between epochs."""

    def __init__(self, folder: JobFolder, log: CheckpointLog) -> None:
        self._folder = folder
        self._log = log
        self._pending: list[_SavepointRequest] = []
        self._lock = threading.Lock()
        self._copying: list[threading.Thread] = []
        # Files of checkpoints that are being copied, and who keeps them from being removed.
        self._pinned: list[frozenset[str]] = []
        folder.pinned = self._pinned
        # Checkpoints that another process reads: the copy of the manifest, the files, and until when at most.
        self._lent: dict[str, tuple[frozenset[str], float]] = {}
        self._tell: Callable[[Event], None] = lambda event: None
        self._noted: set[str] = set()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None
        self.on_cancel: Callable[[], None] = lambda: None
        self.on_rescale: Callable[[int, str | None, str], CompletableFuture[Any]] | None = None
        self.handed_over = False
        """True once the job has stopped so that another program can go on."""

    def ask(
        self,
        path: str | None,
        *,
        stop: bool = False,
        drain: bool = False,
        ticket: Ticket | None = None,
        hand_over: bool = False,
    ) -> CompletableFuture[str]:
        """Ask for a savepoint; the future gives its path. With `hand_over` the job stops and keeps its checkpoints."""
        default = self._folder.default_savepoints
        if hand_over and default is None:
            default = self._folder.beside("savepoints")
        if path is None and default is None:
            msg = "there is no folder for the savepoint"
            raise InvalidArgument(
                msg, hint="give one, or set execution.checkpointing.savepoint-dir"
            )
        request = _SavepointRequest(
            path or default,
            stop=stop or hand_over,
            drain=drain,
            ticket=ticket,
            hand_over=hand_over,
        )
        return self._add(request)

    def lend(self, seconds: float, ticket: str | None = None) -> CompletableFuture[str]:
        """Ask for the latest checkpoint to stay as it is until somebody is done with reading it, for so many seconds at
        most. The future gives the name of a copy of its manifest in the job's folder; who removes that is done."""
        return self._add(_SavepointRequest(None, ticket=ticket, pin=seconds))

    def _add(self, request: _SavepointRequest) -> CompletableFuture[str]:
        with self._lock:
            if self._closed.is_set():
                raise _too_late()
            self._pending.append(request)
        return request.future

    @property
    def waiting(self) -> bool:
        """True if somebody has asked for a savepoint."""
        return bool(self._pending)

    def begin_drain(self) -> bool:
        """True if the job is to be stopped after its input has been ended, which is now begun."""
        storage = self._folder.storage
        with self._lock:
            gone = [
                request for request in self._pending if request.drain and not request.begin(storage)
            ]
            self._pending = [request for request in self._pending if request not in gone]
            return any(request.drain for request in self._pending)

    def attempt(self, tell: Callable[[Event], None]) -> None:
        """A new attempt of the job begins, with a coordinator that knows nothing yet of what is being copied."""
        with self._lock:
            self._tell = tell
            for files in self._pinned:
                tell(Pinned(files))

    def _pin(self, files: frozenset[str]) -> None:
        with self._lock:
            self._pinned.append(files)
            self._tell(Pinned(files))

    def _unpin(self, files: frozenset[str]) -> None:
        with self._lock:
            self._pinned.remove(files)
            self._tell(Unpinned(files))

    def serve(self, manifest: Manifest, *, drained: bool) -> bool:
        """Write what was asked for from a complete checkpoint; True if the job is to stop now. While a savepoint is
        copied the job goes on, and the files it needs stay, of which the coordinator is told. From a checkpoint at
        which all input has been ended only those are written that were asked with drain, from all others only the
        others."""
        pending = self._due(drained)
        stop = False
        for request in pending:
            if not request.begin(self._folder.storage):
                continue
            files = frozenset(manifest.files())
            self._pin(files)
            if request.pin is not None:
                self._lend(request, manifest, files, request.pin)
                continue
            thread = threading.Thread(
                target=self._write,
                args=(request, manifest, files),
                name="millstream-savepoint",
                daemon=True,
            )
            thread.start()
            self._copying.append(thread)
            if request.stop:
                thread.join()
                # A job whose savepoint failed goes on.
                saved = request.future.exception() is None
                self.handed_over = self.handed_over or (saved and request.hand_over)
                stop = stop or saved
        return stop

    def _lend(
        self, request: _SavepointRequest, manifest: Manifest, files: frozenset[str], seconds: float
    ) -> None:
        name = f"{CONTROL}/{uuid.uuid4().hex}{LENT}"
        storage = self._folder.storage
        try:
            storage.write(name, encode_manifest(manifest, storage.seal))
        except Exception as error:  # of any class a remote file system's driver has
            self._unpin(files)
            request.future.set_exception(JobError(f"the checkpoint cannot be lent: {error}"))
            return
        self._lent[name] = files, time.monotonic() + seconds
        request.future.set_result(name)

    def _take_back_lent(self) -> None:
        """Let go of checkpoints that nobody reads any more."""
        for name, (files, until) in list(self._lent.items()):
            over = self._closed.is_set() or time.monotonic() > until
            if over or not self._folder.storage.exists(name):
                del self._lent[name]
                self._folder.storage.delete(name)
                self._unpin(files)

    def _due(self, drained: bool) -> list[_SavepointRequest]:
        """Take out what can be served now. Who asks to stop waits for those who asked before to stop with drain."""
        due: list[_SavepointRequest] = []
        later: list[_SavepointRequest] = []
        with self._lock:
            for request in self._pending:
                waits = request.stop and any(following.drain for following in later)
                now = request.drain if drained else not request.drain and not waits
                (due if now else later).append(request)
            self._pending = later
        return due

    def _write(self, request: _SavepointRequest, manifest: Manifest, files: frozenset[str]) -> None:
        record = self._log.begin_savepoint(manifest.epoch)
        try:
            reached("savepoint")
            assert request.path is not None
            path = savepoint_path(request.path, manifest.job_id)
            where = write_savepoint(path, self._folder.storage, manifest, self._folder.timeout)
            # If another leads the job by now, it goes on, and whoever stops it with this savepoint has not stopped it.
            self._folder.check_lease()
            _log.info("Savepoint completed. Path: %s", where)
            sizes = (file.size for store in manifest.stores.values() for file in store.segments)
            self._log.end_savepoint(record, path=where, size=sum(sizes))
            request.future.set_result(where)
        except BaseException as error:
            _log.warning("the savepoint failed: %s", error)
            self._log.end_savepoint(record, failure=str(error))
            failure = (
                error
                if isinstance(error, MillstreamError)
                else JobError(f"the savepoint failed: {told(error)}", folder=request.path)
            )
            request.future.set_exception(failure)
        finally:
            self._unpin(files)

    def close(self) -> None:
        """The job is over: nobody will be served any more."""
        for thread in self._copying:
            thread.join()
        with self._lock:
            self._closed.set()
            pending, self._pending = self._pending, []
        if self._watcher is not None:
            self._watcher.join()
        with contextlib.suppress(Exception):
            # Who reads one goes on with the files, which nobody removes now.
            self._take_back_lent()
        for request in pending:
            if request.begin(self._folder.storage):
                request.future.set_exception(_too_late())

    # -- from other processes --------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look for requests of other processes from now on, until `close`."""
        if self._folder.lease is not None:
            self._watcher = threading.Thread(
                target=self._watch, name="millstream-control", daemon=True
            )
            self._watcher.start()

    def _watch(self) -> None:
        trouble = False
        swept = False
        while not self._closed.is_set():
            try:
                if not swept:
                    self._sweep()
                    swept = True
                self._look()
                self._take_back_lent()
                trouble = False
            except Exception as error:  # of any class a remote file system's driver has
                if not trouble:
                    _log.warning("requests to the job cannot be read at the moment: %s", error)
                trouble = True
            self._closed.wait(_POLL)

    def _look(self) -> None:
        """See whether another process asks for something."""
        lease = self._folder.lease
        assert lease is not None
        for ticket, asked in read_requests(self._folder.storage):
            if asked.owner == lease.record.owner and ticket not in self._noted:
                self._take(ticket, asked)
                self._noted.add(ticket)

    def _sweep(self) -> None:
        """Remove requests and answers of processes that were killed while they waited. Not at once: a driver that was
        paused may come back as the wrong one, and must not remove what is meant for another."""
        storage, now = self._folder.storage, time.time()
        for ticket, asked in read_requests(storage):
            if asked.age(now) > asked.valid_for + _LITTER:
                storage.delete(ticket)
        for name in storage.list(CONTROL):
            if name.endswith(LENT) and f"{CONTROL}/{name}" not in self._lent:
                storage.delete(f"{CONTROL}/{name}")
            if name.endswith(ANSWERED):
                with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
                    path = f"{CONTROL}/{name}"
                    answer = msgspec.json.decode(storage.read(path), type=ControlAnswer)
                    if now - answer.at > _LITTER:
                        storage.delete(path)

    def _take(self, ticket: str, asked: ControlRequest) -> None:
        storage = self._folder.storage

        def reply(**facts: Any) -> None:
            answer = ControlAnswer(at=time.time(), **facts)
            try:
                storage.write(answer_name(ticket), msgspec.json.encode(answer))
            except Exception as error:  # of any class a remote file system's driver has
                _log.warning("a request could not be answered: %s", error)

        age = asked.age(time.time())
        if age > asked.valid_for:
            if storage.take(ticket):
                reply(
                    error=f"the request came {age:.0f} s after it was made, and was not carried out"
                )
            return
        if asked.action == "cancel":
            if storage.take(ticket):
                reply()
                self.on_cancel()
            return
        try:
            future = self._begin(ticket, asked)
        except MillstreamError as error:
            if storage.take(ticket):
                reply(error=str(error))
            return

        def answered(done: CompletableFuture[Any]) -> None:
            failure = done.exception()
            if failure is not None:
                reply(error=str(failure))
            elif isinstance(result := done.result(), RescaleResult):
                reply(rescaled=result)
            else:
                reply(path=result)

        future.add_done_callback(answered)

    def _begin(self, ticket: str, asked: ControlRequest) -> CompletableFuture[Any]:
        match asked.action:
            case "savepoint" | "stop" | "hand-over":
                return self.ask(
                    asked.path,
                    stop=asked.action == "stop",
                    drain=asked.drain,
                    ticket=ticket,
                    hand_over=asked.action == "hand-over",
                )
            case "lend":
                return self.lend(asked.valid_for, ticket)
            case "rescale" if self.on_rescale is not None:
                return self.on_rescale(asked.parallelism or 0, asked.path, ticket)
        raise UnsupportedOperation(f"the job does not know what {asked.action!r} is")


def _too_late() -> JobError:
    return JobError("the job ended before the savepoint was taken")
