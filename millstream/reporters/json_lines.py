"""The JSON lines reporter: every few seconds a line with all figures of a job, and one at its end.

For machines that nobody scrapes, for tests and for looking back: `jq`, pandas and DuckDB read it as it is.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import stat
import threading
from pathlib import Path
from typing import Any

from millstream.redaction import get_logger
from millstream.reporters.catalogue import (
    Value,
    job_values,
    operator_values,
    series_values,
    task_values,
)
from millstream.reporters.moment import JobAt, TaskAt, id_of, look
from millstream.reporters.samples import printable
from millstream.runtime.driver.metrics import OperatorMetrics
from millstream.runtime.driver.run import JobRun

__all__ = ["JsonLinesReporter", "document"]

_log = get_logger("millstream.metrics")

# How long the end of a process waits for a last line. A disk may hang.
_AT_EXIT = 5.0

_open: set[JsonLinesReporter] = set()
# Jobs of one process may write to one file.
_lock = threading.Lock()


class JsonLinesReporter:
    """Writes the lines of one job, in a thread of its own: whatever the disk does, the job goes on."""

    def __init__(self, path: str, interval: float, max_size: int) -> None:
        # Absolute: functions of a job in this process may see another folder.
        self._path = Path(path).absolute()
        self._interval = interval
        self._max_size = max_size
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        # The last line may be half there.
        self._torn = False
        self._failing = False

    def start(self, run: JobRun) -> None:
        """Begin to write."""
        self._thread = threading.Thread(
            target=self._main, args=[run], name="millstream-json-metrics", daemon=True
        )
        _open.add(self)
        self._thread.start()

    def close(self) -> None:
        """Write the last line, soon."""
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Wait for the last line."""
        self.close()
        if self._thread is not None:
            self._thread.join(seconds)

    def _main(self, run: JobRun) -> None:
        try:
            ended = False
            while not ended:
                ended = self._stop.wait(self._interval)
                at = look(run)
                if at is not None:
                    self._write(json.dumps(document(at, last=ended), allow_nan=False))
        except Exception:
            _log.warning("metrics are not written to %s any more", self._path, exc_info=True)
        finally:
            _open.discard(self)

    def _write(self, line: str) -> None:
        data = ("\n" if self._torn else "").encode() + line.encode() + b"\n"
        try:
            with _lock:
                self._rotate(len(data))
                self._append(data)
        except OSError as error:
            if not self._failing:
                _log.warning("metrics cannot be written to %s: %s", self._path, error)
            self._failing = True
        else:
            self._failing = self._torn = False

    def _rotate(self, more: int) -> None:
        """A file that has become too large is kept beside the new one, in the place of the one before it."""
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            return
        size = facts.st_size
        if stat.S_ISREG(facts.st_mode) and size and size + more > self._max_size:
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._torn = False

    def _append(self, data: bytes) -> None:
        # A pipe that nobody reads is an error, and nothing to wait for.
        how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        file = os.open(self._path, how, 0o644)
        try:
            left = memoryview(data)
            while left:
                # From here on the line may end anywhere.
                written = os.write(file, left)
                self._torn = True
                left = left[written:]
        finally:
            os.close(file)


@atexit.register
def _last_lines() -> None:
    """A program may end as soon as its job has."""
    for reporter in list(_open):
        reporter.wait(_AT_EXIT)


def document(at: JobAt, *, last: bool = False) -> dict[str, Any]:
    """All figures of a job; what has no value is left out."""
    run = at.run
    return {
        "at": round(at.now * 1000),
        "job_id": run.job.id,
        "job_name": printable(run.job.settings.name),
        "state": run.status.name,
        "last": last,
        "job": _clean(job_values(at)),
        "series": [
            {
                "name": series.name,
                "labels": dict(zip(series.labels, map(printable, labels), strict=True)),
                "value": value,
            }
            for series, labels, value in series_values(at)
        ],
        "tasks": [_task(task) for task in at.tasks()],
    }


def _task(task: TaskAt) -> dict[str, Any]:
    return {
        "task_id": id_of(task.vertex.head.uid),
        "task_name": printable(task.job.vertices[task.vertex.id].name),
        "subtask_index": task.index,
        "host": task.metrics.host,
        "values": _clean(task_values(task)),
        "operators": [
            {
                "operator_id": id_of(operator.node.uid),
                "operator_name": printable(operator.node.name),
                "values": _clean(operator_values(operator)),
                "user": _user(operator.metrics),
            }
            for operator in task.job.operators(task)
        ],
    }


def _user(metrics: OperatorMetrics) -> list[dict[str, Any]]:
    """The metrics of a user's functions."""
    return [
        {
            "name": ".".join(map(printable, [*(group[0] for group in groups), name])),
            "labels": {
                printable(group[0]): printable(group[1]) for group in groups if len(group) == 2
            },
            "kind": metric.kind,
            "count": metric.count,
            "value": _finite(metric.value),
            "least": _finite(metric.least),
            "largest": _finite(metric.largest),
        }
        for (groups, name), metric in list(metrics.user.items())
    ]


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, and sums of numbers may come to one."""
    return value if value is None or math.isfinite(value) else None


def _clean(values: dict[str, Value]) -> dict[str, Value]:
    """JSON has no infinity."""
    return {
        name: printable(value) if isinstance(value, str) else value
        for name, value in values.items()
        if isinstance(value, str) or math.isfinite(value)
    }
