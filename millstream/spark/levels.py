"""The level plan as one Spark frame: level 0, then an exchange and a level for each depth of the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import cloudpickle
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from millstream.errors import UnsupportedOperation
from millstream.graph.operators import FrameSourceOp
from millstream.runtime.driver.job import Job
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges
from millstream.runtime.wire.rows import SCHEMA_DDL
from millstream.spark.anchor import Anchors
from millstream.spark.work import slot_count
from millstream.spark.worker import FRAME_PARTITION, frame_level, level, pack, source_level

__all__ = ["level_frame"]


def level_frame(
    session: SparkSession,
    job: Job,
    spec: JobSpec,
    anchors: Anchors | None = None,
    work: Sequence[SubtaskRanges] | None = None,
    reads: bool | None = None,
) -> DataFrame:
    """The whole job as a lazy frame: one that reads `work`, which the planner has planned for the epoch, or one for all
    epochs, whose tasks are told epoch by epoch what to read; it is a streaming one if the job reads frames. With
    anchors, subtasks stay on their hosts. `reads` says whether frames of the user's are read, if that does not follow
    from `work`."""
    if spec.batch:
        spec = replace(spec, presorted=True)
    shipped = pack(spec)
    frames = []
    if work:
        frames.append(_planned_sources(session, spec, shipped, work))
    elif job.split_sources:
        ticks = _ticks if job.frame_sources else _tasks
        told = source_level(_run_of(spec), shipped, None)
        frames.append(ticks(session, slot_count(spec)).mapInArrow(told, SCHEMA_DDL))
    # An epoch that reads nothing reads nothing of frames either.
    if reads is None:
        reads = not work or any(ranges.ended for ranges in work)
    frames.extend(_frame_sources(session, job, spec, shipped, reads=reads))
    frame = reduce(DataFrame.union, frames)
    for index, stage in enumerate(spec.levels):
        if index > 0:
            width = stage.parallelism
            received = (
                frame.repartitionById(width, "target")
                if anchors is None
                else anchors.exchange(frame, width)
            )
            if spec.batch:
                received = received.sortWithinPartitions("sequence", "channel", "edge", "target")
            frame = received.mapInArrow(level(_run_of(spec), shipped, index), SCHEMA_DDL)
    return frame


def _run_of(spec: JobSpec) -> str:
    """Under what workers keep the job: an ordinary frame is made anew for each epoch of a run."""
    return f"{spec.run_id}/{spec.first_batch}"


def _planned_sources(
    session: SparkSession, spec: JobSpec, shipped: bytes, work: Sequence[SubtaskRanges]
) -> DataFrame:
    works = [bytes(cloudpickle.dumps(ranges)) for ranges in work]
    count = len(works)
    return session.range(0, count, 1, count).mapInArrow(
        source_level(_run_of(spec), shipped, works), SCHEMA_DDL
    )


def _tasks(session: SparkSession, count: int) -> DataFrame:
    """A row per level-0 task. What it reads is decided when an epoch begins (`millstream.spark.work`)."""
    return session.range(0, count, 1, count)


def _ticks(session: SparkSession, count: int) -> DataFrame:
    """A row per level-0 task and micro-batch, for a frame that is a stream can be united with streams only."""
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", count)
    return rows.option("numPartitions", count).load()


def _no_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())


def _frame_sources(
    session: SparkSession, job: Job, spec: JobSpec, shipped: bytes, *, reads: bool
) -> list[DataFrame]:
    frames = []
    for vertex in job.frame_sources:
        operator = vertex.head.operator
        assert isinstance(operator, FrameSourceOp)
        if operator.bounded and reads and not job.one_epoch:
            msg = f"'{vertex.head.name}' is a batch frame in a job that has unbounded sources too"
            raise UnsupportedOperation(
                msg,
                declared_at=vertex.head.declared_at,
                hint="read it as a stream (spark.readStream), or use from_collection for small data",
            )
        frame = operator.frame
        # A frame that the optimizer knows to be empty has no partition, so nobody would say that it has ended.
        nothing = session.range(0, 1, 1, 1).mapInArrow(_no_rows, frame.schema)
        if not reads:
            frame = nothing
        elif operator.bounded:
            frame = frame.union(nothing)
        numbered = frame.coalesce(vertex.parallelism).withColumn(
            FRAME_PARTITION, sf.spark_partition_id()
        )
        function = frame_level(
            _run_of(spec), shipped, vertex.id, vertex.parallelism, operator.bounded and reads
        )
        frames.append(numbered.mapInArrow(function, SCHEMA_DDL))
    return frames
