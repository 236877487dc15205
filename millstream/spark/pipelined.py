"""Spark's real-time mode, and all that Millstream needs of it: whatever Spark calls its own business is in here.

In real-time mode the stages of a query run at the same time, and rows go from one to the next as they come. A query has
a source that decides how long a batch takes. Ours has no rows and only keeps the batch open
(`LowLatencyMemoryStream`): the tasks of level 0 read Millstream's own sources, and the batch ends when they do. So an
attempt of a job is one batch, whatever the number of its epochs.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millstream.errors import ConfigurationError, EngineError
from millstream.runtime.driver.flow import Flow, Hub
from millstream.runtime.driver.job import Job
from millstream.runtime.task.flow import tasks_of
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.link import HubAddress
from millstream.runtime.wire.rows import SCHEMA_DDL
from millstream.spark.session import has_executors, slot_count, temporary_folder
from millstream.spark.worker import flow_level, flow_source, pack

__all__ = ["PipelinedQuery", "missing_parts", "slots_needed", "with_settings"]

_PACEMAKER = "org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream"

# Spark itself has to be started with these.
_CONTEXT = {
    # A writer of the streaming shuffle sends what it has after a millisecond, and not after 30.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
    # A Python function's results go on when they are there, and not when its input is read.
    "spark.python.udf.pipelined.enabled": "true",
}

# Of a session.
_SESSION = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "500",
    # A row is a buffer, and nobody is to wait for the next one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}

# How long Spark waits for rows that never come. The tasks go on after that, with nobody left who reads for them.
_BATCH = "1 second"
_LEAVE_SECONDS = 2.0


def slots_needed(job: Job) -> int:
    """How many tasks of a job run at the same time: all of them.

    Sources have tasks of their own; below, a level has as many as its widest vertex.
    """
    sources = sum(source.parallelism for source in job.split_sources)
    return sources + sum(level.parallelism for level in job.plan.levels[1:])


def with_settings(options: Mapping[str, str], needed: int, cores: int) -> dict[str, str]:
    """What a Spark that is started for a pipelined job is told.

    >>> with_settings({}, 6, 2)["spark.master"]
    'local[6,3]'
    """
    # Tasks wait most of the time: there may be more of them than cores.
    return {"spark.master": f"local[{max(needed, cores)},3]", **_CONTEXT, **options}


def missing_parts(session: SparkSession) -> list[str]:
    """What this Spark does not have of what pipelined mode is built on."""
    jvm: Any = session._jvm
    missing = []
    with contextlib.suppress(Exception):
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        try:
            loader.loadClass(_PACEMAKER)
        except Exception:
            missing.append(f"the class {_PACEMAKER}")
    for key in _SESSION:
        try:
            session.conf.get(key)
        except Exception:
            missing.append(f"the setting {key}")
    if not hasattr(DataFrame, "repartitionById"):
        missing.append("DataFrame.repartitionById")
    return missing


def _require(session: SparkSession, needed: int) -> None:
    """Raise if the session cannot run the job."""
    given = session.sparkContext.getConf()
    wrong = {key: value for key, value in _CONTEXT.items() if given.get(key) != value}
    if wrong:
        raise ConfigurationError(
            "this Spark was not started for pipelined mode",
            missing=", ".join(f"{key}={value}" for key, value in wrong.items()),
            hint="start it with these settings, or let the job start it (stop the session that is there)",
        )
    slots = slot_count(session)
    if slots < needed:
        raise ConfigurationError(
            f"all tasks of a pipelined job run at the same time: it needs {needed} slots, and Spark has {slots}",
            master=session.sparkContext.master,
            hint="lower the parallelism, or give Spark more cores (spark.master local[N], or more executors)",
        )
    missing = missing_parts(session)
    if missing:
        raise ConfigurationError(
            "this Spark does not have what pipelined mode is built on",
            missing="; ".join(missing),
            spark=session.version,
            hint="use the version of PySpark that Millstream was made for, or leave execution.mode out",
        )


class PipelinedQuery:
    """One attempt of a job: the query, and the lines to its tasks."""

    def __init__(self, session: SparkSession, job: Job, spec: JobSpec) -> None:
        _require(session, slots_needed(job))
        for key, value in _SESSION.items():
            session.conf.set(key, value)
        self._session = session
        self._spec = spec
        self._hub = Hub(_host(session))
        self._tasks = tasks_of(spec)
        self._query: StreamingQuery | None = None
        self._folder = temporary_folder(session, "millstream-query-")
        self.flow = Flow(self._hub, self._tasks, self._check)

    def start(self) -> StreamingQuery:
        """Have Spark start all tasks."""
        frame = self._frame(self._hub.address)
        writer = frame.writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", self._folder)
        # Its types do not know this one yet.
        self._query = writer.trigger(realTime=_BATCH).start()  # type: ignore[call-overload]
        return self._query

    def _frame(self, address: HubAddress) -> DataFrame:
        shipped, run_id = pack(self._spec), self._spec.run_id
        frame = _pacemaker(self._session, len(self._tasks[0]))
        frame = frame.mapInArrow(flow_source(run_id, shipped, address), SCHEMA_DDL)
        for level, tasks in enumerate(self._tasks):
            if level:
                received = frame.repartitionById(len(tasks), "target")
                frame = received.mapInArrow(flow_level(run_id, shipped, level, address), SCHEMA_DDL)
        return frame

    def _check(self) -> None:
        """Raise if Spark has given up."""
        query = self._query
        if query is None or query.isActive:
            return
        failure = query.exception()
        if failure is not None:
            raise failure
        raise EngineError("Spark has ended the job's query")

    def stop(self) -> None:
        """Let the tasks leave, end the query."""
        self._hub.close()
        query = self._query
        if query is not None:
            until = time.monotonic() + _LEAVE_SECONDS
            # A query that is stopped while its tasks run ends their processes.
            while query.isActive and self._hub.lines and time.monotonic() < until:
                time.sleep(0.01)
            with contextlib.suppress(Exception):
                # The JVM may be what has failed.
                query.stop()
        self._hub.hang_up()
        shutil.rmtree(self._folder, ignore_errors=True)


def _pacemaker(session: SparkSession, partitions: int) -> DataFrame:
    jvm: Any = session._jvm
    made: Any = jvm
    for name in _PACEMAKER.split("."):
        made = getattr(made, name)
    stream = made.apply(session._jsparkSession, partitions, jvm.org.apache.spark.sql.Encoders.INT())
    return DataFrame(stream.toDF(), session)


def _host(session: SparkSession) -> str:
    """The address under which tasks reach this process."""
    if not has_executors(session):
        return "127.0.0.1"
    return session.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1"
