"""Pipelined mode for all jobs that can have it, whatever their settings say, as a plugin for pytest:

```
python -m pytest -p tests.in_pipelines tests/properties tests/conformance
```
"""

from __future__ import annotations

from millstream.runtime.driver.job import Job
from millstream.runtime.driver.pipelined import why_not


def _can(job: Job) -> bool:
    return why_not(job) is None


class _Pipelined:
    def __get__(self, job: Job | None, owner: type) -> bool:
        return job is not None and _can(job)


_on = False


def everywhere() -> bool:
    """True if all jobs are pipelined that can be."""
    return _on


def pytest_configure() -> None:
    global _on
    _on = True
    Job.pipelined = _Pipelined()
