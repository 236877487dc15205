"""Spark's own log of a streaming query.

Where split-based sources are stands in our manifests, so for them the log is thrown away: each attempt starts a query
of its own. A *streaming frame* of the user's has its offsets only in Spark's log. A job that reads one keeps the log in
its folder, and before each attempt cuts it back to the micro-batch of the checkpoint that it goes on from.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from pyspark.sql import SparkSession

from millstream.errors import ConfigurationError, StateMismatch
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.job_folder import JobFolder
from millstream.spark.session import temporary_folder
from millstream.storage.storage import LocalStorage

__all__ = ["QueryLog"]

_FOLDER = "spark"


class QueryLog:
    """The `checkpointLocation` of one attempt; `first_batch` is the number that Spark's next new micro-batch has."""

    def __init__(
        self,
        session: SparkSession,
        job: Job,
        folder: JobFolder,
        last_batch: int | None,
        *,
        restored: bool,
    ) -> None:
        self._kept = any(not vertex.head.operator.bounded for vertex in job.frame_sources)  # type: ignore[attr-defined]
        self.first_batch = 0
        if not self._kept:
            self.path = temporary_folder(session, "millstream-spark-")
            return
        if not isinstance(folder.storage, LocalStorage):
            msg = "a job that reads a streaming Spark frame needs its checkpoints in a local or mounted folder"
            raise ConfigurationError(
                msg,
                found=folder.storage.root,
                hint="Spark's log of the frame is kept beside them; use a source of Millstream's, or a mounted folder",
            )
        if restored and last_batch is None:
            msg = "a savepoint does not hold the offsets of a streaming Spark frame"
            raise StateMismatch(
                msg,
                operator=", ".join(vertex.head.name for vertex in job.frame_sources),
                hint="start from the job's own last checkpoint, or read the data with a source of Millstream's",
            )
        self.path = os.path.join(folder.storage.root, _FOLDER)
        folder.check_lease()
        if last_batch is None:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            self.first_batch = last_batch + 1
            self._cut_after(last_batch)

    def _cut_after(self, batch: int) -> None:
        """What Spark has planned beyond the checkpoint has not happened."""
        for part in ("offsets", "commits"):
            folder = os.path.join(self.path, part)
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(folder):
                    number = name.strip(".").removesuffix(".crc")
                    if number.isdigit() and int(number) > batch:
                        os.unlink(os.path.join(folder, name))

    def close(self) -> None:
        """The attempt is over."""
        if not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)
