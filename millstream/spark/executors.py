"""The executors of a Spark application: who they are, what their Python is, and what is said when there are none."""

from __future__ import annotations

import atexit
import contextlib
import json
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from millstream.redaction import get_logger
from millstream.spark import probe

__all__ = ["ExecutorFacts", "examine", "executor_hosts", "master_has", "needed", "watch"]

_log = get_logger("millstream.job")

_ROUNDS = 8
_PAUSE = 0.2
_TAG = "millstream-probe"
# After so many seconds without an executor it is said, and again.
_SILENT = 5.0
_AGAIN = 60.0
_LOOK = 1.0

_watched: set[str] = set()
# The epochs of this process whose tasks run, or wait.
_epochs: list[object] = []


@dataclass(frozen=True)
class ExecutorFacts:
    """What one executor's Python has said. `skew` is how many seconds its clock is at least off the driver's."""

    executor: str
    host: str
    python: str
    version: tuple[int, ...]
    skew: float
    missing: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    folder_problem: str | None = None
    wrote: str | None = None

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return f"{self.host} (executor {self.executor})" if self.executor else self.host


def executor_hosts(session: SparkSession) -> list[str]:
    """The hosts of the executors that are there right now, one for each executor."""
    # PySpark itself does not tell, and most of what Spark's own classes give cannot be read through Py4J.
    context: Any = session.sparkContext._jsc.sc()
    places = str(context.getExecutorMemoryStatus().keys().mkString(" ")).split()
    hosts = sorted(place.rpartition(":")[0] for place in places)
    driver = str(session.sparkContext.getConf().get("spark.driver.host"))
    # The driver is in the list too.
    hosts.remove(driver if driver in hosts else hosts[0])
    return hosts


def examine(
    session: SparkSession, *, folder: str | None = None, token: str = "", seconds: float = 30.0
) -> list[ExecutorFacts]:
    """What every executor's Python says; of as many as answer in time. In `folder` the driver has written a file whose
    name and content are `token`."""
    context = session.sparkContext
    cloudpickle.register_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    own = folder is not None and "://" not in folder
    deadline = time.monotonic() + seconds
    found: dict[tuple[str, str], ExecutorFacts] = {}
    timer = threading.Timer(seconds, context.cancelJobsWithTag, [_TAG])
    timer.daemon = True
    timer.start()
    context.addJobTag(_TAG)
    try:
        for number in range(_ROUNDS):
            executors = max(1, len(executor_hosts(session)))
            tasks = max(context.defaultParallelism, executors)
            began = time.time()
            look = probe.look(folder, token, own, 0.0 if number == 0 else _PAUSE)
            rows = context.parallelize(range(tasks), tasks).mapPartitions(look).collect()
            ended = time.time()
            for row in rows:
                facts = _facts(row, began, ended)
                found.setdefault((facts.executor, facts.host), facts)
            if len(found) >= executors or time.monotonic() > deadline:
                break
    finally:
        timer.cancel()
        context.removeJobTag(_TAG)
        cloudpickle.unregister_pickle_by_value(probe)  # type: ignore[no-untyped-call]
    return [found[key] for key in sorted(found)]


def _facts(row: dict[str, Any], began: float, ended: float) -> ExecutorFacts:
    said = row.get("folder") or {}
    return ExecutorFacts(
        executor=row["executor"],
        host=row["host"],
        python=row["python"],
        version=tuple(row["version"]),
        # It was asked between these two moments.
        skew=max(0.0, began - row["time"], row["time"] - ended),
        missing=row["missing"],
        versions=row["versions"],
        folder_problem=said.get("problem"),
        wrote=said.get("wrote"),
    )


# -- none there ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Around the tasks of an epoch: somebody needs executors."""
    mark = object()
    _epochs.append(mark)
    try:
        yield
    finally:
        _epochs.remove(mark)


def watch(session: SparkSession) -> None:
    """From now on say it when an epoch waits and there is no executor to run it. Once for each application."""
    application = str(session.sparkContext.applicationId)
    if application in _watched:
        return
    _watched.add(application)
    ended = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(session, ended), name="millstream-executors", daemon=True
    )

    def end() -> None:
        # Who talks to a JVM that goes away gets pages of Py4J's for an answer.
        ended.set()
        thread.join(5)

    atexit.register(end)
    thread.start()


def _watch(session: SparkSession, ended: threading.Event) -> None:
    context: Any = session.sparkContext
    since, said = time.monotonic(), 0.0
    # Py4J gives up when the JVM is gone, with errors of several kinds.
    with contextlib.suppress(Exception):
        while not ended.wait(_LOOK) and not context._jsc.sc().isStopped():
            now = time.monotonic()
            # Spark's own tracker knows of no stage before its first task has begun.
            if executor_hosts(session) or not _epochs:
                if said:
                    _log.warning("executors have come: %s", ", ".join(executor_hosts(session)))
                since, said = now, 0.0
            elif now - since >= _SILENT and (not said or now - said >= _AGAIN):
                said = now
                _log.warning("%s", waiting_text(session, now - since))


def waiting_text(
    session: SparkSession, seconds: float, ask: Callable[[str, str], str | None] | None = None
) -> str:
    """What is said while no executor comes: what was asked for, what there is, what to do."""
    get = session.sparkContext.getConf().get
    master = str(session.sparkContext.master)
    asked = {
        key: get(key)
        for key in (
            "spark.executor.memory",
            "spark.executor.cores",
            "spark.cores.max",
            "spark.executor.instances",
        )
        if get(key)
    }
    wanted = ", ".join(f"{key}={value}" for key, value in asked.items()) or "Spark's defaults"
    there = (ask or master_has)(master, get("spark.master.ui.port", "8080") or "8080")
    return (
        f"no executor has come for {seconds:.0f} s, and the job waits: {master} was asked for {wanted}; "
        f"it has {there or 'not told what it has (its page could not be read)'}. What to do: free slots, or ask for "
        "less (spark.executor.memory, spark.cores.max); if executors start and end again, they do not reach this "
        "driver (spark.driver.host, spark.driver.port); millstream doctor -Dspark.master=... says more"
    )


def master_has(master: str, port: str) -> str | None:
    """What a standalone master says on its page that it has; None if it does not say."""
    if not master.startswith("spark://"):
        return None
    for address in master.removeprefix("spark://").split(","):
        host = address.rpartition(":")[0]
        with contextlib.suppress(Exception):
            with urllib.request.urlopen(f"http://{host}:{port}/json/", timeout=2) as answer:
                said = json.load(answer)
            # Another master may have this page.
            if said.get("url") == f"spark://{address}" and said.get("status") == "ALIVE":
                return _told(said)
    return None


def _told(said: Mapping[str, Any]) -> str:
    """
    >>> _told({"aliveworkers": 2, "cores": 4, "coresused": 4, "memory": 2048, "memoryused": 1024})
    '2 workers, 0 of 4 cores free, 1024 of 2048 MB of memory free'
    """
    cores, memory = said.get("cores", 0), said.get("memory", 0)
    return (
        f"{said.get('aliveworkers', 0)} workers, {cores - said.get('coresused', 0)} of {cores} cores free, "
        f"{memory - said.get('memoryused', 0)} of {memory} MB of memory free"
    )


def new_token() -> str:
    """A name for a file that nobody has yet."""
    return f"millstream-doctor-{uuid.uuid4().hex}"
