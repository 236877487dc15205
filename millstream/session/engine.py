"""What a session needs of what runs its jobs. `millstream.spark.host` has a Spark; `NoEngine` has nothing, for programs
that run in-process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

__all__ = ["JobEngine", "NoEngine", "SessionEngine"]


class JobEngine(Protocol):
    """What one job's process has of the engine."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that lead the process there."""


class SessionEngine(Protocol):
    """The engine of a session; its methods may be called from any thread."""

    def facts(self) -> dict[str, str]:
        """What there is to know of it."""

    def open(self) -> JobEngine:
        """A way in for the process of one more program."""

    def close(self, job: Any, ids: Collection[str], held: Mapping[str, Any]) -> None:
        """A process has ended, in whatever way: end what still runs of its jobs, and let go of what it held."""

    def alive(self) -> bool:
        """False once the engine itself is gone."""

    def stop(self) -> None:
        """End the engine, with the session."""


class NoEngine:
    """For jobs that need none."""

    def facts(self) -> dict[str, str]:
        """Nothing runs here."""
        return {"name": "in-process"}

    def open(self) -> JobEngine:
        """Nothing to lead to."""
        return SimpleNamespace(environment={})

    def close(self, job: Any, ids: Collection[str], held: Mapping[str, Any]) -> None:
        """Nothing was kept."""

    def alive(self) -> bool:
        """True, for there is nothing that could die."""
        return True

    def stop(self) -> None:
        """Nothing to end."""
