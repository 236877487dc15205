"""`millstream list`, `stop` and `cancel`: jobs found by their folders below the checkpoint directory.

A running job looks into its folder now and then, so that these need no server, only the storage.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from millstream.checkpoint.lease import LEASE_NAME, LeaseRecord
from millstream.checkpoint.manifest import list_epochs, read_manifest
from millstream.checkpoint.storage import Storage, open_storage
from millstream.cli.program import guarded
from millstream.errors import JobError, StateError, StateNotFound
from millstream.runtime.savepoints import ControlAnswer, ControlRequest

__all__ = ["ask", "cancel", "checkpoint_dir_option", "find_job", "list_", "stop"]

_POLL = 0.1

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
    """A job's folder; `lease` is None if no driver runs it."""

    storage: Storage
    name: str
    job_id: str
    checkpoint: int | None
    lease: LeaseRecord | None


def jobs_in(directory: str) -> list[FoundJob]:
    """All jobs that have a folder below a checkpoint directory."""
    base = open_storage(directory)
    found = []
    for folder in base.list(""):
        storage = base.folder(folder)
        lease = None
        if storage.exists(LEASE_NAME):
            lease = msgspec.json.decode(storage.read(LEASE_NAME), type=LeaseRecord)
        epochs = list_epochs(storage)
        name, job_id = (lease.job_name if lease else folder), ""
        if epochs:
            try:
                manifest = read_manifest(storage, epochs[-1])
                name, job_id = manifest.job_name, manifest.job_id
            except StateError:
                job_id = "damaged"
        if epochs or lease is not None:
            found.append(FoundJob(storage, name, job_id, epochs[-1] if epochs else None, lease))
    return found


def find_job(directory: str, wanted: str) -> FoundJob:
    """The job with a name or an id (its first digits are enough)."""
    jobs = jobs_in(directory)
    matching = [
        job for job in jobs if wanted == job.name or (job.job_id and job.job_id.startswith(wanted))
    ]
    if len(matching) == 1:
        return matching[0]
    msg = f"there is no job {wanted!r}" if not matching else f"{wanted!r} stands for several jobs"
    raise StateNotFound(
        msg, folder=directory, found=", ".join(job.name for job in jobs) or "no jobs"
    )


def ask(job: FoundJob, action: str, *, path: str | None = None, drain: bool = False) -> str | None:
    """Ask the driver of a running job for something, and wait for its answer."""
    if job.lease is None:
        raise JobError(f"the job '{job.name}' is not running", hint="start it with millstream run")
    name = uuid.uuid4().hex
    request = ControlRequest(action=action, path=path, drain=drain)
    job.storage.write(f"control/{name}.json", msgspec.json.encode(request))
    answer = f"control/{name}.done.json"
    while True:
        if job.storage.exists(answer):
            reply = msgspec.json.decode(job.storage.read(answer), type=ControlAnswer)
            job.storage.delete(answer)
            if reply.error is not None:
                raise JobError(reply.error)
            return reply.path
        if not job.storage.exists(LEASE_NAME):
            job.storage.delete(f"control/{name}.json")
            raise JobError(f"the job '{job.name}' ended before it answered")
        time.sleep(_POLL)


@click.command("list")
@checkpoint_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(directory: str, as_json: bool) -> None:
    """List the jobs that have checkpoints."""
    with guarded(traceback_wanted=False):
        rows: list[dict[str, Any]] = [
            {
                "job_id": job.job_id,
                "name": job.name,
                "checkpoint": job.checkpoint,
                "driver": f"{job.lease.host}:{job.lease.pid}" if job.lease else None,
            }
            for job in jobs_in(directory)
        ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        state = f"driver {row['driver']}" if row["driver"] else "not running"
        click.echo(
            f"{row['job_id'] or '-':32}  {row['name']}  checkpoint {row['checkpoint']}  {state}"
        )
    if not rows:
        click.echo("no jobs")


@click.command()
@click.argument("job")
@checkpoint_dir_option
@click.option(
    "-p", "--savepointPath", "path", metavar="FOLDER", help="Where to write the savepoint."
)
@click.option(
    "-d", "--drain", is_flag=True, help="Tell all operators that their input has ended first."
)
def stop(job: str, directory: str, path: str | None, drain: bool) -> None:
    """Stop a running job with a savepoint."""
    with guarded(traceback_wanted=False):
        where = ask(find_job(directory, job), "stop", path=path, drain=drain)
    click.echo(f"Savepoint completed. Path: {where}")


@click.command()
@click.argument("job")
@checkpoint_dir_option
def cancel(job: str, directory: str) -> None:
    """Cancel a running job; its last checkpoint stays."""
    with guarded(traceback_wanted=False):
        ask(find_job(directory, job), "cancel")
    click.echo(f"Cancelled job {job}.")
