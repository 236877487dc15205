"""Starts the one REST server of a process, with the first job that wants to be seen. Imports no web stack: the job
does not wait for that, the server's thread does.

The socket listens before the job starts, so that its address is known, and who connects at once is answered a moment
later.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.errors import ConfigurationError
from millstream.redaction import get_logger
from millstream.rest.jobs import Jobs
from millstream.rest.logs import LOGS
from millstream.rest.pages import FlinkPage
from millstream.rest.settings import RestSettings, rest_settings
from millstream.runtime.driver.run import JobRun

__all__ = ["RestServer", "server_of_process", "show", "stop_server"]

_log = get_logger("millstream.rest")

PORTS = 100
"""So many ports are tried, from the one that was asked for."""


class RestServer:
    """A server and the jobs it shows; `make_app` makes another application than that of this process's jobs."""

    def __init__(self, settings: RestSettings, make_app: Callable[..., Any] | None = None) -> None:
        self.settings = settings
        self._make_app = make_app
        self.jobs = Jobs()
        # What is wrong with these is an error of execute() itself.
        self._flink_page = None if settings.flink_page is None else FlinkPage(settings.flink_page)
        self._socket = listen(settings.bind_address, settings.port)
        self.port: int = self._socket.getsockname()[1]
        self._server: Any = None
        self._stopped = False
        self._thread = threading.Thread(target=self._main, name="millstream-rest", daemon=True)

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        host = self.settings.bind_address
        if host in ("0.0.0.0", "::", ""):
            host = socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> None:
        """Begin to answer, a moment later."""
        LOGS.attach()
        self._thread.start()

    def _main(self) -> None:
        try:
            module = import_module("millstream.rest.server")
            make_app = self._make_app or module.make_app
            app = make_app(self.jobs, self.settings, self.port, self._flink_page)
            self._server = module.make_server(app)
            if not self._stopped:
                self._server.run(sockets=[self._socket])
        except BaseException:
            # The jobs go on without.
            _log.exception("the REST server has failed")
        finally:
            self._socket.close()

    def forsake(self) -> None:
        """Let go of the socket in a forked child."""
        self._socket.close()

    def stop(self) -> None:
        """Stop answering; for tests, a process ends with it running."""
        self._stopped = True
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a port, or on the next that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    failure: OSError | None = None
    for candidate in [port] if port == 0 else range(port, min(port + PORTS, 65536)):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, candidate))
            listening.listen(128)
        except OSError as error:
            listening.close()
            failure = error
        else:
            return listening
    raise ConfigurationError(
        "the REST API finds no port to listen on",
        bind_address=host,
        ports=f"{port} to {min(port + PORTS, 65536) - 1}",
        cause=str(failure),
        hint=f"set {options.REST_PORT.key} to 0 for any free port, or {options.REST_ENABLED.key} to false",
    )


_lock = threading.Lock()
_server: RestServer | None = None


def server_of_process() -> RestServer | None:
    """The server of this process, if there is one."""
    return _server


def show(run: JobRun, configuration: Configuration) -> None:
    """Show a job that is about to start; its `web_address` says where."""
    global _server
    settings = rest_settings(configuration)
    with _lock:
        if _server is None:
            _server = _started(settings, wanted=_is_wanted(configuration))
        elif (settings.bind_address, settings.token) != (
            _server.settings.bind_address,
            _server.settings.token,
        ):
            raise ConfigurationError(
                "another job of this process is shown by a REST server that lets others in",
                address=_server.address,
                hint=f"give all jobs of a process the same {options.REST_BIND_ADDRESS.key} and"
                f" {options.REST_TOKEN_FILE.key}",
            )
        server = _server
    if server is not None:
        server.jobs.add(run, configuration.to_dict())
        run.web_address = server.address


def _is_wanted(configuration: Configuration) -> bool:
    return bool(options.get(configuration, options.REST_ENABLED) == "true")


def _started(settings: RestSettings, *, wanted: bool) -> RestServer | None:
    try:
        server = RestServer(settings)
    except ConfigurationError as error:
        if wanted or settings.token is not None or settings.flink_page is not None:
            raise
        # Nobody has asked for it: no reason for a job not to run.
        _log.warning("the job cannot be watched: %s", error)
        return None
    server.start()
    _log.info("the REST API and the dashboard are at %s", server.address)
    return server


def _forget() -> None:
    """In a child that was forked: nobody answers there, and the socket is the parent's."""
    global _lock, _server
    _lock = threading.Lock()
    server, _server = _server, None
    if server is not None:
        server.forsake()


os.register_at_fork(after_in_child=_forget)


def stop_server() -> None:
    """Stop the server of this process; for tests."""
    global _server
    with _lock:
        server, _server = _server, None
    if server is not None:
        server.stop()
