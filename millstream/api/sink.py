"""Sinks that write in a task and are committed by the driver (Flink's `Sink` and `Committer`).

Each epoch, each subtask opens a writer, gives it the epoch's records and asks it for a *committable*: bytes
that say what has to be made visible. The driver commits all committables of an epoch together, once the
epoch's checkpoint is complete, and again after a recovery if it cannot know that it did: a commit is
idempotent. What names it is the job that wrote the committables, the sink, and the epoch in which they were
written; that stays so when another job, or the same one with another parallelism, goes on from the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any

__all__ = ["Committer", "DeliveryGuarantee", "Sink", "SinkWriter", "WriterContext"]


class DeliveryGuarantee(Enum):
    """What a sink promises."""

    EXACTLY_ONCE = "exactly-once"
    EFFECTIVELY_ONCE = "effectively-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class WriterContext:
    """Where and when a writer writes; together this names an attempt uniquely. `sink` is the uid of the sink in the
    program: one `Sink` may be the end of several streams. `storage` is the job's folder, for a sink that has to leave
    something there until the commit; it is the sink that removes it again."""

    __slots__ = ("attempt", "epoch", "job_id", "parallelism", "sink", "storage", "subtask")

    def __init__(
        self,
        subtask: int,
        parallelism: int,
        epoch: int,
        attempt: str,
        job_id: str = "",
        sink: str = "",
        storage: Any = None,
    ) -> None:
        self.subtask = subtask
        self.parallelism = parallelism
        self.epoch = epoch
        self.attempt = attempt
        self.job_id = job_id
        self.sink = sink
        self.storage = storage


class SinkWriter(ABC):
    """One subtask's writer for one epoch."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Write one record, invisibly."""

    def write_columns(self, columns: Any, *, named: bool) -> bool:
        """Write the rows of Arrow's `RecordBatch`, of a sink that takes columns; `named` says whether the records have
        names for their fields, or only places. False if nothing was written, because these rows have to be written as
        records."""
        return False

    @abstractmethod
    def prepare_commit(self) -> bytes | None:
        """Make what was written durable; the committable, or None if there is nothing to commit."""

    def abort(self) -> None:
        """The epoch failed; remove what was written if that is easy."""


class Committer(ABC):
    """The driver's half.

    A sink into a system that keeps no trace of what was committed can keep one itself:

    >>> class Log(Committer):
    ...     def __init__(self):
    ...         self.lines = {}
    ...
    ...     def commit(self, epoch, committables):
    ...         self.lines.setdefault((self.job_id, self.sink, epoch), list(committables))
    >>> log = Log()
    >>> log.job_id, log.sink = "4f2a", "orders"
    >>> log.commit(7, [b"a"])
    >>> log.commit_again(7, [b"a"])
    >>> log.lines
    {('4f2a', 'orders', 7): [b'a']}
    """

    job_id: str = ""
    """The job that has written the committables at hand, as its `WriterContext` said; set before each commit. After a
    start from a checkpoint by its path it is first the job that wrote the checkpoint."""

    sink: str = ""
    """The uid of the sink in the program, as its `WriterContext` said; set before each commit. It tells the ends
    of several streams apart that share one `Sink`, or one outside system."""

    def starts_from(self, job_id: str, epoch: int) -> None:
        """Called before anything else, whenever the job starts or starts again from a checkpoint: whose it is, and the
        epoch that it completes. A sink that can tell that it has output of later epochs raises."""

    @abstractmethod
    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Make visible what was written in an epoch. May come again with the same arguments, and the same `job_id`."""

    def commit_again(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Make visible what was written in an epoch, if that was not done before, which is not known: the driver was
        lost, or a commit has failed. By default the same as `commit`."""
        self.commit(epoch, committables)

    def close(self) -> None:
        """The job is over."""


class Sink(ABC):
    """A sink for `DataStream.sink_to`."""

    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE

    def takes_columns(self) -> bool:
        """True if its writers have `write_columns`."""
        return False

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask and one epoch."""

    @abstractmethod
    def create_committer(self) -> Committer:
        """The committer, one per job and sink of its program."""
