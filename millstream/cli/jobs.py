"""`millstream list`, `stop` and `cancel`: jobs found by their folders below the checkpoint directory.

A running job looks into its folder now and then, so that these need no server, only the storage.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from millstream.checkpoint.lease import LeaseRecord, read_lease, standing
from millstream.checkpoint.manifest import list_epochs, read_manifest
from millstream.cli.program import guarded
from millstream.cli.terminal import echo, on_one_line
from millstream.errors import StateError, StateNotFound
from millstream.redaction import shown
from millstream.runtime.driver.requests import ask_driver
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage, stable

__all__ = [
    "ask",
    "cancel",
    "checkpoint_dir_option",
    "find_job",
    "list_",
    "stop",
    "timeout_option",
]

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
    required=True,
    envvar="MILLSTREAM_CHECKPOINT_DIR",
    metavar="FOLDER",
    help="The checkpoint directory (execution.checkpointing.dir), or MILLSTREAM_CHECKPOINT_DIR.",
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
        job for job in jobs if wanted == job.name or (job.job_id and job.job_id.startswith(wanted))
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


@click.command("list")
@checkpoint_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(directory: str, as_json: bool) -> None:
    """List the jobs that have checkpoints."""
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
        echo(f"{job.job_id or '-':32}  {name}  checkpoint {job.checkpoint}  {job.told}")
    if not jobs:
        echo("no jobs")


@click.command()
@click.argument("job")
@checkpoint_dir_option
@click.option(
    "-p", "--savepointPath", "path", metavar="FOLDER", help="Where to write the savepoint."
)
@click.option(
    "-d", "--drain", is_flag=True, help="Tell all operators that their input has ended first."
)
@timeout_option
def stop(job: str, directory: str, path: str | None, drain: bool, timeout: float) -> None:
    """Stop a running job with a savepoint."""
    with guarded(traceback_wanted=False):
        path = None if path is None else stable(path)
        where = ask(find_job(directory, job), "stop", path=path, drain=drain, timeout=timeout)
    echo(f"Savepoint completed. Path: {where}")


@click.command()
@click.argument("job")
@checkpoint_dir_option
@timeout_option
def cancel(job: str, directory: str, timeout: float) -> None:
    """Cancel a running job; its last checkpoint stays."""
    with guarded(traceback_wanted=False):
        ask(find_job(directory, job), "cancel", timeout=timeout)
    echo(f"Cancelled job {job}.")
