"""The level plan, made ready for one epoch after the other.

A frame that has run does not run again: Spark would find the rows of its exchange, and skip level 0. So each epoch has
a frame of its own over the same plan, which Spark plans anew. That is done beside the epoch before it.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame

__all__ = ["EpochFrames"]


class EpochFrames:
    """Frames that run once each, the next one being planned while the last one runs."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="millstream-plan")
        self._next: Future[DataFrame] = self._planner.submit(self._plan)

    def _plan(self) -> DataFrame:
        frame = self._frame.select("*")
        untyped: Any = frame
        untyped._jdf.queryExecution().executedPlan()
        return frame

    def take(self) -> DataFrame:
        """A frame that has not run yet."""
        frame = self._next.result()
        self._next = self._planner.submit(self._plan)
        return frame

    def close(self) -> None:
        """No more are wanted."""
        self._planner.shutdown(wait=False, cancel_futures=True)
