"""`DataStream.to_dataframe`: a job as a Spark frame that somebody else writes."""

from __future__ import annotations

import atexit
import shutil
import tempfile

from pyspark.sql import DataFrame

from millstream.errors import UnsupportedOperation
from millstream.graph.operators import ReduceOp, RollingOp
from millstream.runtime.job import Job
from millstream.spark.dependencies import ship
from millstream.spark.levels import level_frame
from millstream.spark.session import job_session
from millstream.spark.writers import as_frame

__all__ = ["job_as_frame"]


def job_as_frame(job: Job, node: int, ddl: str) -> DataFrame:
    """The records of one node of the job, lazily."""
    if not job.one_epoch:
        stateful = [
            n for n in job.graph.nodes.values() if isinstance(n.operator, ReduceOp | RollingOp)
        ]
        if stateful:
            # Nobody would complete the epochs of a query that the user starts, so state would stand still.
            msg = f"to_dataframe of an unbounded program with state ('{stateful[0].name}')"
            raise UnsupportedOperation(
                msg,
                declared_at=stateful[0].declared_at,
                hint="write it with sink_to(SparkSink(lambda df, epoch: df.write...)) instead",
            )
    others = [n for n in job.graph.nodes.values() if n.is_sink and n.id != node]
    if others:
        msg = f"to_dataframe of a program that has another sink ('{others[0].name}')"
        raise UnsupportedOperation(
            msg, hint="a frame has one output; use sink_to(SparkSink(...)) beside the other sinks"
        )
    folder = tempfile.mkdtemp(prefix="millstream-state-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    session = job_session(job.settings.spark)
    ship(session, job)
    return as_frame(level_frame(session, job, job.spec(folder)), node, ddl)
