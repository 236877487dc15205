"""Another parallelism for a running job: asked for at any time, taken on between two attempts in the same process.

```
epoch n at 2 ──▶ the attempt ends ──▶ the same graph at 4 ──▶ start from checkpoint n ──▶ empty epoch at 4 ──▶ answered
```

The lease is held all the time. The request is carried out once an epoch at the new parallelism is complete, which shows
that all state can be opened there. Whatever fails before, the job goes on at the parallelism it had, and the one who
asked is told why. What was carried out is written down in the job's folder (`WISH`), so that a driver that is started
again does not fall back; it counts for as long as the program itself says what it said then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from millstream.common.completable_future import CompletableFuture
from millstream.common.rescale_result import RescaleResult
from millstream.errors import InvalidArgument, JobError, UnsupportedOperation, told
from millstream.redaction import get_logger
from millstream.runtime.base.failpoints import reached
from millstream.runtime.driver.job import Job
from millstream.storage.storage import Storage

__all__ = ["WISH", "Rescales", "wished"]

_log = get_logger("millstream.job")

WISH = "parallelism.json"
"""In a job's folder: at which parallelism it is to go on, and what the program said when that was asked for."""


class _Wish(msgspec.Struct, frozen=True, rename={"program": "from", "wanted": "to"}):
    program: int
    wanted: int


def wished(storage: Storage, job: Job, *, by_name: bool, forget: bool = True) -> Job:
    """The job at the parallelism that it was rescaled to, if the program still says what it said then and the job goes
    on by its name. If not, that is forgotten, unless this is only to be seen."""
    try:
        wish = msgspec.json.decode(storage.read(WISH), type=_Wish)
    except FileNotFoundError:
        return job
    except msgspec.DecodeError:
        wish = _Wish(0, 0)
    own = job.graph.parallelism
    if wish.program == own and by_name:
        try:
            again = job.at_parallelism(wish.wanted)
        except InvalidArgument as error:
            _log.warning("the job was rescaled to %d, and cannot be: %s", wish.wanted, error)
        else:
            if forget:
                _log.info("the job goes on at %d, to which it was rescaled", wish.wanted)
            return again
    elif forget:
        why = f"the program itself says {own} now" if by_name else "it does not go on by its name"
        _log.warning(
            "the job was rescaled from %d to %d, which is forgotten: %s",
            wish.program,
            wish.wanted,
            why,
        )
    if forget:
        storage.delete(WISH)
    return job


@dataclass(eq=False)
class _RescaleRequest:
    parallelism: int
    everything: bool
    # Begins with the request; False if it was taken back.
    begin: Callable[[], bool]
    savepoint: str | None
    future: CompletableFuture[RescaleResult]


@dataclass(frozen=True)
class _Change:
    """A change that is under way: what the job was, since when it stands, and from which checkpoint it goes on."""

    request: _RescaleRequest
    before: Job
    since: float
    checkpoint: int | None


class Rescales:
    """What is asked of one job; its driver takes one after the other on."""

    def __init__(self, job: Job, storage: Storage, own: int) -> None:
        """`own` is the parallelism that the program itself says."""
        self.job = job
        self._storage = storage
        self._own = own
        self._pending: deque[_RescaleRequest] = deque()
        self._change: _Change | None = None
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def ask(
        self,
        parallelism: int,
        *,
        everything: bool = False,
        savepoint: str | None = None,
        begin: Callable[[], bool] = lambda: True,
    ) -> CompletableFuture[RescaleResult]:
        """Ask for another parallelism; raises at once if the job cannot have it. `everything` is reactive mode's."""
        self.check(parallelism, everything=everything)
        request = _RescaleRequest(parallelism, everything, begin, savepoint, CompletableFuture())
        with self._lock:
            if self.closed.is_set():
                raise _too_late()
            self._pending.append(request)
        return request.future

    def check(self, parallelism: int, *, everything: bool = False) -> None:
        """Raise if the job cannot have a parallelism."""
        check_rescales(self.job)
        if self.job.reactive and not everything:
            raise UnsupportedOperation(
                "the parallelism of this job follows the slots that there are (scheduler-mode: reactive)",
                hint="add or remove executors, or start the job without scheduler-mode",
            )
        self._at(parallelism, everything)

    def _at(self, parallelism: int, everything: bool) -> Job:
        if parallelism < 1:
            raise InvalidArgument("a parallelism is 1 at least", got=parallelism)
        return self.job.at_parallelism(parallelism, everything=everything)

    @property
    def waiting(self) -> bool:
        """True if a request can be taken on."""
        return bool(self._pending) and self._change is None

    def is_due(self) -> bool:
        """Between two epochs: True if the job has to be stopped so that it can be rescaled. Requests that change
        nothing are answered without."""
        while self.waiting:
            request, now = self._pending[0], self.job.graph.parallelism
            try:
                job = self._at(request.parallelism, request.everything)
            except Exception as error:
                self._pending.popleft()
                if self._begin(request):
                    request.future.set_exception(error)
                continue
            if _counts(job) != _counts(self.job):
                return True
            self._pending.popleft()
            if self._begin(request):
                names = tuple(node.name for node in self.job.graph.nodes.values())
                result = RescaleResult(now, now, savepoint=request.savepoint, unchanged=names)
                request.future.set_result(result)
        return False

    @staticmethod
    def _begin(request: _RescaleRequest) -> bool:
        """True if a request is to be carried out; from here on it cannot be taken back."""
        try:
            return request.begin()
        except Exception as error:  # of any class a remote file system's driver has
            msg = f"the job cannot tell whether the request still stands: {error}"
            request.future.set_exception(JobError(msg))
            return False

    def take(self, since: float, checkpoint: int | None) -> Job | None:
        """Between two attempts: the job as it is to be from now on, if somebody has asked. `since` is when the last
        epoch ended."""
        while self.is_due():
            request = self._pending.popleft()
            job, before = self._at(request.parallelism, request.everything), self.job
            if not self._begin(request):
                continue
            self._change = _Change(request, before, since, checkpoint)
            self.job = job
            _log.info(
                "the job is rescaled from %d to %d, from %s",
                before.graph.parallelism,
                job.graph.parallelism,
                "the beginning" if checkpoint is None else f"checkpoint {checkpoint}",
            )
            reached("rescaling")
            return job
        return None

    def completed(self) -> None:
        """An epoch is complete: if it is the first at another parallelism, the job is rescaled."""
        change = self._change
        if change is None:
            return
        request, after = change.request, self.job.graph.parallelism
        seconds = time.monotonic() - change.since
        if not request.everything:
            self._remember(after)
        reached("rescaled")
        self._change = None
        _log.info("the job runs at %d; no epoch was completed for %.1f s", after, seconds)
        request.future.set_result(
            RescaleResult(
                change.before.graph.parallelism,
                after,
                change.checkpoint,
                seconds,
                request.savepoint,
            )
        )

    def _remember(self, parallelism: int) -> None:
        try:
            if parallelism == self._own:
                self._storage.delete(WISH)
            else:
                wish = _Wish(program=self._own, wanted=parallelism)
                self._storage.write(WISH, msgspec.json.encode(wish))
        except Exception as error:  # of any class a remote file system's driver has
            _log.warning(
                "a driver that is started again goes on at %d: what the job was rescaled to could not be written "
                "down: %s",
                self._own,
                error,
            )

    def failed(self, error: BaseException) -> Job | None:
        """An attempt has failed: the job as it was, if that was before its first epoch at another parallelism."""
        change, self._change = self._change, None
        if change is None:
            return None
        before = change.before.graph.parallelism
        _log.warning("the job cannot be rescaled and goes on at %d: %s", before, error)
        failure = JobError(
            f"the job cannot run at {change.request.parallelism}, and goes on at {before}",
            cause=told(error) if not isinstance(error, Exception) else str(error),
            checkpoint="the one that it was to be rescaled from",
        )
        failure.__cause__ = error
        self.job = change.before
        change.request.future.set_exception(failure)
        return change.before

    def close(self) -> None:
        """The job is over: nobody will be served any more."""
        with self._lock:
            self.closed.set()
            pending, self._pending = list(self._pending), deque()
        change, self._change = self._change, None
        if change is not None:
            change.request.future.set_exception(_too_late())
        for request in pending:
            if self._begin(request):
                request.future.set_exception(_too_late())


def check_rescales(job: Job) -> None:
    """Raise if a job of this kind cannot be given another parallelism while it runs."""
    if job.one_epoch:
        what = "in BATCH mode" if job.batch else "that has an end and takes no checkpoints"
        raise UnsupportedOperation(
            f"a job {what} is a single epoch, and has no checkpoint to be rescaled from",
            hint="set execution.checkpointing.interval, or start it anew with another parallelism",
        )


def _counts(job: Job) -> dict[int, int]:
    return {id_: node.parallelism for id_, node in job.graph.nodes.items()}


def _too_late() -> JobError:
    return JobError("the job ended before it was rescaled")
