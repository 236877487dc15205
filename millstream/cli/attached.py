"""The process of a session's job: `millstream run` of its program, with the session instead of a terminal.

Started by a session and by nobody else (`millstream.session.process`).
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from typing import Any

import msgspec

from millstream.cli.program import Program, execute, failure_text
from millstream.cli.upgrade import watching_over
from millstream.errors import EmptyProgramError, JobCancelled
from millstream.session.link import SessionLink
from millstream.session.process import LINK
from millstream.session.programs import SubmittedProgram

__all__ = ["main"]

# What leads to the engine, if the session has one.
_GATEWAY = "PYSPARK_GATEWAY_PORT"


def main() -> int:
    """Run what the session says; the exit code."""
    link = SessionLink(socket.socket(fileno=int(os.environ.pop(LINK))))
    first = link.first()
    submitted = msgspec.convert(first["program"], SubmittedProgram)
    link.names(first["home"], _callers_folder(submitted))
    link.begin()
    error: str | None = None
    code = 0
    try:
        _run(submitted, first, link)
    except SystemExit as exit_:
        code, error = _of_exit(exit_)
    except JobCancelled:
        # Somebody has asked for it.
        code = 1
    except BaseException as failure:
        code, error = 1, failure_text(failure, traceback_wanted=submitted.traceback)
    if error is not None:
        sys.stderr.write(f"{error}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    link.end(error)
    return code


def _run(submitted: SubmittedProgram, first: dict[str, Any], link: SessionLink) -> None:
    from millstream.datastream import overrides

    # Before anything is imported that belongs to the program.
    if _GATEWAY in os.environ:
        link.holds(import_module("millstream.spark.attach").attach())
    overrides.set_forced(first["settings"])
    overrides.set_job_id(first.get("job"))
    program = Program(
        submitted.script,
        submitted.module,
        submitted.arguments,
        submitted.paths,
        {"millstream.progress": "false", **first.get("defaults", {}), **submitted.overrides},
        submitted.pyflink,
        home=first["home"] if os.path.isdir(first["home"]) else None,
        named=submitted.words or None,
    )
    try:
        with overrides.runs_shown_to(link.watch), watching_over(upgrade=submitted.upgrade):
            execute(program)
    finally:
        # Also of a program that fails after execute_async: what runs, runs.
        link.wait_for_jobs()
    if not link.had_jobs:
        raise EmptyProgramError(
            "the program ended and never called execute()",
            program=submitted.name,
            hint="call env.execute() at its end; with `if __name__ == '__main__'` that works too",
        )


def _callers_folder(submitted: SubmittedProgram) -> str:
    """Where the program's files are for whoever has submitted it."""
    folder = os.path.dirname(submitted.name) if submitted.script else ""
    return os.path.normpath(os.path.join(submitted.folder, folder))


def _of_exit(exit_: SystemExit) -> tuple[int, str | None]:
    """What `sys.exit(...)` means, as the interpreter would take it."""
    if exit_.code is None or exit_.code == 0:
        return 0, None
    if isinstance(exit_.code, int):
        return exit_.code, f"the program has ended itself with exit code {exit_.code}"
    return 1, str(exit_.code)


if __name__ == "__main__":
    # Not as `__main__`: that is the program's name.
    code = import_module("millstream.cli.attached").main()
    # Threads of the program, and what it registered for its end, have had their time.
    sys.exit(code)
