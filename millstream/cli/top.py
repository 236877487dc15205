"""`millstream top`: what a running job is doing, from its REST API, again and again."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import click

from millstream.cli.jobs import find_job
from millstream.cli.program import guarded
from millstream.cli.terminal import echo
from millstream.errors import ConfigurationError, InvalidArgument, JobError, StateNotFound
from millstream.redaction import shown
from millstream.reporters.table import COLUMNS, as_text, headline, rows

__all__ = ["Rest", "top"]

_URL = "http://127.0.0.1:8081"
# A driver takes the first port that is free, from 8081 on.
_PORTS = range(8081, 8101)
_LARGEST = 64 << 20
_ENDED = ("FINISHED", "CANCELED", "FAILED")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is for the server that it was given for."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Refuse to be sent elsewhere."""


class Rest:
    """The REST API of a driver."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 10.0) -> None:
        if not _is_address(url):
            hint = f"as in --url {_URL}"
            raise InvalidArgument("this is no address of a REST API", got=url[:200], hint=hint)
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = timeout
        # A proxy for the web is none for a driver.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())

    def get(self, path: str) -> Any:
        """What the API answers."""
        request = urllib.request.Request(self.url + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return json.loads(answer.read(_LARGEST))
        except urllib.error.HTTPError as error:
            raise self._refused(error.code) from None
        except (OSError, ValueError, HTTPException, RecursionError) as error:
            # Who answers may speak anything, or JSON without end.
            reason = getattr(error, "reason", error)
            hint = "see the address in the job's progress line, and give it with --url"
            raise JobError(f"nobody answers at {self.url}", cause=str(reason), hint=hint) from None

    def _refused(self, code: int) -> JobError:
        if code == 401:
            hint = "give the file that holds it with --token-file"
            return JobError(f"{self.url} wants a token", hint=hint)
        return JobError(
            f"{self.url} answers with status {code}", hint="is this a driver's address?"
        )

    def jobs(self) -> list[dict[str, Any]]:
        """The jobs that there are, in short."""
        answer = self.get("/millstream/jobs")
        try:
            return [
                {name: str(job[name]) for name in ("jid", "name", "state")}
                for job in answer["jobs"]
            ]
        except (KeyError, TypeError):
            raise self._no_driver() from None

    def process(self) -> int | None:
        """The number of the driver's process."""
        answer = self.get("/millstream/jobs")
        return answer.get("pid") if isinstance(answer, dict) else None

    def job(self, id_: str) -> dict[str, Any]:
        """One job, in full."""
        document: dict[str, Any] = self.get(f"/millstream/jobs/{quote(id_, safe='')}")
        if not isinstance(document, dict) or not {"name", "state", "vertices"} <= set(document):
            raise self._no_driver()
        return document

    def _no_driver(self) -> JobError:
        hint = "is this a driver's address?"
        return JobError(f"{self.url} answers with something else than jobs", hint=hint)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Asking for the port checks it.
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return False
    return bool(known) and url.isprintable() and " " not in url


@click.command()
@click.argument("job", required=False)
@click.option("--url", help=f"The REST API of the job's driver.  [default: {_URL}]")
@click.option(
    "--dir",
    "directory",
    envvar="MILLSTREAM_CHECKPOINT_DIR",
    metavar="FOLDER",
    help="Find the driver of JOB, on this machine, by the checkpoint directory.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the token of the REST API.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to ask.",
)
@click.option("--once", is_flag=True, help="Show it once and end.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the job's whole document as JSON, once."
)
def top(
    job: str | None,
    url: str | None,
    directory: str | None,
    token_file: Path | None,
    interval: float,
    once: bool,
    as_json: bool,
) -> None:
    """Show what a running job is doing: JOB is its name or the first digits of its id."""
    with guarded(traceback_wanted=False):
        token = None if token_file is None else _token(token_file)
        if url is None and directory is not None and job is not None:
            rest, id_ = _by_folder(directory, job, token)
        else:
            rest = Rest(url or _URL, token)
            id_ = _chosen(rest.jobs(), job)
        if as_json:
            click.echo(json.dumps(rest.job(id_), indent=2))
        elif once:
            echo(as_text(rest.job(id_)))
        else:
            _watch(rest, id_, interval)


def _token(path: Path) -> str:
    token = path.read_text(encoding="utf-8", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigurationError("the file holds no token", file=str(path))
    return token


def _chosen(jobs: list[dict[str, Any]], wanted: str | None) -> str:
    """The id of the job that is meant; if nobody says which, the only one that runs, or the only one."""
    running = [job for job in jobs if job["state"] not in _ENDED]
    if wanted is None:
        matching = running if len(jobs) > 1 else jobs
    else:
        same = [job for job in jobs if wanted in (job["name"], job["jid"])]
        matching = same or [job for job in jobs if job["jid"].startswith(wanted)]
        if len(matching) > 1:
            # A name of a job that was run again.
            matching = [job for job in matching if job in running] or matching
    if len(matching) == 1:
        return str(matching[0]["jid"])
    found = ", ".join(f"{shown(job['name'])} ({job['jid'][:8]})" for job in jobs) or "no jobs"
    what = "no job is running" if wanted is None else f"there is no job {wanted!r}"
    if matching:
        what = "there are several jobs" if wanted is None else f"{wanted!r} stands for several jobs"
    raise StateNotFound(what, found=found, hint="millstream top JOB, by its name or id")


def _by_folder(directory: str, wanted: str, token: str | None) -> tuple[Rest, str]:
    """The REST API of the driver that runs a job, among those of this machine."""
    job = find_job(directory, wanted)
    if job.lease is None or job.state != "running":
        raise JobError(f"the job '{job.name}' is not running", state=job.told)
    host = job.lease.host
    if host != socket.gethostname():
        hint = "give the address of its REST API with --url"
        raise JobError(f"the job '{job.name}' runs on another machine", host=host, hint=hint)
    for port in _PORTS:
        rest = Rest(f"http://127.0.0.1:{port}", token)
        try:
            # Others may run a job of that name, and a job that goes on has another id than its folder says.
            if rest.process() == job.lease.pid:
                return rest, _chosen(rest.jobs(), job.name)
        except JobError:
            # Somebody else's port.
            continue
    ports = f"{_PORTS[0]} to {_PORTS[-1]}"
    hint = "give its address with --url, and the file of its token with --token-file"
    raise JobError(f"the job '{job.name}' has no REST API here", ports=ports, hint=hint)


def _watch(rest: Rest, id_: str, interval: float) -> None:
    """Until the job has ended, or Ctrl-C."""
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from millstream.datastream.progress import steady_console

    def drawn(document: dict[str, Any]) -> Group:
        # Text, not markup: names are anybody's.
        table = Table(box=None, pad_edge=False)
        for place, column in enumerate(COLUMNS):
            table.add_column(column, justify="right" if place else "left", no_wrap=place > 0)
        for row in rows(document):
            table.add_row(*map(Text, row))
        return Group(Text(headline(document)), table)

    document = rest.job(id_)
    try:
        with Live(drawn(document), console=steady_console(), auto_refresh=False) as live:
            while document["state"] not in _ENDED:
                time.sleep(interval)
                document = rest.job(id_)
                live.update(drawn(document), refresh=True)
    except KeyboardInterrupt:
        return
