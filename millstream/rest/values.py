"""Figures of a job, a subtask and its operators under Flink's names: what `…/metrics?get=` gives.

Their names and what they mean are the catalogue's (`millstream.reporters.catalogue`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.redaction import shown
from millstream.reporters import catalogue
from millstream.reporters.moment import JobAt, TaskAt, look
from millstream.runtime.driver.run import JobRun

__all__ = ["LastValues", "aggregated", "job_values", "task_values", "values_at"]

LastValues = dict[tuple[int, int] | None, dict[str, float]]
"""By vertex and subtask, figures by their names; under None, those of the job."""

_SPECIAL = re.compile(r"[^\w:-]")


def task_values(run: JobRun, number: int, subtask: int) -> dict[str, float]:
    """The figures of one subtask of a vertex, and, after the name of each of its operators, those of that one."""
    at = look(run)
    return {} if at is None else _of_task(at, number, subtask)


def job_values(run: JobRun, now: float) -> dict[str, float]:
    """The figures of a job as a whole."""
    at = look(run, now)
    return {} if at is None else _numbers(catalogue.job_values(at))


def values_at(run: JobRun) -> LastValues:
    """All figures of a job, to be kept when it is over."""
    at = look(run)
    if at is None:
        return {}
    values: LastValues = {None: _numbers(catalogue.job_values(at))}
    for task in at.tasks():
        values[task.vertex.id, task.index] = _of_task(at, task.vertex.id, task.index)
    return values


def _of_task(at: JobAt, number: int, subtask: int) -> dict[str, float]:
    vertex = next((vertex for vertex in at.plan.vertices if vertex.id == number), None)
    if vertex is None or subtask >= vertex.parallelism:
        # The job has been rescaled since somebody looked at its shape.
        return {}
    task = TaskAt(at, vertex, subtask, at.vertices[number].subtasks[subtask])
    values = _numbers(catalogue.task_values(task))
    for operator in at.operators(task):
        scope = _SPECIAL.sub("_", shown(operator.node.name))
        for name, value in _numbers(catalogue.operator_values(operator)).items():
            values[f"{scope}.{name}"] = value
        for (groups, name), total in operator.metrics.user.copy().items():
            path = [word for group in groups for word in group]
            metric = ".".join(_SPECIAL.sub("_", shown(word)) for word in [*path, name])
            is_count = total.kind in ("counter", "meter")
            values[f"{scope}.{metric}"] = total.count if is_count else total.value
    return values


def _numbers(values: Mapping[str, catalogue.Value]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not isinstance(value, str)}


def aggregated(
    rows: Sequence[dict[str, float]], wanted: Iterable[str], kinds: Sequence[str]
) -> list[dict[str, Any]]:
    """What figures of several subtasks (or jobs) come to together, as Flink aggregates them.

    >>> aggregated([{"a": 1}, {"a": 3}], ["a", "b"], ["min", "max", "sum"])
    [{'id': 'a', 'min': 1, 'max': 3, 'sum': 4}]
    """
    result: list[dict[str, Any]] = []
    for name in wanted:
        values = [row[name] for row in rows if name in row]
        if values:
            result.append({"id": name} | {kind: _AGGREGATES[kind](values) for kind in kinds})
    return result


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _skew(values: Sequence[float]) -> float:
    """How far values are from being the same, in percent, as Flink computes it."""
    mean = _mean(values)
    if len(values) < 2 or mean == 0:
        return 0.0
    away = sum(abs(value - mean) for value in values) / len(values)
    return min(100.0, abs(away / mean * 100))


_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "avg": _mean,
    "skew": _skew,
}
