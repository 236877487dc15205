"""What the command line wants of the program it runs: configuration, or only the plan.

Set by `millstream run` and `millstream info` before the user's script starts; empty when a script is run with plain
`python`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["PlanReady", "configuration", "plan_callback", "set_overrides", "set_plan_only"]

PlanCallback = Callable[[dict[str, Any]], None]

_configuration: dict[str, str] = {}
_plan_callback: PlanCallback | None = None


class PlanReady(BaseException):
    """Ends a script at `execute` once its plan has been handed over. Not an `Exception`, so that a script that
    catches those does not carry on."""


def set_overrides(configuration: dict[str, str]) -> None:
    """Configuration for every environment that is made from now on; the script's own values win."""
    global _configuration
    _configuration = dict(configuration)


def configuration() -> dict[str, str]:
    """What `set_overrides` was given."""
    return dict(_configuration)


def set_plan_only(callback: PlanCallback | None) -> None:
    """Hand plans to `callback` and run nothing; None runs jobs again."""
    global _plan_callback
    _plan_callback = callback


def plan_callback() -> PlanCallback | None:
    """What `set_plan_only` was given."""
    return _plan_callback
