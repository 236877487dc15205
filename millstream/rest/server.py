"""The application in uvicorn. Whoever imports this module waits for the web stack: only the server's thread does."""

from __future__ import annotations

import asyncio
import errno
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.rest.app import RestApp
from millstream.rest.budget import Budget
from millstream.rest.control import Control
from millstream.rest.jobs import Jobs
from millstream.rest.pages import FlinkPage, own_page
from millstream.rest.routes import Services
from millstream.rest.security import RequestRules
from millstream.rest.settings import RestSettings

__all__ = ["CONNECTIONS", "HEADER_BYTES", "HEADER_SECONDS", "make_app", "make_server"]

CONNECTIONS = 256
"""More connections at once are not accepted: they wait in the kernel's queue, and cost neither time nor a file."""

_LOOK_AGAIN = 0.05

HEADER_BYTES = 16 << 10
"""The longest request line with its headers."""

HEADER_SECONDS = 10.0
"""Who connects has to have sent these by then."""


class ImpatientProtocol(H11Protocol):
    """Closes connections on which no request begins in time. uvicorn itself waits for ever, and whoever opens enough of
    them and says nothing would keep everybody else out."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Some of a request, or more than one."""
        before = self.cycle
        try:
            super().data_received(data)
        except UnicodeDecodeError:
            # A path with bytes that no path has.
            self.transport.close()
            return
        if self.cycle is not before:
            # A request was read, and how long that takes is limited by the application.
            self._stop_waiting()
        elif self._waiting is None and (before is None or before.response_complete):
            # The beginning of the next one.
            self._waiting = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        self.transport.close()


class PatientServer(uvicorn.Server):
    """Accepts connections only while there is room for them. uvicorn itself accepts all, and answers 503 to those that
    are too many, who come again at once: with a thousand clients that alone takes a good part of a core."""

    _listening: socket.socket | None = None
    _accepted = 0  # that are not connected yet

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        assert sockets is not None
        await self.lifespan.startup()
        self.servers = []
        (self._listening,) = sockets
        self._listening.setblocking(False)
        self._look()
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and close what is open."""
        listening, self._listening = self._listening, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
        await super().shutdown(sockets)

    def _look(self) -> None:
        """Accept again, if there is room."""
        loop = asyncio.get_running_loop()
        if self._listening is None:
            return
        if self._full:
            loop.call_later(_LOOK_AGAIN, self._look)
        else:
            loop.add_reader(self._listening, self._accept)

    @property
    def _full(self) -> bool:
        return len(self.server_state.connections) + self._accepted >= CONNECTIONS

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert self._listening is not None
        loop.remove_reader(self._listening)
        loop.call_later(seconds, self._look)

    def _accept(self) -> None:
        if self._full:
            self._pause(_LOOK_AGAIN)
            return
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # The job needs files too, and may close some.
                self._pause(1.0)
            return
        connection.setblocking(False)
        self._accepted += 1
        asyncio.get_running_loop().create_task(self._connect(connection))

    async def _connect(self, connection: socket.socket) -> None:
        def protocol() -> ImpatientProtocol:
            return ImpatientProtocol(self.config, self.server_state, self.lifespan.state)

        try:
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)
        except OSError:
            connection.close()
        finally:
            self._accepted -= 1


def make_app(
    jobs: Jobs, settings: RestSettings, port: int, flink_page: FlinkPage | None = None
) -> RestApp:
    """The application over the jobs of this process."""
    services = Services(
        jobs,
        Control(any_savepoint_dir=settings.any_savepoint_dir),
        refresh_interval=settings.refresh_interval,
    )
    rules = RequestRules(settings, port, flink_page=flink_page is not None)
    return RestApp(services, rules, own_page(), flink_page)


def make_server(app: RestApp) -> uvicorn.Server:
    """A server for it, which holds back whoever asks too much."""
    app.budget = Budget()
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        # What a stranger sends is no reason to write to the program's standard error.
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=1,
    )
    return PatientServer(config)
