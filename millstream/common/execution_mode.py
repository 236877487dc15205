"""`RuntimeExecutionMode`: whether a job gives results as it goes, or per key at the end.

Answers to Flink's `RuntimeExecutionMode`.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["RuntimeExecutionMode"]


class RuntimeExecutionMode(Enum):
    """How a job runs.

    - `STREAMING`: results come as records arrive.
    - `BATCH`: all sources are bounded; each key is worked on by itself, and its timers fire last.
    - `AUTOMATIC`: `BATCH` if all sources are bounded, else `STREAMING`.

    >>> RuntimeExecutionMode["BATCH"].value
    1
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
