"""`millstream list`, `stop` and `cancel`: jobs of a session, or found by their folders below the checkpoint directory.

A running job looks into its folder now and then, so that with `--dir` these need no server, only the storage.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from millstream.checkpoint.lease import LeaseRecord, read_lease, standing
from millstream.checkpoint.manifest import list_epochs, read_manifest
from millstream.cli.history import described
from millstream.cli.program import guarded
from millstream.cli.session_option import session_option
from millstream.cli.terminal import echo, on_one_line
from millstream.errors import StateError, StateNotFound
from millstream.redaction import shown
from millstream.runtime.driver.requests import ControlAnswer, answer_of_driver, ask_driver
from millstream.session.client import SessionClient
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage, stable

__all__ = [
    "ask",
    "asked_of",
    "cancel",
    "checkpoint_dir_option",
    "driver_of",
    "find_job",
    "list_",
    "stop",
    "timeout_option",
]

# How many jobs that have ended are listed for people.
_ENDED = 10

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Take the request back if the driver has not answered by then.",
)

checkpoint_dir_option = click.option(
    "--dir",
    "directory",
    envvar="MILLSTREAM_CHECKPOINT_DIR",
    metavar="FOLDER",
    help="The checkpoint directory (execution.checkpointing.dir), or MILLSTREAM_CHECKPOINT_DIR; without it the "
    "session is asked.",
)


@dataclass(frozen=True)
class FoundJob:
    """A job's folder; `lease` is None if no driver has it."""

    storage: Storage
    name: str
    job_id: str
    checkpoint: int | None
    lease: LeaseRecord | None

    @property
    def state(self) -> str:
        """ "not running", or how the job's driver stands (`standing`)."""
        return "not running" if self.lease is None else standing(self.lease)

    @property
    def driver(self) -> str | None:
        """Which process has the job, or had it last."""
        return None if self.lease is None else f"{self.lease.host}:{self.lease.pid}"

    @property
    def told(self) -> str:
        """How the job stands, for people."""
        match self.state:
            case "running":
                return f"driver {self.driver}"
            case "dead":
                return f"not running (driver {self.driver} has died)"
            case "silent":
                return f"driver {self.driver} does not renew its lease: dead, paused or cut off"
        return "not running"


def jobs_in(directory: str) -> list[FoundJob]:
    """All jobs that have a folder below a checkpoint directory."""
    base = open_storage(directory)
    jobs = []
    for folder in base.list(""):
        storage = base.folder(folder)
        lease = read_lease(storage)
        epochs = list_epochs(storage)
        name, job_id = (lease.job_name if lease else folder), ""
        if epochs:
            try:
                manifest = read_manifest(storage, epochs[-1])
                name, job_id = manifest.job_name, manifest.job_id
            except StateError:
                job_id = "damaged"
        if epochs or lease is not None:
            jobs.append(FoundJob(storage, name, job_id, epochs[-1] if epochs else None, lease))
    return jobs


def find_job(directory: str, wanted: str) -> FoundJob:
    """The job with a name or an id (its first digits are enough)."""
    jobs = jobs_in(directory)
    matching = [
        job for job in jobs if wanted == job.name or (wanted and job.job_id.startswith(wanted))
    ]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(job.name for job in jobs) or "no jobs"
    if matching:
        hint = "give more digits of its id: millstream list shows them"
        raise StateNotFound(
            f"{wanted!r} stands for several jobs", folder=directory, found=names, hint=hint
        )
    hint = (
        "millstream list shows the jobs in a folder; one that is still starting is not there yet, and one that "
        "has ended in order, by stop too, is gone (millstream run -s goes on from its savepoint)"
    )
    raise StateNotFound(f"there is no job {wanted!r}", folder=directory, found=names, hint=hint)


def ask(
    job: FoundJob,
    action: str,
    *,
    path: str | None = None,
    drain: bool = False,
    timeout: float = 600.0,
) -> str | None:
    """Ask the driver of a running job for something, and wait for its answer."""
    return ask_driver(
        job.storage,
        job.lease,
        job.name,
        action,
        path=path,
        drain=drain,
        timeout=timeout,
        say=lambda text: echo(text, err=True),
    )


def driver_of(job: FoundJob, action: str, **how: Any) -> ControlAnswer:
    """As `ask`, with all that the driver says."""
    return answer_of_driver(
        job.storage, job.lease, job.name, action, say=lambda text: echo(text, err=True), **how
    )


def asked_of(
    wanted: str,
    directory: str | None,
    session: str,
    action: str,
    *,
    path: str | None = None,
    drain: bool = False,
    timeout: float = 600.0,
    **more: Any,
) -> str | None:
    """Ask a job for something, by its folder if there is a checkpoint directory, else through its session."""
    if directory is not None:
        job = find_job(directory, wanted)
        return ask(job, action, path=path, drain=drain, timeout=timeout)
    # Paths are the caller's, whatever folder the job runs in.
    given = None if path is None else stable(path)
    answer = _client(session).ask(
        "ask", job=wanted, action=action, path=given, drain=drain, timeout=timeout, **more
    )
    found: str | None = answer.get("path")
    return found


def _client(session: str) -> SessionClient:
    client = SessionClient(session)
    if not client.folder.alive:
        error = client.missing()
        error.hint = f"give --dir with the job's checkpoint directory; or {error.hint}"
        raise error
    return client


def _list_session(session: str, as_json: bool) -> None:
    with guarded(traceback_wanted=False):
        running, ended = _client(session).jobs()
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins([*ended, *running]), indent=2))
        return
    if len(ended) > _ENDED:
        echo(f"{len(ended) - _ENDED} more have ended: millstream history")
    for title, jobs in (("Ended", ended[-_ENDED:]), ("Running", running)):
        if jobs:
            echo(f"{title}:")
        for job in jobs:
            echo(f"  {described(job)}")
    if not running and not ended:
        echo("no jobs")


@click.command("list")
@checkpoint_dir_option
@session_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(directory: str | None, session: str, as_json: bool) -> None:
    """List the jobs of a session, or with --dir those that have checkpoints."""
    if directory is None:
        _list_session(session, as_json)
        return
    with guarded(traceback_wanted=False):
        jobs = jobs_in(directory)
        rows: list[dict[str, Any]] = [
            {
                "job_id": job.job_id,
                "name": shown(job.name),
                "checkpoint": job.checkpoint,
                "state": job.state,
                "driver": job.driver if job.state == "running" else None,
            }
            for job in jobs
        ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for job in jobs:
        name = on_one_line(job.name)
        at = "no checkpoint yet" if job.checkpoint is None else f"checkpoint {job.checkpoint}"
        echo(f"{job.job_id or '-':32}  {name}  {at}  {job.told}")
    if not jobs:
        echo("no jobs")


@click.command()
@click.argument("job")
@checkpoint_dir_option
@session_option
@click.option(
    "-p", "--savepointPath", "path", metavar="FOLDER", help="Where to write the savepoint."
)
@click.option(
    "-d", "--drain", is_flag=True, help="Tell all operators that their input has ended first."
)
@timeout_option
def stop(
    job: str, directory: str | None, session: str, path: str | None, drain: bool, timeout: float
) -> None:
    """Stop a running job with a savepoint."""
    with guarded(traceback_wanted=False):
        path = None if path is None else stable(path)
        where = asked_of(job, directory, session, "stop", path=path, drain=drain, timeout=timeout)
    echo(f"Savepoint completed. Path: {where}")


@click.command()
@click.argument("job")
@checkpoint_dir_option
@session_option
@timeout_option
def cancel(job: str, directory: str | None, session: str, timeout: float) -> None:
    """Cancel a running job; its last checkpoint stays."""
    with guarded(traceback_wanted=False):
        asked_of(job, directory, session, "cancel", timeout=timeout)
    echo(f"Cancelled job {job}.")
