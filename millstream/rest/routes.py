"""Every path of the REST API, and what answers it: one table, from which requests are routed and openapi.json is made.

Handlers are plain functions of a `Call`: they read what the driver knows and give JSON, text, or `Refused`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from millstream import __version__
from millstream.rest import (
    document,
    flink_checkpoints,
    flink_hosts,
    flink_jobs,
    resources,
    values,
)
from millstream.rest.control import Control, SavepointBody, StopBody
from millstream.rest.jobs import Jobs, ShownJob
from millstream.rest.logs import LINES, LOGS
from millstream.rest.security import Refused
from millstream.rest.shape import VertexShape
from millstream.runtime.driver.checkpoint_log import CheckpointRecord

__all__ = ["ROUTES", "Call", "Endpoint", "Services", "Text"]

MOST_NAMES = 1000
"""How many names or entries one request may ask for."""

DEEPEST = 64
"""How deep the JSON of a body may be nested."""

T = TypeVar("T")
"""The type that a body is read as."""

_AGGREGATES = ("min", "max", "avg", "sum", "skew")
LOG_NAME = "millstream.log"


@dataclass(frozen=True)
class Services:
    """What handlers have at hand."""

    jobs: Jobs
    control: Control
    refresh_interval: int = 3000
    clock: Callable[[], float] = time.time


@dataclass(frozen=True)
class Text:
    """An answer that is no JSON."""

    text: str


@dataclass(frozen=True)
class Call:
    """One request, its path already matched."""

    services: Services
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    client: str
    now: float = field(default=0.0)

    @property
    def job(self) -> ShownJob:
        """The job that the path names."""
        job = self.services.jobs.get(self.path["jobid"])
        if job is None:
            raise Refused(404, "there is no job of this id, or no more")
        return job

    @property
    def vertex(self) -> VertexShape:
        """The vertex that the path names."""
        vertex = self.job.shape.vertex(self.path["vertexid"])
        if vertex is None:
            raise Refused(404, "the job has no vertex of this id")
        return vertex

    @property
    def subtask(self) -> int:
        """The subtask that the path names."""
        number = _number(self.path["subtaskindex"], self.vertex.parallelism)
        if number >= self.vertex.parallelism:
            raise Refused(404, "the vertex has no subtask of this number")
        return number

    @property
    def checkpoint(self) -> CheckpointRecord:
        """The checkpoint that the path names."""
        number = _number(self.path["checkpointid"], 1 << 62)
        record = flink_checkpoints.find_checkpoint(self.job, number)
        if record is None:
            raise Refused(404, "there is no checkpoint of this number, or no more")
        return record

    def count(self, name: str, default: int) -> int:
        """A number in the query, at most as large as anybody may ask for."""
        text = self.query.get(name)
        return default if text is None else _number(text, MOST_NAMES)

    def names(self, name: str) -> list[str] | None:
        """A list in the query."""
        text = self.query.get(name)
        if text is None:
            return None
        names = [part for part in text.split(",") if part]
        if len(names) > MOST_NAMES:
            raise Refused(400, f"more than {MOST_NAMES} names are asked for")
        return names

    def read(self, kind: type[T]) -> T:
        """The body, as what it has to be."""
        if depth(self.body) > DEEPEST:
            raise Refused(400, f"the body is nested deeper than {DEEPEST}")
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(400, f"the body cannot be read: {error}") from None


def _number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refused(400, "a number is needed")
    return min(int(text), most)


def depth(body: bytes) -> int:
    r"""How deep JSON is nested, before anybody reads it.

    >>> depth(b'{"a": [1, {"b": "[[["}]}'), depth(b'["\\"["]')
    (3, 1)
    """
    deepest = level = 0
    quoted = escaped = False
    for byte in body:
        if escaped:
            escaped = False
        elif quoted:
            escaped = byte == 0x5C
            quoted = byte != 0x22
        elif byte == 0x22:
            quoted = True
        elif byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif byte in b"]}":
            level -= 1
    return deepest


# -- the cluster ------------------------------------------------------------------------------------


def _health(call: Call) -> Any:
    return {"status": "up"}


def _config(call: Call) -> Any:
    local = time.localtime(call.now)
    return {
        "refresh-interval": call.services.refresh_interval,
        "timezone-name": local.tm_zone,
        "timezone-offset": local.tm_gmtoff * 1000,
        "flink-version": f"Millstream {__version__}",
        "flink-revision": "",
        "features": {
            "web-submit": False,
            "web-cancel": True,
            "web-rescale": True,
            "web-history": False,
        },
    }


def _overview(call: Call) -> Any:
    return flink_hosts.overview(call.services.jobs)


def _jars(call: Call) -> Any:
    """What Flink's page takes for: there is no place here to put programs."""
    return {"address": "", "files": [], "error": True}


def _task_managers(call: Call) -> Any:
    return flink_hosts.task_managers(call.services.jobs, call.now)


def _task_manager(call: Call) -> Any:
    found = flink_hosts.task_manager(call.services.jobs, call.path["taskmanagerid"], call.now)
    if found is None:
        raise Refused(404, "no process of this name runs a subtask")
    return found


def _no_values(call: Call) -> Any:
    _task_manager(call)
    return []


def _no_logs(call: Call) -> Any:
    _task_manager(call)
    return {"logs": []}


def _no_threads(call: Call) -> Any:
    _task_manager(call)
    return {"threadInfos": []}


def _no_text(call: Call) -> Any:
    return Text("")


def _settings(call: Call) -> Any:
    """Of the newest job: there is no cluster that would have settings of its own."""
    jobs = call.services.jobs.all()
    return _pairs(jobs[-1]) if jobs else []


def _pairs(job: ShownJob) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in job.configuration.items()]


def _environment(call: Call) -> Any:
    return flink_hosts.environment()


def _process_values(call: Call) -> Any:
    known: dict[str, float] = {
        "numRunningJobs": flink_hosts.overview(call.services.jobs)["jobs-running"],
        **flink_hosts.process_values(),
    }
    return _named(known, call)


def _threads(call: Call) -> Any:
    return flink_hosts.threads()


def _logs(call: Call) -> Any:
    size = sum(len(line.encode(errors="replace")) + 1 for line in LOGS.last(LINES))
    return {"logs": [{"name": LOG_NAME, "size": size, "mtime": round(1000 * call.now)}]}


def _log_text(call: Call) -> Any:
    if call.path.get("name", LOG_NAME) != LOG_NAME:
        raise Refused(404, "there is no log of this name")
    return Text("\n".join(LOGS.last(LINES)) + "\n")


# -- jobs -------------------------------------------------------------------------------------------


def _jobs(call: Call) -> Any:
    return {"jobs": [{"id": job.id, "status": job.state} for job in call.services.jobs.all()]}


def _jobs_overview(call: Call) -> Any:
    return {"jobs": [flink_jobs.job_overview(job, call.now) for job in call.services.jobs.all()]}


def _jobs_values(call: Call) -> Any:
    rows = [job.values(call.now) for job in call.services.jobs.all()]
    return _aggregated(rows, call)


def _job(call: Call) -> Any:
    return flink_jobs.job_details(call.job, call.now)


def _cancel(call: Call) -> Any:
    if call.query.get("mode", "cancel") != "cancel":
        raise Refused(410, "this mode has gone: POST to /jobs/:jobid/stop stops with a savepoint")
    call.services.control.cancel(call.job, call.client)
    return {}


def _status(call: Call) -> Any:
    return {"status": call.job.state}


def _plan(call: Call) -> Any:
    return {"plan": flink_jobs.plan(call.job)}


def _job_config(call: Call) -> Any:
    return flink_jobs.job_config(call.job)


def _exceptions(call: Call) -> Any:
    return flink_jobs.exceptions(call.job, call.count("maxExceptions", 20))


def _job_values(call: Call) -> Any:
    return _named(call.job.values(call.now), call)


def _job_accumulators(call: Call) -> Any:
    call.job  # noqa: B018  it has to be there
    return {
        "job-accumulators": [],
        "user-task-accumulators": [],
        "serialized-user-task-accumulators": {},
    }


def _job_settings(call: Call) -> Any:
    return _pairs(call.job)


def _job_environment(call: Call) -> Any:
    call.job  # noqa: B018  it has to be there
    return flink_hosts.environment()


def _requirements(call: Call) -> Any:
    return resources.requirements(call.job)


def _require(call: Call) -> Any:
    resources.change(call.job, call.read(resources.Requirements), call.client)
    return {}


def _checkpoints(call: Call) -> Any:
    return flink_checkpoints.checkpoints(call.job)


def _checkpoint_config(call: Call) -> Any:
    return flink_checkpoints.checkpoint_config(call.job)


def _checkpoint(call: Call) -> Any:
    return flink_checkpoints.checkpoint_details(call.job, call.checkpoint)


def _checkpoint_subtasks(call: Call) -> Any:
    return flink_checkpoints.checkpoint_subtasks(call.checkpoint, call.vertex)


def _savepoint(call: Call) -> Any:
    asked = call.read(SavepointBody)
    return {"request-id": call.services.control.savepoint(call.job, asked, call.client)}


def _stop(call: Call) -> Any:
    asked = call.read(StopBody)
    return {"request-id": call.services.control.savepoint(call.job, asked, call.client)}


def _savepoint_outcome(call: Call) -> Any:
    return call.services.control.outcome(call.job, call.path["triggerid"])


# -- vertices ---------------------------------------------------------------------------------------


def _vertex(call: Call) -> Any:
    return flink_jobs.vertex_details(call.job, call.vertex, call.now)


def _subtask(call: Call) -> Any:
    part = flink_jobs.subtasks(call.job, call.vertex)[call.subtask]
    return flink_jobs.subtask_details(call.job, call.vertex, call.subtask, part, call.now)


def _vertex_values(call: Call) -> Any:
    figures = {
        f"{subtask}.{name}": value
        for subtask in range(call.vertex.parallelism)
        for name, value in call.job.values_of(call.vertex, subtask).items()
    }
    return _named(figures, call)


def _subtask_values(call: Call) -> Any:
    return _named(call.job.values_of(call.vertex, call.subtask), call)


def _subtasks_values(call: Call) -> Any:
    vertex = call.vertex
    wanted = call.names("subtasks")
    numbers = range(vertex.parallelism) if wanted is None else [_number(n, 1 << 30) for n in wanted]
    rows = [call.job.values_of(vertex, number) for number in numbers if number < vertex.parallelism]
    return _aggregated(rows, call)


def _watermarks(call: Call) -> Any:
    return flink_jobs.watermarks(call.job, call.vertex)


def _backpressure(call: Call) -> Any:
    return flink_jobs.backpressure(call.job, call.vertex, call.now)


def _accumulators(call: Call) -> Any:
    return flink_jobs.accumulators(call.job, call.vertex, by_subtask=False)


def _subtask_accumulators(call: Call) -> Any:
    return flink_jobs.accumulators(call.job, call.vertex, by_subtask=True)


def _subtask_times(call: Call) -> Any:
    return flink_jobs.subtask_times(call.job, call.vertex, call.now)


def _vertex_task_managers(call: Call) -> Any:
    return flink_jobs.vertex_task_managers(call.job, call.vertex, call.now)


def _flame_graph(call: Call) -> Any:
    """Flink's answer where they are turned off."""
    call.vertex  # noqa: B018  it has to be there
    return {"endTimestamp": -2, "data": None}


# -- our own ----------------------------------------------------------------------------------------


def _own_jobs(call: Call) -> Any:
    return document.job_list(call.services.jobs, call.now)


def _own_job(call: Call) -> Any:
    return document.document(call.job, call.now)


def _own_log(call: Call) -> Any:
    call.job  # noqa: B018  it has to be there
    return {"lines": LOGS.last(call.count("lines", 500))}


def _named(known: Mapping[str, float], call: Call) -> list[dict[str, str]]:
    """Figures by name; their names alone if nobody asks for any."""
    wanted = call.names("get")
    if wanted is None:
        return [{"id": name} for name in known]
    return [{"id": name, "value": _written(known[name])} for name in wanted if name in known]


def _written(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(int(value)) if value == int(value) else repr(round(value, 6))


def _aggregated(rows: list[dict[str, float]], call: Call) -> Any:
    wanted = call.names("get")
    if wanted is None:
        return [{"id": name} for name in dict.fromkeys(name for row in rows for name in row)]
    kinds = call.names("agg") or list(_AGGREGATES)
    if not set(kinds) <= set(_AGGREGATES):
        raise Refused(400, f"agg is some of {', '.join(_AGGREGATES)}")
    return values.aggregated(rows, wanted, kinds)


@dataclass(frozen=True)
class Endpoint:
    """A method of a path. Paths are written as Flink writes them: `/jobs/:jobid`."""

    method: str
    path: str
    handler: Callable[[Call], Any]
    summary: str
    status: int = 200
    query: tuple[str, ...] = ()
    body: Any = None
    # Only for Flink's page, below /flink/, and only if it is served.
    page_only: bool = False


_JOB = "/jobs/:jobid"
_VERTEX = "/jobs/:jobid/vertices/:vertexid"
_TASK_MANAGER = "/taskmanagers/:taskmanagerid"

ROUTES: tuple[Endpoint, ...] = (
    Endpoint("GET", "/health", _health, "The server is up; nothing else, and without a token."),
    Endpoint("GET", "/config", _config, "What a web page needs to know."),
    Endpoint("GET", "/overview", _overview, "How many jobs and processes there are."),
    Endpoint("GET", "/jars", _jars, "No programs can be put here."),
    Endpoint("GET", "/jobs", _jobs, "Jobs and their states."),
    Endpoint("GET", "/jobs/overview", _jobs_overview, "Jobs, each in a line."),
    Endpoint("GET", "/jobs/metrics", _jobs_values, "Figures over all jobs.", query=("get", "agg")),
    Endpoint("GET", _JOB, _job, "A job with its vertices and its plan."),
    Endpoint("PATCH", _JOB, _cancel, "Cancel a job.", 202, query=("mode",)),
    Endpoint("GET", f"{_JOB}/yarn-cancel", _cancel, "Cancel a job.", 202, page_only=True),
    Endpoint("GET", f"{_JOB}/status", _status, "A job's state."),
    Endpoint("GET", f"{_JOB}/plan", _plan, "The graph of a job's vertices."),
    Endpoint("GET", f"{_JOB}/config", _job_config, "How a job is run."),
    Endpoint(
        "GET",
        f"{_JOB}/exceptions",
        _exceptions,
        "What failed, newest first.",
        query=("maxExceptions",),
    ),
    Endpoint("GET", f"{_JOB}/metrics", _job_values, "A job's figures.", query=("get",)),
    Endpoint("GET", f"{_JOB}/accumulators", _job_accumulators, "There are none in Python."),
    Endpoint("GET", f"{_JOB}/jobmanager/config", _job_settings, "A job's configuration."),
    Endpoint("GET", f"{_JOB}/jobmanager/environment", _job_environment, "The driver's Python."),
    Endpoint(
        "GET", f"{_JOB}/resource-requirements", _requirements, "How many subtasks vertices have."
    ),
    Endpoint(
        "PUT",
        f"{_JOB}/resource-requirements",
        _require,
        "Rescale a job.",
        body=resources.Requirements,
    ),
    Endpoint("GET", f"{_JOB}/checkpoints", _checkpoints, "Checkpoints: counts, sizes, the last."),
    Endpoint("GET", f"{_JOB}/checkpoints/config", _checkpoint_config, "How checkpoints are made."),
    Endpoint("GET", f"{_JOB}/checkpoints/details/:checkpointid", _checkpoint, "One checkpoint."),
    Endpoint(
        "GET",
        f"{_JOB}/checkpoints/details/:checkpointid/subtasks/:vertexid",
        _checkpoint_subtasks,
        "A vertex's part in a checkpoint.",
    ),
    Endpoint(
        "POST", f"{_JOB}/savepoints", _savepoint, "Take a savepoint.", 202, body=SavepointBody
    ),
    Endpoint(
        "GET", f"{_JOB}/savepoints/:triggerid", _savepoint_outcome, "What became of a savepoint."
    ),
    Endpoint("POST", f"{_JOB}/stop", _stop, "Stop with a savepoint.", 202, body=StopBody),
    Endpoint("GET", _VERTEX, _vertex, "A vertex and its subtasks."),
    Endpoint(
        "GET", f"{_VERTEX}/metrics", _vertex_values, "Figures of all subtasks.", query=("get",)
    ),
    Endpoint(
        "GET",
        f"{_VERTEX}/subtasks/metrics",
        _subtasks_values,
        "Figures over all subtasks.",
        query=("get", "agg", "subtasks"),
    ),
    Endpoint("GET", f"{_VERTEX}/subtasks/accumulators", _subtask_accumulators, "There are none."),
    Endpoint("GET", f"{_VERTEX}/subtasks/:subtaskindex", _subtask, "One subtask."),
    Endpoint(
        "GET",
        f"{_VERTEX}/subtasks/:subtaskindex/metrics",
        _subtask_values,
        "Figures of one subtask.",
        query=("get",),
    ),
    Endpoint("GET", f"{_VERTEX}/watermarks", _watermarks, "Watermarks by subtask."),
    Endpoint("GET", f"{_VERTEX}/backpressure", _backpressure, "How busy each subtask is."),
    Endpoint("GET", f"{_VERTEX}/accumulators", _accumulators, "There are none in Python."),
    Endpoint(
        "GET", f"{_VERTEX}/subtasktimes", _subtask_times, "When each subtask came to its state."
    ),
    Endpoint("GET", f"{_VERTEX}/taskmanagers", _vertex_task_managers, "A vertex by process."),
    Endpoint(
        "GET",
        f"{_VERTEX}/flamegraph",
        _flame_graph,
        "There are none.",
        query=("type", "subtaskindex"),
    ),
    Endpoint("GET", "/taskmanagers", _task_managers, "The processes that subtasks run in."),
    Endpoint("GET", _TASK_MANAGER, _task_manager, "One process."),
    Endpoint("GET", f"{_TASK_MANAGER}/metrics", _no_values, "None are known.", query=("get",)),
    Endpoint("GET", f"{_TASK_MANAGER}/logs", _no_logs, "They are Spark's."),
    Endpoint("GET", f"{_TASK_MANAGER}/log", _no_text, "It is Spark's."),
    Endpoint("GET", f"{_TASK_MANAGER}/stdout", _no_text, "It is Spark's."),
    Endpoint("GET", f"{_TASK_MANAGER}/thread-dump", _no_threads, "None are known."),
    Endpoint("GET", "/jobmanager/config", _settings, "The configuration of the newest job."),
    Endpoint("GET", "/jobmanager/environment", _environment, "The driver's Python."),
    Endpoint(
        "GET", "/jobmanager/metrics", _process_values, "The driver's figures.", query=("get",)
    ),
    Endpoint("GET", "/jobmanager/logs", _logs, "The driver's logs."),
    Endpoint("GET", "/jobmanager/logs/:name", _log_text, "The last lines of the driver's log."),
    Endpoint("GET", "/jobmanager/log", _log_text, "The last lines of the driver's log."),
    Endpoint("GET", "/jobmanager/stdout", _no_text, "It is the program's."),
    Endpoint("GET", "/jobmanager/thread-dump", _threads, "Where the driver's threads are."),
    Endpoint("GET", "/millstream/jobs", _own_jobs, "Jobs, for the dashboard."),
    Endpoint("GET", "/millstream/jobs/:jobid", _own_job, "A job, for the dashboard."),
    Endpoint(
        "GET",
        "/millstream/jobs/:jobid/log",
        _own_log,
        "The last lines of the log.",
        query=("lines",),
    ),
)
