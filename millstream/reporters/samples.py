"""A job's figures as Prometheus has them: a name of Flink's Prometheus reporter, labels, a number.

`flink_taskmanager_job_task_numRecordsIn{job_name="clicks", task_name="Map", subtask_index="0", ...} 1200`
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from millstream.redaction import shown
from millstream.reporters.catalogue import JOB, OPERATOR, TASK, MetricInfo, series_values
from millstream.reporters.moment import JobAt, OperatorAt, TaskAt, UserKey, id_of
from millstream.runtime.driver.metrics import UserMetricTotal

__all__ = ["OF_JOB", "OF_OPERATOR", "OF_TASK", "Sample", "printable", "samples_of"]

At = TypeVar("At")

OF_JOB = "flink_jobmanager_job_"
OF_TASK = "flink_taskmanager_job_task_"
OF_OPERATOR = "flink_taskmanager_job_task_operator_"

_HOST = socket.gethostname()
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9:_]")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")
# Names of our own labels; a user's group of that name becomes another, as Prometheus does it with labels of targets.
_OWN = frozenset(
    "host tm_id job_id job_name task_id task_name subtask_index operator_id operator_name".split()
)


class Sample(NamedTuple):
    """One number of one series; `about` says what the metric is."""

    name: str
    labels: Mapping[str, str]
    value: float
    about: str


def samples_of(at: JobAt) -> Iterator[Sample]:
    """All of a job's figures that are numbers."""
    job = at.run.job
    same = {"job_id": job.id, "job_name": printable(job.settings.name)}
    of_job = {"host": _HOST, **same}
    yield from _samples(OF_JOB, JOB, at, of_job)
    for series, values, value in series_values(at):
        if not isinstance(value, str):
            labels = of_job | dict(zip(series.labels, map(printable, values), strict=True))
            yield Sample(OF_JOB + series.name, labels, value, series.meaning)
    names: dict[str, str] = {}

    def named(name: str) -> str:
        # There are as many as operators, and each stands in many series.
        if name not in names:
            names[name] = printable(name)
        return names[name]

    for task in at.tasks():
        yield from _of_task(task, same, named)


def _of_task(task: TaskAt, same: dict[str, str], named: Callable[[str], str]) -> Iterator[Sample]:
    labels = {
        "host": task.metrics.host,
        "tm_id": task.metrics.host,
        **same,
        "task_id": id_of(task.vertex.head.uid),
        "task_name": named(task.job.vertices[task.vertex.id].name),
        "subtask_index": str(task.index),
    }
    yield from _samples(OF_TASK, TASK, task, labels)
    for operator in task.job.operators(task):
        node = operator.node
        of = {**labels, "operator_id": id_of(node.uid), "operator_name": named(node.name)}
        yield from _samples(OF_OPERATOR, OPERATOR, operator, of)
        yield from _of_functions(operator, of)


def _samples(
    prefix: str, metrics: Iterable[MetricInfo[At]], at: At, labels: dict[str, str]
) -> Iterator[Sample]:
    for metric in metrics:
        value = metric.read(at)
        if value is not None and not isinstance(value, str):
            yield Sample(prefix + metric.name, labels, value, metric.meaning)


def _of_functions(operator: OperatorAt, labels: dict[str, str]) -> Iterator[Sample]:
    # A copy, which another thread does not lengthen.
    for key, metric in list(operator.metrics.user.items()):
        name, own = _named(key)
        about = f"A {metric.kind} of the job's functions."
        for suffix, value in _figures(metric):
            yield Sample(OF_OPERATOR + name + suffix, labels | own, value, about)


def _figures(metric: UserMetricTotal) -> list[tuple[str, float]]:
    """What a metric of a user's function consists of."""
    match metric.kind:
        case "counter":
            return [("", metric.count)]
        case "gauge":
            return [("", metric.value)]
        case "meter":
            return [("", metric.value), ("_count", metric.count)]
    ends = [("_min", metric.least), ("_max", metric.largest)]
    known = [(suffix, value) for suffix, value in ends if value is not None]
    return [("_count", metric.count), ("_sum", metric.value), *known]


def _named(key: UserKey) -> tuple[str, dict[str, str]]:
    """The name of a user's metric with those of its groups before it, and the values of its groups."""
    groups, name = key
    scope = "_".join([*(group[0] for group in groups), name])
    labels = {_label(group[0]): printable(group[1]) for group in groups if len(group) == 2}
    return _NOT_IN_NAMES.sub("_", shown(scope)), labels


@lru_cache(maxsize=1024)
def _label(name: str) -> str:
    label = _NOT_IN_LABELS.sub("_", shown(name))
    if label in _OWN or label.startswith("__"):
        return f"exported_{label}"
    return f"_{label}" if label[0].isdigit() else label


def printable(text: str) -> str:
    """A name or a label as anybody may see it, in characters that can be written."""
    return shown(text).encode("utf-8", "backslashreplace").decode("utf-8")
