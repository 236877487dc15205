"""Figures of a running job, kept by the driver from the tasks' reports: what REST, reporters and the terminal show.

Everything is a total since the job was started by this driver, unless it says otherwise. Of an epoch that has rounds
each is counted at once, and taken back if the epoch fails: so nothing is counted twice when a task or an epoch is
repeated. Rates and shares of time are those of the last seconds (`RATE_SECONDS`). Whoever reads in another thread sees
each number whole, and numbers of one epoch or the next.
"""

from __future__ import annotations

import copy
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.common.constants import MAX_TIME
from millstream.graph.level_plan import LevelPlan
from millstream.graph.operators import FeedbackSourceOp
from millstream.runtime.base.histogram import Histogram
from millstream.runtime.driver.checkpoint_log import CheckpointLog
from millstream.runtime.driver.history import History
from millstream.runtime.task.spec import store_name
from millstream.runtime.wire.reports import TaskReport, UserMetric
from millstream.runtime.wire.rows import client_node

__all__ = [
    "LAGS_KEPT",
    "RATE_SECONDS",
    "JobMetrics",
    "OperatorMetrics",
    "SubtaskMetrics",
    "UserMetricTotal",
    "VertexMetrics",
]

RATE_SECONDS = 10.0
"""Rates are over the epochs that ended in so many seconds, and over one at least."""

# The job's own rate is of a shorter time: people look at it.
_JOB_SECONDS = 3.0

LAGS_KEPT = 1000
"""So many splits of a source are told of, unless more of them are behind: a folder has ever more files."""

_RATED = (
    "records_in",
    "records_out",
    "bytes_in",
    "bytes_out",
    "busy",
    "back_pressured",
    "idle",
)

# What adds up over epochs.
_COUNTED = (
    "vertices",
    "watermarks",
    "records",
    "state_loads",
    "state_rebuilds",
    "bad_records",
    "late_records",
    "waiting",
    "latency",
)


@dataclass
class SubtaskMetrics:
    """One subtask of a vertex. Times are in seconds; together they are what has passed since the first epoch."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    buffers_in: int = 0
    buffers_out: int = 0
    busy: float = 0.0
    back_pressured: float = 0.0
    """The time in which the subtask had done its part of the epoch and there was more to read, but those further down
    were not done."""
    idle: float = 0.0
    watermark: int | None = None
    state_bytes: int = 0
    host: str = ""
    pid: int = 0
    stage: int = -1
    """The engine's number for the step in which its last task ran; -1 if there is none."""
    last_seconds: float = 0.0
    """What its last task took."""
    per_second: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_RATED, 0.0))
    """By the names above, what there is of it a second; of times, as a share of 1."""
    _marks: deque[tuple[float, tuple[float, ...]]] = field(default_factory=deque)

    def _rate(self, now: float) -> None:
        """An epoch has been counted in full."""
        marks = self._marks
        totals = tuple(getattr(self, name) for name in _RATED)
        marks.append((now, totals))
        while len(marks) > 2 and marks[1][0] < now - RATE_SECONDS:
            marks.popleft()
        since, before = marks[0]
        passed = max(1e-6, now - since)
        self.per_second = {
            name: (total - was) / passed
            for name, total, was in zip(_RATED, totals, before, strict=True)
        }


@dataclass
class UserMetricTotal:
    """A metric of a user's function in one subtask, over all epochs."""

    kind: str
    count: int = 0
    value: float = 0.0
    least: float | None = None
    largest: float | None = None

    def add(self, told: UserMetric) -> None:
        """Take in what an epoch says of it."""
        self.count += told.count
        self.value = self.value + told.value if self.kind == "distribution" else told.value
        # Each process that the subtask has run in knows its own only.
        self.least = min((x for x in (self.least, told.least) if x is not None), default=None)
        self.largest = max((x for x in (self.largest, told.largest) if x is not None), default=None)


@dataclass
class OperatorMetrics:
    """One operator of a chain in one subtask."""

    records_in: int = 0
    records_out: int = 0
    late: int = 0
    bad: int = 0
    user: dict[tuple[tuple[tuple[str, ...], ...], str], UserMetricTotal] = field(
        default_factory=dict
    )
    """By groups and name."""

    def add(self, told: Sequence[UserMetric]) -> None:
        """Take in what an epoch says of the metrics of its functions."""
        for metric in told:
            key = metric.groups, metric.name
            if metric.kind == "absent":
                self.user.pop(key, None)
            elif (
                known := self.user.setdefault(key, UserMetricTotal(metric.kind))
            ).kind == metric.kind:
                known.add(metric)


@dataclass
class VertexMetrics:
    """One vertex: its subtasks, and by the uid of each of its operators that operator's part in every subtask."""

    name: str
    parallelism: int
    subtasks: list[SubtaskMetrics]
    operators: dict[str, list[OperatorMetrics]]

    @property
    def num_records_in(self) -> list[int]:
        """Records in, by subtask."""
        return [subtask.records_in for subtask in self.subtasks]

    @property
    def num_records_out(self) -> list[int]:
        """Records out, by subtask."""
        return [subtask.records_out for subtask in self.subtasks]

    @property
    def num_bytes_in(self) -> list[int]:
        """Bytes in, by subtask."""
        return [subtask.bytes_in for subtask in self.subtasks]

    @property
    def num_bytes_out(self) -> list[int]:
        """Bytes out, by subtask."""
        return [subtask.bytes_out for subtask in self.subtasks]


class JobMetrics:
    """Totals since the job started, and the last epoch's figures."""

    def __init__(self, plan: LevelPlan, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # What was counted when the epoch began that is open.
        self._before: dict[str, Any] = {}
        self.rescale(plan)
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
        # By uid, timers and windows of the clock that the end of the input found not due.
        self.waiting: dict[str, int] = {}
        self.latency: dict[str, Histogram] = {}
        """From the sources to each sink, by its uid."""
        self.checkpoint_log = CheckpointLog()
        self.history = History()
        self.checkpoints = 0
        self.last_checkpoint_size = 0
        self.last_checkpoint_full_size = 0
        self.last_checkpoint_id = -1
        self.restarts = 0
        self.started = time.time()
        self._last = clock()
        # When how many records had been read: the last round of an epoch may have none.
        self._read: deque[tuple[float, int]] = deque([(self._last, 0)])

    def rescale(self, plan: LevelPlan) -> None:
        """The job goes on with other subtasks, of which nothing is known yet; what is known of all of it stays."""
        self.vertices = {
            v.id: VertexMetrics(
                v.name,
                v.parallelism,
                [SubtaskMetrics() for _ in range(v.parallelism)],
                {node.uid: [OperatorMetrics() for _ in range(v.parallelism)] for node in v.nodes},
            )
            for v in plan.vertices
        }
        self.watermarks: dict[int, int] = {}
        self._before = {
            k: was for k, was in self._before.items() if k not in ("vertices", "watermarks")
        }
        self._source_names = _names_of_sources(plan)
        self._vertex_of = {node.id: v.id for v in plan.vertices for node in v.nodes}
        self._vertex_of_uid = {node.uid: v.id for v in plan.vertices for node in v.nodes}
        self._source_of_edge = {e.id: self._vertex_of[e.source_node] for e in plan.edges}
        self._stores = {
            store_name(v, subtask): (v.id, subtask)
            for v in plan.vertices
            for subtask in range(v.parallelism)
        }
        # What goes round has been counted when it came in.
        self._sources = {
            v.id for v in plan.sources if not isinstance(v.head.operator, FeedbackSourceOp)
        }

    def update_round(self, reports: Sequence[TaskReport], held_back: bool = False) -> None:
        """Take in the reports of a round that is not the last of its epoch, until `take_back`."""
        if not self._before:
            self._before = {name: copy.deepcopy(getattr(self, name)) for name in _COUNTED}
        before = self._before
        self.update(self.epoch, reports, held_back)
        self._before = before

    def take_back(self) -> None:
        """The epoch that was open will be run again: its rounds so far do not count."""
        for name, was in self._before.items():
            setattr(self, name, was)
        self._before = {}

    def update(self, epoch: int, reports: Sequence[TaskReport], held_back: bool = False) -> None:
        """Take in the reports of an epoch that is complete, or of its last round; `held_back` says that there was more
        to read than it took."""
        self._before = {}
        now = self._clock()
        self.bad_records = self.bad_with(reports)
        read = sum(self._count(report) for report in reports)
        self._share_out(reports, now, held_back)
        # A vertex is as far as its last subtask.
        lowest: dict[int, int] = {}
        for report in reports:
            for vertex, watermark in report.watermarks.items():
                lowest[vertex] = min(watermark, lowest.get(vertex, watermark))
                self.vertices[vertex].subtasks[report.subtask].watermark = watermark
        self.watermarks |= lowest
        self.records += read
        self.records_per_second = self._rate(now)
        self.backlog = sum(split.backlog for report in reports for split in report.splits)
        self.lag = self._lags(reports)
        for vertex_metrics in self.vertices.values():
            for subtask in vertex_metrics.subtasks:
                subtask._rate(now)
        self._last = now
        self.epoch = epoch
        at = time.time()
        if self.history.is_due(at):
            self.history.add(at, self._figures(at))

    def _rate(self, now: float) -> float:
        """Records a second, of late."""
        read = self._read
        while len(read) > 1 and read[1][0] <= now - _JOB_SECONDS:
            read.popleft()
        since, before = read[0]
        read.append((now, self.records))
        return max(0, self.records - before) / max(1e-6, now - since)

    def _lags(self, reports: Sequence[TaskReport]) -> dict[str, dict[str, int]]:
        """By source and split, what the epoch has left to be read."""
        # Who was not read had nothing.
        lag = {name: dict.fromkeys(splits, 0) for name, splits in self.lag.items()}
        for split in (split for report in reports for split in report.splits):
            name = self._source_names.get(split.source)
            if name is not None:
                lag.setdefault(name, {})[split.split] = split.backlog
        for splits in lag.values():
            over = max(0, len(splits) - LAGS_KEPT)
            for name in [name for name, behind in splits.items() if not behind][:over]:
                del splits[name]
        return lag

    def watermark_lag(self, at: float) -> float | None:
        """How far the vertex that is furthest behind in event time is behind the clock, in seconds; None where event
        time is not used, or has come to its end."""
        lowest = min(self.watermarks.values(), default=None)
        return None if lowest is None or lowest == MAX_TIME else at - lowest / 1000

    def _figures(self, at: float) -> dict[str, float | None]:
        """A point of the history."""
        # The checkpoint of this epoch is still on its way.
        done = (c for c in reversed(self.checkpoint_log.records) if c.status == "COMPLETED")
        last = next(done, None)
        figures: dict[str, float | None] = {
            "records_per_second": self.records_per_second,
            "backlog": self.backlog,
            "watermark_lag": self.watermark_lag(at),
            "state_bytes": sum(s.state_bytes for v in self.vertices.values() for s in v.subtasks),
            "latency_p99": max((h.quantile(0.99) for h in self.latency.values()), default=None),
            "checkpoint_seconds": None if last is None else last.seconds,
        }
        for id_, vertex in self.vertices.items():
            rates = [subtask.per_second for subtask in vertex.subtasks]
            figures[f"busy.{id_}"] = max(rate["busy"] for rate in rates)
            figures[f"back_pressured.{id_}"] = max(rate["back_pressured"] for rate in rates)
            figures[f"in.{id_}"] = sum(rate["records_in"] for rate in rates)
            figures[f"out.{id_}"] = sum(rate["records_out"] for rate in rates)
        return figures

    def bad_with(self, reports: Sequence[TaskReport]) -> dict[str, tuple[int, int]]:
        """By uid, bad records and all of them, with those of an epoch that is not counted yet."""
        together = dict(self.bad_records)
        for report in reports:
            for uid, (bad, seen) in report.bad_records.items():
                before = together.get(uid, (0, 0))
                together[uid] = before[0] + bad, before[1] + seen
        return together

    def _count(self, report: TaskReport) -> int:
        """Add up what a task has done; the records that it has read from outside."""
        i, read = report.subtask, 0
        for vertex, count in report.records_in.items():
            self.vertices[vertex].subtasks[i].records_in += count
            if vertex in self._sources:
                read += count
        for vertex, size in report.bytes_in.items():
            self.vertices[vertex].subtasks[i].bytes_in += size
        for vertex, count in report.buffers_in.items():
            self.vertices[vertex].subtasks[i].buffers_in += count
        for edge, count in report.records_out.items():
            self._sender(edge).subtasks[i].records_out += count
        for edge, size in report.bytes_out.items():
            self._sender(edge).subtasks[i].bytes_out += size
        for edge, count in report.buffers_out.items():
            self._sender(edge).subtasks[i].buffers_out += count
        for uid, (came, went) in report.operators.items():
            operator = self._operator(uid, i)
            operator.records_in += came
            operator.records_out += went
        for uid, waiting in report.waiting.items():
            self.waiting[uid] = self.waiting.get(uid, 0) + waiting
        for uid, late in report.late_records.items():
            self._operator(uid, i).late += late
            self.late_records[uid] = self.late_records.get(uid, 0) + late
        for uid, (bad, _) in report.bad_records.items():
            self._operator(uid, i).bad += bad
        for uid, told in report.metrics.items():
            self._operator(uid, i).add(told)
        for uid, latency in report.latency.items():
            histogram = self.latency.setdefault(uid, Histogram())
            histogram.merge(latency.buckets, latency.total, latency.largest)
        self.state_loads[report.level, i] += report.state_loads
        self.state_rebuilds += report.state_rebuilds
        return read

    def _share_out(self, reports: Sequence[TaskReport], now: float, held_back: bool) -> None:
        """What every subtask did with the time since the last epoch was counted.

        Levels run one after the other. Who is done waits for those further down; if there was more to read than the
        epoch took, that is what keeps it from going on."""
        passed = now - self._last
        last = max((report.level for report in reports), default=0)
        over = max((report.started_at + report.seconds for report in reports), default=0.0)
        for report in reports:
            waits = held_back and report.level < last
            behind = max(0.0, over - report.started_at - report.seconds) if waits else 0.0
            for vertex, seconds in report.busy.items():
                subtask = self.vertices[vertex].subtasks[report.subtask]
                busy = min(seconds, passed)
                waited = min(behind, passed - busy)
                subtask.busy += busy
                subtask.back_pressured += waited
                subtask.idle += passed - busy - waited
                subtask.host, subtask.pid = report.host, report.pid
                subtask.stage = report.stage
                subtask.last_seconds = report.seconds

    def checkpoint(self, manifest: Manifest, size: int, path: str = "") -> None:
        """A checkpoint is complete, at `path`: `size` is that of its manifest."""
        full = size
        written = size
        for name, store in manifest.stores.items():
            held = sum(file.size for file in store.segments)
            full += held
            written += sum(file.size for file in store.segments if file.epoch == manifest.epoch)
            if name in self._stores:
                vertex, subtask = self._stores[name]
                self.vertices[vertex].subtasks[subtask].state_bytes = held
        for files in manifest.feedback.values():
            full += sum(file.size for file in files)
            written += sum(file.size for file in files if file.epoch == manifest.epoch)
        self.checkpoints += 1
        self.last_checkpoint_id = manifest.epoch
        self.last_checkpoint_size = written
        self.last_checkpoint_full_size = full
        self.checkpoint_log.complete(written, full, path)

    def _operator(self, uid: str, subtask: int) -> OperatorMetrics:
        return self.vertices[self._vertex_of_uid[uid]].operators[uid][subtask]

    def _sender(self, edge: int) -> VertexMetrics:
        node = client_node(edge)
        vertex = self._source_of_edge[edge] if node is None else self._vertex_of[node]
        return self.vertices[vertex]


def _names_of_sources(plan: LevelPlan) -> dict[str, str]:
    """By uid, what each source is called; those of one name, by their uids too. What goes round is no source: its
    splits are files of ours, new ones in every epoch."""
    heads = [v.head for v in plan.sources if not isinstance(v.head.operator, FeedbackSourceOp)]
    times = Counter(head.name for head in heads)
    return {
        head.uid: head.name if times[head.name] == 1 else f"{head.name} ({head.uid})"
        for head in heads
    }
