"""The processes of a job as Flink's REST API shows them. The driver is the job manager; the processes that subtasks ran
in last are the task managers."""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

from millstream import __version__
from millstream.redaction import shown
from millstream.rest.flink_jobs import milliseconds, task_manager_id
from millstream.rest.jobs import Jobs
from millstream.runtime.driver.metrics import SubtaskMetrics

__all__ = ["environment", "overview", "process_values", "task_manager", "task_managers", "threads"]

_RESOURCES = ("taskHeapMemory", "taskOffHeapMemory", "managedMemory", "networkMemory")
_MEMORY = (
    *("frameworkHeap", "taskHeap", "frameworkOffHeap", "taskOffHeap", "networkMemory"),
    *("managedMemory", "jvmMetaspace", "jvmOverhead", "totalFlinkMemory", "totalProcessMemory"),
)
_METRICS = (
    *("heapUsed", "heapCommitted", "heapMax", "nonHeapUsed", "nonHeapCommitted", "nonHeapMax"),
    *("directCount", "directUsed", "directMax", "mappedCount", "mappedUsed", "mappedMax"),
    *("nettyShuffleMemorySegmentsAvailable", "nettyShuffleMemorySegmentsUsed"),
    *("nettyShuffleMemorySegmentsTotal", "nettyShuffleMemoryAvailable"),
    *("nettyShuffleMemoryUsed", "nettyShuffleMemoryTotal"),
)


def _processes(jobs: Jobs) -> dict[str, list[tuple[str, SubtaskMetrics]]]:
    """By process, what runs in it: jobs and subtasks."""
    found: dict[str, list[tuple[str, SubtaskMetrics]]] = {}
    for job in jobs.all():
        metrics = job.metrics
        if job.ended or metrics is None:
            continue
        for vertex in metrics.vertices.values():
            for part in vertex.subtasks:
                if part.host:
                    found.setdefault(task_manager_id(part), []).append((job.id, part))
    return found


def overview(jobs: Jobs) -> dict[str, Any]:
    """`/overview`."""
    processes = _processes(jobs)
    states = [job.state for job in jobs.all()]
    return {
        "taskmanagers": len(processes),
        "slots-total": len(processes),
        "slots-available": 0,
        "jobs-running": sum(state not in ("FINISHED", "CANCELED", "FAILED") for state in states),
        "jobs-finished": states.count("FINISHED"),
        "jobs-cancelled": states.count("CANCELED"),
        "jobs-failed": states.count("FAILED"),
        "flink-version": f"Millstream {__version__}",
        "flink-commit": "",
    }


def task_managers(jobs: Jobs, now: float) -> dict[str, Any]:
    """`/taskmanagers`."""
    return {"taskmanagers": [_process(id_, parts, now) for id_, parts in _processes(jobs).items()]}


def task_manager(jobs: Jobs, id_: str, now: float) -> dict[str, Any] | None:
    """`/taskmanagers/:taskmanagerid`."""
    parts = _processes(jobs).get(id_)
    if parts is None:
        return None
    by_job: dict[str, int] = {}
    for job, _ in parts:
        by_job[job] = by_job.get(job, 0) + 1
    own = parts[0][1].pid == os.getpid() and parts[0][1].host == socket.gethostname()
    used = process_values()["Status.Process.Memory.Resident"] if own else 0
    return _process(id_, parts, now) | {
        "allocatedSlots": [
            {"jobId": job, "assignedTasks": count, "resource": _resources(0.0)}
            for job, count in by_job.items()
        ],
        "metrics": dict.fromkeys(_METRICS, 0) | {"heapUsed": used, "garbageCollectors": []},
    }


def _process(id_: str, parts: Sequence[tuple[str, SubtaskMetrics]], now: float) -> dict[str, Any]:
    part = parts[0][1]
    here = part.host == socket.gethostname()
    return {
        "id": id_,
        "path": f"{part.host}:{part.pid}",
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": milliseconds(now),
        "slotsNumber": 1,
        "freeSlots": 0,
        "assignedTasks": len(parts),
        "totalResource": _resources(1.0),
        "freeResource": _resources(0.0),
        "hardware": {
            "cpuCores": (os.cpu_count() or 0) if here else 0,
            "physicalMemory": _pages("SC_PHYS_PAGES") if here else 0,
            "freeMemory": _pages("SC_AVPHYS_PAGES") if here else 0,
            "managedMemory": 0,
        },
        "memoryConfiguration": dict.fromkeys(_MEMORY, 0),
        "blocked": False,
    }


def _resources(cores: float) -> dict[str, Any]:
    return {"cpuCores": cores, **dict.fromkeys(_RESOURCES, 0), "extendedResources": {}}


def _pages(name: str) -> int:
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0


def process_values() -> dict[str, float]:
    """Figures of the driver's own process."""
    used = os.times()
    return {
        "Status.Process.CPU.Seconds": used.user + used.system,
        "Status.Process.Memory.Resident": _resident(),
        "Status.Process.Threads.Count": threading.active_count(),
    }


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def environment() -> dict[str, Any]:
    """`/jobmanager/environment`: Flink's words are Java's."""
    version = f"Python {platform.python_version()} ({platform.python_implementation()})"
    return {
        "jvm": {"version": version, "arch": platform.machine(), "options": []},
        "classpath": [],
    }


def threads() -> dict[str, Any]:
    """`/jobmanager/thread-dump`: where each thread of the driver is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    dump = []
    for ident, frame in sys._current_frames().items():
        name = names.get(ident, str(ident))
        where = "".join(traceback.format_stack(frame)[-40:])
        dump.append({"threadName": name, "stringifiedThreadInfo": shown(f'"{name}"\n{where}\n')})
    return {"threadInfos": dump, "at": milliseconds(time.time())}
