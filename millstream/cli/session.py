"""`millstream session`: start, stop and list sessions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from millstream.cli.program import guarded, parse_settings
from millstream.cli.terminal import echo
from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.datastream.settings import slots_for_spark
from millstream.errors import SessionError
from millstream.redaction import shown
from millstream.session.client import SessionClient
from millstream.session.engine import NoEngine, SessionEngine
from millstream.session.folder import DEFAULT, SessionFacts, SessionFolder, sessions
from millstream.session.logs import last_lines

__all__ = ["session"]

_READY = "MILLSTREAM_SESSION_READY"
"""The variable that names the pipe through which a session in the background says that it is ready."""

_name_option = click.option(
    "--name",
    default=DEFAULT,
    envvar="MILLSTREAM_SESSION",
    show_default=True,
    metavar="NAME",
    help="The session's name, or MILLSTREAM_SESSION.",
)
_named = click.argument("named", metavar="[NAME]", required=False)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def session() -> None:
    """Keep a warm Spark that takes jobs: millstream run -d."""


@session.command()
@_name_option
@click.option("-D", "settings", multiple=True, metavar="KEY=VALUE", help="Set a configuration key.")
@click.option("-d", "--detached", is_flag=True, help="Return once it is ready; it goes on.")
@click.option(
    "--recover",
    is_flag=True,
    help="Start the jobs again that ran when the last session of this name died.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Stand by for another session, and go on with its jobs when it is gone (see high-availability.storageDir).",
)
def start(name: str, settings: Sequence[str], detached: bool, recover: bool, standby: bool) -> None:
    """Start a session. Keys that begin with spark. are for its Spark.

    \b
    millstream session start -d -Dspark.master=local[4]
    """
    with guarded(traceback_wanted=False):
        if standby:
            settings = [*settings, f"{options.HA_STANDBY.key}=true"]
        given = parse_settings(settings)
        folder = SessionFolder(name)
        if detached:
            _start_in_background(folder, settings, recover)
            return
        _serve(folder, given, recover)


def _serve(folder: SessionFolder, given: dict[str, str], recover: bool) -> None:
    from millstream.session.serve import Session, end_on_signals

    configuration = Configuration.from_dict(given)
    options.check_values(configuration)
    for text in options.check_known(configuration):
        echo(f"warning: {shown(text)}", err=True)
    in_process = options.get(configuration, options.TARGET) == "in-process"

    def start_engine() -> SessionEngine:
        if in_process:
            return NoEngine()
        echo("Starting Spark ...", err=True)
        spark = slots_for_spark(configuration)
        spark |= {key: value for key, value in given.items() if key.startswith("spark.")}
        engine: SessionEngine = import_module("millstream.spark.host").SparkHost(spark)
        return engine

    command = (sys.executable, "-m", "millstream.cli.attached")
    serving = Session(
        folder, configuration, start_engine, command, say=lambda text: echo(text, err=True)
    )
    end_on_signals(serving, lambda text: echo(text, err=True))
    serving.run(recover=recover, ready=_say_ready)
    echo(f"The session '{folder.name}' has ended.", err=True)


def _say_ready(facts: SessionFacts) -> None:
    if facts.standing_by is None:
        echo(f"The session '{facts.name}' is ready (process {facts.pid}).")
    else:
        echo(f"The session '{facts.name}' stands by (process {facts.pid}).")
    if facts.web:
        echo(f"Dashboard: {facts.web}")
    sys.stdout.flush()
    pipe = os.environ.pop(_READY, None)
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            # Whoever has started it may be gone; it is a session all the same.
            os.write(int(pipe), b"ready")
        os.close(int(pipe))


def _start_in_background(folder: SessionFolder, settings: Sequence[str], recover: bool) -> None:
    folder.make()
    if folder.log.exists() and not folder.alive:
        os.replace(folder.log, folder.log.with_name("session.log.1"))
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "millstream", "session", "start", "--name", folder.name]
    command += [f"-D{setting}" for setting in settings] + (["--recover"] if recover else [])
    began = folder.log.stat().st_size if folder.log.exists() else 0
    log = os.open(folder.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    process = subprocess.Popen(
        command,
        env={**os.environ, _READY: str(writing)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    os.close(log)
    try:
        # Its end closes the pipe too.
        ready = os.read(reading, 16) == b"ready"
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        os.close(reading)
    said = folder.log.read_text(errors="replace")[began:]
    if not ready:
        process.wait()
        click.secho(
            said.strip() or f"the session has not started: see {folder.log}", fg="red", err=True
        )
        sys.exit(1)
    echo("\n".join(line for line in said.splitlines() if line != "Starting Spark ..."))


def _one_name(named: str | None, name: str) -> str:
    """The session that is meant, if only one is."""
    source = click.get_current_context().get_parameter_source("name")
    if named is not None and named != name and source is click.core.ParameterSource.COMMANDLINE:
        raise click.UsageError(f"which one, '{named}' or '{name}'? Name one session")
    return named or name


@session.command()
@_named
@_name_option
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its end.",
)
def stop(named: str | None, name: str, timeout: float) -> None:
    """Stop a session: its jobs are cancelled, their checkpoints stay."""
    with guarded(traceback_wanted=False):
        name = _one_name(named, name)
        client = SessionClient(name)
        facts = client.folder.facts()
        if client.folder.alive and facts is not None and facts.standing_by is not None:
            # It listens to nobody, and has nothing to end but itself.
            os.kill(facts.pid, signal.SIGTERM)
        else:
            client.ask("stop")
        deadline = time.monotonic() + timeout
        while client.folder.alive:
            if time.monotonic() > deadline:
                raise SessionError(
                    f"the session '{name}' has not ended in {timeout:g} s",
                    log=str(client.folder.log),
                )
            time.sleep(0.05)
    if facts is not None and facts.standing_by is not None:
        echo(f"The session '{name}', which stood by, has ended.")
        return
    echo(f"The session '{name}' has ended; its jobs are cancelled, their checkpoints stay.")


@session.command("list")
@_json_option
def list_(as_json: bool) -> None:
    """List the sessions of this user."""
    rows = [_row(folder) for folder in sessions()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        where = f"  {row['web']}" if row["web"] else ""
        jobs = "" if row["jobs"] is None else f"  {row['jobs']} job{'s' * (row['jobs'] != 1)}"
        who = f"  process {row['process']}" if row["process"] else ""
        echo(f"{row['name']}  {row['state']}{jobs}{who}{where}")
    if not rows:
        echo("no sessions")


def _row(folder: SessionFolder) -> dict[str, Any]:
    row: dict[str, Any] = {"name": folder.name, "state": "stopped", "jobs": None}
    row |= {"process": None, "web": None, "started_at": None, "engine": None}
    facts = folder.facts()
    if not folder.alive:
        return row if facts is None else row | {"state": "died", "process": facts.pid}
    try:
        answer = SessionClient(folder.name).ask("status")
    except SessionError:
        if facts is not None and facts.standing_by is not None:
            return row | {"state": "standing by", "process": facts.pid, "engine": facts.engine}
        return row | {"state": "starting or ending"}
    return row | {
        "state": "running",
        "jobs": answer["jobs"],
        "process": answer["pid"],
        "web": answer["web"],
        "started_at": answer["started_at"],
        "engine": answer["engine"],
    }


@session.command()
@_named
@_name_option
@click.option("-n", "--lines", type=click.IntRange(min=1), default=100, show_default=True)
def log(named: str | None, name: str, lines: int) -> None:
    """Show the last lines of the log of a session in the background."""
    with guarded(traceback_wanted=False):
        folder = SessionFolder(_one_name(named, name))
        if not folder.log.exists():
            known = [each.name for each in sessions() if each.log.exists()]
            raise SessionError(
                f"there is no log of a session '{folder.name}'",
                logs=", ".join(known) or "none",
                hint="the log of a session in the foreground is what it prints; see millstream session list",
            )
        for line in last_lines(folder.log, lines):
            echo(line)
