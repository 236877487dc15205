"""What the command line wants of the program it runs: configuration, only the plan, or only the job.

Set by `millstream run`, `info` and `replay` before the user's script starts; empty when a script is run with plain
`python`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from typing import Any

from millstream.runtime.driver.job import Job

__all__ = [
    "PlanReady",
    "configuration",
    "has_program",
    "job_callback",
    "plan_callback",
    "program",
    "set_job_only",
    "set_overrides",
    "set_plan_only",
    "set_program",
]

PlanCallback = Callable[[dict[str, Any]], None]
JobCallback = Callable[[Job], None]
ProgramWords = tuple[tuple[str, ...], tuple[str, ...]]

_configuration: dict[str, str] = {}
_plan_callback: PlanCallback | None = None
_job_callback: JobCallback | None = None
_program: ProgramWords | None = None


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


def set_job_only(callback: JobCallback | None) -> None:
    """Hand jobs to `callback` and run nothing; None runs jobs again."""
    global _job_callback
    _job_callback = callback


def job_callback() -> JobCallback | None:
    """What `set_job_only` was given."""
    return _job_callback


def set_program(words: ProgramWords | None) -> None:
    """How the command line names the program that runs from now on: the words that do, and its arguments."""
    global _program
    _program = words


def has_program() -> bool:
    """True if the command line runs the program, and not `python` itself."""
    return _program is not None


def program(files: Collection[str]) -> ProgramWords | None:
    """How the command line names the program that is running; None if it cannot. `files` are those in which the
    program's operators are declared: what runs is a program if it has declared one of them."""
    if _program is not None:
        return _program
    main = sys.modules.get("__main__")
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if script is None or not {os.path.abspath(script)} & set(map(os.path.abspath, files)):
        return None
    named = (sys.argv[0],) if spec is None else ("-pym", spec.name.removesuffix(".__main__"))
    return named, tuple(sys.argv[1:])
