"""What leaves a job on the driver: sinks to be committed, and records for `print` and `execute_and_collect`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.api.sink import Committer, DeliveryGuarantee
from millstream.errors import MillstreamError, SinkError, told
from millstream.graph.operators import CollectOp, PrintOp, SinkOp
from millstream.graph.plan_json import guarantee_of
from millstream.redaction import get_logger
from millstream.runtime.base.failpoints import reached
from millstream.runtime.driver.job import Job
from millstream.runtime.wire.codec import decode
from millstream.runtime.wire.rows import client_edge

__all__ = ["EpochRow", "JobOutputs"]

_log = get_logger("millstream.job")


@dataclass(frozen=True, order=True)
class EpochRow:
    """A row that has come out of the last level."""

    edge: int
    sequence: int
    channel: int
    payload: bytes


class JobOutputs:
    """The committers and consumers of a job, for all its attempts."""

    def __init__(self, job: Job) -> None:
        self._committers: dict[str, tuple[str, Committer]] = {}
        self._consumers: dict[int, Callable[[list[Any]], None]] = {}
        # Of consumers that need not wait for a checkpoint.
        self._at_once: set[int] = set()
        self._collects = False
        # True if committing an epoch a second time, with other output, would show.
        self.exactly_once = False
        for node in job.graph.nodes.values():
            if node.is_sink:
                _log.info("sink '%s': %s", node.name, guarantee_of(node.operator))
            match node.operator:
                case SinkOp(sink=sink):
                    self._committers[node.uid] = node.name, sink.create_committer()
                    if sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
                        self.exactly_once = True
                case PrintOp():
                    self._consumers[client_edge(node.id)] = _print_lines
                    self._at_once.add(client_edge(node.id))
                case CollectOp(consumer=consumer, schema=None) if callable(consumer):
                    self._consumers[client_edge(node.id)] = consumer
                    if node.operator.at_once:
                        self._at_once.add(client_edge(node.id))
                    self._collects = True

    @property
    def streams(self) -> bool:
        """True if somebody iterates over results while the job runs, and nothing else leaves it."""
        return self._collects and not self._committers

    def deliver(self, row: EpochRow) -> bool:
        """Hand a row's records to the driver's consumer, if it has one."""
        consumer = self._consumers.get(row.edge)
        if consumer is None:
            return False
        consumer(decode(row.payload).records)
        return True

    def waits(self, row: EpochRow) -> bool:
        """True if a row is only for whoever is sure that its epoch is complete."""
        return row.edge not in self._at_once

    def starts_from(self, job_id: str, epoch: int) -> None:
        """Tell the committers which checkpoint the job goes on from."""
        for uid, (_, committer) in self._committers.items():
            committer.job_id, committer.sink = job_id, uid
            committer.starts_from(job_id, epoch)

    def commit(
        self,
        epoch: int,
        committables: dict[str, list[bytes]],
        *,
        job_id: str = "",
        again: bool = False,
    ) -> None:
        """Make visible what was written in an epoch of a job; `again` if that may have been done before."""
        for place, (uid, (name, committer)) in enumerate(self._committers.items()):
            if place:
                reached("between commits")
            made = committables.get(uid, [])
            if made or not again:
                committer.job_id, committer.sink = job_id, uid
                call = committer.commit_again if again else committer.commit
                self._commit(name, call, epoch, made)

    @staticmethod
    def _commit(
        name: str, commit: Callable[[int, Sequence[bytes]], None], epoch: int, made: Sequence[bytes]
    ) -> None:
        try:
            commit(epoch, made)
        except MillstreamError:
            raise
        except Exception as error:
            msg = f"the sink '{name}' could not commit epoch {epoch}: {told(error)}"
            raise SinkError(msg, operator=name, epoch=epoch) from error

    def close(self) -> None:
        """The job is over."""
        for _, committer in self._committers.values():
            committer.close()


def _print_lines(lines: list[Any]) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201 - what DataStream.print is for
