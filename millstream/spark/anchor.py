"""Keeps subtasks on their hosts from epoch to epoch, with nothing but frames.

A shuffle gives a partition to any executor, so every host would come to load everybody's state. An anchor is a cached
frame with one tiny row per subtask, partitioned as the buffers are. Joined with them it adds nothing to the rows; but
Spark zips equal partitionings, and prefers to run a task where its cached row is. If a host is lost, its rows are
computed, and cached, wherever their subtasks run next.

The join must be planned over the exchange as it stands. In a streaming frame that is so from two partitions on; over
a single one Spark puts exchanges of its own, so a level with one subtask has no anchor.
"""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.rows import SCHEMA
from millstream.spark.session import executor_count

__all__ = ["Anchors", "partition_of", "row_ids"]

_ID = "__millstream_anchor"
_RUN = "__millstream_run"
_SEED = 42
_MASK = 0xFFFFFFFF


def partition_of(row_id: int, partitions: int) -> int:
    """Where `repartition(partitions, id)` puts a row with this id: Murmur3 of an int, modulo."""
    mixed = _rotate(row_id * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    code = (_rotate(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    code = (code ^ code >> 16) * 0x85EBCA6B & _MASK
    code = (code ^ code >> 13) * 0xC2B2AE35 & _MASK
    code ^= code >> 16
    return (code - (1 << 32) if code >> 31 else code) % partitions


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


@lru_cache(maxsize=64)
def row_ids(partitions: int) -> tuple[int, ...]:
    """For each partition the smallest id that Spark's hash partitioning puts there."""
    row_ids: dict[int, int] = {}
    row_id = 0
    while len(row_ids) < partitions:
        row_ids.setdefault(partition_of(row_id, partitions), row_id)
        row_id += 1
    return tuple(row_ids[partition] for partition in range(partitions))


def _id_of(number: str, partitions: int) -> Column:
    """The id for a subtask's number. Rows that only pass through may be for more subtasks than this level has."""
    ids = ", ".join(map(str, row_ids(partitions)))
    return sf.expr(f"element_at(array({ids}), {number} % {partitions} + 1)")


class Anchors:
    """The anchors of one run of a job. Levels of the same parallelism share one, so that subtasks of the same number
    are on the same host."""

    def __init__(self, session: SparkSession, spec: JobSpec) -> None:
        self._session = session
        widths = {stage.parallelism for stage in spec.levels[1:]} - {1}
        self._widest = max(widths, default=0)
        # Spark finds cached frames by their plans: without the run, equal anchors of two jobs would be one.
        self._frames = {
            width: session.range(0, width, 1, 1)
            .select(_id_of("cast(id as int)", width).alias(_ID), sf.lit(spec.run_id).alias(_RUN))
            .repartition(width, _ID)
            .persist()
            for width in widths
        }
        self._placed_on = self._seen = executor_count(session)

    def exchange(self, buffers: DataFrame, width: int) -> DataFrame:
        """Every row to the subtask that it is for, and every subtask to its host."""
        if width not in self._frames:
            return buffers.repartitionById(width, "target")
        row_id = _id_of("target", width)
        # Nothing but a shuffled hash join fits: a broadcast does not zip, a merge would sort the buffers.
        anchor = self._frames[width].hint("shuffle_hash")
        joined = buffers.repartition(width, row_id).join(anchor, row_id == sf.col(_ID))
        return joined.select(*SCHEMA.names)

    def rebalance(self) -> None:
        """Between epochs: if executors have come and subtasks share some, let go, and see where the next epoch runs
        them. So they spread over a cluster that is still starting, and again after the loss of a host."""
        now = executor_count(self._session)
        settled = now == self._seen
        self._seen = now
        if now < self._placed_on:
            self._placed_on = now
        elif settled and self._placed_on < min(now, self._widest):
            # Not in the moment in which an executor appears: it may not take tasks yet.
            self._placed_on = now
            for frame in self._frames.values():
                frame.unpersist()
                frame.persist()

    def release(self) -> None:
        """The run is over."""
        for frame in self._frames.values():
            frame.unpersist()
