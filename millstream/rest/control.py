"""What changes a job by REST: cancel, stop, savepoint. Each is written to the audit log before it is carried out."""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections import OrderedDict
from contextlib import suppress
from typing import Any

import msgspec

from millstream.common.completable_future import CompletableFuture
from millstream.errors import MillstreamError, told
from millstream.redaction import shown
from millstream.rest.jobs import ShownJob
from millstream.rest.logs import audit
from millstream.rest.security import Refused
from millstream.storage.storage import stable

__all__ = ["Control", "SavepointBody", "StopBody"]

# How many requests are remembered, so that one can be asked what became of it.
_REMEMBERED = 1000
_TRIGGER = re.compile(r"[0-9a-f]{32}")


class SavepointBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a savepoint. All savepoints are of one format, whatever is asked for."""

    target_directory: str | None = msgspec.field(name="target-directory", default=None)
    cancel_job: bool = msgspec.field(name="cancel-job", default=False)
    format_type: str | None = msgspec.field(name="formatType", default=None)
    trigger_id: str | None = msgspec.field(name="triggerId", default=None)


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to stop with a savepoint."""

    target_directory: str | None = msgspec.field(name="targetDirectory", default=None)
    drain: bool = False
    format_type: str | None = msgspec.field(name="formatType", default=None)
    trigger_id: str | None = msgspec.field(name="triggerId", default=None)


class Control:
    """Carries requests out in threads of their own, and knows what became of them."""

    def __init__(self, *, any_savepoint_dir: bool) -> None:
        self._any_savepoint_dir = any_savepoint_dir
        self._asked: OrderedDict[tuple[str, str], CompletableFuture[str]] = OrderedDict()
        self._lock = threading.Lock()

    def cancel(self, job: ShownJob, client: str) -> None:
        """Cancel a job, and do not wait for it."""
        run = job.run
        if run is None or run.done:
            if job.state == "CANCELED":
                return
            raise Refused(409, f"the job has ended: {job.state}")
        audit.info("cancel of job %s (%s) asked by %s", job.id, job.name, client)
        job.cancelling = True
        threading.Thread(target=run.cancel, name="millstream-rest-cancel", daemon=True).start()

    def savepoint(self, job: ShownJob, asked: SavepointBody | StopBody, client: str) -> str:
        """Ask for a savepoint; the id of the request."""
        trigger = uuid.uuid4().hex if asked.trigger_id is None else asked.trigger_id.lower()
        if not _TRIGGER.fullmatch(trigger):
            raise Refused(400, "a triggerId has 32 hex digits")
        if (job.id, trigger) in self._asked:
            # The same request once more: its answer was lost. The job may have stopped with it.
            return trigger
        run = job.run
        if run is None or run.done:
            raise Refused(409, f"the job has ended: {job.state}")
        path = self._folder(job, asked.target_directory)
        stop = isinstance(asked, StopBody)
        drain = isinstance(asked, StopBody) and asked.drain
        cancels = isinstance(asked, SavepointBody) and asked.cancel_job
        future: CompletableFuture[str] = CompletableFuture()
        with self._lock:
            if (job.id, trigger) in self._asked:
                return trigger
            self._asked[job.id, trigger] = future
            while len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)
        what = "stop with a savepoint" if stop else "savepoint"
        audit.info(
            "%s of job %s (%s) to %s%s asked by %s",
            what,
            job.id,
            job.name,
            path or job.settings.savepoint_dir,
            " with drain" if drain else ", then cancel" if cancels else "",
            client,
        )

        def answered(done: CompletableFuture[str]) -> None:
            failure = done.exception()
            if failure is not None:
                future.set_exception(failure)
                return
            if cancels:
                # One that has ended meanwhile needs no end.
                with suppress(Refused):
                    self.cancel(job, client)
            future.set_result(done.result())

        def ask() -> None:
            try:
                run.savepoint(path, stop=stop, drain=drain).add_done_callback(answered)
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=ask, name="millstream-rest-savepoint", daemon=True).start()
        return trigger

    def outcome(self, job: ShownJob, trigger: str) -> dict[str, Any]:
        """What became of a request."""
        future = self._asked.get((job.id, trigger.lower()))
        if future is None:
            raise Refused(404, "no savepoint was asked for under this id")
        if not future.done():
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        failure = future.exception()
        if failure is None:
            operation: dict[str, Any] = {"location": shown(future.result())}
        else:
            code = failure.code if isinstance(failure, MillstreamError) else type(failure).__name__
            text = str(failure) if isinstance(failure, MillstreamError) else told(failure)
            # Flink's names; there is no trace of a stack in it.
            operation = {"failure-cause": {"class": code, "stack-trace": shown(text)}}
        return {"status": {"id": "COMPLETED"}, "operation": operation}

    def _folder(self, job: ShownJob, asked: str | None) -> str | None:
        """Where a savepoint goes: a folder that a client names has to be below one of the job's own."""
        settings = job.settings
        if asked is None:
            if settings.savepoint_dir is None:
                why = (
                    "the job has no folder for savepoints (execution.checkpointing.savepoint-dir),"
                    " and the request names none"
                )
                raise Refused(400, why)
            return None
        roots = [root for root in (settings.savepoint_dir, settings.checkpoint_dir) if root]
        if self._any_savepoint_dir and _is_plain(asked):
            return asked
        if not any(_is_below(asked, root) for root in roots):
            why = (
                "the folder is not below the job's folder for savepoints or checkpoints; to allow any,"
                " set millstream.rest.any-savepoint-dir"
            )
            raise Refused(403, why)
        return asked


def _is_plain(path: str) -> bool:
    """False of paths that may mean another one than they seem to."""
    return (
        bool(path)
        and path.isprintable()
        and "\\" not in path
        and "%" not in path
        and not any(part in ("..", ".") for part in path.split("/"))
    )


def _is_below(path: str, root: str) -> bool:
    """True if a folder is, or is in, another one; links are followed.

    >>> (
    ...     _is_below("/data/savepoints/a", "/data/savepoints"),
    ...     _is_below("/data/savepoints2", "/data/savepoints"),
    ... )
    (True, False)
    >>> (
    ...     _is_below("s3://bucket/a/b", "s3://bucket/a"),
    ...     _is_below("/data/savepoints/../x", "/data/savepoints"),
    ... )
    (True, False)
    """
    if not _is_plain(path):
        return False
    path, root = stable(path), stable(root)
    if os.path.isabs(root):
        if not os.path.isabs(path):
            return False
        path, root = os.path.realpath(path), os.path.realpath(root)
    root = root.rstrip("/")
    return path.rstrip("/") == root or path.startswith(f"{root}/")
