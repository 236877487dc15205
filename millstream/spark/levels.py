"""The level plan as one Spark frame: level 0, then an exchange and a level for each depth of the job."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import reduce

import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from millstream.errors import UnsupportedOperation
from millstream.graph.operators import FrameSourceOp
from millstream.runtime.job import Job, JobSpec
from millstream.runtime.rows import SCHEMA_DDL
from millstream.runtime.sources import SourceCoordinator
from millstream.spark.anchor import Anchors
from millstream.spark.work import slot_count
from millstream.spark.worker import FRAME_PARTITION, frame_level, level, source_level

__all__ = ["level_frame"]


def level_frame(
    session: SparkSession, job: Job, spec: JobSpec, anchors: Anchors | None = None
) -> DataFrame:
    """The whole job as a lazy frame: an ordinary one if it runs as one epoch, else a streaming one. With anchors,
    subtasks stay on their hosts."""
    if spec.batch:
        spec = replace(spec, presorted=True)
    shipped = pickle.dumps(spec)
    frames = []
    if job.split_sources:
        read = _bounded_sources if job.one_epoch else _unbounded_sources
        frames.append(read(session, job, spec, shipped))
    frames.extend(_frame_sources(job, spec, shipped))
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
            frame = received.mapInArrow(level(spec.run_id, shipped, index), SCHEMA_DDL)
    return frame


def _bounded_sources(session: SparkSession, job: Job, spec: JobSpec, shipped: bytes) -> DataFrame:
    coordinator = SourceCoordinator(job.split_sources, job.settings.epoch_interval)
    try:
        start = coordinator.discover(coordinator.initial())
        end = coordinator.next(start, everything=True)
        works = [bytes(cloudpickle.dumps(work)) for work in coordinator.ranges(start, end)]
    finally:
        coordinator.close()
    count = len(works)
    return session.range(0, count, 1, count).mapInArrow(
        source_level(spec.run_id, shipped, works), SCHEMA_DDL
    )


def _unbounded_sources(session: SparkSession, job: Job, spec: JobSpec, shipped: bytes) -> DataFrame:
    """Spark's own micro-batch counter drives the epochs: one row per level-0 task and epoch. What each task
    reads is decided when the epoch begins (`millstream.spark.work`)."""
    tasks = slot_count(spec)
    ticks = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", tasks)
        .option("numPartitions", tasks)
        .load()
    )
    return ticks.mapInArrow(source_level(spec.run_id, shipped, None), SCHEMA_DDL)


def _frame_sources(job: Job, spec: JobSpec, shipped: bytes) -> list[DataFrame]:
    frames = []
    for vertex in job.frame_sources:
        operator = vertex.head.operator
        assert isinstance(operator, FrameSourceOp)
        if operator.bounded and not job.one_epoch:
            msg = f"'{vertex.head.name}' is a batch frame in a job that has unbounded sources too"
            raise UnsupportedOperation(
                msg,
                declared_at=vertex.head.declared_at,
                hint="read it as a stream (spark.readStream), or use from_collection for small data",
            )
        numbered = operator.frame.coalesce(vertex.parallelism).withColumn(
            FRAME_PARTITION, sf.spark_partition_id()
        )
        function = frame_level(
            spec.run_id, shipped, vertex.id, vertex.parallelism, operator.bounded
        )
        frames.append(numbered.mapInArrow(function, SCHEMA_DDL))
    return frames
