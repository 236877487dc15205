"""Counts of a running job, kept by the driver from the tasks' reports."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.checkpoint.manifest import FeedbackFile, Manifest
from millstream.checkpoint.statefile import StateFile
from millstream.graph.level_plan import LevelPlan
from millstream.graph.operators import FeedbackSourceOp
from millstream.runtime.wire.reports import TaskReport
from millstream.runtime.wire.rows import client_node

__all__ = ["JobMetrics", "VertexMetrics"]


@dataclass
class VertexMetrics:
    """Totals of one vertex; per subtask where a list."""

    name: str
    parallelism: int
    num_records_in: list[int] = field(default_factory=list)
    num_records_out: list[int] = field(default_factory=list)
    num_bytes_in: list[int] = field(default_factory=list)
    num_bytes_out: list[int] = field(default_factory=list)


class JobMetrics:
    """Totals since the job started, and the last epoch's figures."""

    def __init__(self, plan: LevelPlan) -> None:
        self.vertices = {
            v.id: VertexMetrics(
                v.name,
                v.parallelism,
                *([0] * v.parallelism for _ in range(4)),
            )
            for v in plan.vertices
        }
        self._source_names = {v.head.uid: v.head.name for v in plan.sources}
        self._vertex_of = {node.id: v.id for v in plan.vertices for node in v.nodes}
        self._source_of_edge = {e.id: self._vertex_of[e.source_node] for e in plan.edges}
        # What goes round has been counted when it came in.
        self._sources = {
            v.id for v in plan.sources if not isinstance(v.head.operator, FeedbackSourceOp)
        }
        self.epoch = -1
        self.records = 0
        self.records_per_second = 0.0
        self.backlog = 0
        # By source and split, how many positions are there to be read; of a Kafka partition, its lag.
        self.lag: dict[str, dict[str, int]] = {}
        # By level and subtask, the state files that its processes have read.
        self.state_loads: Counter[tuple[int, int]] = Counter()
        self.state_rebuilds = 0
        self.bad_records: dict[str, tuple[int, int]] = {}
        self.late_records: dict[str, int] = {}
        self.watermarks: dict[int, int] = {}
        self.checkpoints = 0
        self.last_checkpoint_size = 0
        self.last_checkpoint_full_size = 0
        self.last_checkpoint_id = -1
        self.restarts = 0
        self.started = time.time()
        self._last = time.monotonic()

    def update(self, epoch: int, reports: Sequence[TaskReport]) -> None:
        """Take in the reports of an epoch."""
        read = 0
        for report in reports:
            i = report.subtask
            for vertex, count in report.records_in.items():
                self.vertices[vertex].num_records_in[i] += count
                if vertex in self._sources:
                    read += count
            for vertex, size in report.bytes_in.items():
                self.vertices[vertex].num_bytes_in[i] += size
            for edge, count in report.records_out.items():
                self.vertices[self._sender(edge)].num_records_out[i] += count
            for edge, size in report.bytes_out.items():
                self.vertices[self._sender(edge)].num_bytes_out[i] += size
            self.state_loads[report.level, i] += report.state_loads
            self.state_rebuilds += report.state_rebuilds
            for uid, (bad, seen) in report.bad_records.items():
                before = self.bad_records.get(uid, (0, 0))
                self.bad_records[uid] = before[0] + bad, before[1] + seen
        # A vertex is as far as its last subtask.
        lowest: dict[int, int] = {}
        for report in reports:
            for vertex, watermark in report.watermarks.items():
                lowest[vertex] = min(watermark, lowest.get(vertex, watermark))
        self.watermarks |= lowest
        now = time.monotonic()
        self.records += read
        self.records_per_second = read / max(1e-6, now - self._last)
        self.backlog = sum(split.backlog for report in reports for split in report.splits)
        # Who was not read had nothing.
        self.lag = {name: dict.fromkeys(splits, 0) for name, splits in self.lag.items()}
        for split in (split for report in reports for split in report.splits):
            name = self._source_names.get(split.source, split.source)
            self.lag.setdefault(name, {})[split.split] = split.backlog
        self._last = now
        self.epoch = epoch

    def checkpoint(self, manifest: Manifest, size: int) -> None:
        """A checkpoint is complete: what it has written, and what all that it names comes to."""
        files: list[StateFile | FeedbackFile] = [
            file for store in manifest.stores.values() for file in store.segments
        ]
        files += [file for fed_back in manifest.feedback.values() for file in fed_back]
        self.checkpoints += 1
        self.last_checkpoint_id = manifest.epoch
        self.last_checkpoint_size = size + sum(f.size for f in files if f.epoch == manifest.epoch)
        self.last_checkpoint_full_size = size + sum(file.size for file in files)

    def _sender(self, edge: int) -> int:
        node = client_node(edge)
        return self._source_of_edge[edge] if node is None else self._vertex_of[node]
