"""What the verbs that talk to a session share: which one, and handing it a program."""

from __future__ import annotations

import sys

import click

from millstream.cli.program import Program
from millstream.cli.terminal import echo
from millstream.session.client import SessionClient
from millstream.session.folder import DEFAULT
from millstream.session.programs import pack

__all__ = ["session_option", "submit"]

session_option = click.option(
    "--session",
    default=DEFAULT,
    envvar="MILLSTREAM_SESSION",
    show_default=True,
    metavar="NAME",
    help="The session, by its name, or MILLSTREAM_SESSION.",
)


def submit(
    program: Program, session: str, *, traceback_wanted: bool, upgrade: bool = False
) -> None:
    """Hand a program to a session, and wait until a job of it runs; exits with 1 if none does."""
    client = SessionClient(session)
    if not client.folder.socket.exists():
        # Before anything is packed.
        raise client.missing()
    packed = pack(
        script=program.script,
        module=program.module,
        arguments=program.arguments,
        paths=program.paths,
        overrides=program.overrides,
        pyflink=program.pyflink,
        traceback=traceback_wanted,
        upgrade=upgrade,
        words=program.words,
    )
    answer = client.submit(packed)
    if answer["job"] is None:
        click.secho(answer["error"], fg="red", err=True)
        echo(f"What it has printed: millstream logs {answer['id']}", err=True)
        sys.exit(1)
    echo(f"Job has been submitted with JobID {answer['job']}")
