"""The document that the dashboard shows: everything of one job, in one answer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from millstream import __version__
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.redaction import shown
from millstream.reporters.moment import user_totals
from millstream.rest.flink_jobs import milliseconds, subtasks, times
from millstream.rest.jobs import FailureText, Jobs, ShownJob
from millstream.rest.shape import EdgeShape, OperatorShape, VertexShape
from millstream.runtime.driver.checkpoint_log import CheckpointRecord
from millstream.runtime.driver.metrics import JobMetrics, OperatorMetrics, SubtaskMetrics

__all__ = ["document", "job_list"]

_TOTALS = ("records_in", "records_out", "bytes_in", "bytes_out")
_SHARES = ("busy", "back_pressured", "idle")


def job_list(jobs: Jobs, now: float) -> dict[str, Any]:
    """All jobs, each in a line."""
    lines = [_line(job, now) for job in jobs.all()]
    return {"jobs": lines, "version": __version__, "pid": os.getpid()}


def _line(job: ShownJob, now: float) -> dict[str, Any]:
    metrics = job.metrics
    return {
        "jid": job.id,
        "name": job.name,
        "state": job.state,
        **times(job, now),
        "epoch": -1 if metrics is None else metrics.epoch,
        "records": 0 if metrics is None else metrics.records,
        "records_per_second": _rate_now(job, metrics),
        "restarts": 0 if metrics is None else metrics.restarts,
    }


def _rate_now(job: ShownJob, metrics: JobMetrics | None) -> float:
    return 0.0 if metrics is None or job.ended else metrics.records_per_second


def document(job: ShownJob, now: float) -> dict[str, Any]:
    """Everything of one job."""
    metrics = job.metrics
    shape = job.shape
    return {
        **_line(job, now),
        "now": milliseconds(now),
        "backlog": 0 if metrics is None else metrics.backlog,
        "lag": {}
        if metrics is None
        else {
            shown(name): {shown(split): lag for split, lag in list(splits.items())}
            for name, splits in list(metrics.lag.items())
        },
        "mode": "BATCH" if job.batch else "STREAMING",
        "engine": _engine(job),
        "parallelism": max(vertex.parallelism for vertex in shape.vertices),
        "vertices": [_vertex(job, vertex, now) for vertex in shape.vertices],
        "edges": [_edge(job, edge) for edge in shape.edges],
        "latency": _latency(job),
        "checkpoints": _checkpoints(job),
        "exceptions": [_failure(failure) for failure in job.failures],
        "history": _history(job),
    }


def _engine(job: ShownJob) -> dict[str, str]:
    known = {name: shown(value) for name, value in job.engine.items()}
    return {"name": "in-process", "version": "", "master": "", "application": ""} | known


def _vertex(job: ShownJob, vertex: VertexShape, now: float) -> dict[str, Any]:
    metrics = job.metrics
    parts = subtasks(job, vertex)
    watermark = None if metrics is None else _time(metrics.watermarks.get(vertex.number))
    operators = [_operator(metrics, vertex, operator) for operator in vertex.operators]
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "level": vertex.level,
        "kind": vertex.kind,
        "stage": max(part.stage for part in parts),
        **{name: sum(getattr(part, name) for part in parts) for name in _TOTALS},
        **{
            f"{name}_per_second": round(sum(p.per_second[name] for p in parts), 3)
            for name in ("records_in", "records_out")
        },
        **{name: max(_share(part.per_second[name]) for part in parts) for name in _SHARES},
        "watermark": watermark,
        "watermark_lag": None if watermark is None else milliseconds(now) - watermark,
        "state_bytes": sum(part.state_bytes for part in parts),
        "late": sum(operator["late"] for operator in operators),
        "bad": sum(operator["bad"] for operator in operators),
        "operators": operators,
        "subtasks": [_subtask(index, part) for index, part in enumerate(parts)],
    }


def _time(watermark: int | None) -> int | None:
    """A watermark as a moment; there is none before the first and after the last."""
    return None if watermark in (None, NO_TIME, MAX_TIME) else watermark


def _share(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)


def _operator(
    metrics: JobMetrics | None, vertex: VertexShape, operator: OperatorShape
) -> dict[str, Any]:
    known = None if metrics is None else metrics.vertices.get(vertex.number)
    parts = [] if known is None else known.operators.get(operator.uid, [])
    totals = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("records_in", "records_out", "late", "bad")
    }
    return {
        "uid": shown(operator.uid),
        "name": operator.name,
        "declared_at": operator.declared_at,
        "guarantee": operator.guarantee,
        **totals,
        "user": _user(parts),
    }


def _user(parts: Iterable[OperatorMetrics]) -> list[dict[str, Any]]:
    """The metrics of an operator's functions, over all its subtasks."""
    return [
        {
            "name": ".".join(shown(word) for word in (*(group[0] for group in groups), name)),
            "labels": {shown(group[0]): shown(group[1]) for group in groups if len(group) > 1},
            "kind": total.kind,
            "count": total.count,
            "value": total.value,
            "least": total.least,
            "largest": total.largest,
        }
        for (groups, name), total in user_totals(parts).items()
    ]


def _subtask(index: int, part: SubtaskMetrics) -> dict[str, Any]:
    return {
        "index": index,
        "host": part.host,
        "pid": part.pid,
        **{name: getattr(part, name) for name in _TOTALS},
        "records_in_per_second": round(part.per_second["records_in"], 3),
        "records_out_per_second": round(part.per_second["records_out"], 3),
        **{name: _share(part.per_second[name]) for name in _SHARES},
        "watermark": _time(part.watermark),
        "state_bytes": part.state_bytes,
    }


def _edge(job: ShownJob, edge: EdgeShape) -> dict[str, Any]:
    """What goes along an edge: all that its target gets, if that has no other, else a part of what its source sends."""
    into = sum(other.target == edge.target for other in job.shape.edges)
    out_of = sum(other.source == edge.source for other in job.shape.edges)
    id_, name, share = (
        (edge.target, "records_in", 1) if into == 1 else (edge.source, "records_out", out_of)
    )
    vertex = job.shape.vertex(id_)
    assert vertex is not None
    rate = sum(part.per_second[name] for part in subtasks(job, vertex)) / share
    return {
        "from": edge.source,
        "to": edge.target,
        "strategy": edge.strategy,
        "records_per_second": round(rate, 3),
    }


def _latency(job: ShownJob) -> list[dict[str, Any]]:
    metrics = job.metrics
    names = {o.uid: o.name for vertex in job.shape.vertices for o in vertex.operators}
    return [
        {
            "uid": shown(uid),
            "name": names.get(uid, shown(uid)),
            "count": histogram.count,
            **{
                f"p{percent}": round(1000 * _quantile(histogram, percent / 100), 3)
                for percent in (50, 95, 99)
            },
            "max": round(1000 * histogram.largest, 3),
        }
        for uid, histogram in ([] if metrics is None else list(metrics.latency.items()))
    ]


def _quantile(histogram: Any, share: float) -> float:
    """A quantile of a histogram that another thread may be adding to."""
    for _ in range(3):
        try:
            return float(histogram.quantile(share))
        except RuntimeError:
            continue
    return float(histogram.largest)


def _checkpoints(job: ShownJob) -> dict[str, Any]:
    settings = job.settings
    metrics = job.metrics
    log = None if metrics is None else metrics.checkpoint_log
    records = [] if log is None else list(log.records)
    interval, timeout = settings.checkpoint_interval, settings.checkpoint_timeout
    return {
        "counts": {
            "completed": 0 if log is None else log.completed,
            "failed": 0 if log is None else log.failed,
            "in_progress": sum(record.status == "IN_PROGRESS" for record in records),
            "savepoints": 0 if log is None else log.savepoints,
            "restored": 0 if log is None else log.restored,
        },
        "config": {
            "mode": settings.mode,
            "interval": None if interval is None else milliseconds(interval),
            "timeout": None if timeout is None else milliseconds(timeout),
            "min_pause": milliseconds(settings.min_pause),
            "dir": None if settings.checkpoint_dir is None else shown(settings.checkpoint_dir),
            "savepoint_dir": None
            if settings.savepoint_dir is None
            else shown(settings.savepoint_dir),
            "retained": settings.retained,
            "backend": settings.backend,
            "incremental": True,
        },
        "restored": None
        if log is None or log.restored_id is None
        else {
            "id": log.restored_id,
            "at": milliseconds(log.restored_at or 0.0),
            "path": shown(log.restored_path),
        },
        "history": [_checkpoint(job, record) for record in reversed(records)],
    }


def _checkpoint(job: ShownJob, record: CheckpointRecord) -> dict[str, Any]:
    names = {vertex.number: vertex.name for vertex in job.shape.vertices}
    slowest = record.slowest
    return {
        "id": record.id,
        "savepoint": record.savepoint,
        "status": record.status,
        "started": milliseconds(record.started_at),
        "seconds": round(record.seconds, 6),
        "size": record.size,
        "full_size": record.full_size,
        "alignment_seconds": round(record.alignment, 6),
        "path": shown(record.path),
        "failure": shown(record.failure),
        "slowest": None
        if slowest is None
        else {
            "vertices": [names.get(number, "") for number in slowest.vertices],
            "subtask": slowest.subtask,
            "seconds": round(slowest.seconds, 6),
        },
    }


def _failure(failure: FailureText) -> dict[str, Any]:
    evidence = failure.evidence
    return {
        "at": milliseconds(failure.at),
        "code": failure.code,
        "what": failure.what,
        "operator": evidence.get("operator", evidence.get("source")),
        "line": evidence.get("line", evidence.get("declared_at")),
        "record": evidence.get("record"),
        "position": evidence.get("position"),
        "text": failure.text,
        "epoch": failure.epoch,
        "replay": evidence.get("replay"),
    }


def _history(job: ShownJob) -> dict[str, Any]:
    if job.metrics is None:
        return {"times": [], "series": {}}
    times, lines = job.metrics.history.read()
    ids = {str(vertex.number): vertex.id for vertex in job.shape.vertices}
    series = {}
    for name, values in lines.items():
        about, dot, number = name.partition(".")
        series[f"{about}{dot}{ids.get(number, number)}"] = values
    return {"times": [milliseconds(at) for at in times], "series": series}
