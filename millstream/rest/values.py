"""Figures of a job, a subtask and its operators under Flink's names: what `…/metrics?get=` gives.

The one place where REST knows the names of metrics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.common.constants import NO_TIME
from millstream.redaction import shown
from millstream.rest.jobs import ShownJob
from millstream.rest.shape import VertexShape

__all__ = ["aggregated", "job_values", "metric_values", "vertex_values"]

_SPECIAL = re.compile(r"[^\w:-]")
_RATES = {
    "numRecordsInPerSecond": "records_in",
    "numRecordsOutPerSecond": "records_out",
    "numBytesInPerSecond": "bytes_in",
    "numBytesOutPerSecond": "bytes_out",
}
_TIMES = {"busy": "busy", "idle": "idle", "backPressured": "back_pressured"}


def metric_values(job: ShownJob, vertex: VertexShape, subtask: int) -> dict[str, float]:
    """The figures of one subtask, and, after the name of each of its operators, those of that one."""
    metrics = job.metrics
    if metrics is None:
        return {}
    figures = metrics.vertices[vertex.number]
    own = figures.subtasks[subtask]
    rates = own.per_second
    values: dict[str, float] = {
        "numRecordsIn": own.records_in,
        "numRecordsOut": own.records_out,
        "numBytesIn": own.bytes_in,
        "numBytesOut": own.bytes_out,
        "numBuffersIn": own.buffers_in,
        "numBuffersOut": own.buffers_out,
        "isBackPressured": float(rates["back_pressured"] > 0.5),
        "currentInputWatermark": NO_TIME if own.watermark is None else own.watermark,
        "stateSize": own.state_bytes,
    }
    values |= {name: rates[rate] for name, rate in _RATES.items()}
    for name, attribute in _TIMES.items():
        values[f"{name}TimeMsPerSecond"] = round(1000 * rates[attribute], 3)
        whole = name[0].upper() + name[1:]
        values[f"accumulate{whole}TimeMs"] = round(1000 * getattr(own, attribute))
    for operator in vertex.operators:
        part = figures.operators[operator.uid][subtask]
        scope = _SPECIAL.sub("_", operator.name)
        values[f"{scope}.numRecordsIn"] = part.records_in
        values[f"{scope}.numRecordsOut"] = part.records_out
        values[f"{scope}.numLateRecordsDropped"] = part.late
        values[f"{scope}.numBadRecords"] = part.bad
        for (groups, name), total in part.user.copy().items():
            path = [word for group in groups for word in group]
            metric = ".".join(_SPECIAL.sub("_", shown(word)) for word in [*path, name])
            is_count = total.kind in ("counter", "meter")
            values[f"{scope}.{metric}"] = total.count if is_count else total.value
    return values


def vertex_values(job: ShownJob, vertex: VertexShape) -> dict[str, float]:
    """The figures of all subtasks, each behind the number of its subtask."""
    return {
        f"{subtask}.{name}": value
        for subtask in range(vertex.parallelism)
        for name, value in metric_values(job, vertex, subtask).items()
    }


def job_values(job: ShownJob, now: float) -> dict[str, float]:
    """The figures of a job as a whole."""
    metrics = job.metrics
    if metrics is None:
        return {}
    log = metrics.checkpoint_log
    done = [record for record in list(log.records) if record.status == "COMPLETED"]
    last = next((record for record in reversed(done) if not record.savepoint), None)
    running = job.state == "RUNNING"
    until = job.ended_at or now
    return {
        "uptime": round(1000 * (now - job.since["RUNNING"])) if running else 0,
        "downtime": 0
        if running or job.ended
        else round(1000 * (until - job.since.get("RESTARTING", until))),
        "numRestarts": metrics.restarts,
        "fullRestarts": metrics.restarts,
        "numberOfCompletedCheckpoints": log.completed,
        "numberOfFailedCheckpoints": log.failed,
        "numberOfInProgressCheckpoints": log.in_progress,
        "totalNumberOfCheckpoints": log.completed + log.failed + log.in_progress,
        "lastCheckpointDuration": -1 if last is None else round(1000 * last.seconds),
        "lastCheckpointSize": -1 if last is None else last.size,
        "lastCheckpointFullSize": -1 if last is None else last.full_size,
        "lastCompletedCheckpointId": -1 if last is None else last.id,
        "numRecordsIn": metrics.records,
        "numRecordsInPerSecond": metrics.records_per_second,
        "pendingRecords": metrics.backlog,
    }


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
