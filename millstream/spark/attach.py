"""How the process of a session's job comes to the session's Spark: a context of its own over the same JVM.

The session has made a gateway for this process alone (`millstream.spark.host`), so that calls, callbacks and what the
JVM keeps for them are nobody else's. A context that is attached cannot be stopped by the program: it is everybody's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millstream.errors import RuntimeUnusable, told
from millstream.redaction import get_logger

__all__ = ["ATTACH", "apply_to_job", "attach", "attached", "beside", "join_pool"]

_log = get_logger("millstream.spark")

ATTACH = "MILLSTREAM_ATTACH"
"""The variable that says that the gateway is a session's."""

_attached = False
# Spark's fair scheduler takes the pool with the fewest running tasks, and of several with none the one whose name is
# first, each time: of more pools than cores the last get nothing. Inside of a pool what was asked for first goes first.
_STREAMS = "millstream-1-streams"
_BATCH = "millstream-2-batch"
_EXECUTOR_ENV = "spark.executorEnv."
_CONTEXT_ONLY = ("spark.master", "spark.driver.", "spark.executor.", "spark.cores.", "spark.ui.")


def attached() -> bool:
    """True in the process of a session's job."""
    return _attached


def attach() -> dict[str, Any]:
    """Use the session's Spark in this process; what there and on disk has to be let go of when the process is gone."""
    global _attached
    try:
        session = beside(_attach)
    except Exception as error:
        raise RuntimeUnusable(
            f"the session's Spark cannot be reached: {told(error)}",
            hint="see the session's log; start the session again with --recover",
        ) from error
    _attached = True
    # They are this process's: what it starts would take them for its own.
    for name in (ATTACH, "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    context: Any = session.sparkContext
    address = context._accumulatorServer.server_address
    return {"files": [context._temp_dir, *([address] if isinstance(address, str) else [])]}


def _attach() -> SparkSession:
    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    jvm: Any = gateway.jvm
    java = jvm.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
    untyped: Any = context
    # Spark tells it of every task that ends, and waits for its answer: everybody's tasks would wait for a process that
    # is busy, or stopped. Without one, as in Spark Connect, nobody is told.
    untyped._javaAccumulator = None
    classes: Any = SparkSession
    # Else this one would become the default session of the whole JVM.
    decide = classes._should_update_active_session
    classes._should_update_active_session = staticmethod(lambda: False)
    try:
        session = SparkSession(context, SparkSession(context)._jsparkSession.newSession())
    finally:
        classes._should_update_active_session = staticmethod(decide)
    classes._instantiatedSession = classes._activeSession = session
    SparkContext.stop = _not_ours  # type: ignore[method-assign]
    SparkSession.stop = _not_ours  # type: ignore[method-assign]
    return session


def _not_ours(self: Any) -> None:
    _log.warning(
        "stop() does nothing here: Spark belongs to the session, and to its other jobs too"
    )


def _without_listeners(session: SparkSession) -> None:
    """Take a session of a job's own out of what Spark tells of its queries. Nobody listens to these, and Spark would
    keep the session's listeners for as long as the JVM lives."""
    manager: Any = session._jsparkSession.streams()
    field = manager.getClass().getDeclaredField("listenerBus")
    field.setAccessible(True)
    session.sparkContext._jsc.sc().listenerBus().removeListener(field.get(manager))


def join_pool(session: SparkSession, *, streams: bool) -> None:
    """Have what this thread starts take its turn with that of other jobs: epochs of streams among themselves, so that
    each waits for those that were due before it; what may have many tasks beside them, on half of the cores."""
    if _attached:
        context = session.sparkContext
        pool = _STREAMS if streams or context.defaultParallelism < 2 else _BATCH
        context.setLocalProperty("spark.scheduler.pool", pool)


def apply_to_job(session: SparkSession, options: Mapping[str, str]) -> None:
    """What of a job's settings for Spark still counts in a session, whose Spark was started without them."""
    if not _attached:
        return
    _without_listeners(session)
    context: Any = session.sparkContext
    started_with = context.getConf()
    for key, value in options.items():
        if key.startswith(_EXECUTOR_ENV):
            # Workers are started by their environment: those with another one are others.
            context.environment[key.removeprefix(_EXECUTOR_ENV)] = value
        elif key.startswith(_CONTEXT_ONLY) and started_with.get(key) != value:
            _log.warning(
                "%s=%s has no effect in a session: its Spark has %s",
                key,
                value,
                started_with.get(key),
            )


def beside(start: Callable[[], SparkSession]) -> SparkSession:
    """Start Spark in a thread of its own, so that Ctrl-C ends the waiting at once. In the middle of a call to Java it
    would print pages; and from the main thread Spark would take Ctrl-C over, to cancel the jobs of everybody."""
    started: Future[SparkSession] = Future()

    def run() -> None:
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)

    thread = threading.Thread(target=run, name="millstream-start", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
    return started.result()
