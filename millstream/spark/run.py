"""A job on Spark: a query for each epoch; one streaming query if the job reads a streaming frame, or is pipelined."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from millstream.checkpoint.statefile import StateFile
from millstream.errors import ConfigurationError, EngineError
from millstream.redaction import get_logger
from millstream.runtime.driver.epochs import EpochDriver, Outcome
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.outputs import EpochRow, JobOutputs
from millstream.runtime.driver.run import TERM_GRACE, JobRun
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges, round_of
from millstream.spark.anchor import Anchors
from millstream.spark.attach import join_pool
from millstream.spark.compaction import run_compaction
from millstream.spark.dependencies import ship
from millstream.spark.epoch_frames import EpochFrames
from millstream.spark.executors import needed
from millstream.spark.failures import translate
from millstream.spark.levels import level_frame
from millstream.spark.pipelined import PipelinedQuery, slots_needed, with_settings
from millstream.spark.query_log import QueryLog
from millstream.spark.session import (
    has_executors,
    has_slots,
    is_cluster,
    job_session,
    slot_count,
    temporary_folder,
)
from millstream.spark.slots.head import ROUND
from millstream.spark.unfit import with_facts
from millstream.spark.warm_up import warm_up_folder, warm_up_job
from millstream.spark.work import WorkFiles
from millstream.spark.worker import as_property
from millstream.spark.writers import SparkWriters, collect_rows

__all__ = ["SparkRun"]

_log = get_logger("millstream.job")


class SparkRun(JobRun):
    """Runs a job in the Spark session at hand."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        # In the caller's thread, so that a missing Java is an error of execute() itself.
        self._session = job_session(_options(job))
        ship(self._session, job)
        self._query: StreamingQuery | None = None
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._spec: JobSpec | None = None
        self._compacting: list[threading.Thread] = []
        self._tag = f"millstream-{job.id}"

    def engine(self) -> dict[str, str]:
        """Spark's application, and its page."""
        context = self._session.sparkContext
        facts = {
            "name": "Spark",
            "version": str(self._session.version),
            "master": str(context.master),
            "application": str(context.applicationId),
        }
        if context.uiWebUrl:
            facts["ui"] = context.uiWebUrl
        return facts

    def keeps_subtasks(self) -> bool:
        """Where Spark is this process's own and has our daemon for its workers."""
        return not has_executors(self._session) and has_slots(self._session)

    def slots(self) -> int | None:
        """As many tasks as Spark runs at the same time; executors may come and go, unless this process is the only
        one."""
        return slot_count(self._session) if has_executors(self._session) else None

    def _attempt(self, spec: JobSpec, driver: EpochDriver) -> None:
        # Marks every Spark job that this thread starts, and the threads that Spark starts for it.
        self._session.sparkContext.addJobTag(self._tag)
        join_pool(self._session, streams=not self.job.one_epoch)
        self._spec = spec
        self._failure = None
        self._ended.clear()
        writers = SparkWriters(self.job)
        if self.job.one_epoch:
            self._run_once(spec, driver, writers)
        elif self.job.pipelined:
            self._run_pipelined(spec, driver)
        elif self.job.frame_sources:
            self._run_stream(spec, driver, writers)
        else:
            self._run_epochs(spec, driver, writers)

    def _translate(self, error: BaseException) -> BaseException:
        return with_facts(self._session, translate(error))

    def warm_up(self) -> None:
        """Run a small job of the same shape."""
        with warm_up_folder(self.job, shared=is_cluster(self._session)) as folder:
            SparkRun(warm_up_job(self.job, folder))._run()

    def engine_lives(self) -> bool:
        """False if the JVM is gone, or Spark has been stopped in it."""
        try:
            # PySpark itself knows only what this process has stopped.
            context: Any = self._session.sparkContext._jsc
            return context is not None and not context.sc().isStopped()
        except Exception:
            return False

    def _temporary_folder(self) -> str:
        """A folder that goes with the job."""
        if is_cluster(self._session) and not self.job.one_epoch:
            msg = "a job on a cluster needs a checkpoint directory that every host can see"
            raise ConfigurationError(
                msg,
                master=self._session.sparkContext.master,
                hint="set execution.checkpointing.dir to a shared folder or an object store",
            )
        return temporary_folder(self._session, "millstream-state-")

    def _run_empty(
        self, job: Job, spec: JobSpec, epoch: int, work: Sequence[SubtaskRanges]
    ) -> Iterable[EpochRow]:
        self._session.sparkContext.addJobTag(self._tag)
        frame = level_frame(self._session, job, spec, work=work, reads=False)
        return collect_rows(frame)

    # -- one epoch --------------------------------------------------------------------------------------

    def _run_once(self, spec: JobSpec, driver: EpochDriver, writers: SparkWriters) -> None:
        """One epoch, after one that reads nothing if the job goes on from a checkpoint."""
        outputs = driver.outputs

        def run(epoch: int, work: Sequence[SubtaskRanges]) -> Iterable[EpochRow]:
            of_epoch = replace(spec, first_batch=spec.first_epoch - epoch)
            frame = level_frame(self._session, self.job, of_epoch, work=work)
            with needed():
                if outputs.streams and self.job.settings.restart is None:
                    # Partition by partition, so that a large result never has to fit into the driver.
                    return _messages(frame, outputs)
                return writers.collect(frame, epoch)

        while driver.epoch(run) is Outcome.GO_ON:
            pass

    # -- many epochs ------------------------------------------------------------------------------------

    def _run_epochs(self, spec: JobSpec, driver: EpochDriver, writers: SparkWriters) -> None:
        """A query for each epoch, all of them over one frame (decision 0062)."""
        with self._anchored(spec) as anchors:
            frames = EpochFrames(level_frame(self._session, self.job, spec, anchors))
            work_files = WorkFiles(spec, self.job.split_sources, driver.folder.check_lease)

            def run(epoch: int, work: Sequence[SubtaskRanges]) -> Iterable[EpochRow]:
                return self._run_tasks(frames.take(), epoch, work, spec, work_files, writers)

            try:
                while not self._stop.is_set():
                    if driver.epoch(run) is not Outcome.GO_ON:
                        return
                    if anchors is not None:
                        anchors.rebalance()
            except Exception:
                # Whoever stops a job interrupts its epoch.
                if not self._stop.is_set():
                    raise
            finally:
                frames.close()

    @contextlib.contextmanager
    def _anchored(self, spec: JobSpec) -> Iterator[Anchors | None]:
        """What keeps subtasks on their hosts. In one process there is nowhere else to run."""
        anchors = Anchors(self._session, spec) if has_executors(self._session) else None
        try:
            yield anchors
        finally:
            if anchors is not None:
                with contextlib.suppress(Exception):
                    # The JVM may be what has failed.
                    anchors.release()

    def _run_tasks(
        self,
        rows: DataFrame,
        epoch: int,
        work: Sequence[SubtaskRanges],
        spec: JobSpec,
        work_files: WorkFiles,
        writers: SparkWriters,
    ) -> Iterable[EpochRow]:
        """Tell the tasks what to read and run them; `rows` is lazy and runs when it is collected."""
        of_epoch = round_of(work)
        work_files.write(epoch, of_epoch.number, work)
        self._session.sparkContext.setLocalProperty(ROUND, as_property(spec, epoch, of_epoch))
        with needed():
            collected = writers.collect(rows, epoch)
        work_files.remove()
        return collected

    def _run_stream(self, spec: JobSpec, driver: EpochDriver, writers: SparkWriters) -> None:
        log = QueryLog(
            self._session,
            self.job,
            driver.folder,
            driver.extra.get("spark_batch"),
            restored=spec.restored,
        )
        spec = self._spec = replace(spec, first_batch=log.first_batch)
        try:
            with self._anchored(spec) as anchors:
                frame = level_frame(self._session, self.job, spec, anchors)
                self._run_micro_batches(frame, anchors, spec, driver, writers, log)
        finally:
            log.close()

    def _run_micro_batches(
        self,
        frame: DataFrame,
        anchors: Anchors | None,
        spec: JobSpec,
        driver: EpochDriver,
        writers: SparkWriters,
        log: QueryLog,
    ) -> None:
        work_files = WorkFiles(spec, self.job.split_sources, driver.folder.check_lease)

        def micro_batch(rows: DataFrame, number: int) -> None:
            """Called by Spark for every micro-batch."""
            if self._ended.is_set() or number < log.first_batch:
                # Spark repeats a micro-batch that it has not noted as done; the manifest says that it is.
                return

            def run(epoch: int, work: Sequence[SubtaskRanges]) -> Iterable[EpochRow]:
                return self._run_tasks(rows, epoch, work, spec, work_files, writers)

            try:
                if driver.epoch(run, {"spark_batch": number}) is not Outcome.GO_ON:
                    self._ended.set()
                elif anchors is not None:
                    anchors.rebalance()
            except BaseException as error:
                self._failure = error
                # Never the error itself: Spark matches its text against a pattern that overflows Java's stack
                # if there is much of it.
                msg = f"micro-batch {number} failed"
                raise EngineError(msg) from None

        writer = frame.writeStream.foreachBatch(micro_batch).option("checkpointLocation", log.path)
        self._query = writer.start()
        try:
            while self._query.isActive:
                if self._ended.wait(0.05) or self._stop.is_set():
                    break
            if not self._cancelled.is_set():
                self._let_end(self._query)
            failure = None if self._stopping() else self._query.exception()
            if failure is not None:
                raise self._failure or failure
        finally:
            self._query.stop()

    def _run_pipelined(self, spec: JobSpec, driver: EpochDriver) -> None:
        pipelined = PipelinedQuery(self._session, self.job, spec)
        try:
            self._query = pipelined.start()
            driver.flow = pipelined.flow
            while not self._stop.is_set():
                if driver.epoch(_no_micro_batch) is not Outcome.GO_ON:
                    self._ended.set()
                    return
        finally:
            driver.flow = None
            pipelined.stop()

    def _let_end(self, query: StreamingQuery) -> None:
        """If the driver does not lead the job any more, give the epoch at hand a moment to end by itself."""
        until = time.monotonic() + TERM_GRACE
        while not self._ended.is_set() and query.isActive and time.monotonic() < until:
            self._ended.wait(0.02)

    def _stopping(self) -> bool:
        return self._ended.is_set() or self._stop.is_set()

    def _interrupt(self) -> None:
        # The session's own tags do not reach what is collected as Arrow; the context's do.
        with contextlib.suppress(Exception):
            self._session.sparkContext.cancelJobsWithTag(self._tag)

    # -- beside the epochs --------------------------------------------------------------------------------

    def _compact(self, store: str, segments: Sequence[StateFile]) -> None:
        """Compact as a Spark job of its own, in a thread of its own."""
        assert self._driver is not None
        assert self._spec is not None
        driver, spec = self._driver, self._spec

        def work() -> None:
            try:
                self._session.sparkContext.addJobTag(self._tag)
                join_pool(self._session, streams=False)
                driver.compacted(store, run_compaction(self._session, spec, store, segments))
            except Exception as error:
                if not self._stopping():
                    _log.warning("state of %s could not be compacted: %s", store, error)
                driver.compacted(store, None)

        thread = threading.Thread(target=work, name="millstream-compaction", daemon=True)
        self._compacting = [thread for thread in self._compacting if thread.is_alive()]
        self._compacting.append(thread)
        thread.start()

    def _release(self) -> None:
        for thread in self._compacting:
            thread.join(10)


def _options(job: Job) -> dict[str, str]:
    """What Spark is told, if it is started for the job."""
    options = job.settings.spark
    if not job.pipelined:
        return options
    return with_settings(options, slots_needed(job), os.cpu_count() or 1)


def _no_micro_batch(epoch: int, work: Sequence[SubtaskRanges]) -> Iterable[EpochRow]:
    raise AssertionError("a pipelined job has no micro-batches")


def _messages(frame: DataFrame, outputs: JobOutputs) -> list[EpochRow]:
    messages = []
    for row in frame.toLocalIterator(prefetchPartitions=True):
        epoch_row = EpochRow(row.edge, row.sequence, row.channel, bytes(row.payload))
        if not outputs.deliver(epoch_row):
            messages.append(epoch_row)
    return messages
