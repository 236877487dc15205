"""`JobStatus`: where a job is in its life.

Answers to Flink's `org.apache.flink.api.common.JobStatus`.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["JobStatus"]


class JobStatus(Enum):
    """The states of a job.

    >>> JobStatus.FINISHED.is_terminal_state(), JobStatus.RUNNING.is_terminal_state()
    (True, False)
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Whether the job is over for good: nobody will ever take it up again.

        >>> JobStatus.SUSPENDED.is_globally_terminal_state()
        False
        """
        return self in _OVER

    def is_terminal_state(self) -> bool:
        """Whether the job is over here; a suspended one may be taken up by another driver.

        >>> JobStatus.SUSPENDED.is_terminal_state()
        True
        """
        return self in _OVER or self is JobStatus.SUSPENDED


_OVER = frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED})
