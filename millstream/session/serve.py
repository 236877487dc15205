"""A session, from its start to its end: the folder, the engine, the dispatcher, the socket, REST."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from millstream import __version__
from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.datastream.settings import high_availability
from millstream.errors import ConfigurationError, SessionError
from millstream.ha.election import Term
from millstream.redaction import get_logger
from millstream.rest.settings import rest_settings
from millstream.rest.start import RestServer
from millstream.session.dispatcher import Dispatcher, Places
from millstream.session.engine import SessionEngine
from millstream.session.folder import SessionFacts, SessionFolder
from millstream.session.history import JobHistory
from millstream.session.leadership import Leadership
from millstream.session.registry import Registry
from millstream.session.server import SessionServer
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage, stable

__all__ = ["Session"]

_log = get_logger("millstream.session")


class Session:
    """One session. `start_engine` is called once the folder is ours; `command` starts the process of a job; `say` tells
    people what happens."""

    def __init__(
        self,
        folder: SessionFolder,
        configuration: Configuration,
        start_engine: Callable[[], SessionEngine],
        command: Sequence[str],
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder = folder
        self._configuration = configuration
        self._start_engine = start_engine
        self._command = command
        self._say = say
        self._ending = threading.Event()
        self._at_once = False
        self._rest: RestServer | None = None
        self._started_at = time.time()
        self._term: Term | None = None
        # Whether jobs end with this session although others stand by.
        self._for_all = False

    def run(self, *, recover: bool, ready: Callable[[SessionFacts], None]) -> None:
        """Be a session until somebody ends it; raises if it cannot begin, or its engine is gone."""
        programs = self._checked_programs()
        if options.get(self._configuration, options.REST_ENABLED) != "false":
            # Before Spark is started, and while what a killed session has left still says so.
            rest_settings(self._configuration)
        self._folder.make()
        if not self._folder.take():
            facts = self._folder.facts()
            raise SessionError(
                f"there is a session '{self._folder.name}' already",
                process=None if facts is None else facts.pid,
                web=None if facts is None else facts.web,
                hint="use it, stop it with millstream session stop, or give this one another --name",
            )
        try:
            self._run(recover, ready, programs, self._folder.make_temporary())
        finally:
            self._folder.let_go()

    @property
    def last_words(self) -> str:
        """What becomes of its jobs if it is ended by a signal."""
        if high_availability(self._configuration, "") is not None:
            return "The session leaves: its jobs go on in one that stands by, or comes later."
        return "The session ends: its jobs are cancelled, their checkpoints stay."

    def end(self, *, at_once: bool = False) -> None:
        """End it, from any thread; all jobs are cancelled, or killed."""
        self._at_once = self._at_once or at_once
        self._ending.set()

    def _run(
        self,
        recover: bool,
        ready: Callable[[SessionFacts], None],
        programs: dict[str, str],
        temporary: Path,
    ) -> None:
        self._write_token()
        engine = self._start_engine()
        try:
            leadership = self._leadership()
            self._folder.share(None if leadership is None else leadership.storage.root)
            if leadership is None:
                storage = open_storage(str(self._folder.path))
                self._serve(engine, storage, programs, temporary, ready, recover=recover)
                return
            try:
                noting = self._standing_by(engine, ready)
                while (term := leadership.begin(noting, lambda: _check(engine))) is not None:
                    self._term = term
                    storage = leadership.storage
                    self._serve(engine, storage, programs, temporary, ready, recover=True)
                    if term.over is not None:
                        self._say(f"not leading any more: {term.over}")
            finally:
                leadership.close()
        finally:
            engine.stop()

    def _leadership(self) -> Leadership | None:
        settings = high_availability(self._configuration, None)
        return None if settings is None else Leadership(settings, self._ending)

    def _standing_by(
        self, engine: SessionEngine, ready: Callable[[SessionFacts], None]
    ) -> Callable[[str], None]:
        """Called when this session stands by for another, and each time that becomes another one."""

        def note(leader: str) -> None:
            facts = self._facts(engine, standing_by=leader)
            self._folder.write_facts(facts)
            self._say(f"standing by, leader is {leader}")
            ready(facts)

        return note

    def _facts(self, engine: SessionEngine, **more: str | None) -> SessionFacts:
        return SessionFacts(
            name=self._folder.name,
            pid=os.getpid(),
            started_at=self._started_at,
            version=__version__,
            engine=engine.facts(),
            **more,
        )

    def _job_settings(self) -> dict[str, str]:
        """What counts in the processes of all jobs."""
        found = {
            # Whoever looks at a job does so through the session.
            options.REST_PORT.key: "0",
            options.REST_BIND_ADDRESS.key: "127.0.0.1",
            options.REST_TOKEN_FILE.key: str(self._folder.token),
            options.REST_ENABLED.key: "true",
        }
        if self._term is not None:
            # Each job has leaders of its own: those of a session that was paused may still run.
            found |= {
                key: value
                for key, value in self._configuration.to_dict().items()
                if key.startswith(("high-availability.", "millstream.high-availability."))
            }
            found.setdefault(options.HA_TYPE.key, "file")
            found.pop(options.HA_STANDBY.key, None)
            # A job's process has another working folder.
            found[options.HA_STORAGE.key] = stable(found[options.HA_STORAGE.key])
            found[options.HA_OPTIONAL.key] = "true"
        return found

    def _serve(
        self,
        engine: SessionEngine,
        storage: Storage,
        programs: dict[str, str],
        temporary: Path,
        ready: Callable[[SessionFacts], None],
        *,
        recover: bool,
    ) -> None:
        """Take programs, until the session ends or does not lead any more."""

        def get(option: Any) -> Any:
            return options.get(self._configuration, option)

        dispatcher = Dispatcher(
            engine,
            Registry(storage),
            JobHistory(storage, get(options.SESSION_HISTORY)),
            Places(
                self._folder.programs, self._folder.logs, temporary, get(options.SESSION_LOG_SIZE)
            ),
            self._command,
            self._job_settings(),
            # Without a Spark here, a program does not start one of its own unless it is told to.
            {options.TARGET.key: get(options.TARGET)},
        )
        if not recover:
            for name in dispatcher.forget_all():
                self._say(
                    f"'{name}' ran when the last session of this name died, and is not started again"
                    " (--recover does); its checkpoints stay"
                )
        dispatcher.clean()
        web = self._start_rest(dispatcher, engine, programs)

        def facts() -> SessionFacts:
            return self._facts(engine, web=web)

        server = SessionServer(self._folder.socket, dispatcher, facts, self._stop_for_all)
        try:
            self._folder.write_facts(facts())
            server.start()
            for process in dispatcher.recover() if recover else ():
                self._say(f"'{process.name}' is started again")
            ready(facts())
            self._wait(engine)
        finally:
            self._close(dispatcher, server)
            if self._rest is not None:
                self._rest.stop()

    def _stop_for_all(self) -> None:
        self._for_all = True
        self.end()

    def _wait(self, engine: SessionEngine) -> None:
        pause = 1.0 if self._term is None else 0.1
        while not self._ending.wait(pause):
            if self._term is not None and self._term.over is not None:
                return
            try:
                _check(engine)
            except SessionError:
                self._at_once = True
                raise

    def _close(self, dispatcher: Dispatcher, server: SessionServer) -> None:
        server.stop()
        if self._term is not None and (self._term.over is not None or not self._for_all):
            dispatcher.leave()
            return
        if self._at_once:
            dispatcher.kill()
        for job in dispatcher.close():
            self._say(f"'{job.name}' ({job.id}) is cancelled; its last checkpoint stays")

    # -- REST ----------------------------------------------------------------------------------------------

    def _write_token(self) -> None:
        """The token of the processes' own REST servers, which only the session asks."""
        self._folder.token.unlink(missing_ok=True)
        descriptor = os.open(self._folder.token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))

    def _checked_programs(self) -> dict[str, str]:
        """The programs that REST may start, by name; an error if that would let anybody start them."""
        if not options.get(self._configuration, options.SESSION_REST_SUBMIT):
            return {}
        if options.get(self._configuration, options.REST_TOKEN_FILE) is None:
            raise ConfigurationError(
                "jobs are to be started over REST, and nothing says who may",
                hint=f"set {options.REST_TOKEN_FILE.key} to a file with a token, or leave out"
                f" {options.SESSION_REST_SUBMIT.key}",
            )
        named = {}
        for word in (options.get(self._configuration, options.SESSION_PROGRAMS) or "").split(","):
            name, equals, path = word.strip().partition("=")
            if not word.strip():
                continue
            if equals and not Path(path).is_file():
                raise ConfigurationError(
                    f"{options.SESSION_PROGRAMS.key} names a program that is not there",
                    found=word.strip(),
                    file=str(Path(path).absolute()),
                )
            if not equals:
                raise ConfigurationError(
                    f"{options.SESSION_PROGRAMS.key} names no program",
                    found=word.strip(),
                    hint="write name=path/of/job.py, separated by commas",
                )
            named[name] = str(Path(path).absolute())
        return named

    def _start_rest(
        self, dispatcher: Dispatcher, engine: SessionEngine, programs: dict[str, str]
    ) -> str | None:
        if options.get(self._configuration, options.REST_ENABLED) == "false":
            return None
        token = self._folder.token.read_text().strip()

        def make_app(*given: Any) -> Any:
            # In the server's thread, which is the one to wait for the web stack.
            module = import_module("millstream.session.rest")
            return module.make_app(dispatcher, token, programs, *given)

        self._rest = RestServer(rest_settings(self._configuration), make_app)
        self._rest.start()
        return self._rest.address


def _check(engine: SessionEngine) -> None:
    if not engine.alive():
        raise SessionError(
            "the engine of the session has died, and all jobs with it",
            engine=", ".join(f"{name} {value}" for name, value in engine.facts().items()),
            hint="start the session again with --recover: its jobs go on from their checkpoints",
        )


def end_on_signals(session: Session, say: Callable[[str], None]) -> None:
    """Ctrl-C and SIGTERM end the session in order; a second one at once."""
    asked = 0

    def handle(number: int, frame: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            say(session.last_words)
        session.end(at_once=asked > 1)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle)
