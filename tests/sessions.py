"""A session in this process, without Spark, and the command line that talks to it."""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from millstream.cli import main
from millstream.common.configuration import Configuration
from millstream.session.engine import NoEngine, SessionEngine
from millstream.session.folder import SessionFacts, SessionFolder
from millstream.session.serve import Session
from tests.waiting import until

__all__ = [
    "COMMAND",
    "COUNTING",
    "IN_PROCESS",
    "SHORT",
    "InThread",
    "ask",
    "in_folder",
    "millstream",
]

COMMAND = (sys.executable, "-m", "millstream.cli.attached")
IN_PROCESS = "-Dexecution.target=in-process"

SHORT = """
import sys
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda n: n * 10).print()
env.execute(sys.argv[1] if len(sys.argv) > 1 else "short")
print("the program has ended")
"""
COUNTING = """
import sys
from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment()
numbers = DataGeneratorSource(lambda n: (n % 3, 1), None, 200.0)
counts = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "n").key_by(lambda p: p[0]).sum(1)
counts.print()
env.execute(sys.argv[1])
"""


def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, programs: Mapping[str, str]) -> Path:
    """A working folder with programs in it, and sessions of its own."""
    monkeypatch.setenv("MILLSTREAM_SESSIONS_DIR", str(folder / "s"))
    monkeypatch.delenv("MILLSTREAM_CHECKPOINT_DIR", raising=False)
    monkeypatch.chdir(folder)
    for name, text in programs.items():
        (folder / name).write_text(text)
    return folder


def millstream(*words: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, words)


class InThread:
    """A session that runs in a thread of this process until it is left."""

    def __init__(
        self,
        name: str = "default",
        engine: SessionEngine | None = None,
        *,
        recover: bool = False,
        make_engine: Callable[[], SessionEngine] = NoEngine,
        keys: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        given = {"rest.port": "0", **{k.replace("_", "."): v for k, v in settings.items()}}
        given |= keys or {}
        self.said: list[str] = []
        self.facts: SessionFacts | None = None
        self.error: BaseException | None = None
        self.folder = SessionFolder(name)
        self._ready = threading.Event()
        self._recover = recover
        self._session = Session(
            self.folder,
            Configuration.from_dict(given),
            lambda: engine or make_engine(),
            COMMAND,
            say=self.said.append,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._session.run(recover=self._recover, ready=self._is_ready)
        except BaseException as error:
            self.error = error
        finally:
            self._ready.set()

    def _is_ready(self, facts: SessionFacts) -> None:
        self.facts = facts
        self._ready.set()

    def __enter__(self) -> InThread:
        self._thread.start()
        assert self._ready.wait(60)
        if self.error is not None:
            raise self.error
        return self

    def __exit__(self, *_: object) -> None:
        self._session.end()
        self.wait()

    def wait(self) -> None:
        """Wait for its end."""
        self._thread.join(60)
        assert not self._thread.is_alive()

    def submit(self, script: Path, *words: str) -> str:
        """Run a program; the id of its job."""
        done = millstream("run", "-d", IN_PROCESS, str(script), *words)
        assert done.exit_code == 0, done.output
        assert "Job has been submitted with JobID " in done.output
        return done.output.split()[-1]

    def jobs(self) -> dict[str, dict[str, Any]]:
        """What `list` says, by name."""
        done = millstream("list", "--session", self.folder.name, "--json")
        assert done.exit_code == 0, done.output
        return {job["name"]: job for job in json.loads(done.stdout)}

    def until_status(self, name: str, status: str) -> dict[str, Any]:
        """Wait for a job's status; the job."""
        until(lambda: self.jobs().get(name, {}).get("status") == status, saying=self.jobs)
        return self.jobs()[name]

    def get(self, path: str, **request: Any) -> tuple[int, Any]:
        """Ask its REST server: status and answer."""
        assert self.facts is not None
        return ask(f"{self.facts.web}{path}", **request)


def ask(
    address: str,
    method: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """One request: status and answer."""
    data = None if body is None else json.dumps(body).encode()
    given = {"X-Millstream": "test", "Content-Type": "application/json", **(headers or {})}
    asked = urllib.request.Request(address, data, given, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")
