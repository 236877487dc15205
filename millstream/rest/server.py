"""The application in uvicorn. Whoever imports this module waits for the web stack: only the server's thread does."""

from __future__ import annotations

import asyncio

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.rest.app import RestApp
from millstream.rest.control import Control
from millstream.rest.jobs import Jobs
from millstream.rest.pages import FlinkPage, own_page
from millstream.rest.routes import Services
from millstream.rest.security import RequestRules
from millstream.rest.settings import RestSettings

__all__ = ["CONNECTIONS", "HEADER_BYTES", "HEADER_SECONDS", "make_app", "make_server"]

CONNECTIONS = 512
"""More connections at once are answered with 503."""

HEADER_BYTES = 16 << 10
"""The longest request line with its headers."""

HEADER_SECONDS = 10.0
"""Who connects has to have sent these by then."""


class ImpatientProtocol(H11Protocol):
    """Closes connections on which no request begins in time. uvicorn itself waits for ever, and whoever opens enough of
    them and says nothing would keep everybody else out."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
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
    """A server for it."""
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
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=1,
        backlog=CONNECTIONS,
    )
    return uvicorn.Server(config)
