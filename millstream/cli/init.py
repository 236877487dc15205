"""`millstream init`: a small project that runs, to begin one's own with.

The files are in `millstream/cli/project`, each with `.txt` behind its name so that neither tests nor linters take
them for modules of Millstream. `$name` and `$millstream` in them are filled in; nothing else is.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from millstream.cli.origin import requirement
from millstream.cli.program import guarded
from millstream.errors import InvalidArgument

__all__ = ["init", "project_files", "write_project"]

_FILES = ("job.py", "test_job.py", "README.md", "requirements.txt", ".gitignore")

# The name becomes part of a Python text, of a command and of a folder's name.
_NAME = re.compile(r"\w[\w .-]*")


def project_files(name: str) -> dict[str, str]:
    """The text of every file of a project with this name.

    >>> sorted(project_files("clicks"))
    ['.gitignore', 'README.md', 'job.py', 'requirements.txt', 'test_job.py']
    >>> project_files("clicks")["README.md"].splitlines()[0]
    '# clicks'
    """
    if not _NAME.fullmatch(name):
        msg = "a project's name is made of letters, digits, spaces and _ . -"
        raise InvalidArgument(msg, got=repr(name), hint="choose another one with --name")
    folder = files("millstream.cli").joinpath("project")
    values = {"name": name, "millstream": requirement()}
    return {
        file: Template(folder.joinpath(f"{file}.txt").read_text("utf-8")).substitute(values)
        for file in _FILES
    }


def write_project(folder: Path, name: str | None = None) -> list[Path]:
    """Write the project; what is there already is never touched, and then nothing is written at all."""
    texts = project_files(name if name is not None else folder.resolve().name)
    there = [file for file in texts if (folder / file).exists()]
    if there:
        msg = f"{folder} has files that the project would overwrite"
        raise InvalidArgument(msg, files=", ".join(there), hint="choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        msg = f"the project cannot be written: {error.strerror}"
        raise InvalidArgument(msg, path=error.filename, hint="choose another folder") from error
    return [folder / file for file in texts]


@click.command()
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="The job's name; else the folder's.")
def init(path: Path, name: str | None) -> None:
    """Write a small project that runs: a windowed, fault-tolerant job and its tests.

    \b
    millstream init clicks
    """
    with guarded(traceback_wanted=False):
        written = write_project(path, name)
    for file in written:
        click.echo(f"wrote {file}")
    here = "" if path.resolve() == Path.cwd() else f"cd {path} && "
    click.echo(f"next: {here}python -m pytest && python job.py")
