"""Jobs, vertices and subtasks as Flink's REST API shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from millstream.common.constants import NO_TIME
from millstream.rest.jobs import FailureText, ShownJob, hidden
from millstream.rest.shape import VertexShape
from millstream.runtime.driver.metrics import SubtaskMetrics

__all__ = [
    "accumulators",
    "backpressure",
    "exceptions",
    "job_config",
    "job_details",
    "job_overview",
    "plan",
    "subtask_details",
    "subtask_times",
    "vertex_details",
    "vertex_task_managers",
    "watermarks",
]

TASK_STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
# What tasks of a job do that is in a state of its own.
_OF_JOB = {
    "CANCELLING": "CANCELING",
    "RESTARTING": "SCHEDULED",
    "FAILING": "CANCELING",
    "SUSPENDED": "CANCELED",
}
_AGGREGATES = ("min", "max", "avg", "sum", "median", "p25", "p75", "p95")


def milliseconds(seconds: float) -> int:
    """A time as REST tells it."""
    return round(1000 * seconds)


def times(job: ShownJob, now: float) -> dict[str, int]:
    """When a job began and ended, and for how long it has run."""
    ended = job.ended_at
    return {
        "start-time": milliseconds(job.started_at),
        "end-time": -1 if ended is None else milliseconds(ended),
        "duration": milliseconds((now if ended is None else ended) - job.started_at),
    }


def task_state(job: ShownJob, vertex: VertexShape | None = None) -> str:
    """The state of a job's tasks. Of a job that failed, one vertex did, and the others were cancelled for it."""
    state = job.state
    if state != "FAILED":
        return _OF_JOB.get(state, state)
    failed = failed_vertex(job, job.failures[0]) if job.failures else None
    return "FAILED" if vertex is None or failed is None or failed.id == vertex.id else "CANCELED"


def failed_vertex(job: ShownJob, failure: FailureText) -> VertexShape | None:
    """Whose operator an attempt failed in, if it was one's."""
    name = failure.evidence.get("operator", failure.evidence.get("source", ""))
    return job.shape.vertex_of_operator(name)


def counts(states: Iterable[str]) -> dict[str, int]:
    """How many are in each state."""
    found = Counter(states)
    return {state: found.get(state, 0) for state in TASK_STATES}


def job_overview(job: ShownJob, now: float) -> dict[str, Any]:
    """A job's line in `/jobs/overview`."""
    tasks = counts(task_state(job, v) for v in job.shape.vertices for _ in range(v.parallelism))
    return {
        "jid": job.id,
        "name": job.name,
        "jobType": "BATCH" if job.batch else "STREAMING",
        "schedulerType": "Default",
        **times(job, now),
        "state": job.state,
        "last-modification": milliseconds(max(job.since.values(), default=now)),
        "tasks": {"total": sum(tasks.values())} | {k.lower(): n for k, n in tasks.items()},
        "pending-operators": 0,
    }


def job_details(job: ShownJob, now: float) -> dict[str, Any]:
    """`/jobs/:jobid`."""
    since = {name: milliseconds(at) for name, at in job.since.items()}
    states = {vertex.id: task_state(job, vertex) for vertex in job.shape.vertices}
    # Flink names all states, with 0 for those that never were.
    stamps = dict.fromkeys(
        (
            *("INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED"),
            *("FINISHED", "RESTARTING", "SUSPENDED", "RECONCILING"),
        ),
        0,
    )
    return {
        "jid": job.id,
        "application-id": job.id,
        "name": job.name,
        "isStoppable": False,
        "state": job.state,
        "job-type": "BATCH" if job.batch else "STREAMING",
        "schedulerType": "Default",
        **times(job, now),
        "maxParallelism": max(vertex.max_parallelism for vertex in job.shape.vertices),
        "now": milliseconds(now),
        "timestamps": stamps | since,
        "vertices": [
            {
                "id": vertex.id,
                "slotSharingGroupId": vertex.slot_group,
                "name": vertex.name,
                "maxParallelism": vertex.max_parallelism,
                "parallelism": vertex.parallelism,
                "status": states[vertex.id],
                **times(job, now),
                "tasks": counts([states[vertex.id]] * vertex.parallelism),
                "metrics": _io(subtasks(job, vertex)),
            }
            for vertex in job.shape.vertices
        ],
        "status-counts": counts(states.values()),
        "plan": plan(job),
        "pending-operators": 0,
    }


def plan(job: ShownJob) -> dict[str, Any]:
    """The graph of a job's vertices."""
    nodes = []
    for vertex in job.shape.vertices:
        inputs = [edge for edge in job.shape.edges if edge.target == vertex.id]
        node: dict[str, Any] = {
            "id": vertex.id,
            "parallelism": vertex.parallelism,
            "operator": "",
            "operator_strategy": "",
            "description": _description(vertex),
            "optimizer_properties": {},
        }
        if inputs:
            node["inputs"] = [
                {
                    "num": number,
                    "id": edge.source,
                    "ship_strategy": edge.strategy,
                    "exchange": "blocking" if job.batch else "pipelined_bounded",
                }
                for number, edge in enumerate(inputs)
            ]
        nodes.append(node)
    kind = "BATCH" if job.batch else "STREAMING"
    return {"jid": job.id, "name": job.name, "type": kind, "nodes": nodes}


def _description(vertex: VertexShape) -> str:
    """As Flink's, which shows it as HTML: nothing of what a program calls its operators may be any."""
    lines = [
        operator.description.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        for operator in vertex.operators
    ]
    return "".join(f"{'' if not i else '+- '}{line}<br/>" for i, line in enumerate(lines))


def subtasks(job: ShownJob, vertex: VertexShape) -> list[SubtaskMetrics]:
    """The figures of a vertex's subtasks; of nothing before the job has begun."""
    metrics = job.metrics
    known = None if metrics is None else metrics.vertices.get(vertex.number)
    if known is None or known.parallelism != vertex.parallelism:
        # Or of nothing yet, since it was rescaled a moment ago.
        return [SubtaskMetrics() for _ in range(vertex.parallelism)]
    return known.subtasks


def _io(parts: Sequence[SubtaskMetrics]) -> dict[str, Any]:
    return {
        "read-bytes": sum(part.bytes_in for part in parts),
        "read-bytes-complete": True,
        "write-bytes": sum(part.bytes_out for part in parts),
        "write-bytes-complete": True,
        "read-records": sum(part.records_in for part in parts),
        "read-records-complete": True,
        "write-records": sum(part.records_out for part in parts),
        "write-records-complete": True,
        "accumulated-backpressured-time": milliseconds(sum(p.back_pressured for p in parts)),
        "accumulated-idle-time": milliseconds(sum(part.idle for part in parts)),
        "accumulated-busy-time": float(milliseconds(sum(part.busy for part in parts))),
    }


def task_manager_id(part: SubtaskMetrics) -> str:
    """The process that a subtask ran in last: what Flink calls a task manager."""
    return f"{part.host}-{part.pid}" if part.host else "(unassigned)"


def subtask_details(
    job: ShownJob, vertex: VertexShape, index: int, part: SubtaskMetrics, now: float
) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid/subtasks/:index`."""
    when = times(job, now)
    metrics = job.metrics
    return {
        "subtask": index,
        "status": task_state(job, vertex),
        "attempt": 0 if metrics is None else metrics.restarts,
        "endpoint": part.host or "(unassigned)",
        **when,
        "start_time": when["start-time"],
        "metrics": _io([part]),
        "taskmanager-id": task_manager_id(part),
        "status-duration": _durations(job, now),
    }


def _durations(job: ShownJob, now: float) -> dict[str, int]:
    """How long a task was in each state. It is created, and then it runs: Spark does not tell of what is between."""
    began = job.since.get("RUNNING", now)
    until = job.ended_at or now
    durations = dict.fromkeys(("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING"), 0)
    return durations | {"RUNNING": milliseconds(max(0.0, until - began))}


def vertex_details(job: ShownJob, vertex: VertexShape, now: float) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid`."""
    parts = [
        subtask_details(job, vertex, index, part, now)
        for index, part in enumerate(subtasks(job, vertex))
    ]
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": milliseconds(now),
        "subtasks": parts,
        "aggregated": _aggregated(parts),
    }


def _aggregated(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for group in ("metrics", "status-duration"):
        names = [name for name, value in parts[0][group].items() if not isinstance(value, bool)]
        result[group] = {name: _spread([part[group][name] for part in parts]) for name in names}
    return result


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    total = sum(ordered)
    spread = (
        *(ordered[0], ordered[-1], total // len(ordered), total),
        *(at(0.5), at(0.25), at(0.75), at(0.95)),
    )
    return {name: int(value) for name, value in zip(_AGGREGATES, spread, strict=True)}


def subtask_times(job: ShownJob, vertex: VertexShape, now: float) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid/subtasktimes`."""
    stamps = dict.fromkeys(TASK_STATES, 0)
    stamps |= {
        _OF_JOB.get(name, name): milliseconds(at)
        for name, at in job.since.items()
        if _OF_JOB.get(name, name) in stamps
    }
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": milliseconds(now),
        "subtasks": [
            {
                "subtask": index,
                "endpoint": part.host or "(unassigned)",
                "duration": times(job, now)["duration"],
                "timestamps": stamps,
            }
            for index, part in enumerate(subtasks(job, vertex))
        ],
    }


def vertex_task_managers(job: ShownJob, vertex: VertexShape, now: float) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid/taskmanagers`."""
    by_process: dict[str, list[tuple[int, SubtaskMetrics]]] = {}
    for index, part in enumerate(subtasks(job, vertex)):
        by_process.setdefault(task_manager_id(part), []).append((index, part))
    state = task_state(job, vertex)
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": milliseconds(now),
        "taskmanagers": [
            {
                "endpoint": parts[0][1].host or "(unassigned)",
                "status": state,
                **times(job, now),
                "metrics": _io([part for _, part in parts]),
                "status-counts": counts([state] * len(parts)),
                "taskmanager-id": process,
                "aggregated": _aggregated(
                    [subtask_details(job, vertex, index, part, now) for index, part in parts]
                ),
            }
            for process, parts in by_process.items()
        ],
    }


def backpressure(job: ShownJob, vertex: VertexShape, now: float) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid/backpressure`."""
    parts: list[dict[str, Any]] = []
    for index, part in enumerate(subtasks(job, vertex)):
        rates = part.per_second
        level = _level(rates["back_pressured"])
        parts.append(
            {
                "subtask": index,
                "attempt-number": 0,
                "backpressureLevel": level,
                "backpressure-level": level,
                "ratio": _share(rates["back_pressured"]),
                "idleRatio": _share(rates["idle"]),
                "busyRatio": _share(rates["busy"]),
            }
        )
    worst = _level(max(part["ratio"] for part in parts))
    return {
        "status": "ok",
        "backpressureLevel": worst,
        "backpressure-level": worst,
        "end-timestamp": milliseconds(now),
        "subtasks": parts,
    }


def _level(ratio: float) -> str:
    """Flink's words, at Flink's limits."""
    return "ok" if ratio <= 0.1 else "low" if ratio <= 0.5 else "high"


def _share(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)


def watermarks(job: ShownJob, vertex: VertexShape) -> list[dict[str, str]]:
    """`/jobs/:jobid/vertices/:vertexid/watermarks`."""
    return [
        {
            "id": f"{index}.currentInputWatermark",
            "value": str(NO_TIME if part.watermark is None else part.watermark),
        }
        for index, part in enumerate(subtasks(job, vertex))
    ]


def accumulators(job: ShownJob, vertex: VertexShape, *, by_subtask: bool) -> dict[str, Any]:
    """There are none in Python."""
    if not by_subtask:
        return {"id": vertex.id, "user-accumulators": []}
    return {
        "id": vertex.id,
        "parallelism": vertex.parallelism,
        "subtasks": [
            {
                "subtask": index,
                "attempt": 0,
                "endpoint": part.host or "(unassigned)",
                "user-accumulators": [],
            }
            for index, part in enumerate(subtasks(job, vertex))
        ],
    }


def job_config(job: ShownJob) -> dict[str, Any]:
    """`/jobs/:jobid/config`."""
    restart = job.settings.restart
    return {
        "jid": job.id,
        "name": job.name,
        "execution-config": {
            "execution-mode": "BATCH" if job.batch else "PIPELINED",
            "restart-strategy": "cluster default" if restart is None else restart.get_description(),
            "job-parallelism": max(vertex.parallelism for vertex in job.shape.vertices),
            "object-reuse-mode": job.settings.object_reuse,
            "user-config": hidden(job.settings.job_parameters),
        },
    }


def exceptions(job: ShownJob, most: int) -> dict[str, Any]:
    """`/jobs/:jobid/exceptions`, in Flink's form of today and of yesterday."""
    failures = job.failures
    entries = []
    for failure in failures[:most]:
        vertex = failed_vertex(job, failure)
        entries.append(
            {
                "exceptionName": failure.code,
                "stacktrace": failure.text,
                "timestamp": milliseconds(failure.at),
                "failureLabels": {"epoch": str(failure.epoch)},
                "taskName": None if vertex is None else vertex.name,
                "endpoint": None,
                "taskManagerId": None,
                "concurrentExceptions": [],
            }
        )
    return {
        "root-exception": failures[0].text if failures else None,
        "timestamp": milliseconds(failures[0].at) if failures else None,
        "all-exceptions": [],
        "truncated": len(failures) > most,
        "exceptionHistory": {"entries": entries, "truncated": len(failures) > most},
    }
