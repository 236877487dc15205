"""What `run`, `info` and `replay` share: Flink's flags, and running a user's script inside this process.

The script runs as `__main__` with its own arguments, and with its folder and those of `-pyfs` on
`sys.path`, else just as `python job.py` would run it. The options that the command line sets are what every
environment of the script begins with (`millstream.datastream.overrides`); where the script sets one of them
itself, the script's value counts.
"""

from __future__ import annotations

import linecache
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import click

from millstream.cli.terminal import echo
from millstream.errors import (
    ConfigurationError,
    EmptyProgramError,
    MillstreamError,
    ModuleNotAvailable,
    ProgramError,
)
from millstream.redaction import shown

__all__ = [
    "Program",
    "ProgramCommand",
    "execute",
    "failure_text",
    "guarded",
    "handed_over",
    "parse_program",
    "parse_settings",
    "program_options",
]

T = TypeVar("T")
"""What is made of what a program hands over."""

# The options that name the program; after one of them, options not ours are the program's.
_NAMING = {"-py", "--python", "-pym", "--pyModule"}
# Settings that say where a job starts from, or are made for one run.
_WHERE_FROM = (
    *("execution.state-recovery.", "millstream.recovery.", "spark.executorEnv."),
    "millstream.high-availability.standby",
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: a script or a module, its arguments, and what the command line sets."""

    script: str | None = None
    module: str | None = None
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    overrides: dict[str, str] = field(default_factory=dict)
    pyflink: bool = False
    # Where a module is, if not in the working folder; how the program is named to people, if not by these paths.
    home: str | None = None
    named: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """What to call the program in messages."""
        return self.script or self.module or ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that name the program, and how it runs, on a command line. Where it starts from is left out.

        >>> Program(script="job.py", overrides={"parallelism.default": "2"}).words
        ('-Dparallelism.default=2', 'job.py')
        """
        if self.named is not None:
            return self.named
        settings = [
            f"-D{key}={value}"
            for key, value in self.overrides.items()
            if not (key.startswith(_WHERE_FROM) or (self.paths and key == "python.files"))
        ]
        files = ["-pyfs", ",".join(self.paths)] if self.paths else []
        pyflink = ["--pyflink"] if self.pyflink else []
        named = [self.script] if self.script else ["-pym", self.module or ""]
        return (*settings, *files, *pyflink, *named)


class ProgramCommand(click.Command):
    """A command whose own options end where the program's arguments begin.

    As in Flink, that is at the first word that is no option; or, once `-py` or `-pym` has named the
    program, at the first option that is not ours: `run -py job.py --input x` gives `--input x` to
    the program.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        mine, rest = self._split(ctx, list(args))
        return super().parse_args(ctx, [*mine, "--", *rest] if rest else mine)

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        # name: whether a value follows it
        options = {
            name: not (option.is_flag or option.count)
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            for name in option.opts
        }
        named = False
        at = 0
        while at < len(args):
            word = args[at]
            if word == "--":
                return args[:at], args[at + 1 :]
            if not word.startswith("-") or word == "-":
                break
            name = word.partition("=")[0]
            attached = (word[:2] == "-D" and len(word) > 2) or (
                word[:2] == "-p" and word[2:].isdigit()
            )
            if name not in options and not attached:
                if named:
                    break
                raise click.NoSuchOption(name, possibilities=sorted(options), ctx=ctx)
            named = named or name in _NAMING
            alone = attached or "=" in word or not options[name]
            at += 1 if alone else 2
        return args[:at], args[at:]


def program_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that name a program and configure it."""
    decorators = [
        click.option("-p", "--parallelism", type=click.IntRange(min=1), metavar="N",
                     help="Parallelism of operators that set none (parallelism.default)."),
        click.option("-D", "settings", multiple=True, metavar="KEY=VALUE",
                     help="Set a configuration key; may be repeated."),
        click.option("-py", "--python", "script", metavar="FILE", help="The program, a script."),
        click.option("-pym", "--pyModule", "module", metavar="MODULE",
                     help="The program, a module that can be imported."),
        click.option("-pyfs", "--pyFiles", "files", multiple=True, metavar="PATHS",
                     help="Folders, .py and .zip files to import from, separated by commas."),
        click.option("-pyreq", "--pyRequirements", "requirements", metavar="FILE",
                     help="Packages that functions import, installed by pip where they run; FILE#FOLDER takes "
                     "them from a folder of packages (python.requirements)."),
        click.option("-pyarch", "--pyArchives", "archives", multiple=True, metavar="FILES",
                     help="Archives that are unpacked where functions run, separated by commas; FILE#NAME names "
                     "the folder (python.archives)."),
        click.option("-pyexec", "--pyExecutable", "executable", metavar="PATH",
                     help="The Python that runs functions (python.executable)."),
        click.option("--pyflink", is_flag=True,
                     help="The program imports pyflink; serve those imports."),
        click.option("--traceback", "traceback_wanted", is_flag=True,
                     help="Show the whole traceback of an error."),
        click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[job.py] [ARGS]..."),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` words as a dict; a later one wins.

    >>> parse_settings(["pipeline.name=a=b"])
    {'pipeline.name': 'a=b'}
    """
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(
                f"-D{pair} sets nothing", hint="write -Dkey=value, such as -Dpipeline.name=orders"
            )
        settings[key.strip()] = value
    return settings


def parse_program(
    *,
    parallelism: int | None,
    settings: Sequence[str],
    script: str | None,
    module: str | None,
    files: Sequence[str],
    words: Sequence[str],
    requirements: str | None = None,
    archives: Sequence[str] = (),
    executable: str | None = None,
    pyflink: bool = False,
) -> Program:
    """The program that the options describe, or a usage error.

    >>> parse_program(
    ...     parallelism=2, settings=["a=b"], script=None, module="jobs.count", files=[], words=["x"]
    ... )
    Program(script=None, module='jobs.count', arguments=('x',), paths=(),
        overrides={'a': 'b', 'parallelism.default': '2'}, pyflink=False, home=None, named=None)
    """
    arguments = list(words)
    if script and module:
        raise click.UsageError("-py and -pym both name a program; give one of them")
    if not script and not module:
        if not arguments:
            raise click.UsageError("no program: give a script (job.py), -py FILE or -pym MODULE")
        script = arguments.pop(0)
    if script and Path(script).is_dir():
        hint = "did a pattern of the shell, as in savepoint-*, stand for several paths?"
        raise click.UsageError(f"this is a folder and no program: {script}; {hint}")
    if script and not Path(script).is_file():
        raise click.UsageError(f"no such program: {script}")
    paths = tuple(path for group in files for path in group.split(",") if path)
    for path in paths:
        if not Path(path).exists():
            raise click.UsageError(f"-pyfs: no such file or folder: {path}")
    overrides = parse_settings(settings)
    if parallelism is not None:
        overrides["parallelism.default"] = str(parallelism)
    if paths:
        overrides["python.files"] = ",".join(str(Path(path).resolve()) for path in paths)
    named = {
        "python.requirements": requirements,
        "python.archives": ",".join(archives),
        "python.executable": executable,
    }
    overrides.update({key: value for key, value in named.items() if value})
    return Program(script, module, tuple(arguments), paths, overrides, pyflink)


def _import_path(path: str) -> str:
    """What to put on `sys.path` to import from `path`: a module's folder, or the path itself."""
    resolved = Path(path).resolve()
    return str(resolved.parent if resolved.suffix == ".py" else resolved)


@contextmanager
def _as_if_alone(program: Program) -> Iterator[None]:
    """`sys.argv` and `sys.path` as the program would find them under `python`."""
    argv, path = sys.argv, sys.path
    home = str(Path(program.script).resolve().parent) if program.script else program.home
    home = home or os.getcwd()
    sys.argv = [program.name, *program.arguments]
    sys.path = [home, *map(_import_path, program.paths), *path]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path


def handed_over(
    program: Program, ask: Callable[[Callable[[Any], None] | None], None], take: Callable[[Any], T]
) -> T:
    """Run the program until it calls execute(); what `take` makes of what it hands over there. Who is to be asked for
    it is one of `millstream.datastream.overrides`. What the program prints goes to standard error."""
    from millstream.datastream.overrides import PlanReady

    answers: list[T] = []
    stdout = sys.stdout

    def first(handed: Any) -> None:
        # A program that catches everything may come here again.
        if not answers:
            with redirect_stdout(stdout):
                answers.append(take(handed))

    ask(first)
    try:
        with redirect_stdout(sys.stderr):
            execute(program)
    except PlanReady:
        pass
    finally:
        ask(None)
    if not answers:
        raise EmptyProgramError(
            "the program ended and never called execute()",
            program=program.name,
            hint="call env.execute() at its end; with `if __name__ == '__main__'` that works too",
        )
    return answers[0]


def execute(program: Program) -> None:
    """Run the program to its end, as `__main__`, with the overrides in force."""
    from millstream.datastream import forgotten, overrides

    if program.pyflink:
        served = import_module("millstream.pyflink")
        served.install()
        # Executors on other hosts do not inherit this process's variables.
        program.overrides.setdefault(f"spark.executorEnv.{served.VARIABLE}", "1")
    overrides.set_overrides(dict(program.overrides))
    overrides.set_program((program.words, program.arguments))
    try:
        with _as_if_alone(program):
            if program.script:
                runpy.run_path(program.script, run_name="__main__")
                forgotten.warn_of([program.script])
            else:
                runpy.run_module(program.name, run_name="__main__", alter_sys=True)
    except ModuleNotFoundError as error:
        if error.name != "pyflink" or program.pyflink:
            raise
        msg = f"{program.name} imports pyflink, which is not installed"
        raise ModuleNotAvailable(msg, hint="millstream run --pyflink serves it") from error
    finally:
        overrides.set_overrides({})
        overrides.set_program(None)


def failure_text(error: BaseException, *, traceback_wanted: bool) -> str:
    """What a program's user is to see of what it raised."""
    whole = "".join(traceback.format_exception(error)) if traceback_wanted else ""
    if isinstance(error, MillstreamError):
        return f"{whole}{error}"
    if not traceback_wanted:
        error = error.with_traceback(_from_program(error.__traceback__))
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _fail(error: MillstreamError, *, traceback_wanted: bool) -> NoReturn:
    if traceback_wanted:
        echo(error.whole or "".join(traceback.format_exception(error)), err=True, nl=False)
    elif isinstance(error, ProgramError) and not error.evidence.keys() & {"line", "declared_at"}:
        line = _line_of_program(error.__traceback__)
        if line is not None:
            error.evidence = {"line": shown(line), **error.evidence}
    click.secho(str(error), fg="red", err=True)
    sys.exit(1)


def _from_program(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without its first steps, which are this command's and not the program's."""
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if name != "runpy" and not name.startswith(("millstream.cli.", "contextlib")):
            return trace
        trace = trace.tb_next
    return None


def _line_of_program(trace: TracebackType | None) -> str | None:
    """The innermost line of the program that led to an error, for those who see no traceback."""
    found = None
    for frame, number in traceback.walk_tb(_from_program(trace)):
        if not frame.f_globals.get("__name__", "").startswith("millstream."):
            file = frame.f_code.co_filename
            found = f"{file}:{number}: {linecache.getline(file, number).strip()}"
    return found


@contextmanager
def guarded(*, traceback_wanted: bool) -> Iterator[None]:
    """Turn what a program raises into what its user should see, and an exit code."""
    try:
        yield
    except KeyboardInterrupt as error:
        echo(f"Interrupted: {error}." if str(error) else "Interrupted.", err=True)
        sys.exit(130)
    except MillstreamError as error:
        _fail(error, traceback_wanted=traceback_wanted)
    except click.ClickException:
        raise
    except Exception as error:
        echo(failure_text(error, traceback_wanted=traceback_wanted), err=True)
        sys.exit(1)
