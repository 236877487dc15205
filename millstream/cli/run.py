"""`millstream run`: run a program in this process and wait for it, or in a session and do not.

Answers to `flink run` with Flink's flags. The program's `env.execute()` does the work; this command
only hands over what was set on the command line and turns failures into readable ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from millstream.cli.program import (
    ProgramCommand,
    execute,
    guarded,
    parse_program,
    program_options,
)
from millstream.cli.session_option import session_option, submit
from millstream.cli.upgrade import watching_over

__all__ = ["run"]


@click.command(cls=ProgramCommand)
@program_options
@click.option(
    "-d",
    "--detached",
    is_flag=True,
    help="Run it in a session (millstream session start), and return once its job runs.",
)
@session_option
@click.option(
    "-s",
    "--fromSavepoint",
    "from_savepoint",
    metavar="PATH",
    help="Start from a savepoint, a retained checkpoint (.../chk-12) or a job's folder.",
)
@click.option(
    "-n",
    "--allowNonRestoredState",
    "allow_non_restored",
    is_flag=True,
    help="Leave behind state that the program has no place for.",
)
@click.option(
    "-claim",
    "--claimMode",
    "-rm",
    "--restoreMode",
    "claim_mode",
    type=click.Choice(["CLAIM", "NO_CLAIM", "LEGACY"], case_sensitive=False),
    help="With -s: NO_CLAIM leaves what the checkpoint has to commit to the job that wrote it; "
    "CLAIM removes the checkpoint once it is not needed any more.",
)
@click.option(
    "--resume",
    metavar="JOB",
    help="Go on from the last checkpoint of this job (name or id); fail if there is none.",
)
@click.option(
    "--ship-environment",
    "ship_environment",
    is_flag=True,
    help="Ship the packages of this environment to a cluster whose hosts have a bare Python.",
)
@click.option("--fresh", is_flag=True, help="Forget the job's checkpoints and start anew.")
@click.option(
    "--standby",
    is_flag=True,
    help="Stand by, with a warm Spark, while another driver runs the job; take over when it is gone.",
)
@click.option(
    "--upgrade",
    is_flag=True,
    help="Take over from the running job of the same name, once all of its state is proved to fit.",
)
def run(
    *,
    traceback_wanted: bool,
    detached: bool,
    session: str,
    from_savepoint: str | None,
    allow_non_restored: bool,
    claim_mode: str | None,
    resume: str | None,
    fresh: bool,
    standby: bool,
    upgrade: bool,
    ship_environment: bool,
    **options: Any,
) -> None:
    """Run a program. With execution.checkpointing.dir set, a job that was cancelled or killed goes on
    from its last checkpoint, which is found by the job's name.

    \b
    millstream run -p 4 -Dpipeline.name=orders job.py --input orders.csv
    millstream run -s /savepoints/savepoint-4f2a91-77e0 job.py
    millstream run --upgrade job.py
    millstream run --pyflink flink_job.py
    millstream run -pym jobs.orders -pyfs lib/,helpers.zip
    millstream run -d job.py
    """
    if sum(map(bool, (from_savepoint, resume, fresh, upgrade))) > 1:
        raise click.UsageError("-s, --resume, --fresh and --upgrade exclude each other")
    if detached and standby:
        raise click.UsageError(
            "-d and --standby exclude each other: a session stands by as a whole"
        )
    asked = {
        "execution.state-recovery.path": from_savepoint,
        "execution.state-recovery.ignore-unclaimed-state": "true" if allow_non_restored else None,
        "execution.state-recovery.claim-mode": claim_mode,
        "millstream.recovery.resume": "never" if fresh else resume,
        "millstream.high-availability.standby": "true" if standby else None,
        "millstream.environment.ship": "true" if ship_environment else None,
    }
    with guarded(traceback_wanted=traceback_wanted):
        program = parse_program(**options)
        given = {key: value for key, value in asked.items() if value is not None}
        program = replace(program, overrides={**program.overrides, **given})
        if detached:
            submit(program, session, traceback_wanted=traceback_wanted, upgrade=upgrade)
            return
        with watching_over(upgrade=upgrade):
            execute(program)
