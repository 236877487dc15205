"""The Spark session that jobs run in: the one that is there, or one made with settings that fit.

`spark.*` keys of the configuration go to a session that is made here, above what `spark-submit` was told, above these
defaults. A session that the user has made is used as it is; what a level plan needs of Spark SQL is set on a session
of our own beside it, which shares its cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from millstream.errors import RuntimeUnusable
from millstream.spark.attach import apply_to_job, attached, beside
from millstream.spark.class_archive import archive_options
from millstream.spark.dependencies import add_jars
from millstream.spark.executors import watch
from millstream.spark.java import start_java
from millstream.spark.master import lost_master, require_master
from millstream.spark.slots.usable import usable, workers_import_us

__all__ = [
    "executor_count",
    "has_executors",
    "has_slots",
    "is_cluster",
    "job_session",
    "make_session",
    "slot_count",
    "temporary_folder",
]

_DAEMON = "millstream.spark.slots.daemon"

_CONTEXT = {
    # A task whose Python worker dies is tried again, as it would be on a cluster.
    "spark.master": "local[*,3]",
    "spark.app.name": "millstream",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # About 40% off the time of a small task.
    "spark.python.unix.domain.socket.enabled": "true",
    # A subtask runs where its state is, not where most of an epoch's input happens to come from.
    "spark.shuffle.reduceLocality.enabled": "false",
}

# From the JVM's first moment on; spark.log.level comes too late for the messages of its start.
_QUIET = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('quiet.properties')}"

# When everything runs on this machine. Executors elsewhere must reach the driver by an address of their network.
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

# Spark SQL settings without which a level plan would be wrong or slow.
_PLAN = {
    # A level must run in every epoch, also when it receives nothing.
    "spark.sql.adaptive.enabled": "false",
    # Rows are buffers: bound what travels to a worker at once by bytes, not by their number.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    # Two log commits per epoch: 15 ms each this way, 40 to 60 ms through Hadoop's FileContext.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.stopTimeout": "60s",
}


def job_session(options: Mapping[str, str]) -> SparkSession:
    """A session for one job."""
    try:
        base = SparkSession.active()
    except PySparkRuntimeError:
        base = make_session(options)
    if is_cluster(base):
        watch(base)
    session = base.newSession()
    apply_to_job(session, options)
    add_jars(session, [jar for jar in options.get("spark.jars", "").split(",") if jar])
    for key, value in _PLAN.items():
        session.conf.set(key, options.get(key, value))
    session.conf.set(
        "spark.sql.shuffle.partitions", options.get("spark.sql.shuffle.partitions", "2")
    )
    return session


def is_cluster(session: SparkSession) -> bool:
    """True if workers may run on other hosts than the driver's."""
    return not str(session.sparkContext.master).startswith("local")


def has_executors(session: SparkSession) -> bool:
    """True if tasks run in executors beside the driver, here or elsewhere, so that they can move between them."""
    master = str(session.sparkContext.master)
    return master != "local" and not master.startswith("local[")


def has_slots(session: SparkSession) -> bool:
    """True if our daemon runs the Python workers, so that a subtask keeps its process."""
    return session.sparkContext.getConf().get("spark.python.daemon.module") == _DAEMON


def executor_count(session: SparkSession) -> int:
    """How many executors there are right now."""
    # PySpark itself only knows the number of cores, and calls a single one two.
    context: Any = session.sparkContext._jsc.sc()
    # The driver is in the list too.
    return int(context.getExecutorMemoryStatus().size()) - 1


def slot_count(session: SparkSession) -> int:
    """How many tasks can run at the same time, on the executors that there are right now."""
    context: Any = session.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def temporary_folder(session: SparkSession, prefix: str) -> str:
    """A folder on the driver. If this process is killed, the JVM removes it on its own way out."""
    folder = tempfile.mkdtemp(prefix=prefix)
    if attached():
        # The session removes the temporary files of a process when that ends, and the JVM lives on.
        return folder
    jvm: Any = session._jvm
    hooks = jvm.org.apache.spark.util.ShutdownHookManager
    hooks.registerShutdownDeleteDir(jvm.java.io.File(folder))
    return folder


def make_session(options: Mapping[str, str]) -> SparkSession:
    """Start Spark, or join the session of this process."""
    _require_java()
    given = {**_submitted(), **options}
    # local, local[N] and local-cluster[...]
    local = given.get("spark.master", _CONTEXT["spark.master"]).startswith("local")
    settings = {**_CONTEXT, **(_LOCAL if local else {}), **given}
    if local and usable() and workers_import_us(settings.get("spark.pyspark.python")):
        settings.setdefault("spark.python.daemon.module", _DAEMON)
    java = settings.get("spark.driver.extraJavaOptions", _QUIET)
    settings["spark.driver.extraJavaOptions"] = f"{java} {archive_options(settings)}".rstrip()
    _choose_python(settings.get("spark.pyspark.python"), local=local)
    require_master(settings["spark.master"])
    if local:
        # Neither the machine's name nor its other addresses matter then; Spark warns of both.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = beside(lambda: start_java(settings, builder.getOrCreate))
    except Exception as error:
        lost = lost_master(settings["spark.master"], error)
        if lost is not None:
            raise lost from error
        msg = f"Spark did not start: {type(error).__name__}: {error}"
        raise RuntimeUnusable(
            msg, master=settings["spark.master"], hint="run `millstream doctor --spark`"
        ) from error
    if not settings["spark.master"].startswith("local["):
        # A cluster would take a driver that is suddenly gone for a fault, and begin to replace its executors.
        atexit.register(_stop, session)
    return session


def _stop(session: SparkSession) -> None:
    # The JVM may be gone by now, or the user may have stopped the session.
    with contextlib.suppress(Exception):
        session.stop()


def _submitted() -> dict[str, str]:
    """What `spark-submit` was told, if it has started this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _choose_python(wanted: str | None, *, local: bool) -> None:
    """The Python of the workers. A driver that `spark-submit` has not started reads it from the environment only."""
    if wanted:
        os.environ["PYSPARK_PYTHON"] = wanted
    elif local:
        # Else Spark starts whatever `python3` is on the PATH. On a cluster that is the default: the driver's own
        # Python need not exist there.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.path.exists(java):
        msg = "Spark needs Java 17 or later, and no Java was found"
        raise RuntimeUnusable(
            msg,
            java_home=home or "not set",
            hint="install a JRE (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME; "
            "`millstream doctor` checks everything",
        )
