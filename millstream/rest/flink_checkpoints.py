"""Checkpoints as Flink's REST API shows them, from the driver's `CheckpointLog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.common.constants import MAX_LONG_VALUE
from millstream.redaction import shown
from millstream.rest.flink_jobs import milliseconds
from millstream.rest.jobs import ShownJob
from millstream.rest.shape import VertexShape
from millstream.runtime.driver.checkpoint_log import CheckpointLog, CheckpointRecord, TaskRecord

__all__ = [
    "checkpoint_config",
    "checkpoint_details",
    "checkpoint_subtasks",
    "checkpoints",
    "find_checkpoint",
]

_SUMMED = (
    "checkpointed_size",
    "state_size",
    "end_to_end_duration",
    "alignment_buffered",
    "processed_data",
    "persisted_data",
)
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def _log(job: ShownJob) -> CheckpointLog:
    metrics = job.metrics
    return CheckpointLog() if metrics is None else metrics.checkpoint_log


def checkpoints(job: ShownJob) -> dict[str, Any]:
    """`/jobs/:jobid/checkpoints`."""
    log = _log(job)
    records = [checkpoint_details(job, record) for record in reversed(list(log.records))]
    complete = [record for record in records if record["status"] == "COMPLETED"]
    running = sum(record["status"] == "IN_PROGRESS" for record in records)
    completed = log.completed + log.savepoints
    return {
        "counts": {
            "restored": log.restored,
            "total": completed + log.failed + running,
            "in_progress": running,
            "completed": completed,
            "failed": log.failed,
        },
        "summary": {name: summary([record[name] for record in complete]) for name in _SUMMED},
        "latest": {
            "completed": _first(complete, savepoint=False),
            "savepoint": _first(complete, savepoint=True),
            "failed": _first([record for record in records if record["status"] == "FAILED"]),
            "restored": _restored(log),
        },
        "history": records,
    }


def _first(
    records: Sequence[dict[str, Any]], savepoint: bool | None = None
) -> dict[str, Any] | None:
    """The newest of them, a savepoint or none if that is asked for."""
    return next((r for r in records if savepoint is None or r["is_savepoint"] is savepoint), None)


def _restored(log: CheckpointLog) -> dict[str, Any] | None:
    if log.restored_id is None:
        return None
    return {
        "id": log.restored_id,
        "restore_timestamp": milliseconds(log.restored_at or 0.0),
        "is_savepoint": False,
        "external_path": shown(log.restored_path),
    }


def summary(values: Sequence[float]) -> dict[str, float]:
    """Least, largest, mean and quantiles.

    >>> summary([1, 2, 3])["avg"], summary([])["max"]
    (2, 0)
    """
    ordered = sorted(values) or [0]
    least, largest, mean = ordered[0], ordered[-1], sum(ordered) / len(ordered)
    return {"min": round(least), "max": round(largest), "avg": round(mean)} | {
        name: float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])
        for name, share in _QUANTILES.items()
    }


def find_checkpoint(job: ShownJob, number: int) -> CheckpointRecord | None:
    """The newest checkpoint of that number; a savepoint has that of the checkpoint it is made from, and stands back."""
    found = [record for record in list(_log(job).records) if record.id == number]
    own = [record for record in found if not record.savepoint]
    return next(reversed(own or found), None)


def checkpoint_details(job: ShownJob, record: CheckpointRecord) -> dict[str, Any]:
    """`/jobs/:jobid/checkpoints/details/:checkpointid`, and a line of the history."""
    tasks = {
        vertex.id: _task(job, record, vertex)
        for vertex in job.shape.vertices
        if not record.savepoint
    }
    status = record.status
    details: dict[str, Any] = {
        "className": status.lower(),
        **_common(job, record),
        "is_savepoint": record.savepoint,
        "savepointFormat": "NATIVE" if record.savepoint else None,
        "trigger_timestamp": milliseconds(record.started_at),
        "checkpoint_type": "SAVEPOINT" if record.savepoint else "CHECKPOINT",
        "tasks": tasks,
        "num_subtasks": sum(task["num_subtasks"] for task in tasks.values()),
        "num_acknowledged_subtasks": sum(t["num_acknowledged_subtasks"] for t in tasks.values()),
    }
    if status == "COMPLETED":
        details |= {"external_path": shown(record.path), "discarded": False}
    if status == "FAILED":
        details |= {
            "failure_timestamp": milliseconds(record.ended_at or record.started_at),
            "failure_message": shown(record.failure),
        }
    return details


def _common(job: ShownJob, record: CheckpointRecord) -> dict[str, Any]:
    acknowledged = max((task.at + task.seconds for task in record.tasks), default=None)
    acknowledged = acknowledged or record.ended_at
    return {
        "id": record.id,
        "status": record.status,
        "latest_ack_timestamp": -1 if acknowledged is None else milliseconds(acknowledged),
        "checkpointed_size": record.size,
        "state_size": record.full_size,
        "end_to_end_duration": milliseconds(record.seconds),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
    }


def _tasks_of(record: CheckpointRecord, vertex: VertexShape) -> list[TaskRecord]:
    return [task for task in record.tasks if vertex.number in task.vertices]


def _task(job: ShownJob, record: CheckpointRecord, vertex: VertexShape) -> dict[str, Any]:
    own = _tasks_of(record, vertex)
    size = sum(task.size for task in own)
    return {
        "id": record.id,
        "status": record.status,
        "latest_ack_timestamp": milliseconds(max((t.at + t.seconds for t in own), default=-0.001)),
        "checkpointed_size": size,
        "state_size": size,
        "end_to_end_duration": milliseconds(max((task.seconds for task in own), default=0.0)),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": min(len(own), vertex.parallelism),
    }


def checkpoint_subtasks(
    job: ShownJob, record: CheckpointRecord, vertex: VertexShape
) -> dict[str, Any]:
    """`/jobs/:jobid/checkpoints/details/:checkpointid/subtasks/:vertexid`."""
    own = {task.subtask: task for task in _tasks_of(record, vertex)}
    parts = [_subtask(index, own.get(index)) for index in range(vertex.parallelism)]
    done = [part for part in parts if part["status"] == "completed"]

    def of(*path: str) -> dict[str, float]:
        values: list[Any] = list(done)
        for name in path:
            values = [value[name] for value in values]
        return summary(values)

    return {
        **_task(job, record, vertex),
        "summary": {
            "checkpointed_size": of("checkpointed_size"),
            "state_size": of("state_size"),
            "end_to_end_duration": of("end_to_end_duration"),
            "checkpoint_duration": {
                "sync": of("checkpoint", "sync"),
                "async": of("checkpoint", "async"),
            },
            "alignment": {
                "buffered": of("alignment", "buffered"),
                "processed": of("alignment", "processed"),
                "persisted": of("alignment", "persisted"),
                "duration": of("alignment", "duration"),
            },
            "start_delay": of("start_delay"),
        },
        "subtasks": parts,
    }


def _subtask(index: int, task: TaskRecord | None) -> dict[str, Any]:
    if task is None:
        return {"index": index, "status": "pending_or_failed"}
    duration = milliseconds(task.seconds)
    return {
        "index": index,
        "status": "completed",
        "ack_timestamp": milliseconds(task.at + task.seconds),
        "end_to_end_duration": duration,
        "checkpointed_size": task.size,
        "state_size": task.size,
        # State is written while the task waits: there is nothing beside.
        "checkpoint": {"sync": duration, "async": 0},
        "alignment": {
            "buffered": 0,
            "processed": 0,
            "persisted": 0,
            "duration": milliseconds(task.waited),
        },
        "start_delay": 0,
        "unaligned_checkpoint": False,
        "aborted": False,
    }


def checkpoint_config(job: ShownJob) -> dict[str, Any]:
    """`/jobs/:jobid/checkpoints/config`."""
    settings = job.settings
    interval = settings.checkpoint_interval
    timeout = settings.checkpoint_timeout
    durable = settings.checkpoint_dir is not None
    return {
        "mode": settings.mode.lower(),
        # Flink's number for no checkpoints at all.
        "interval": MAX_LONG_VALUE if interval is None else milliseconds(interval),
        "timeout": MAX_LONG_VALUE if timeout is None else milliseconds(timeout),
        "min_pause": milliseconds(settings.min_pause),
        "max_concurrent": 1,
        "externalization": {
            "enabled": durable and settings.retention != "NO_EXTERNALIZED_CHECKPOINTS",
            "delete_on_cancellation": settings.retention == "DELETE_ON_CANCELLATION",
        },
        "state_backend": settings.backend,
        "checkpoint_storage": shown(settings.checkpoint_dir or "a temporary folder"),
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": settings.tolerable_failures,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "none",
    }
