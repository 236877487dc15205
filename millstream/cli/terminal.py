"""What the commands write: names of jobs and operators are anybody's, and a terminal obeys what it is shown."""

from __future__ import annotations

import click

from millstream.redaction import shown

__all__ = ["echo", "on_one_line"]


def echo(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Write a text without secrets and without control characters."""
    click.echo(shown(text), err=err, nl=nl)


def on_one_line(name: str) -> str:
    r"""Somebody's name in a list of one line each: a name of two lines would be a line of its own.

    >>> print(on_one_line("clicks\n4f2a  orders"))
    clicks\n4f2a  orders
    """
    return name.replace("\n", "\\n").replace("\t", "\\t")
