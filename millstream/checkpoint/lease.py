"""Keeps a second driver off a job's folder.

The folder of a running job holds `lease.json`, which its driver rewrites four times in each `ttl`.
Who finds one and sees it change is refused. Who sees it unchanged for a whole `ttl` takes it over,
and at once if its driver ran on this machine and is gone. Only the change is looked at, never the
time in the file, so the clocks of two machines need not agree.

A driver that was paused for longer than its `ttl` may come back to a lease that another has taken:
`check` before each step that must not be done twice. So may one that could not reach the folder for so
long: it does nothing (`StorageAway`) until it can, and has seen that the lease is still its own.

A driver that was elected (`millstream.ha`) takes the lease at once from whoever the same election had
chosen before. The number of its term is published as a file of its own, `terms/<number>`, which can be
made only once: who finds a larger one than its own is not the leader any more, whatever it may have
written over the lease since.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from millstream.errors import JobLocked, StorageAway
from millstream.storage.storage import Storage, shown_root

__all__ = [
    "LEASE_NAME",
    "TAKEN_OVER",
    "TERMS",
    "Lease",
    "LeaseEnd",
    "LeaseRecord",
    "LeaseWatch",
    "await_end",
    "elapsed",
    "is_gone",
    "latest_term",
    "read_lease",
    "standing",
    "this_process",
]

LEASE_NAME = "lease.json"
TERMS = "terms"
TAKEN_OVER = "another driver has taken over"
"""How `LeaseWatch.trouble` begins then."""

_RENEWALS = 4  # in each ttl
_LOOKS = 20  # in each ttl, at a lease that another holds


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `machine` tells apart machines, and containers, that have the same host name; `process_start` tells
    apart processes that had the same pid. `expires_at` is for people. Of a driver that was elected `term` is the
    number of its term, and `elected_by` tells which election it was."""

    owner: str
    host: str
    pid: int
    process_start: int
    job_name: str
    counter: int
    expires_at: float
    ttl: float
    machine: str = ""
    term: int = 0
    elected_by: str = ""


class Lease:
    """The right to run the job of a folder; made by `acquire`."""

    def __init__(
        self, storage: Storage, record: LeaseRecord, clock: Callable[[], float] = time.time
    ) -> None:
        self._storage = storage
        self._record = record
        self._clock = clock
        # Reentrant, since `renew` checks; the thread of `keep` and the driver both call it.
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost: JobLocked | None = None
        # Set while the folder cannot be reached, from a ttl after the last renewal on: others may take over.
        self.away: StorageAway | None = None
        # True if a driver held it before and did not give it back: it has died.
        self.took_over = False
        # Called by the thread of `keep`: when it has renewed the lease, with the time before, and when that is lost.
        self.on_renewal: Callable[[float], None] = lambda at: None
        self.on_loss: Callable[[JobLocked], None] = lambda loss: None

    @classmethod
    def acquire(
        cls,
        storage: Storage,
        job_name: str,
        *,
        ttl: float = 10.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        elected_by: str = "",
        ended: bytes | None = None,
    ) -> Lease:
        """Take the lease, if need be after its holder's `ttl`; `JobLocked` if the holder lives. Of the file that holds
        `ended` it is known that it does not."""
        record = msgspec.structs.replace(this_process(job_name, ttl, clock), elected_by=elected_by)
        took_over = False
        while True:
            seen = _read(storage)
            holder = _decode(seen)
            if holder is not None and holder.owner == record.owner:
                lease = cls(storage, record, clock)
                lease.took_over = took_over
                return lease
            if seen is None:
                record = _at(record, clock)
                # FileExistsError: somebody was quicker.
                with contextlib.suppress(FileExistsError):
                    storage.publish(LEASE_NAME, msgspec.json.encode(record))
                if not storage.exclusive_publish:
                    sleep(ttl / 10)
            elif seen == ended or _wait_for_end(storage, seen, ttl, sleep):
                took_over = True
                record = _at(record, clock)
                storage.write(LEASE_NAME, msgspec.json.encode(record))
                # Of two that take over at the same moment the last to write has it: let it write.
                sleep(ttl / 100 if storage.exclusive_publish else ttl / 10)

    @classmethod
    def take(
        cls,
        storage: Storage,
        job_name: str,
        *,
        term: int,
        elected_by: str,
        ttl: float = 10.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Lease:
        """Take the lease for a term, at once if its holder was elected before by the same election; `JobLocked` if a
        later term has begun."""
        holder = read_lease(storage)
        if holder is None or holder.elected_by != elected_by:
            # Nobody has said that this one may go.
            lease = cls.acquire(
                storage, job_name, ttl=ttl, clock=clock, sleep=sleep, elected_by=elected_by
            )
        else:
            record = this_process(job_name, ttl, clock)
            lease = cls(storage, msgspec.structs.replace(record, elected_by=elected_by), clock)
            lease.took_over = True
        lease.begin_term(term)
        return lease

    def begin_term(self, term: int) -> None:
        """From now on the lease is that of a term; `JobLocked` if that, or a later one, has begun elsewhere."""
        with self._lock:
            try:
                self._storage.publish(f"{TERMS}/{term:012d}", msgspec.json.encode(self._record))
            except FileExistsError:
                self.lost = self._loss(f"term {term} has begun elsewhere", None)
                raise self.lost from None
            self._record = _at(msgspec.structs.replace(self._record, term=term), self._clock)
            self._check_term()
            self._storage.write(LEASE_NAME, msgspec.json.encode(self._record))
            for older in _terms(self._storage):
                if older < term:
                    self._storage.delete(f"{TERMS}/{older:012d}")

    def _check_term(self) -> None:
        latest = latest_term(self._storage)
        if latest > self._record.term:
            self.lost = self._loss(f"another driver leads it, in term {latest}", None)
            raise self.lost

    @property
    def record(self) -> LeaseRecord:
        """What this driver has last written."""
        return self._record

    def renew(self) -> None:
        """Show that this driver lives; `JobLocked` if it has lost the lease."""
        with self._lock:
            self._check()
            counter = self._record.counter + 1
            record = _at(msgspec.structs.replace(self._record, counter=counter), self._clock)
            self._storage.write(LEASE_NAME, msgspec.json.encode(record))
            self._record = record

    def check(self) -> None:
        """`JobLocked` if the lease is no longer this driver's, `StorageAway` if that cannot be told."""
        with self._lock:
            if self.lost is None and self.away is not None:
                raise self.away
            self._check()

    def _check(self) -> None:
        with self._lock:
            if self.lost is None:
                if self._record.term:
                    self._check_term()
                seen = _read(self._storage)
                holder = _decode(seen)
                if holder is not None and holder.owner == self._record.owner:
                    return
                if holder is not None and self._precedes(holder):
                    # It was paused in the middle of a renewal, and has come back too late.
                    self._storage.write(LEASE_NAME, msgspec.json.encode(self._record))
                    return
                why = "its file is gone" if seen is None else "another driver has taken it"
                self.lost = self._loss(why, holder)
            raise self.lost

    def _precedes(self, holder: LeaseRecord) -> bool:
        """True of a driver that the same election has replaced by this one."""
        return holder.elected_by == self._record.elected_by and holder.term < self._record.term

    def keep(self) -> None:
        """Renew from a thread until `release`; a loss is kept in `lost`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="millstream-lease", daemon=True)
            self._thread.start()

    def release(self) -> None:
        """Stop renewing, and remove the file if it is still this driver's."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            try:
                self.check()
            except (JobLocked, StorageAway):
                return
            self._storage.delete(LEASE_NAME)

    def _keep(self) -> None:
        renewed = elapsed()
        while not self._stopped.wait(self._record.ttl / _RENEWALS):
            before = elapsed()
            try:
                self.renew()
                if self.away is not None:
                    # Somebody may be about to take over who has seen the lease stand still: let it write.
                    self._stopped.wait(self._record.ttl / 10)
                    self._check()
            except JobLocked as loss:
                self.on_loss(loss)
                return
            except Exception as error:  # of any class a remote file system's driver has
                # May pass; but after a ttl without renewal others may take over.
                if elapsed() - renewed < self._record.ttl:
                    continue
                if self._record.term:
                    # Others stand by, and one of them leads by now.
                    self.lost = self._loss(f"it could not be renewed: {error}", None)
                    self.on_loss(self.lost)
                    return
                self.away = self._absence(error)
            else:
                renewed, self.away = elapsed(), None
                self.on_renewal(before)

    def _absence(self, error: Exception) -> StorageAway:
        return StorageAway(
            f"the lease of the job {self._record.job_name!r} could not be renewed for {self._record.ttl:g} s: {error}",
            folder=shown_root(self._storage.root),
            hint="make its folder reachable again; the job goes on then, unless another driver has taken over",
        )

    def _loss(self, why: str, holder: LeaseRecord | None) -> JobLocked:
        return JobLocked(
            f"the job {self._record.job_name!r} has lost its lease: {why}",
            host=holder and holder.host,
            pid=holder and holder.pid,
            folder=shown_root(self._storage.root),
            hint="let one driver at a time run the job, and leave the files in its folder alone",
        )


def elapsed() -> float:
    """Seconds that only go forward, also while the machine sleeps, where that can be told."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def this_process(job_name: str, ttl: float, clock: Callable[[], float] = time.time) -> LeaseRecord:
    """A new record of this process."""
    pid = os.getpid()
    return LeaseRecord(
        owner=uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=pid,
        process_start=_process(pid)[1],
        job_name=job_name,
        counter=0,
        expires_at=clock() + ttl,
        ttl=ttl,
        machine=_machine(),
    )


def latest_term(storage: Storage) -> int:
    """The number of the last term that has begun in a folder; 0 if none has."""
    return max(_terms(storage), default=0)


def _terms(storage: Storage) -> list[int]:
    return [int(name) for name in storage.list(TERMS) if name.isdigit()]


def read_lease(storage: Storage) -> LeaseRecord | None:
    """What the holder has last written; None if nobody holds the lease of this folder."""
    return _decode(_read(storage))


def standing(record: LeaseRecord, clock: Callable[[], float] = time.time) -> str:
    """How the holder of a lease seems to fare, at one look: "running", "dead" (its process is gone), or "silent" (its
    lease has run out: it is paused or cut off, or has died on another machine)."""
    if is_gone(record):
        return "dead"
    return "silent" if clock() > record.expires_at else "running"


class LeaseEnd:
    """Watches a lease until its holder has died or been silent for its `ttl`, by a clock that others need not share.
    Without `watch_process` a holder on this machine is known by its renewals alone, as if it ran on another."""

    def __init__(self, storage: Storage, ttl: float, *, watch_process: bool = True) -> None:
        self._storage = storage
        self._ttl = ttl
        self._watch_process = watch_process
        self._since = 0.0
        self.seen: bytes | None = None
        """What the file held at the last look."""

    def look(self) -> tuple[LeaseRecord | None, bool]:
        """The holder, if there is one, and whether the lease may be taken now."""
        seen = _read(self._storage)
        holder, now = _decode(seen), elapsed()
        if seen != self.seen:
            self.seen, self._since = seen, now
        silent = now - self._since >= (self._ttl if holder is None else holder.ttl)
        gone = self._watch_process and is_gone(holder)
        return holder, seen is None or silent or gone


def await_end(storage: Storage, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Return once nobody holds the lease of a folder, or its holder has died; `JobLocked` if the holder lives."""
    while (seen := _read(storage)) is not None:
        holder = _decode(seen)
        if _wait_for_end(storage, seen, 10.0 if holder is None else holder.ttl, sleep):
            return


class LeaseWatch:
    """Watches, from outside, whether the holder of a lease can still hear."""

    def __init__(
        self, storage: Storage, record: LeaseRecord, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._storage = storage
        self._owner = record.owner
        self._last = record
        self._clock = clock
        self._since = clock()

    def trouble(self) -> str | None:
        """Why the holder will not answer; None as long as it may."""
        seen = _read(self._storage)
        if seen is None:
            return "it has ended"
        now = _decode(seen)
        if now is not None:
            if now.owner != self._owner:
                return f"{TAKEN_OVER} (process {now.pid} on {now.host})"
            if now.counter != self._last.counter:
                self._since = self._clock()
            self._last = now
        where = f"process {self._last.pid} on {self._last.host}"
        if is_gone(self._last):
            return f"its driver has died ({where})"
        silent = self._clock() - self._since
        if silent >= self._last.ttl:
            return (
                f"its driver ({where}) has not renewed its lease for {silent:.0f} s: it has died, is paused, or "
                "cannot reach its folder"
            )
        return None


def _wait_for_end(
    storage: Storage, first: bytes, ttl: float, sleep: Callable[[float], None]
) -> bool:
    """Watch a lease: True if it has ended and may be replaced, False if the file is another now.

    Time is what has been slept: the wall clock may jump, and the holder's may differ.
    """
    holder = _decode(first)
    if is_gone(holder):
        return True
    look = (ttl if holder is None else holder.ttl) / _LOOKS
    for _ in range(_LOOKS):
        sleep(look)
        seen = _read(storage)
        if seen != first:
            now = _decode(seen)
            if now is None:
                return False  # released, or half a word: look again from the start
            raise _locked(storage, now)
        if is_gone(holder):
            return True
    return True


def _locked(storage: Storage, holder: LeaseRecord) -> JobLocked:
    return JobLocked(
        f"another driver runs the job {holder.job_name!r} in this folder",
        host=holder.host,
        pid=holder.pid,
        folder=shown_root(storage.root),
        hint="stop that driver, or give this job a folder of its own; the lease of a driver that "
        f"has died is taken over after {holder.ttl:g} s",
    )


def _at(record: LeaseRecord, clock: Callable[[], float]) -> LeaseRecord:
    return msgspec.structs.replace(record, expires_at=clock() + record.ttl)


def _read(storage: Storage) -> bytes | None:
    try:
        return storage.read(LEASE_NAME)
    except FileNotFoundError:
        return None


def _decode(data: bytes | None) -> LeaseRecord | None:
    """The record; None if there is none, or none that can be read."""
    try:
        return msgspec.json.decode(data or b"", type=LeaseRecord)
    except msgspec.DecodeError:
        return None


def is_gone(holder: LeaseRecord | None) -> bool:
    """True if the holder ran on this machine, and certainly does not any more."""
    if holder is None or (holder.host, holder.machine) != (socket.gethostname(), _machine()):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # another user's; or no pid at all, of which nothing is known
    state, start = _process(holder.pid)
    reused = 0 not in (start, holder.process_start) and start != holder.process_start
    return reused or state in ("Z", "X")


def _process(pid: int) -> tuple[str, int]:
    """A process's state and start (in ticks since boot), fields 3 and 22; ("", 0) if unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", 0
    # The name, field 2, may have spaces and parentheses in it.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _machine() -> str:
    """This boot of this machine, and the set of processes seen from here; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
