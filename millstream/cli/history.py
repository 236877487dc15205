"""`millstream history` and `logs`: what became of the jobs of a session, also when the session is gone."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import click
import msgspec

from millstream.cli.program import guarded
from millstream.cli.session_option import session_option
from millstream.cli.terminal import echo, on_one_line
from millstream.errors import SessionError
from millstream.session.client import SessionClient
from millstream.session.dispatcher import find
from millstream.session.folder import SessionFolder
from millstream.session.history import JobHistory, JobRecord
from millstream.session.logs import follow, last_lines
from millstream.session.process import ENDED
from millstream.storage.open import open_storage

__all__ = ["described", "history", "logs"]


def _ended(folder: SessionFolder) -> list[JobRecord]:
    return JobHistory(open_storage(folder.storage)).all()


def described(job: JobRecord) -> str:
    """A job in a line, for people."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job.started_at))
    figures = "" if job.epoch < 0 else f"  epoch {job.epoch}, {job.records:,} records"
    if job.checkpoint >= 0:
        figures += f", checkpoint {job.checkpoint}"
    if job.restarts:
        figures += f", {job.restarts} restarts"
    return f"{job.id}  {on_one_line(job.name)}  {job.status}  since {at}{figures}"


@click.command()
@session_option
@click.option("-n", "--lines", type=click.IntRange(min=1), help="Only the last so many jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def history(session: str, lines: int | None, as_json: bool) -> None:
    """List the jobs of a session that have ended, the last one last."""
    with guarded(traceback_wanted=False):
        jobs = _ended(SessionFolder(session))[-(lines or 0) :]
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(jobs), indent=2))
        return
    for job in jobs:
        echo(described(job))
        if job.error:
            echo("    " + job.error.replace("\n", "\n    "))
    if not jobs:
        echo("no jobs")


@click.command()
@click.argument("job")
@session_option
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until the job has ended.")
@click.option("-n", "--lines", type=click.IntRange(min=1), help="Only the last so many lines.")
def logs(job: str, session: str, following: bool, lines: int | None) -> None:
    """Show what the program of a job has printed.

    \b
    millstream logs -f "word count"
    """
    with guarded(traceback_wanted=False):
        client = SessionClient(session)
        record = _find(client, job)
        path = client.folder.logs / record.log
        if lines is not None and not following:
            for line in last_lines(path, lines):
                echo(line)
            return

        def over() -> bool:
            if not following:
                return True
            try:
                return _find(client, record.id).status in ENDED
            except SessionError:
                # So many have ended that the session has forgotten it.
                return True

        try:
            for part in follow(path, over, lines=lines):
                echo(part, nl=False)
        except BrokenPipeError:
            # Whoever has read along wants no more (`logs -f job | head`). Nothing is to be written at the exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)


def _find(client: SessionClient, wanted: str) -> JobRecord:
    """The job, of the session if it lives, else of its history."""
    running: list[JobRecord] = []
    if client.folder.alive:
        try:
            running = client.jobs()[0]
        except SessionError:
            # Ending, or not ready.
            running = []
    ended: Any = _ended(client.folder)
    return find(wanted, running, ended)
