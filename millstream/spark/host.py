"""The Spark of a session: started once, kept warm, with a gateway for the process of each job."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from millstream.common import Configuration, WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.redaction import get_logger
from millstream.spark.attach import ATTACH
from millstream.spark.session import executor_count, is_cluster, make_session

__all__ = ["JobGateway", "SparkHost"]

_log = get_logger("millstream.session")

T = TypeVar("T")
"""What a call gives."""

_SETTINGS = {
    # By pools: see millstream.spark.attach.
    "spark.scheduler.mode": "FAIR",
    "spark.app.name": "millstream session",
    # What Spark remembers of queries that are over, for a page that nobody looks at unless it is turned on.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.streaming.ui.retainedQueries": "10",
}
_STOP_SECONDS = 30.0


class JobGateway:
    """A way into the JVM for one process: variables that lead there, and the server behind them."""

    def __init__(self, environment: Mapping[str, str], handle: Any) -> None:
        self.environment = environment
        self.handle = handle


class SparkHost:
    """A Spark and its gateways. All calls into the JVM are made by one thread, for each thread that makes some has one
    in the JVM too."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-engine")
        self._session = self._call(lambda: make_session({**_SETTINGS, **options}))
        context: Any = self._session.sparkContext
        self._context = context
        self._process = context._gateway.proc
        self._facts = self._call(self._ask_facts)
        self._call(self._warm_up)

    def _call(self, work: Callable[[], T], seconds: float | None = None) -> T:
        return self._thread.submit(work).result(seconds)

    def _ask_facts(self) -> dict[str, str]:
        facts = {
            "name": "Spark",
            "version": str(self._session.version),
            "master": str(self._context.master),
            "application": str(self._context.applicationId),
        }
        if is_cluster(self._session):
            facts["executors"] = str(executor_count(self._session))
        if self._context.uiWebUrl:
            facts["ui"] = self._context.uiWebUrl
        return facts

    def _warm_up(self) -> None:
        """Run a small job, so that the first one of somebody finds classes loaded and workers forked."""
        settings = {
            "millstream.rest.enabled": "false",
            "millstream.progress": "false",
            "millstream.epoch.records": "50",
            "execution.checkpointing.interval": "50 ms",
        }
        if is_cluster(self._session):
            # Many epochs would need a folder that all hosts see.
            settings = {**settings, "execution.runtime-mode": "BATCH"}
        env = StreamExecutionEnvironment.get_execution_environment(
            Configuration.from_dict(settings)
        )
        numbers = env.set_parallelism(2).from_source(
            DataGeneratorSource(lambda n: (n % 10, 1), 200),
            WatermarkStrategy.no_watermarks(),
            "warm",
        )
        counts = numbers.key_by(lambda pair: pair[0]).sum(1).execute_and_collect("warm up")
        for _ in counts:
            pass

    def facts(self) -> dict[str, str]:
        """Spark's version, its master and its application."""
        return dict(self._facts)

    def open(self) -> JobGateway:
        """A gateway for one more process."""

        def make() -> JobGateway:
            jvm: Any = self._context._jvm
            server = jvm.org.apache.spark.api.python.Py4JServer(self._context._jsc.sc().conf())
            server.start()
            environment = {
                "PYSPARK_GATEWAY_PORT": str(server.getListeningPort()),
                "PYSPARK_GATEWAY_SECRET": str(server.secret()),
                ATTACH: "1",
            }
            return JobGateway(environment, server)

        return self._call(make)

    def close(self, job: JobGateway, ids: Collection[str], held: Mapping[str, Any]) -> None:
        """End what Spark still runs of the jobs of a process that is gone, and its gateway."""

        def end() -> None:
            hooks = self._context._jvm.org.apache.spark.util.ShutdownHookManager
            for id_ in ids:
                self._context.cancelJobsWithTag(f"millstream-{id_}")
            # A streaming query that still wants to call its process finds nobody, and ends.
            job.handle.shutdown()
            for id_ in ids:
                self._context.cancelJobsWithTag(f"millstream-{id_}")
            for file in files:
                hooks.removeShutdownDeleteDir(self._context._jvm.java.io.File(file))

        files = held.get("files", ())
        for file in files:
            if os.path.isdir(file):
                shutil.rmtree(file, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(file)
        if self.alive():
            self._call(end)

    def alive(self) -> bool:
        """False once the JVM is gone."""
        return self._process is None or self._process.poll() is None

    def stop(self) -> None:
        """Stop Spark, with the session."""
        try:
            if self.alive():
                self._call(self._session.stop, _STOP_SECONDS)
        except Exception as error:  # of any class a gateway has
            _log.warning("Spark was not stopped in order: %s", error)
        self._thread.shutdown(wait=False)
