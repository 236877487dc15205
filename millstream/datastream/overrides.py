"""What the command line wants of the program it runs: configuration, only the plan, or only the job.

Set before the user's script starts, by `millstream run`, `info` and `replay` and in the processes of a session; empty
when a script is run with plain `python`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.common.configuration import Configuration
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.run import JobRun

__all__ = [
    "PlanReady",
    "configuration",
    "forced",
    "has_program",
    "job_callback",
    "plan_callback",
    "program",
    "runs_shown_to",
    "set_forced",
    "set_job_id",
    "set_job_only",
    "set_overrides",
    "set_plan_only",
    "set_program",
    "show_run_to",
    "take_job_id",
]

PlanCallback = Callable[[dict[str, Any]], None]
JobCallback = Callable[[Job], None]
RunCallback = Callable[[JobRun], None]
ProgramWords = tuple[tuple[str, ...], tuple[str, ...]]

_configuration: dict[str, str] = {}
_plan_callback: PlanCallback | None = None
_job_callback: JobCallback | None = None
_program: ProgramWords | None = None
_run_callbacks: list[RunCallback] = []
_forced: dict[str, str] = {}
_job_id: str | None = None


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


@contextmanager
def runs_shown_to(callback: RunCallback) -> Iterator[None]:
    """Show every run to `callback` before it starts, which it may keep from it by raising: a session watches the jobs
    of its programs, an upgrade waits for the job before."""
    _run_callbacks.append(callback)
    try:
        yield
    finally:
        _run_callbacks.remove(callback)


def show_run_to(run: JobRun) -> None:
    """Show a run that is about to start to whoever wants to see it."""
    for callback in _run_callbacks:
        callback(run)


def set_forced(configuration: dict[str, str]) -> None:
    """Configuration of how jobs are watched that counts whatever a program says: the session's, which shows them."""
    global _forced
    _forced = dict(configuration)


def forced(configuration: Configuration) -> Configuration:
    """A configuration with what `set_forced` was given."""
    return (
        Configuration.from_dict({**configuration.to_dict(), **_forced})
        if _forced
        else configuration
    )


def set_job_id(id_: str | None) -> None:
    """The id of the first job of the program: it ran before, and goes on."""
    global _job_id
    _job_id = id_


def take_job_id() -> str | None:
    """The id for a job that is built now, if it has one."""
    global _job_id
    id_, _job_id = _job_id, None
    return id_


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
