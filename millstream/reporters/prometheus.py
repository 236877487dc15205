"""The Prometheus reporter (Flink's `PrometheusReporter`): a page of figures for all jobs of this process.

One server for each address that jobs ask for. It begins with the first of them and ends with the last; a job is on the
page while it runs. All figures are gauges, as those of Flink's reporter: a counter of Prometheus never goes back, and
ours begin again with the driver.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from millstream.redaction import get_logger
from millstream.reporters.moment import look
from millstream.reporters.samples import Sample, samples_of
from millstream.runtime.driver.run import JobRun

__all__ = ["Address", "PrometheusReporter", "families"]

_log = get_logger("millstream.metrics")

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Address:
    """Where the page is to be: the first port that is free."""

    host: str
    ports: tuple[int, ...]


class PrometheusReporter:
    """One job's place on the page."""

    def __init__(
        self, address: Address, without: Iterable[str] = (), *, plain_values: bool = False
    ) -> None:
        self._address = address
        self._without = frozenset(without)
        self._plain_values = plain_values
        self._run: JobRun | None = None

    def start(self, run: JobRun) -> None:
        """Show the job. That no port is free does not keep it from running."""
        self._run = run
        try:
            page = _pages.join(self._address, self)
        except OSError as error:
            _log.warning(
                "there is no page of metrics for Prometheus on %s, port %s: %s",
                self._address.host,
                _told(self._address.ports),
                error.strerror or error,
            )
            return
        _log.info("metrics for Prometheus are on %s", page)

    def close(self) -> None:
        """Take the job off the page."""
        _pages.leave(self._address, self)

    def samples(self) -> Iterator[Sample]:
        """The job's figures, with the labels that are wanted."""
        at = None if self._run is None else look(self._run)
        for sample in () if at is None else samples_of(at):
            yield self._wanted(sample)

    def _wanted(self, sample: Sample) -> Sample:
        if not self._without and not self._plain_values:
            return sample
        labels = {
            name: _plain(value) if self._plain_values else value
            for name, value in sample.labels.items()
            if name not in self._without
        }
        return sample._replace(labels=labels)


def _plain(value: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in ":_") else "_" for c in value)


def _told(ports: Sequence[int]) -> str:
    return str(ports[0]) if len(ports) == 1 else f"{ports[0]} to {ports[-1]}"


def families(samples: Iterable[Sample]) -> list[Metric]:
    """Samples by the name of their metric. Of two with one name and the same labels the first is shown: a page with
    both would be refused as a whole."""
    found: dict[str, Metric] = {}
    known: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for name, labels, value, about in samples:
        key = name, tuple(sorted(labels.items()))
        if key in known:
            continue
        known.add(key)
        if name not in found:
            found[name] = Metric(name, about, "gauge")
        found[name].add_sample(name, dict(labels), value)
    return list(found.values())


class _Page(Collector):
    """The page of one address, and the jobs on it."""

    def __init__(self, address: Address) -> None:
        self._jobs: list[PrometheusReporter] = []
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        local = address.host in _LOOPBACK
        app = _only_local(make_wsgi_app(registry)) if local else make_wsgi_app(registry)
        self._server = _serve(address, app)
        threading.Thread(
            # How often it looks whether it is to end.
            target=lambda: self._server.serve_forever(0.1),
            name="millstream-prometheus",
            daemon=True,
        ).start()
        host = f"[{address.host}]" if ":" in address.host else address.host
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def collect(self) -> Iterator[Metric]:
        """What Prometheus is told."""
        jobs = list(self._jobs)
        yield from families(sample for job in jobs for sample in job.samples())

    def describe(self) -> list[Metric]:
        """Nothing is known beforehand."""
        return []

    def add(self, job: PrometheusReporter) -> None:
        """Show a job."""
        self._jobs.append(job)

    def remove(self, job: PrometheusReporter) -> bool:
        """Show it no longer; True if no job is left."""
        if job in self._jobs:
            self._jobs.remove(job)
        return not self._jobs

    def close(self) -> None:
        """No more page."""
        self._server.shutdown()
        self._server.server_close()


class _Pages:
    """The pages of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.open: dict[Address, _Page] = {}

    def join(self, address: Address, job: PrometheusReporter) -> str:
        """Put a job onto the page of an address, which begins with its first; where it is."""
        with self._lock:
            if address not in self.open:
                self.open[address] = _Page(address)
            page = self.open[address]
            page.add(job)
            return page.url

    def leave(self, address: Address, job: PrometheusReporter) -> None:
        """Take a job off its page, which ends with its last."""
        with self._lock:
            page = self.open.get(address)
            if page is None or not page.remove(job):
                return
            del self.open[address]
            page.close()


_pages = _Pages()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_address = True

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the network for a name of the host.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    # Who opens a connection and says nothing does not keep a thread.
    timeout = 10

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Nobody needs a line for every scrape."""


def _serve(address: Address, app: Callable[..., Any]) -> WSGIServer:
    for port in address.ports:
        try:
            kind = _Server6 if ":" in address.host else _Server
            return make_server(address.host, port, app, kind, _Handler)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == address.ports[-1]:
                raise
    raise AssertionError("an address has a port")


def _only_local(app: Callable[..., Any]) -> Callable[..., Any]:
    """A page of this machine's own, that no web site reaches by a name of its own for this machine."""

    def guarded(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
        host = environ.get("HTTP_HOST", "")
        name = host.rpartition("]")[0].strip("[") if "[" in host else host.partition(":")[0]
        if name not in _LOOPBACK:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"this page is for this machine alone\n"]
        return app(environ, start_response)

    return guarded
