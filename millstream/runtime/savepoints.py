"""Savepoints asked of a running job, from another thread or another process.

A request from another process is a small file in the job's folder (`control/<id>.json`), answered by another
(`control/<id>.done.json`), so that the command line needs nothing but the job's storage to reach a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.checkpoint.coordinator import Coordinator, Offsets
from millstream.checkpoint.manifest import Feedback, Manifest
from millstream.checkpoint.savepoint import savepoint_path, write_savepoint
from millstream.common.completable_future import CompletableFuture
from millstream.errors import InvalidArgument, JobError, MillstreamError
from millstream.runtime.failpoints import reached
from millstream.runtime.job_folder import INTENT, JobFolder

__all__ = ["ControlAnswer", "ControlRequest", "Intent", "SavepointRequests"]

_log = logging.getLogger("millstream.job")

_POLL = 0.25


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request from another process."""

    action: str
    path: str | None = None
    drain: bool = False


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to it."""

    path: str | None = None
    error: str | None = None


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """How far an epoch is going to read, and what it leaves of what was fed back."""

    epoch: int
    offsets: Offsets
    unread: Feedback = {}


class _Request:
    def __init__(self, path: str | None, *, stop: bool, drain: bool) -> None:
        self.path = path
        self.stop = stop
        self.drain = drain
        self.future: CompletableFuture[str] = CompletableFuture()


class SavepointRequests:
    """The requests of one job; served by its driver between epochs."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._pending: list[_Request] = []
        self._lock = threading.Lock()
        self._looked = 0.0
        self._copying: list[threading.Thread] = []
        self.on_cancel: Callable[[], None] = lambda: None

    def ask(
        self, path: str | None, *, stop: bool = False, drain: bool = False
    ) -> CompletableFuture[str]:
        """Ask for a savepoint; the future gives its path."""
        default = self._folder.default_savepoints
        if path is None and default is None:
            msg = "there is no folder for the savepoint"
            raise InvalidArgument(
                msg, hint="give one, or set execution.checkpointing.savepoint-dir"
            )
        request = _Request(path or default, stop=stop, drain=drain)
        with self._lock:
            self._pending.append(request)
        return request.future

    @property
    def waiting(self) -> bool:
        """True if somebody has asked."""
        self._look()
        return bool(self._pending)

    @property
    def wants_drain(self) -> bool:
        """True if the job is to be stopped after its input has been ended."""
        return any(request.drain for request in self._pending)

    def serve(self, manifest: Manifest, coordinator: Coordinator) -> bool:
        """Write what was asked for from a complete checkpoint; True if the job is to stop now. While a savepoint is
        copied the job goes on, and the files it needs stay."""
        self._look()
        with self._lock:
            pending, self._pending = self._pending, []
        stop = False
        for request in pending:
            files = manifest.files()
            coordinator.pin(files)
            thread = threading.Thread(
                target=self._write,
                args=(request, manifest, lambda files=files: coordinator.unpin(files)),
                name="millstream-savepoint",
                daemon=True,
            )
            thread.start()
            self._copying.append(thread)
            if request.stop:
                thread.join()
                # A job whose savepoint failed goes on.
                stop = stop or request.future.exception() is None
        return stop

    def _write(self, request: _Request, manifest: Manifest, unpin: Callable[[], None]) -> None:
        try:
            reached("savepoint")
            assert request.path is not None
            path = savepoint_path(request.path, manifest.job_id)
            where = write_savepoint(path, self._folder.storage, manifest)
            _log.info("Savepoint completed. Path: %s", where)
            request.future.set_result(where)
        except BaseException as error:
            _log.warning("the savepoint failed: %s", error)
            failure = (
                error
                if isinstance(error, MillstreamError)
                else JobError(
                    f"the savepoint failed: {type(error).__name__}: {error}", folder=request.path
                )
            )
            request.future.set_exception(failure)
        finally:
            unpin()

    def close(self) -> None:
        """The job is over: nobody will be served any more."""
        for thread in self._copying:
            thread.join()
        with self._lock:
            pending, self._pending = self._pending, []
        for request in pending:
            request.future.set_exception(JobError("the job ended before the savepoint was taken"))

    # -- from other processes --------------------------------------------------------------------------------

    def _look(self) -> None:
        """Now and then, see whether another process asks for something."""
        now = time.monotonic()
        if not self._folder.durable or now - self._looked < _POLL:
            return
        self._looked = now
        storage = self._folder.storage
        for name in storage.list("control"):
            if name.endswith(".done.json") or not name.endswith(".json"):
                continue
            path = f"control/{name}"
            try:
                asked = msgspec.json.decode(storage.read(path), type=ControlRequest)
            except (FileNotFoundError, msgspec.DecodeError):
                continue
            storage.delete(path)
            self._take(f"control/{name.removesuffix('.json')}.done.json", asked)

    def _take(self, answer: str, asked: ControlRequest) -> None:
        storage = self._folder.storage

        def reply(**what: Any) -> None:
            storage.write(answer, msgspec.json.encode(ControlAnswer(**what)))

        if asked.action == "cancel":
            reply()
            self.on_cancel()
            return
        try:
            future = self.ask(asked.path, stop=asked.action == "stop", drain=asked.drain)
        except MillstreamError as error:
            reply(error=str(error))
            return

        def answered(done: CompletableFuture[str]) -> None:
            failure = done.exception()
            if failure is None:
                reply(path=done.result())
            else:
                reply(error=str(failure))

        future.add_done_callback(answered)

    # -- at-most-once ------------------------------------------------------------------------------------------

    def write_intent(self, epoch: int, offsets: Offsets, unread: Feedback) -> None:
        """The ranges up to here are about to be read."""
        intent = Intent(epoch=epoch, offsets=offsets, unread=unread)
        self._folder.storage.write(INTENT, msgspec.json.encode(intent))

    def read_intent(self, since: int) -> Intent | None:
        """What was about to be read when the driver was lost, if that was not before checkpoint `since`."""
        try:
            intent = msgspec.json.decode(self._folder.storage.read(INTENT), type=Intent)
        except FileNotFoundError:
            return None
        return intent if intent.epoch >= since else None
