"""Stands in for the API below the command line, so that these tests need no other layer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import pytest


class PlanReady(BaseException):
    """Stops a program once its plan is there."""


class FakeOverrides(ModuleType):
    """`millstream.datastream.overrides`, with a memory of what it was told."""

    PlanReady = PlanReady

    def __init__(self) -> None:
        super().__init__("millstream.datastream.overrides")
        self.history: list[dict[str, str]] = []
        self.callback: Callable[[dict[str, Any]], None] | None = None

    @property
    def in_force(self) -> dict[str, str]:
        return self.history[-1]

    def set_overrides(self, values: dict[str, str]) -> None:
        self.history.append(values)

    def set_program(self, words: tuple[tuple[str, ...], tuple[str, ...]] | None) -> None:
        self.program = words

    def runs_shown_to(self, callback: Callable[[Any], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def set_plan_only(self, callback: Callable[[dict[str, Any]], None] | None) -> None:
        self.callback = callback

    def execute(self, plan: dict[str, Any]) -> None:
        """What `env.execute()` does with a plan in plan-only mode."""
        assert self.callback is not None
        self.callback(plan)
        raise PlanReady


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> FakeOverrides:
    fake = FakeOverrides()
    package = ModuleType("millstream.datastream")
    package.overrides = fake
    monkeypatch.setitem(sys.modules, "millstream.datastream", package)
    monkeypatch.setitem(sys.modules, "millstream.datastream.overrides", fake)
    return fake
