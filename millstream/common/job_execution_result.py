"""`JobExecutionResult`: what `execute` hands back when a job has finished.

Answers to Flink's `org.apache.flink.api.common.JobExecutionResult`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.common.job_id import JobID
from millstream.common.notebook import job_result

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """The id of a job, how long it ran, and its accumulators.

    >>> result = JobExecutionResult(JobID("0" * 32), 1234, {"lines": 7})
    >>> result.get_net_runtime(), result.get_accumulator_result("lines")
    (1234, 7)
    """

    def __init__(
        self, job_id: JobID, net_runtime: int, accumulators: Mapping[str, Any] | None = None
    ) -> None:
        self._job_id = job_id
        self._net_runtime = net_runtime
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """The id of the job.

        >>> JobExecutionResult(JobID("0" * 32), 1).get_job_id()
        JobID('00000000000000000000000000000000')
        """
        return self._job_id

    def is_job_execution_result(self) -> bool:
        """Always true: here nothing is handed back before a job has finished.

        >>> JobExecutionResult(JobID(), 1).is_job_execution_result()
        True
        """
        return True

    def get_job_execution_result(self) -> JobExecutionResult:
        """This object itself, as in PyFlink."""
        return self

    def get_net_runtime(self) -> int:
        """How long the job ran, in milliseconds.

        >>> JobExecutionResult(JobID(), 5).get_net_runtime()
        5
        """
        return self._net_runtime

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The value of an accumulator, or None.

        >>> JobExecutionResult(JobID(), 1).get_accumulator_result("lines") is None
        True
        """
        return self._accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """All accumulators, by name.

        >>> JobExecutionResult(JobID(), 1, {"lines": 7}).get_all_accumulator_results()
        {'lines': 7}
        """
        return dict(self._accumulators)

    def to_string(self) -> str:
        """As text, the way Flink's client reports the end of a job.

        >>> print(JobExecutionResult(JobID("0" * 32), 5).to_string())
        Job with JobID 00000000000000000000000000000000 has finished.
        Job Runtime: 5 ms
        """
        lines = [
            f"Job with JobID {self._job_id} has finished.",
            f"Job Runtime: {self._net_runtime} ms",
        ]
        lines.extend(f"- {name}: {value}" for name, value in self._accumulators.items())
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_string()

    def _repr_html_(self) -> str:
        return job_result(self)
