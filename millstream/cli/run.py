"""`millstream run`: run a program in this process and wait for it.

Answers to `flink run` with Flink's flags. The program's `env.execute()` does the work; this command
only hands over what was set on the command line and turns failures into readable ones.
"""

from __future__ import annotations

from typing import Any

import click

from millstream.cli.program import (
    ProgramCommand,
    execute,
    guarded,
    not_yet_option,
    parse_program,
    program_options,
)

__all__ = ["run"]


@click.command(cls=ProgramCommand)
@program_options
@not_yet_option("-d", "--detached", "detached", is_flag=True)
@not_yet_option("-s", "--fromSavepoint", "from_savepoint", metavar="PATH")
@not_yet_option("-n", "--allowNonRestoredState", "allow_non_restored_state", is_flag=True)
def run(*, traceback_wanted: bool, **options: Any) -> None:
    """Run a program.

    \b
    millstream run -p 4 -Dpipeline.name=orders job.py --input orders.csv
    millstream run -pym jobs.orders -pyfs lib/,helpers.zip
    """
    with guarded(traceback_wanted=traceback_wanted):
        execute(parse_program(**options))
