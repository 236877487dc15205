"""What a task tells the driver at its end (Flink's checkpoint acknowledgement, with metrics on board)."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.checkpoint.manifest import GeneratorState
from millstream.checkpoint.statefile import StateFile

__all__ = ["LatencyReport", "SplitProgress", "TaskReport", "UserMetric"]


class SplitProgress(msgspec.Struct, frozen=True):
    """How far a source's split has come; the source goes by its uid."""

    source: str
    split: str
    start: int
    end: int
    finished: bool
    backlog: int
    # The watermark generators of the split, by the uid of their operator: where they begin, and in a report, where
    # they are now.
    times: dict[str, GeneratorState] = {}


class LatencyReport(msgspec.Struct, frozen=True, array_like=True):
    """How long markers took from their source to a sink in one epoch: buckets of a `Histogram`, their sum and the
    largest, in seconds."""

    buckets: dict[int, int] = {}
    total: float = 0.0
    largest: float = 0.0


class UserMetric(msgspec.Struct, frozen=True, kw_only=True):
    """What a metric of a user's function came to in one epoch, so that what an attempt counted that failed is never
    counted.

    A `counter` has counted `count` more. A `meter` too, and is at `value` events a second. A `gauge` is at `value`. A
    `distribution` got `count` values more that come to `value`, and the least and largest that it got in this process.
    What is `absent` is a gauge that has no value any more."""

    name: str
    kind: str
    groups: tuple[tuple[str, ...], ...] = ()
    """The groups it stands in, each a name, or a name and a value for it (a label)."""
    count: int = 0
    value: float = 0.0
    least: float | None = None
    largest: float | None = None


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """One task of one level in one epoch. What came in and watermarks are keyed by vertex id, what went out by edge id,
    state files by store; by the operator's uid the states that the program has asked for, committables, late records,
    those that wait, bad records, which are counted as (bad, seen), what its records came to as (in, out), latencies and
    the metrics of its functions."""

    epoch: int
    level: int
    subtask: int
    attempt: str
    # In seconds: when the task began, on the clock of its host, what it took until this report was made, and how long
    # of that it wrote state and prepared its sinks.
    started_at: float = 0.0
    seconds: float
    snapshot: float = 0.0
    # By vertex, how long it was worked for; the rest of the time the task waited for input or for who takes its output.
    busy: dict[int, float] = {}
    host: str = ""
    pid: int = 0
    # What the engine calls the step in which it ran this level; -1 if it has no such thing.
    stage: int = -1
    records_in: dict[int, int] = {}
    bytes_in: dict[int, int] = {}
    records_out: dict[int, int] = {}
    bytes_out: dict[int, int] = {}
    buffers_in: dict[int, int] = {}
    buffers_out: dict[int, int] = {}
    operators: dict[str, tuple[int, int]] = {}
    splits: list[SplitProgress] = []
    input_ended: bool = False
    stores: dict[str, StateFile | None] = {}
    registered: dict[str, dict[str, dict[str, Any]]] = {}
    committables: dict[str, list[bytes]] = {}
    state_loads: int = 0
    state_rebuilds: int = 0
    bad_records: dict[str, tuple[int, int]] = {}
    late_records: dict[str, int] = {}
    # When the input has ended: timers and windows of the clock that were not due.
    waiting: dict[str, int] = {}
    # When the task has to run again although nothing may have come: a timer is due, or a stream may be idle.
    wake_at: int | None = None
    watermarks: dict[int, int] = {}
    latency: dict[str, LatencyReport] = {}
    metrics: dict[str, list[UserMetric]] = {}

    def encode(self) -> bytes:
        """As the payload of a `REPORT` row."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(payload: bytes) -> TaskReport:
        """From the payload of a `REPORT` row."""
        return msgspec.msgpack.decode(payload, type=TaskReport)
