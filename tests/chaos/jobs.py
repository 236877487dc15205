"""The jobs that are killed, and who judges what each has written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import oracle, time_oracle
from tests.chaos.oracle import Verdict

__all__ = ["JOBS", "Job"]


@dataclass(frozen=True)
class Job:
    """A program, `module` as in `python -m`, and its oracle."""

    module: str
    judge: Callable[[Path], Verdict]
    # Where a worker can be killed that other jobs never come to, and how often it may pass there.
    worker_points: dict[str, int] = field(default_factory=dict)
    # Runs take turns with these.
    backends: tuple[str, ...] = ("hashmap",)


JOBS = {
    "state": Job("tests.chaos.checker", oracle.judge),
    "time": Job(
        "tests.chaos.time_checker", time_oracle.judge, {"timer firing": 40}, ("hashmap", "lmdb")
    ),
}
