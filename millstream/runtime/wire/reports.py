"""What a task tells the driver at its end (Flink's checkpoint acknowledgement, with metrics on board)."""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.checkpoint.manifest import GeneratorState
from millstream.checkpoint.statefile import StateFile

__all__ = ["SplitProgress", "TaskReport"]


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


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """One task of one level in one epoch. What came in and watermarks are keyed by vertex id, what went out by edge id,
    state files by store; by the operator's uid the states that the program has asked for, committables, late records
    and bad records, which are counted as (bad, seen)."""

    epoch: int
    level: int
    subtask: int
    attempt: str
    seconds: float
    records_in: dict[int, int] = {}
    bytes_in: dict[int, int] = {}
    records_out: dict[int, int] = {}
    bytes_out: dict[int, int] = {}
    splits: list[SplitProgress] = []
    input_ended: bool = False
    stores: dict[str, StateFile | None] = {}
    registered: dict[str, dict[str, dict[str, Any]]] = {}
    committables: dict[str, list[bytes]] = {}
    state_loads: int = 0
    state_rebuilds: int = 0
    bad_records: dict[str, tuple[int, int]] = {}
    late_records: dict[str, int] = {}
    # When the task has to run again although nothing may have come: a timer is due, or a stream may be idle.
    wake_at: int | None = None
    watermarks: dict[int, int] = {}

    def encode(self) -> bytes:
        """As the payload of a `REPORT` row."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(payload: bytes) -> TaskReport:
        """From the payload of a `REPORT` row."""
        return msgspec.msgpack.decode(payload, type=TaskReport)
