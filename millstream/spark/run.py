"""A job on Spark: one ordinary query for a job of one epoch, one streaming query for all others."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from millstream.errors import EngineError
from millstream.runtime.epochs import EpochCommitter, EpochRow
from millstream.runtime.job import Job, JobSpec
from millstream.runtime.planner import EpochPlanner
from millstream.runtime.run import JobRun
from millstream.spark.failures import translate
from millstream.spark.levels import level_frame
from millstream.spark.session import job_session
from millstream.spark.work import WorkFiles
from millstream.spark.writers import SparkWriters

__all__ = ["SparkRun"]


class SparkRun(JobRun):
    """Runs a job in the Spark session at hand."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # In the caller's thread, so that a missing Java is an error of execute() itself.
        self._session = job_session(job.settings.spark)
        self._query: StreamingQuery | None = None
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._tag = f"millstream-{job.id}"

    def _run(self) -> None:
        settings = self.job.settings
        folder = settings.state_dir or self._temporary_folder()
        spec = self.job.spec(folder)
        committer = EpochCommitter(self.job, spec)
        self.metrics = committer.metrics
        writers = SparkWriters(self.job)
        try:
            # Marks every Spark job that this thread starts, and the threads that Spark starts for it.
            self._session.sparkContext.addJobTag(self._tag)
            self._ship_python_files()
            frame = level_frame(self._session, self.job, spec)
            if self.job.one_epoch:
                self._run_once(frame, committer, writers)
            else:
                self._run_stream(frame, spec, committer, writers)
        except BaseException as error:
            raise translate(error) from error
        finally:
            committer.close()
            if settings.state_dir is None:
                shutil.rmtree(folder, ignore_errors=True)

    def _temporary_folder(self) -> str:
        """A folder that goes with the job. If this process is killed, the JVM removes it on its own way out."""
        folder = tempfile.mkdtemp(prefix="millstream-state-")
        jvm: Any = self._session._jvm
        hooks = jvm.org.apache.spark.util.ShutdownHookManager
        hooks.registerShutdownDeleteDir(jvm.java.io.File(folder))
        return folder

    def _ship_python_files(self) -> None:
        files = self.job.settings.python_files
        if files:
            self._session.addArtifacts(*files, pyfile=True)

    # -- one epoch --------------------------------------------------------------------------------------

    def _run_once(self, frame: DataFrame, committer: EpochCommitter, writers: SparkWriters) -> None:
        if committer.streams:
            # Partition by partition, so that a large result never has to fit into the driver.
            messages = []
            for row in frame.toLocalIterator(prefetchPartitions=True):
                one = EpochRow(row.edge, row.sequence, row.channel, bytes(row.payload))
                if not committer.deliver(one):
                    messages.append(one)
            committer.complete(0, messages)
        else:
            writers.complete(frame, 0, committer)

    # -- many epochs ------------------------------------------------------------------------------------

    def _run_stream(
        self, frame: DataFrame, spec: JobSpec, committer: EpochCommitter, writers: SparkWriters
    ) -> None:
        planner = EpochPlanner(self.job)
        work = WorkFiles(spec, self.job.split_sources)

        def epoch(rows: DataFrame, number: int) -> None:
            """Called by Spark for every micro-batch; `rows` is lazy and runs when it is collected."""
            if self._ended.is_set():
                return
            try:
                reading = planner.plan(self._cancelled)
                if reading is None:
                    return
                work.write(number, reading)
                ended = writers.complete(rows, number, committer)
                work.remove()
                planner.done()
                if ended:
                    self._ended.set()
            except BaseException as error:
                self._failure = error
                # Never the error itself: Spark matches its text against a pattern that overflows Java's stack
                # if there is much of it.
                msg = f"epoch {number} failed"
                raise EngineError(msg) from None

        writer = frame.writeStream.foreachBatch(epoch).option(
            "checkpointLocation", os.path.join(spec.state_dir, "spark")
        )
        self._query = writer.start()
        try:
            while self._query.isActive:
                if self._ended.wait(0.05) or self._cancelled.is_set():
                    break
            failure = None if self._stopping() else self._query.exception()
            if failure is not None:
                raise self._failure or failure
        finally:
            self._query.stop()
            planner.close()

    def _stopping(self) -> bool:
        return self._ended.is_set() or self._cancelled.is_set()

    def _interrupt(self) -> None:
        # The session's own tags do not reach what is collected as Arrow; the context's do.
        with contextlib.suppress(Exception):
            self._session.sparkContext.cancelJobsWithTag(self._tag)
