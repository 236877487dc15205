"""Election by a file in shared storage, for whoever has no ZooKeeper.

The leader renews a lease (`millstream.checkpoint.lease`); who sees it unchanged for its whole time takes it, and
publishes the number of the next term, which can be published once. On storage whose `publish` is not exclusive
(object stores through PyArrow or fsspec) two that take over at the same moment may both succeed for as long as it
takes each of them to look again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.checkpoint.lease import Lease, LeaseEnd, latest_term, read_lease
from millstream.errors import JobLocked
from millstream.ha.election import Candidate, LeaderElection, Term
from millstream.storage.storage import Storage

__all__ = ["FileElection"]


_LOOKS = 40  # in each ttl, at the lease of the leader


class _Stopped(Exception):
    """Nobody wants to lead any more."""


class FileElection(LeaderElection):
    """Elects by a folder of its own; `ttl` is how long a leader may be silent."""

    def __init__(
        self, storage: Storage, name: str, *, ttl: float, watch_process: bool = True
    ) -> None:
        self._storage = storage
        self._name = name
        self._ttl = ttl
        self._watch_process = watch_process
        self._lease: Lease | None = None
        self._term: Term | None = None
        # The last term that was seen: a folder without it is not the one that it was.
        self._last = 0

    @property
    def place(self) -> str:
        return f"file {self._storage.root}"

    def lead(
        self,
        stopped: threading.Event,
        waiting: Callable[[Candidate | None], None] = lambda leader: None,
        at_least: int = 0,
    ) -> Term | None:
        self._resign("the driver stands for election again")

        def sleep(seconds: float) -> None:
            if stopped.wait(seconds):
                raise _Stopped

        end = LeaseEnd(self._storage, self._ttl, watch_process=self._watch_process)
        try:
            while not stopped.is_set():
                holder, over = end.look()
                if holder is not None:
                    self._last = max(self._last, holder.term)
                # What was mounted may be away: nobody leads in its place.
                over = over and latest_term(self._storage) >= self._last
                term = self._try(end.seen, sleep, at_least) if over else None
                if term is not None:
                    return term
                waiting(None if holder is None else Candidate.of(holder))
                sleep(self._ttl / _LOOKS)
        except _Stopped:
            pass
        return None

    def _try(
        self, ended: bytes | None, sleep: Callable[[float], None], at_least: int
    ) -> Term | None:
        try:
            lease = Lease.acquire(
                self._storage,
                self._name,
                ttl=self._ttl,
                sleep=sleep,
                elected_by=self.place,
                ended=ended,
            )
            lease.begin_term(max(latest_term(self._storage), at_least) + 1)
        except JobLocked:
            return None
        self._last = lease.record.term
        term = Term(lease.record.term, valid_for=self._ttl)
        lease.on_renewal = term.confirm
        lease.on_loss = lambda loss: term.end(loss.what)
        lease.keep()
        self._lease, self._term = lease, term
        return term

    def leader(self) -> Candidate | None:
        holder = read_lease(self._storage)
        return None if holder is None else Candidate.of(holder)

    def close(self) -> None:
        self._resign("the driver has left the election")

    def _resign(self, why: str) -> None:
        lease, self._lease = self._lease, None
        term, self._term = self._term, None
        if term is not None:
            term.end(why)
        if lease is not None:
            lease.release()
