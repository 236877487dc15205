"""Every metric that Millstream has, under Flink's name, and how it is read from a running job.

There are three scopes: the job, a task (one subtask of a vertex), an operator (its part in a subtask). The reporters
show what `job_values`, `task_values`, `operator_values` and `series_values` give, and docs/metrics.md is made of this
module. A value that is not known is left out, and so a series begins when there is something to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from millstream.common.job_status import JobStatus
from millstream.graph.operators import AssignOp
from millstream.reporters.moment import JobAt, OperatorAt, TaskAt, id_of, watermark_lag

__all__ = [
    "BACK_PRESSURED",
    "JOB",
    "OPERATOR",
    "SERIES",
    "TASK",
    "MetricInfo",
    "Series",
    "Value",
    "job_values",
    "operator_values",
    "series_values",
    "task_values",
]

Value = int | float | str
At = TypeVar("At")
"""What a metric is read from: a job, a task, an operator, at one moment."""

BACK_PRESSURED = 0.1
"""From this share of the time on a task counts as back pressured, as in Flink's REST."""


@dataclass(frozen=True)
class MetricInfo(Generic[At]):
    """One metric: `read` gives its value, or None where there is none."""

    name: str
    kind: str
    """counter (a total), gauge (what is now) or meter (what there is a second)."""
    unit: str
    meaning: str
    read: Callable[[At], Value | None]


@dataclass(frozen=True)
class Series:
    """A metric of a job that has a value for each of several things, told apart by `labels`."""

    name: str
    kind: str
    unit: str
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[JobAt], Iterable[tuple[tuple[str, ...], Value]]]


def job_values(at: JobAt) -> dict[str, Value]:
    """All values of a job."""
    return _values(JOB, at)


def task_values(at: TaskAt) -> dict[str, Value]:
    """All values of a subtask of a vertex."""
    return _values(TASK, at)


def operator_values(at: OperatorAt) -> dict[str, Value]:
    """All values of an operator in a subtask; those of its functions are in `at.metrics.user`."""
    return _values(OPERATOR, at)


def series_values(at: JobAt) -> Iterator[tuple[Series, tuple[str, ...], Value]]:
    """All values of a job that have labels of their own."""
    for series in SERIES:
        for labels, value in series.read(at):
            yield series, labels, value


def _values(metrics: Iterable[MetricInfo[At]], at: At) -> dict[str, Value]:
    return {m.name: value for m in metrics if (value := m.read(at)) is not None}


# ------------------------------------------------------------------ how things are read


def _uptime(at: JobAt) -> int:
    run = at.run
    if run.done:
        return -1
    if run.status is not JobStatus.RUNNING:
        return 0
    return _ms(at.now - run.since.get(JobStatus.RUNNING, at.now))


def _downtime(at: JobAt) -> int:
    run = at.run
    if run.done:
        return -1
    if run.status is not JobStatus.RESTARTING:
        return 0
    return _ms(at.now - run.since.get(JobStatus.RESTARTING, at.now))


def _ms(seconds: float) -> int:
    return round(max(0.0, seconds) * 1000)


def _read_per_second(at: JobAt) -> float:
    return sum(
        subtask.per_second["records_in"]
        for vertex in at.plan.sources
        for subtask in at.vertices[vertex.id].subtasks
    )


def _processed_per_second(at: JobAt) -> float:
    """Levels run one after the other, and a level takes as long as the subtask that works longest."""
    working = sum(
        max(
            subtask.per_second["busy"]
            for vertex in level.vertices
            for subtask in at.vertices[vertex.id].subtasks
        )
        for level in at.plan.levels
    )
    return _read_per_second(at) / min(1.0, working) if working > 1e-3 else 0.0


def _state_size(at: JobAt) -> int:
    return sum(s.state_bytes for v in at.vertices.values() for s in v.subtasks)


def _lag_of_splits(at: JobAt) -> Iterator[tuple[tuple[str, ...], Value]]:
    for source, splits in list(at.metrics.lag.items()):
        for split, lag in list(splits.items()):
            yield (source, split), lag


def _latencies(at: JobAt) -> Iterator[tuple[tuple[str, ...], Value]]:
    names = {node.uid: node.name for node in at.run.job.graph.nodes.values()}
    for uid, histogram in list(at.metrics.latency.items()):
        of = id_of(uid), names.get(uid, uid)
        for share in (0.5, 0.95, 0.99):
            yield (*of, str(share)), histogram.quantile(share) * 1000
        yield (*of, "1"), histogram.largest * 1000


def _restored_at(at: JobAt) -> int | None:
    restored = at.metrics.checkpoint_log.restored_at
    return None if restored is None else _ms(restored)


def _alignment(at: TaskAt) -> int | None:
    waited = at.job.alignment.get((at.vertex.id, at.index))
    return None if waited is None else round(waited * 1e9)


def _output_watermark(at: TaskAt) -> int | None:
    """What a chain that makes no watermarks itself hands on is what came in."""
    makes = any(isinstance(node.operator, AssignOp) for node in at.vertex.nodes)
    return None if makes else at.metrics.watermark


def _share(name: str) -> Callable[[TaskAt], float]:
    return lambda at: at.metrics.per_second[name] * 1000


def _rate(name: str) -> Callable[[TaskAt], float]:
    return lambda at: at.metrics.per_second[name]


# ------------------------------------------------------------------ the metrics

JOB: tuple[MetricInfo[JobAt], ...] = (
    MetricInfo(
        "uptime",
        "gauge",
        "ms",
        "How long the job has been running since it started, or started again; -1 once it has ended.",
        _uptime,
    ),
    MetricInfo(
        "downtime",
        "gauge",
        "ms",
        "How long a job that has failed and starts again has been down; 0 while it runs, -1 once it has ended.",
        _downtime,
    ),
    MetricInfo(
        "numRestarts",
        "counter",
        "restarts",
        "How often the job has failed and was started again.",
        lambda at: at.metrics.restarts,
    ),
    MetricInfo(
        "currentEpoch",
        "gauge",
        "",
        "The number of the last epoch that has run.",
        lambda at: at.metrics.epoch if at.metrics.epoch >= 0 else None,
    ),
    MetricInfo(
        "numRecordsIn",
        "counter",
        "records",
        "Records that the sources have read.",
        lambda at: at.metrics.records,
    ),
    MetricInfo(
        "inputRowsPerSecond",
        "meter",
        "records/s",
        "Records that the sources read a second, as Spark's streaming query progress calls it.",
        _read_per_second,
    ),
    MetricInfo(
        "processedRowsPerSecond",
        "meter",
        "records/s",
        "Records that are processed in a second of work: what the job can do, as against what there is to do.",
        _processed_per_second,
    ),
    MetricInfo(
        "pendingRecords",
        "gauge",
        "records",
        "Records that were there to be read and that the last epoch has left for the next.",
        lambda at: at.metrics.backlog,
    ),
    MetricInfo(
        "watermarkLag",
        "gauge",
        "ms",
        "How far the vertex that is furthest behind in event time is behind the clock.",
        lambda at: watermark_lag(min(list(at.metrics.watermarks.values()), default=None), at.now),
    ),
    MetricInfo(
        "stateSize",
        "gauge",
        "bytes",
        "The files of all state in the last checkpoint.",
        _state_size,
    ),
    MetricInfo(
        "numberOfCompletedCheckpoints",
        "counter",
        "checkpoints",
        "Checkpoints that were completed, without savepoints.",
        lambda at: at.metrics.checkpoint_log.completed,
    ),
    MetricInfo(
        "numberOfFailedCheckpoints",
        "counter",
        "checkpoints",
        "Checkpoints and savepoints that failed.",
        lambda at: at.metrics.checkpoint_log.failed,
    ),
    MetricInfo(
        "numberOfInProgressCheckpoints",
        "gauge",
        "checkpoints",
        "Checkpoints on their way: the one at the end of the epoch that runs, and savepoints.",
        lambda at: sum(c.status == "IN_PROGRESS" for c in at.checkpoints),
    ),
    MetricInfo(
        "totalNumberOfCheckpoints",
        "counter",
        "checkpoints",
        "All of these together, and savepoints.",
        lambda at: (
            at.metrics.checkpoint_log.completed
            + at.metrics.checkpoint_log.failed
            + at.metrics.checkpoint_log.savepoints
            + sum(c.status == "IN_PROGRESS" for c in at.checkpoints)
        ),
    ),
    MetricInfo(
        "lastCompletedCheckpointId",
        "gauge",
        "",
        "The number of the last checkpoint.",
        lambda at: None if at.last is None else at.last.id,
    ),
    MetricInfo(
        "lastCheckpointDuration",
        "gauge",
        "ms",
        "What the last checkpoint cost: until the slowest task had written its state, and the driver all the rest.",
        lambda at: None if at.last is None else _ms(at.last.seconds),
    ),
    MetricInfo(
        "lastCheckpointSize",
        "gauge",
        "bytes",
        "What was written for the last checkpoint.",
        lambda at: None if at.last is None else at.last.size,
    ),
    MetricInfo(
        "lastCheckpointFullSize",
        "gauge",
        "bytes",
        "All that the last checkpoint consists of, with what earlier ones have written.",
        lambda at: None if at.last is None else at.last.full_size,
    ),
    MetricInfo(
        "lastCheckpointExternalPath",
        "gauge",
        "",
        "Where the last checkpoint is. A text, which Prometheus cannot show.",
        lambda at: None if at.last is None else at.last.path,
    ),
    MetricInfo(
        "lastCheckpointRestoreTimestamp",
        "gauge",
        "ms since 1970",
        "When the job last went on from a checkpoint or savepoint.",
        _restored_at,
    ),
)

TASK: tuple[MetricInfo[TaskAt], ...] = (
    MetricInfo(
        "numRecordsIn",
        "counter",
        "records",
        "Records that the subtask has taken in.",
        lambda at: at.metrics.records_in,
    ),
    MetricInfo(
        "numRecordsOut",
        "counter",
        "records",
        "Records that the subtask has sent to other tasks or to the driver; a sink's own are not among them.",
        lambda at: at.metrics.records_out,
    ),
    MetricInfo(
        "numRecordsInPerSecond",
        "meter",
        "records/s",
        "Records that the subtask takes in a second.",
        _rate("records_in"),
    ),
    MetricInfo(
        "numRecordsOutPerSecond",
        "meter",
        "records/s",
        "Records that the subtask sends a second.",
        _rate("records_out"),
    ),
    MetricInfo(
        "numBytesIn",
        "counter",
        "bytes",
        "Bytes of the buffers that the subtask has taken in; of sources 0.",
        lambda at: at.metrics.bytes_in,
    ),
    MetricInfo(
        "numBytesOut",
        "counter",
        "bytes",
        "Bytes of the buffers that the subtask has sent.",
        lambda at: at.metrics.bytes_out,
    ),
    MetricInfo(
        "numBytesInPerSecond",
        "meter",
        "bytes/s",
        "Bytes of the buffers that the subtask takes in a second.",
        _rate("bytes_in"),
    ),
    MetricInfo(
        "numBytesOutPerSecond",
        "meter",
        "bytes/s",
        "Bytes of the buffers that the subtask sends a second.",
        _rate("bytes_out"),
    ),
    MetricInfo(
        "numBuffersIn",
        "counter",
        "buffers",
        "Buffers that the subtask has taken in; of sources 0.",
        lambda at: at.metrics.buffers_in,
    ),
    MetricInfo(
        "numBuffersOut",
        "counter",
        "buffers",
        "Buffers that the subtask has sent.",
        lambda at: at.metrics.buffers_out,
    ),
    MetricInfo(
        "currentInputWatermark",
        "gauge",
        "ms since 1970",
        "The watermark that the subtask's inputs have come to.",
        lambda at: at.metrics.watermark,
    ),
    MetricInfo(
        "currentOutputWatermark",
        "gauge",
        "ms since 1970",
        "The watermark that the subtask hands on; of chains that make their own watermarks it is not known.",
        _output_watermark,
    ),
    MetricInfo(
        "watermarkLag",
        "gauge",
        "ms",
        "How far the input watermark is behind the clock.",
        lambda at: watermark_lag(at.metrics.watermark, at.job.now),
    ),
    MetricInfo(
        "busyTimeMsPerSecond",
        "gauge",
        "ms/s",
        "How long of a second the subtask works.",
        _share("busy"),
    ),
    MetricInfo(
        "idleTimeMsPerSecond",
        "gauge",
        "ms/s",
        "How long of a second the subtask has nothing to do.",
        _share("idle"),
    ),
    MetricInfo(
        "backPressuredTimeMsPerSecond",
        "gauge",
        "ms/s",
        "How long of a second the subtask could go on, there being more to read, and waits for those further down.",
        _share("back_pressured"),
    ),
    MetricInfo(
        "isBackPressured",
        "gauge",
        "0 or 1",
        "1 if the subtask is back pressured for a tenth of the time or more.",
        lambda at: int(at.metrics.per_second["back_pressured"] >= BACK_PRESSURED),
    ),
    MetricInfo(
        "checkpointAlignmentTime",
        "gauge",
        "ns",
        "How long the subtask waited for the slowest of its level in the last checkpoint.",
        _alignment,
    ),
    MetricInfo(
        "stateSize",
        "gauge",
        "bytes",
        "The files of the subtask's state in the last checkpoint.",
        lambda at: at.metrics.state_bytes,
    ),
)

OPERATOR: tuple[MetricInfo[OperatorAt], ...] = (
    MetricInfo(
        "numRecordsIn",
        "counter",
        "records",
        "Records that the operator has taken in.",
        lambda at: at.metrics.records_in,
    ),
    MetricInfo(
        "numRecordsOut",
        "counter",
        "records",
        "Records that the operator has given.",
        lambda at: at.metrics.records_out,
    ),
    MetricInfo(
        "numLateRecordsDropped",
        "counter",
        "records",
        "Records that the operator has dropped because they came too late.",
        lambda at: at.metrics.late,
    ),
    MetricInfo(
        "numBadRecords",
        "counter",
        "records",
        "Records that the operator could not process, and has left out because its error policy says so.",
        lambda at: at.metrics.bad,
    ),
)

SERIES: tuple[Series, ...] = (
    Series(
        "sourceLag",
        "gauge",
        "positions",
        "How far a split of a source is behind its end after the last epoch; of a Kafka partition, its lag.",
        ("source", "split"),
        _lag_of_splits,
    ),
    Series(
        "latency",
        "gauge",
        "ms",
        "How long records take from the sources to a sink, measured by markers (metrics.latency.interval): half of "
        "them, 95 %, 99 % and all of them are not above it.",
        ("operator_id", "operator_name", "quantile"),
        _latencies,
    ),
)
