"""Where an operator that is not generated code puts its results: a function of the generated code behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.runtime.state.journal import Journal

__all__ = ["Outlet"]


class Outlet:
    """Where an operator that is not generated code puts what it emits; the code behind it is made after it."""

    __slots__ = ("_journal", "send")

    def __init__(self, journal: Journal | None = None) -> None:
        self.send: Callable[[Any, int], None] = _nowhere
        # Of an operator with an error policy: what holds results back until their record has been processed.
        self._journal = journal

    def __call__(self, value: Any, timestamp: int) -> None:
        self.send(value, timestamp)

    def attach(self, send: Callable[..., None]) -> None:
        """Set the generated function that results go to."""
        self.send = send if self._journal is None else self._journal.holding(send)


def _nowhere(value: Any, timestamp: int) -> None:
    raise AssertionError("the chain has not been built")
