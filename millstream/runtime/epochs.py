"""What the driver does when all tasks of an epoch are done (the commit half of Flink's coordinator).

1. Read the rows: reports of tasks, and records that go to the driver.
2. Check that every task of every level has reported.
3. Publish the manifest. From here on the epoch is complete; before, it never happened.
4. Commit the sinks.
5. Hand records to `print`, `execute_and_collect` and the like.
6. Remove state files that no manifest needs any more.

If 1 to 3 fail, the epoch has left nothing behind that anybody reads. The manifest holds what 4 needs, and a commit
may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.checkpoint.manifest import Manifest, manifest_name, read_manifest, write_manifest
from millstream.checkpoint.statefile import StateFile
from millstream.checkpoint.storage import open_storage
from millstream.common.sink import Committer
from millstream.errors import EngineError, MillstreamError, SinkError
from millstream.graph.operators import CollectOp, PrintOp, SinkOp
from millstream.runtime.codec import decode
from millstream.runtime.control import TaskReport
from millstream.runtime.job import Job, JobSpec
from millstream.runtime.metrics import JobMetrics
from millstream.runtime.rows import REPORT, client_edge
from millstream.runtime.state import extend_chain

__all__ = ["EpochCommitter", "EpochRow"]

# Manifests (and the files they name) that stay: the last one, and the one a late reader may still be at.
_KEPT = 2


@dataclass(frozen=True, order=True)
class EpochRow:
    """A row that has come out of the last level."""

    edge: int
    sequence: int
    channel: int
    payload: bytes


class EpochCommitter:
    """Completes epochs, one after the other."""

    def __init__(self, job: Job, spec: JobSpec) -> None:
        self._spec = spec
        self._job_id = job.id
        self.metrics = JobMetrics(job.plan)
        self._storage = open_storage(spec.state_dir)
        self._chains: dict[str, list[StateFile]] = {}
        self._at: int | None = None
        self._committers: dict[int, tuple[str, Committer]] = {}
        self._consumers: dict[int, Callable[[list[Any]], None]] = {}
        self._collects = False
        for node in job.graph.nodes.values():
            match node.operator:
                case SinkOp(sink=sink):
                    self._committers[node.id] = node.name, sink.create_committer()
                case PrintOp():
                    self._consumers[client_edge(node.id)] = _print_lines
                case CollectOp(consumer=consumer, schema=None) if callable(consumer):
                    self._consumers[client_edge(node.id)] = consumer
                    self._collects = True

    def complete(self, epoch: int, rows: Iterable[EpochRow]) -> bool:
        """Steps 1 to 6; True if the job's input has ended."""
        ordered = sorted(rows)
        reports = [TaskReport.decode(row.payload) for row in ordered if row.edge == REPORT]
        self._check_all_reported(epoch, reports)
        self._commit(self._publish(epoch, reports))
        for row in ordered:
            self.deliver(row)
        self._clean_up(epoch)
        self.metrics.update(epoch, reports)
        return any(report.input_ended for report in reports)

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

    def _check_all_reported(self, epoch: int, reports: Sequence[TaskReport]) -> None:
        for index, level in enumerate(self._spec.levels):
            if index == 0:
                continue
            seen = {report.subtask for report in reports if report.level == index}
            missing = set(range(level.parallelism)) - seen
            if missing:
                msg = f"epoch {epoch}: tasks {sorted(missing)} of level {index} did not report"
                raise EngineError(msg, hint="this is a defect; the epoch was not committed")

    def _publish(self, epoch: int, reports: Sequence[TaskReport]) -> Manifest:
        if self._at is None and epoch > 0:
            self._chains = dict(read_manifest(self._storage, epoch - 1).state)
        committables: dict[int, list[bytes]] = {}
        for report in reports:
            for owner, file in report.state.items():
                self._chains[owner] = extend_chain(self._chains.get(owner, []), file)
            for node, made in report.committables.items():
                committables.setdefault(node, []).extend(made)
        self._at = epoch
        manifest = Manifest(
            epoch=epoch, job_id=self._job_id, state=self._chains, committables=committables
        )
        write_manifest(self._storage, manifest)
        return manifest

    def _commit(self, manifest: Manifest) -> None:
        epoch = manifest.epoch
        for node, (name, committer) in self._committers.items():
            try:
                committer.commit(epoch, manifest.committables.get(node, []))
            except MillstreamError:
                raise
            except Exception as error:
                msg = f"the sink '{name}' could not commit epoch {epoch}: {type(error).__name__}: {error}"
                raise SinkError(msg, operator=name, epoch=epoch) from error

    def _clean_up(self, epoch: int) -> None:
        old = epoch - _KEPT
        if old < 0 or not self._storage.exists(manifest_name(old)):
            return
        gone = read_manifest(self._storage, old).state
        kept = {
            file.name
            for kept_epoch in range(old + 1, epoch + 1)
            for chain in read_manifest(self._storage, kept_epoch).state.values()
            for file in chain
        }
        self._storage.delete(manifest_name(old))
        for chain in gone.values():
            for file in chain:
                if file.name not in kept:
                    self._storage.delete(file.name)

    def close(self) -> None:
        """The job is over."""
        for _, committer in self._committers.values():
            committer.close()


def _print_lines(lines: list[Any]) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201 - what DataStream.print is for
