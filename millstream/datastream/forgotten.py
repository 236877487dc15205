"""A program that declares sinks and ends without `execute()` has done nothing; it is told so when it ends.

Only a program is: a script or module that runs as `__main__` and has declared a sink itself, and that has not failed.
Neither a session at a prompt or in a notebook nor a run of tests is one.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Collection

from millstream.graph.transformations import OperatorTransformation, SourceLine

__all__ = ["executed", "sink_declared", "warn_of"]

# By environment, the lines of its sinks that have not been executed. Not the environments: they may go.
_waiting: dict[object, list[SourceLine]] = {}
_process = 0


def sink_declared(environment: object, sink: OperatorTransformation) -> None:
    """An environment has a sink that waits to be executed; `environment` stands for it."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _waiting.clear()
        # Python takes the script's name away before it ends.
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        if main is not None:
            atexit.register(_at_exit, _process, os.path.abspath(main))
    if sink.declared_at is not None:
        _waiting.setdefault(environment, []).append(sink.declared_at)


def executed(environment: object) -> None:
    """What an environment has declared has been executed, or looked at."""
    _waiting.pop(environment, None)


def warn_of(files: Collection[str]) -> None:
    """Say that `execute()` was forgotten, if a sink waits that was declared in one of these files."""
    wanted = set(map(os.path.abspath, files))
    lines = [line for of_one in _waiting.values() for line in of_one]
    mine = [line for line in lines if os.path.abspath(line.file) in wanted]
    # Once is enough: whoever runs a program looks when it ends, and so does this module when the process does.
    for environment, of_one in _waiting.items():
        _waiting[environment] = [line for line in of_one if line not in mine]
    if mine and sys.stderr is not None:
        sinks = "its sink, declared" if len(mine) == 1 else f"its {len(mine)} sinks, the first"
        sys.stderr.write(
            f"warning: the program ended without execute(): nothing came to {sinks} at {mine[0]}\n"
            "  what to do: call env.execute() at its end\n"
        )


def _at_exit(process: int, main: str) -> None:
    at_prompt = hasattr(sys, "ps1") or sys.flags.interactive
    failed = getattr(sys, "last_value", None) is not None
    if process == os.getpid() and not at_prompt and not failed:
        warn_of([main])
