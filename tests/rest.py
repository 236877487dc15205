"""What tests of the REST server share: a job to look at, and a client without a socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.job_client import JobClient
from millstream.common.time import Duration, Time
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.rest.jobs import Jobs
from millstream.rest.server import make_app
from millstream.rest.settings import RestSettings
from millstream.rest.start import server_of_process, stop_server
from millstream.runtime.driver.run import JobRun
from tests.waiting import until

__all__ = ["PORT", "Answer", "Client", "application", "served", "start_job", "watched"]

PORT = 8081


class _Number(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 100


class FailsAt:
    """A function that fails with some numbers; only once, if there is a file to remember that by."""

    def __init__(self, numbers: Sequence[int], file: str | None) -> None:
        self.numbers = tuple(numbers)
        self.file = file

    def __call__(self, value: Any) -> Any:
        if value[1] in self.numbers and not (self.file and os.path.exists(self.file)):
            if self.file:
                Path(self.file).touch()
            raise ValueError(f"no such order: {value[1]}, password=hunter2-of-{value[1]}")
        return value


def start_job(
    options: Mapping[str, str] | None = None,
    *,
    name: str = "orders by minute",
    rate: float | None = 20_000.0,
    count: int | None = None,
    fails_at: Sequence[int] = (),
    once: str | None = None,
    parallelism: int = 2,
) -> JobClient:
    """A keyed and windowed job: a source, a chain with a window, a sink, which sees 20,000 records a second."""
    settings = {
        "execution.target": "in-process",
        "parallelism.default": str(parallelism),
        "millstream.epoch.interval": "20 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "1 ms",
        "spark.hadoop.fs.s3a.secret.key": "AKIA-do-not-tell-7781",
        **(options or {}),
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = DataGeneratorSource(lambda n: (n % 7, n), count=count, rate_per_second=rate, splits=2)
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    orders = env.from_source(source, late.with_timestamp_assigner(_Number()), "orders")
    (
        orders.map(FailsAt(fails_at, once))
        .name("check")
        .key_by(lambda order: order[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(60)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .name("by minute")
        .uid("by-minute")
        .rebalance()
        .add_sink(_nothing())
        .name("<b>drop</b>")
        .set_parallelism(1)
    )
    return env.execute_async(name)


def _nothing() -> Any:
    from millstream.api.functions import SinkFunction

    class Drop(SinkFunction):
        def invoke(self, value: Any, context: SinkFunction.Context) -> None:
            return

    return Drop()


def run_of(client: JobClient) -> JobRun:
    """What runs a client's job."""
    run = client._run
    assert isinstance(run, JobRun)
    return run


@contextmanager
def watched(*, limited: bool = False, **how: Any) -> Iterator[tuple[JobRun, str]]:
    """A job and the address at which the server of this process shows it; both go again. Only a `limited` server holds
    back clients in a hurry, as tests are."""
    options = {"millstream.rest.enabled": "true", "rest.port": "0", **how.pop("options", {})}
    stop_server()
    client = start_job(options, **how)
    run = run_of(client)
    try:
        server = server_of_process()
        assert server is not None
        until(lambda: run.metrics is not None and run.metrics.records > 0)
        until(lambda: server._server is not None)
        if not limited:
            server._server.config.app.budget = None
        yield run, server.address
    finally:
        run.cancel()
        stop_server()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Calls an ASGI application as uvicorn does, in this process."""

    def __init__(self, app: Any, port: int = PORT) -> None:
        self.app = app
        self.headers = {"host": f"127.0.0.1:{port}"}

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers)

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes | Sequence[bytes] = b"",
        raw: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        """One request; a header that is None is left out. `path` is as it is after decoding, with a query."""
        return asyncio.run(self.ask(method, path, headers, body, raw))

    async def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes | Sequence[bytes] = b"",
        raw: Sequence[tuple[bytes, bytes]] = (),
    ) -> Answer:
        merged = {**self.headers, **(headers or {})}
        path, _, query = path.partition("?")
        parts = [body] if isinstance(body, bytes) else list(body)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(errors="replace"),
            "query_string": query.encode(errors="replace"),
            "root_path": "",
            "headers": [
                *(
                    (name.replace("_", "-").lower().encode(), value.encode("latin-1", "replace"))
                    for name, value in merged.items()
                    if value is not None
                ),
                *raw,
            ],
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", PORT),
        }
        waiting = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await waiting.wait()
            return {"type": "http.disconnect"}

        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        assert sent[0]["type"] == "http.response.start"
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(m.get("body", b"") for m in sent[1:]))


def application(
    runs: Sequence[JobRun] = (),
    configuration: Mapping[str, str] | None = None,
    flink_page: Any = None,
    **settings: Any,
) -> Any:
    """The application over some jobs, without a server."""
    jobs = Jobs()
    for run in runs:
        jobs.add(run, configuration or {})
    return make_app(jobs, RestSettings(**settings), settings.get("port", PORT), flink_page)


@contextmanager
def served(make: Callable[[], JobClient] = start_job) -> Iterator[tuple[JobRun, Client]]:
    """A job that has read something, and a client that sees it without a socket."""
    client = make()
    run = run_of(client)
    try:
        until(lambda: run.metrics is not None and run.metrics.records > 0)
        yield (
            run,
            Client(application([run], {"spark.hadoop.fs.s3a.secret.key": "AKIA-do-not-tell-7781"})),
        )
    finally:
        run.cancel()
