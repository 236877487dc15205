"""The jobs that are killed, and who judges what each has written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import kafka_world, oracle, time_oracle
from tests.chaos.oracle import Verdict
from tests.chaos.outside import OUTSIDE, nothing, postgres_server, s3_server

__all__ = ["JOBS", "Job"]


@dataclass(frozen=True)
class Job:
    """A program, `module` as in `python -m`, and its oracle."""

    module: str
    judge: Callable[[Path], Verdict]
    # Where a worker can be killed that other jobs never come to, and how often it may pass there.
    worker_points: dict[str, int] = field(default_factory=dict)
    # What the job is told beside that.
    options: dict[str, str] = field(default_factory=dict)
    # Runs take turns with these.
    backends: tuple[str, ...] = ("hashmap",)
    # Runs as long as the runs do.
    server: Callable[[], AbstractContextManager[None]] = nothing
    # What a run's folder needs, and what can be restarted while a driver runs.
    prepare: Callable[[Path], None] = lambda folder: None
    restart: Callable[[], None] | None = None


# All tasks run at the same time.
PIPELINED = {"execution.mode": "pipelined", "spark.master": "local[16,3]"}

JOBS = {
    "state": Job("tests.chaos.checker", oracle.judge),
    "time": Job(
        "tests.chaos.time_checker",
        time_oracle.judge,
        {"timer firing": 40},
        backends=("hashmap", "lmdb"),
    ),
    "pipelined": Job("tests.chaos.checker", oracle.judge, options=PIPELINED),
    "pipelined-time": Job(
        "tests.chaos.time_checker", time_oracle.judge, {"timer firing": 40}, PIPELINED
    ),
    "compact": Job("tests.chaos.to_compact", OUTSIDE["compact"].judge),
    "delta": Job("tests.chaos.to_delta", OUTSIDE["delta"].judge),
    "iceberg": Job("tests.chaos.to_iceberg", OUTSIDE["iceberg"].judge),
    "postgres": Job("tests.chaos.to_postgres", OUTSIDE["postgres"].judge, server=postgres_server),
    "s3": Job("tests.chaos.to_s3", OUTSIDE["s3"].judge, server=s3_server),
    "kafka": Job(
        "tests.chaos.kafka_checker",
        kafka_world.judge,
        server=kafka_world.running,
        prepare=kafka_world.prepare,
        restart=kafka_world.restart,
    ),
}
