"""What the commands write: names of jobs and operators are anybody's, and a terminal obeys what it is shown."""

from __future__ import annotations

import click

from millstream.redaction import shown

__all__ = ["echo"]


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write a text without secrets and without control characters."""
    click.echo(shown(text), err=err, nl=nl)
