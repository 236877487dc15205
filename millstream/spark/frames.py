"""`DataStream.to_dataframe`: a job as a Spark frame that somebody else writes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from dataclasses import replace

from pyspark.sql import DataFrame

from millstream.errors import UnsupportedOperation
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.planner import EpochPlanner
from millstream.spark.dependencies import ship
from millstream.spark.levels import level_frame
from millstream.spark.session import job_session
from millstream.spark.writers import as_frame

__all__ = ["job_as_frame"]


def job_as_frame(job: Job, node: int, ddl: str) -> DataFrame:
    """The records of one node of the job, lazily."""
    if not job.one_epoch:
        stateful = [n for n in job.graph.nodes.values() if n.operator.stateful]
        if stateful:
            # Nobody would complete the epochs of a query that the user starts: state, event time and the positions of
            # splits would stand still.
            first = stateful[0]
            msg = f"to_dataframe of an unbounded program needs one without state; '{first.name}' keeps some"
            raise UnsupportedOperation(
                msg,
                declared_at=first.declared_at,
                hint="write it with sink_to(SparkSink(lambda df, epoch: df.write...)) instead; only Spark's own "
                "streaming frames (from_dataframe) can be read without state",
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
    spec = replace(job.spec(folder), untracked=True)
    if not job.one_epoch:
        return as_frame(level_frame(session, job, spec), node, ddl)
    planner = EpochPlanner(job)
    try:
        work = planner.plan(threading.Event())
    finally:
        planner.close()
    return as_frame(level_frame(session, job, spec, work=work), node, ddl)
