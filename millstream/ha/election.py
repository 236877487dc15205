"""Leader election: a name goes in, and terms come out, of which there is one at a time.

Answers to Flink's `LeaderElection` and `LeaderContender`. A `Term` has a number that only grows. Whoever leads calls
`check` before each step that a leader alone may take, and hears of the end of its term at once (`on_end`). Neither
helps a process that is paused between the check and the step: what such a step writes must be fenced by the term's
number, as a job's folder is (`millstream.checkpoint.lease`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec

from millstream.checkpoint.lease import LeaseRecord, elapsed
from millstream.errors import LeadershipLost

__all__ = ["Candidate", "LeaderElection", "Term"]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A process that leads or stands by. `machine` and `process_start` tell it from others of the same host and pid."""

    host: str
    pid: int
    machine: str = ""
    process_start: int = 0

    @classmethod
    def of(cls, record: LeaseRecord) -> Candidate:
        """The process of a lease."""
        return cls(
            host=record.host,
            pid=record.pid,
            machine=record.machine,
            process_start=record.process_start,
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Term:
    """A time in which this process leads. Without a `confirm` for longer than `valid_for` seconds it is over: that is
    how a process that was paused, or cut off, knows before anybody has told it.

    >>> term = Term(17)
    >>> term.check()
    >>> term.end("the connection was lost")
    >>> term.check()
    Traceback (most recent call last):
        ...
    millstream.errors.LeadershipLost: [LEADERSHIP_LOST] term 17 has ended: the connection was lost
    """

    def __init__(
        self,
        number: int,
        *,
        valid_for: float | None = None,
        since: float | None = None,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self.number = number
        self._valid_for = valid_for
        self._clock = clock
        self._confirmed = clock() if since is None else since
        self._why: str | None = None
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] = []

    def confirm(self, at: float) -> None:
        """This process was the leader at a time of the clock."""
        self._confirmed = max(self._confirmed, at)

    def end(self, why: str) -> None:
        """The term is over. Only the first reason counts."""
        with self._lock:
            if self._why is not None:
                return
            self._why = why
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def on_end(self, call: Callable[[], None]) -> None:
        """Have something called when the term ends, at once if it has; from any thread, so it must be quick."""
        with self._lock:
            if self._why is None:
                self._calls.append(call)
                return
        call()

    @property
    def over(self) -> str | None:
        """Why the term has ended; None while it lasts."""
        if self._why is None and self._valid_for is not None:
            silent = self._clock() - self._confirmed
            if silent > self._valid_for:
                self.end(
                    f"it was not confirmed for {silent:.1f} s: the driver was paused or cut off"
                )
        return self._why

    def check(self) -> None:
        """`LeadershipLost` if the term is over."""
        why = self.over
        if why is not None:
            raise LeadershipLost(f"term {self.number} has ended: {why}")


class LeaderElection(ABC):
    """One participant in the election of a name."""

    @property
    @abstractmethod
    def place(self) -> str:
        """What tells this election from all others."""

    @abstractmethod
    def lead(
        self,
        stopped: threading.Event,
        waiting: Callable[[Candidate | None], None] = lambda leader: None,
        at_least: int = 0,
    ) -> Term | None:
        """Stand by until this process leads, and begin a term with a number above `at_least`; None once `stopped` is
        set. `waiting` is called again and again meanwhile, with the leader, if that is known. One term at a time: a
        second call ends the term of the first."""

    @abstractmethod
    def leader(self) -> Candidate | None:
        """Who leads, as far as can be told."""

    @abstractmethod
    def close(self) -> None:
        """Leave the election. If this process leads, that is for another now."""
