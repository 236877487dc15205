"""`millstream rescale`: another parallelism for a running job, from its own checkpoint."""

from __future__ import annotations

import click

from millstream.cli.jobs import (
    asked_of,
    checkpoint_dir_option,
    driver_of,
    find_job,
    timeout_option,
)
from millstream.cli.program import guarded
from millstream.cli.session_option import session_option
from millstream.cli.terminal import echo
from millstream.storage.storage import stable

__all__ = ["rescale"]


@click.command()
@click.argument("job")
@click.option(
    "-p",
    "--parallelism",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="The new parallelism of operators that set none.",
)
@checkpoint_dir_option
@session_option
@click.option(
    "--savepointPath",
    "path",
    metavar="FOLDER",
    help="Take a savepoint there first, for the way back.",
)
@timeout_option
def rescale(
    job: str,
    parallelism: int,
    directory: str | None,
    session: str,
    path: str | None,
    timeout: float,
) -> None:
    """Rescale a running job: it finishes its epoch and goes on from that checkpoint at another parallelism.

    \b
    millstream rescale orders -p 4 --dir /data/checkpoints
    millstream rescale orders -p 4
    """
    if directory is None:
        with guarded(traceback_wanted=False):
            told = asked_of(
                job, None, session, "rescale", path=path, timeout=timeout, parallelism=parallelism
            )
        echo(f"Rescaled job {job}: {told}.")
        return
    with guarded(traceback_wanted=False):
        found = find_job(directory, job)
        # The caller's, whatever folder the driver runs in.
        path = None if path is None else stable(path)
        answer = driver_of(found, "rescale", path=path, parallelism=parallelism, timeout=timeout)
    result = answer.rescaled
    if result is None:
        return
    if result.savepoint is not None:
        echo(f"Savepoint completed. Path: {result.savepoint}")
    echo(f"Rescaled job {job}: {result}.")
