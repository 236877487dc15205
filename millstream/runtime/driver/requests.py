"""What another process asks of a running job: a savepoint, to stop with one, to be cancelled or rescaled, to lend
its checkpoint to another program, or to hand over to it.

A request is a small file in the job's folder, `control/<id>.json`, answered by another, `control/<id>.done.json`, so
that the command line needs nothing but the job's storage to reach a job. **A request reaches the driver it was meant
for, or nobody:** it names the lease it was meant for, and a driver leaves all others alone. The file stays until the
driver begins with it. Whoever removes it first has decided: the driver, that it is done, or the one who asked, that it
is not.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.checkpoint.lease import TAKEN_OVER, LeaseRecord, LeaseWatch
from millstream.common.rescale_result import RescaleResult
from millstream.errors import JobError
from millstream.storage.storage import Storage

__all__ = [
    "CONTROL",
    "ControlAnswer",
    "ControlRequest",
    "Ticket",
    "answer_name",
    "answer_of_driver",
    "ask_driver",
    "read_requests",
    "taken",
]

Ticket = str | Callable[[], bool]
"""What decides whether a request still stands: its file in the job's folder, or a call that says so."""

CONTROL = "control"
ANSWERED = ".done.json"
ENDING = ("stop", "cancel", "hand-over")
"""With these the job ends."""

_POLL = 0.1
# A driver looks several times a second; who has waited so long is told why.
_SAY_AFTER = 3.0
# How long a job that is to end may take from its answer to its end.
_END = 120.0


class ControlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the driver whose lease has this `owner`. It is void once it is older than `valid_for` seconds: the
    one who asked has been killed, or it would have taken it back."""

    action: str
    owner: str
    asked_at: float
    valid_for: float
    path: str | None = None
    drain: bool = False
    parallelism: int | None = None

    def age(self, now: float) -> float:
        """Seconds since the request was made."""
        return now - self.asked_at


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's answer to a request."""

    path: str | None = None
    error: str | None = None
    at: float = 0.0
    rescaled: RescaleResult | None = None


def taken(ticket: Ticket | None, storage: Storage) -> bool:
    """True if a request is to be carried out; from here on it cannot be taken back."""
    if ticket is None:
        return True
    return ticket() if callable(ticket) else storage.take(ticket)


def answer_name(request: str) -> str:
    """Where the answer to a request is put."""
    return f"{request.removesuffix('.json')}{ANSWERED}"


def read_requests(storage: Storage) -> list[tuple[str, ControlRequest]]:
    """All requests that nobody has begun with, with their files' names, oldest first."""
    requests = []
    for name in storage.list(CONTROL):
        path = f"{CONTROL}/{name}"
        if name.endswith(ANSWERED) or not name.endswith(".json"):
            continue
        try:
            request = msgspec.json.decode(storage.read(path), type=ControlRequest)
        except FileNotFoundError:
            continue
        except msgspec.DecodeError:
            # Files appear whole, so this is none of ours, or of another version: nobody will ever serve it.
            storage.delete(path)
            continue
        requests.append((path, request))
    return sorted(requests, key=lambda asked: (asked[1].asked_at, asked[0]))


def ask_driver(
    storage: Storage, lease: LeaseRecord | None, job_name: str, action: str, **how: Any
) -> str | None:
    """As `answer_of_driver`: the path in its answer, if there is one."""
    return answer_of_driver(storage, lease, job_name, action, **how).path


def answer_of_driver(
    storage: Storage,
    lease: LeaseRecord | None,
    job_name: str,
    action: str,
    *,
    path: str | None = None,
    drain: bool = False,
    parallelism: int | None = None,
    timeout: float = 600.0,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> ControlAnswer:
    """Ask the driver that holds `lease` for something and wait for its answer; if the job ends with it, until it has
    ended. If it cannot hear, does not answer in time, or this is interrupted, the request is taken back."""
    if lease is None:
        raise JobError(
            f"the job '{job_name}' is not running",
            hint="start it with millstream run; if drivers stand by for it, wait until one of them leads",
        )
    watch = LeaseWatch(storage, lease, clock)
    trouble = watch.trouble()
    if trouble is not None:
        raise _nobody_hears(job_name, trouble)
    request = f"{CONTROL}/{uuid.uuid4().hex}.json"
    content = ControlRequest(
        action=action,
        owner=lease.owner,
        asked_at=time.time(),
        valid_for=timeout,
        path=path,
        drain=drain,
        parallelism=parallelism,
    )
    storage.write(request, msgspec.json.encode(content))
    try:
        answer = _wait_for_answer(storage, watch, request, job_name, timeout, say, clock, sleep)
    except BaseException as error:
        # Also Ctrl-C.
        _take_back(storage, request, error, say)
        raise
    if answer.error is not None:
        msg = f"the job '{job_name}' has not done what it was asked for ({action})"
        raise JobError(msg, its_driver_says=answer.error)
    if action in ENDING:
        _wait_for_end(watch, job_name, say, clock, sleep)
    return answer


def _wait_for_answer(
    storage: Storage,
    watch: LeaseWatch,
    request: str,
    job_name: str,
    timeout: float,
    say: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> ControlAnswer:
    began = clock()
    told = False
    while True:
        # First this: an answer that came before the trouble counts.
        trouble = watch.trouble()
        try:
            answer = storage.read(answer_name(request))
        except FileNotFoundError:
            pass
        else:
            storage.delete(answer_name(request))
            return msgspec.json.decode(answer, type=ControlAnswer)
        if trouble is not None:
            raise _nobody_hears(job_name, trouble)
        waited = clock() - began
        if waited >= timeout:
            raise JobError(
                f"the driver of the job '{job_name}' runs, but has not answered in {timeout:g} s",
                hint="it answers between two epochs: wait longer with --timeout, or see what keeps it busy",
            )
        if waited >= _SAY_AFTER and not told:
            told = True
            say(
                f"waiting for the driver of '{job_name}', which answers between two epochs; "
                "Ctrl-C takes the request back"
            )
        sleep(_POLL)


def _wait_for_end(
    watch: LeaseWatch,
    job_name: str,
    say: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """The request is answered; the job ends when its driver has let go of the folder, and may be started again then."""
    began = clock()
    while watch.trouble() is None:
        if clock() - began >= _END:
            say(f"the driver of '{job_name}' still cleans up")
            return
        sleep(_POLL)


def _take_back(
    storage: Storage, request: str, error: BaseException, say: Callable[[str], None]
) -> None:
    if storage.take(request):
        say("the request has been taken back")
    elif not isinstance(error, JobError):
        say("the driver had already begun with the request, and may carry it out")
    storage.delete(answer_name(request))


def _nobody_hears(job_name: str, why: str) -> JobError:
    hint = (
        "its last checkpoint stands; millstream list shows it, and millstream run goes on from it"
    )
    if why.startswith(TAKEN_OVER):
        hint = "the job goes on there: ask again"
    return JobError(f"the job '{job_name}' cannot be asked: {why}", hint=hint)
