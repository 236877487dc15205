"""Sinks that write in a task and are committed by the driver (Flink's `Sink` and `Committer`).

Each epoch, each subtask opens a writer, gives it the epoch's records and asks it for a *committable*: bytes
that say what has to be made visible. The driver commits all committables of an epoch together, once the
epoch's checkpoint is complete, and again after a recovery if it cannot know that it did: a commit is
idempotent.
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
    """Where and when a writer writes; together this names an attempt uniquely."""

    __slots__ = ("attempt", "epoch", "job_id", "parallelism", "subtask")

    def __init__(
        self, subtask: int, parallelism: int, epoch: int, attempt: str, job_id: str = ""
    ) -> None:
        self.subtask = subtask
        self.parallelism = parallelism
        self.epoch = epoch
        self.attempt = attempt
        self.job_id = job_id


class SinkWriter(ABC):
    """One subtask's writer for one epoch."""

    @abstractmethod
    def write(self, value: Any) -> None:
        """Write one record, invisibly."""

    @abstractmethod
    def prepare_commit(self) -> bytes | None:
        """Make what was written durable; the committable, or None if there is nothing to commit."""

    def abort(self) -> None:
        """The epoch failed; remove what was written if that is easy."""


class Committer(ABC):
    """The driver's half."""

    @abstractmethod
    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Make an epoch's output visible. May be called again with the same arguments."""

    def close(self) -> None:
        """The job is over."""


class Sink(ABC):
    """A sink for `DataStream.sink_to`."""

    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask and one epoch."""

    @abstractmethod
    def create_committer(self) -> Committer:
        """The committer, one per job."""
