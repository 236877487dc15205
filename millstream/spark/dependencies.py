"""What a program depends on, handed to Spark: files for its workers, their Python, Java libraries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from millstream.common.dependencies import Declared
from millstream.runtime.driver.environment import PYTHON, pack
from millstream.runtime.driver.job import Job
from millstream.runtime.task.dependencies import Dependencies, ShippedFile, prepare, staged_path
from millstream.runtime.task.spec import JobSpec

__all__ = ["add_jars", "enter", "environment_python", "ship"]

_HOME = os.getcwd()
"""Where this worker was started; Spark's own paths may be relative to it."""

_default_python: dict[str, str] = {}


def ship(session: SparkSession, job: Job) -> None:
    """Have Spark bring the job's files to wherever its tasks run, and run its Python there."""
    context = session.sparkContext
    for part in job.dependencies.parts:
        # Once in a context: a name holds the checksum of its content.
        context.addFile(staged_path(part))
    # Functions are pickled here, and what they send back is unpickled here.
    made = prepare(job.dependencies, staged_path, first=False)
    # One context has one Python for its workers. Jobs that run at the same time in one process share it.
    default = _default_python.setdefault(str(context.applicationId), context.pythonExec)
    context.pythonExec = (
        _python(session, job.settings.dependencies, job.dependencies, made.working_folder)
        or environment_python(session, job.settings.dependencies, job.settings.local_dir, default)
        or default
    )


def environment_python(
    session: SparkSession, declared: Declared, base: str | None, default: str
) -> str | None:
    """The Python of the driver's environment on executors, if it is to be shipped. In one process there is no other."""
    context = session.sparkContext
    master = str(context.master)
    if not declared.environment or master == "local" or master.startswith("local["):
        return None
    wanted = None if default == "python3" else default
    packed = pack(base, declared.environment_packages, wanted)
    folder = f"environment-{packed.checksum}"
    context.addArchive(f"{packed.path}#{folder}")
    return f"./{folder}/{PYTHON}"


def _python(
    session: SparkSession,
    declared: Declared,
    dependencies: Dependencies,
    working_folder: str | None,
) -> str | None:
    """The Python that the program wants; it may be inside an archive, which must be unpacked before a worker starts."""
    wanted = declared.executable
    inside = None if wanted is None or os.path.isabs(wanted) else Path(wanted)
    if inside is None:
        return wanted
    for part in dependencies.of("archive"):
        if inside.is_relative_to(part.name):
            if str(session.sparkContext.master).startswith(("local[", "local")):
                return str(Path(working_folder or "") / inside)
            folder = f"python-{part.shipped}"
            session.sparkContext.addArchive(f"{staged_path(part)}#{folder}")
            # Executors unpack into the folder that they and their workers start in.
            return f"./{folder}/{inside.relative_to(part.name)}"
    return wanted


def add_jars(session: SparkSession, jars: Sequence[str]) -> None:
    """Java libraries for a session that was started without them."""
    known = set((session.sparkContext.getConf().get("spark.jars") or "").split(","))
    for jar in jars:
        if jar not in known:
            session.sql(f"ADD JAR {_quoted(jar)}")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def enter(job: JobSpec) -> None:
    """In a worker, before a task: the job's dependencies, and its working folder."""
    made = prepare(job.dependencies, _shipped)
    folder = made.working_folder or _HOME
    if os.getcwd() != folder:
        os.chdir(folder)


def _shipped(part: ShippedFile) -> str:
    return os.path.join(_HOME, SparkFiles.getRootDirectory(), part.shipped)
