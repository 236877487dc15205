"""A running job at one moment: what every metric is read from.

Nothing is kept up to date for it while records flow: it is a look at what the driver has of the tasks' reports, from
whatever thread.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.common.constants import MAX_TIME
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import LevelPlan
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.driver.checkpoint_log import CheckpointRecord
from millstream.runtime.driver.metrics import (
    JobMetrics,
    OperatorMetrics,
    SubtaskMetrics,
    UserMetricTotal,
    VertexMetrics,
)
from millstream.runtime.driver.run import JobRun

__all__ = [
    "JobAt",
    "OperatorAt",
    "TaskAt",
    "UserKey",
    "id_of",
    "look",
    "user_totals",
    "watermark_lag",
]

UserKey = tuple[tuple[tuple[str, ...], ...], str]
"""A user's metric: its groups and its name."""


@dataclass(frozen=True)
class TaskAt:
    """A subtask of a vertex at a moment."""

    job: JobAt
    vertex: JobVertex
    index: int
    metrics: SubtaskMetrics


@dataclass(frozen=True)
class OperatorAt:
    """An operator in a subtask at a moment."""

    node: StreamNode
    metrics: OperatorMetrics


@dataclass(frozen=True)
class JobAt:
    """A job at a moment, in seconds since 1970."""

    run: JobRun
    metrics: JobMetrics
    plan: LevelPlan
    vertices: Mapping[int, VertexMetrics]
    """By the vertices of `plan`. The job may have other ones a moment later, if it is rescaled."""
    now: float
    checkpoints: Sequence[CheckpointRecord]
    last: CheckpointRecord | None
    """The last checkpoint that is complete."""
    alignment: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """By vertex and subtask, how long it waited in that checkpoint, in seconds."""

    def tasks(self) -> Iterator[TaskAt]:
        """All subtasks of all vertices, level by level."""
        for vertex in self.plan.vertices:
            for index, subtask in enumerate(self.vertices[vertex.id].subtasks):
                yield TaskAt(self, vertex, index, subtask)

    def operators(self, task: TaskAt) -> Iterator[OperatorAt]:
        """The operators of a task's chain."""
        parts = self.vertices[task.vertex.id].operators
        for node in task.vertex.nodes:
            yield OperatorAt(node, parts[node.uid][task.index])


def id_of(uid: str) -> str:
    """The id of an operator, and of the vertex whose first one it is, as REST and reporters have it: 32 hex digits.

    >>> id_of("words")
    '89759e1284e2479b991d2669de104942'
    """
    return hashlib.md5(uid.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()


def look(run: JobRun, now: float | None = None) -> JobAt | None:
    """A job as it is now; None while it has no figures."""
    metrics = run.metrics
    if metrics is None:
        return None
    # A copy, which another thread does not lengthen.
    checkpoints = list(metrics.checkpoint_log.records)
    complete = [c for c in checkpoints if c.status == "COMPLETED" and not c.savepoint]
    last = complete[-1] if complete else None
    alignment = {
        (vertex, task.subtask): task.waited
        for task in (() if last is None else last.tasks)
        for vertex in task.vertices
    }
    plan, vertices = _fitting(run, metrics)
    at = time.time() if now is None else now
    return JobAt(run, metrics, plan, vertices, at, checkpoints, last, alignment)


def _fitting(run: JobRun, metrics: JobMetrics) -> tuple[LevelPlan, Mapping[int, VertexMetrics]]:
    """A job's plan and the figures of its vertices, which are changed one after the other when it is rescaled."""
    while True:
        plan, vertices = run.job.plan, metrics.vertices
        if all(
            vertex.id in vertices and vertices[vertex.id].parallelism == vertex.parallelism
            for vertex in plan.vertices
        ):
            return plan, vertices
        time.sleep(0.001)


def watermark_lag(watermark: int | None, now: float) -> int | None:
    """How far a watermark is behind the clock, in milliseconds; None if there is none, or it has come to its end.

    >>> watermark_lag(1_000, now=3.5)
    2500
    """
    return None if watermark is None or watermark >= MAX_TIME else round(now * 1000) - watermark


def user_totals(parts: Iterable[OperatorMetrics]) -> dict[UserKey, UserMetricTotal]:
    """The metrics of a user's functions over all subtasks of an operator. What was counted is added up. Of a gauge
    there are the sum, the least and the largest, and `count` is the number of subtasks that have it."""
    totals: dict[UserKey, UserMetricTotal] = {}
    for part in parts:
        # A copy, which another thread does not lengthen.
        for key, metric in list(part.user.items()):
            total = totals.setdefault(key, UserMetricTotal(metric.kind))
            if total.kind != metric.kind:
                continue
            gauge = metric.kind == "gauge"
            total.count += 1 if gauge else metric.count
            total.value += metric.value
            least, largest = metric.least, metric.largest
            if gauge:
                least = largest = metric.value
            total.least = _joined(min, total.least, least)
            total.largest = _joined(max, total.largest, largest)
    return totals


def _joined(choose: Callable[[Iterable[float]], float], *values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None
