"""Hostile clients: requests drawn at random, on the application and over the socket, slow ones, many at once. Nothing
may fail inside, leave the tables of files and paths, or change a job without being allowed to.
`benchmarks/rest_load.py` does the same in large."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import random
import socket
from urllib.parse import quote

import pytest

from millstream.rest import server
from millstream.rest.budget import Budget
from millstream.rest.routes import ROUTES
from millstream.rest.start import server_of_process
from tests.rest import PORT, Client, application, served, start_job, watched
from tests.waiting import until

TOKEN = b"right-" + b"x" * 43
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"]
SEGMENTS = [
    "..",
    ".",
    "%2e%2e",
    "%252e%252e%252f",
    "\x00",
    "\\",
    "etc",
    "passwd",
    "jobs",
    "v1",
    "flink",
    "assets",
    "health",
    "-1",
    "9" * 40,
    "a" * 300,
    "é",
    "\udcff",
    "{}",
    "%s",
    "<script>",
    "';--",
    "\r\nX: y",
    "yarn-cancel",
]
BODIES = [
    b"",
    b"{}",
    b"{",
    b"[" * 10_000,
    b'{"cancel-job": true}',
    b'{"target-directory": "/etc"}',
    b'{"target-directory": "../x"}',
    b'{"drain": true}',
    b'{"drain": "yes"}',
    b"\xff\xfe\x00",
    b"null",
    b"1e999",
    b'"' + b"x" * 70_000,
    b'{"triggerId": "%s"}' % (b"f" * 32),
]
QUERIES = [
    "",
    "get=",
    "get=a,b",
    "agg=max",
    "mode=cancel",
    "lines=-1",
    "lines=1",
    "maxExceptions=9",
]
QUERIES += [
    "get=" + "a," * 2000,
    "subtasks=x",
    "subtasks=0,1,99",
    "%00=%ff",
    "=",
    "&&&",
    "mode=stop",
]


class Prober:
    """Draws requests from a seed."""

    def __init__(self, seed, run, client):
        self.random = random.Random(seed)
        document = client.get(f"/millstream/jobs/{run.job.id}").json
        self.known = {
            ":jobid": run.job.id,
            ":vertexid": document["vertices"][1]["id"],
            ":subtaskindex": "0",
            ":checkpointid": "1",
            ":taskmanagerid": "x-1",
            ":triggerid": "f" * 32,
            ":name": "millstream.log",
        }

    def path(self):
        """A path of the API, with a name or two replaced by something else; or anything."""
        draw = self.random
        if draw.random() < 0.2:
            parts = ["", *draw.choices(SEGMENTS, k=draw.randint(1, 6))]
        else:
            parts = draw.choice(ROUTES).path.split("/")
            parts = [self.known.get(part, part) for part in parts]
            for _ in range(draw.choice([0, 0, 0, 1, 2])):
                place = draw.randrange(1, len(parts))
                parts[place : place + draw.randint(0, 1)] = [draw.choice(SEGMENTS)]
        prefix = draw.choice(["", "", "", "/v1", "/flink", "/v1/v1", "/"])
        path = (prefix + "/".join(parts)).replace("?", "")
        query = draw.choice(QUERIES)
        return f"{path}?{query}" if query else path

    def headers(self):
        draw = self.random
        maybe = {
            "host": [f"127.0.0.1:{PORT}"] * 8 + ["evil.example", None, "", "127.0.0.1:1:2"],
            "authorization": [None, "Bearer", f"Bearer {'x' * 43}", "Basic cg==", "Bearer \xff"],
            "origin": [None] * 3 + ["http://evil.example", "null", f"http://127.0.0.1:{PORT}"],
            "x-millstream": ["1", None],
            "content-type": [None, "application/json", "text/plain", "application/json;;;", "\xff"],
            "content-length": [None] * 6 + ["x", "-5", "99999999999"],
            "referer": [None, f"http://127.0.0.1:{PORT}/flink/", "http://["],
        }
        return {name: draw.choice(values) for name, values in maybe.items()}


@pytest.fixture(scope="module")
def job():
    with served(lambda: start_job(name="victim")) as (run, client):
        yield run, client


def probe(run, app, seed, count, honest=None):
    """The statuses of many requests, one after the other; whoever is `honest` sends these headers too."""
    client = Client(app)
    prober = Prober(seed, run, Client(application([run])))
    counts: dict[int, int] = {}
    changed: list[str] = []

    async def all_of_them():
        for number in range(count):
            method, path = prober.random.choice(METHODS), prober.path()
            headers = {**prober.headers(), **(honest or {})}
            answer = await client.ask(method, path, headers, prober.random.choice(BODIES))
            counts[answer.status] = counts.get(answer.status, 0) + 1
            what = f"seed {seed}, request {number}: {method} {path[:200]!r} {headers}"
            assert answer.status < 500, (what, answer.body)
            for secret in (b"root:x", b"Traceback", b"site-packages", TOKEN):
                # A log has what all jobs of this process have written, those of other tests too.
                if "thread-dump" not in path and "log" not in path:
                    assert secret not in answer.body, what
            assert answer.headers["x-content-type-options"] == "nosniff"
            if answer.status == 202:
                changed.append(what)
            if (
                answer.status != 405
                and method != "HEAD"
                and "json" in answer.headers.get("content-type", "")
            ):
                json.loads(answer.body)

    asyncio.run(all_of_them())
    return counts, changed


@pytest.mark.parametrize("seed", range(2))
def test_without_the_token_nothing_is_told_and_nothing_changed(job, seed):
    run, _ = job
    app = application([run], token=TOKEN)
    counts, changed = probe(run, app, seed, 1000)
    assert not changed
    # The dashboard and the sign of life alone are open.
    assert set(counts) <= {200, 401, 403, 405}
    assert counts[401] > 500
    assert run.status.name == "RUNNING"


@pytest.mark.parametrize("seed", range(2))
def test_from_another_page_nothing_is_changed(job, seed):
    run, _ = job
    foreign = {"origin": "http://evil.example", "host": f"127.0.0.1:{PORT}"}
    counts, changed = probe(run, application([run]), seed, 1000, foreign)
    assert not changed
    assert counts[403] > 300
    assert run.status.name == "RUNNING"


@pytest.mark.parametrize("seed", range(3))
def test_whatever_an_honest_client_sends_is_answered(seed):
    """Cancel and stop are among it, so each seed has a job of its own; what it was is not lost with it."""
    honest = {"host": f"127.0.0.1:{PORT}", "origin": None, "x-millstream": "1"}
    with served(lambda: start_job(name="victim")) as (run, _):
        counts, _changed = probe(run, application([run]), seed, 500, honest)
        assert {200, 404} <= set(counts)


# -- over the socket --------------------------------------------------------------------------------


def garbage(draw, host):
    """Bytes that are nearly a request, or not at all."""
    kind = draw.randrange(12)
    host_line = f"Host: {host}\r\n".encode()
    if kind == 0:
        return draw.randbytes(draw.randint(1, 2000))
    if kind == 1:
        return b"GET /" + b"a" * draw.choice([100, 20_000, 100_000]) + b" HTTP/1.1\r\n\r\n"
    if kind == 2:
        return b"GET /jobs HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n"
    if kind == 3:
        return b"GET /jobs HTTP/1.1\r\n" + host_line + host_line + b"\r\n"
    if kind == 4:
        both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\nX-Millstream: 1\r\n"
        return (
            b"POST /jobs HTTP/1.1\r\n"
            + host_line
            + both
            + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n"
        )
    if kind == 5:
        return b"POST /jobs HTTP/1.1\r\n" + host_line + b"Content-Length: 99\r\n\r\n{"
    if kind == 6:
        return b"GET /\xff\xfe HTTP/1.1\r\n" + host_line + b"\r\n"
    if kind == 7:
        return b"GET http://evil.example/jobs HTTP/1.1\r\n" + host_line + b"\r\n"
    if kind == 8:
        return b"CONNECT evil.example:443 HTTP/1.1\r\n" + host_line + b"\r\n"
    if kind == 9:
        path = quote("/".join(draw.choices(SEGMENTS, k=4)), safe="/%", errors="surrogatepass")
        return f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    if kind == 10:
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
        return b"GET /jobs HTTP/1.1\r\n" + host_line + upgrade + b"\r\n"
    return b"GET /jobs HTTP/1.0\r\n\r\n"


def test_garbage_over_the_socket():
    draw = random.Random(7)
    with watched() as (run, address):
        host = address.removeprefix("http://")
        port = int(host.rpartition(":")[2])
        for number in range(300):
            sent = garbage(draw, host)
            said = answer_to(port, sent)
            assert not said or said.startswith(b"HTTP/1.1 "), number
            assert not said.startswith(b"HTTP/1.1 5"), (number, sent[:100], said[:200])
            assert b"root:x" not in said
        assert alive(port)
        assert run.status.name == "RUNNING"


def answer_to(port, sent):
    """All that comes back until the connection ends."""
    said = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(65536):
            said += part
    return said


def alive(port):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    """Neither the beginning of a request, nor nothing at all, nor half of a second one."""
    with watched() as (_, address):
        port = int(address.rpartition(":")[2])
        assert alive(port)
        host = f"Host: 127.0.0.1:{port}\r\n"
        monkeypatch.setattr(server, "HEADER_SECONDS", 0.2)
        beginnings = [
            "",
            "GET /jo",
            f"GET /jobs HTTP/1.1\r\n{host}X: ",
            f"GET /health HTTP/1.1\r\n{host}\r\nGET /jo",
        ]
        slow = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(40)]
        for number, client in enumerate(slow):
            client.sendall(beginnings[number % len(beginnings)].encode())
        assert alive(port)
        for client in slow:
            # Ends, or this test does not.
            with contextlib.suppress(ConnectionError):
                while client.recv(65536):
                    pass
            client.close()
        assert alive(port)


async def many(port, count, path):
    """As many connections at once, each with one request; their statuses."""

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await everybody.wait()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            line = await reader.readline()
            return int(line.split()[1])
        finally:
            writer.close()

    everybody = asyncio.Event()
    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await asyncio.sleep(0)
    everybody.set()
    return await asyncio.gather(*tasks)


def test_two_hundred_at_once_are_all_answered():
    with watched() as (run, address):
        port = int(address.rpartition(":")[2])
        before = run.metrics.records
        statuses = asyncio.run(many(port, 200, f"/millstream/jobs/{run.job.id}"))
        assert statuses == [200] * 200
        until(lambda: run.metrics.records > before)


def test_more_than_there_is_room_for_wait_until_there_is(monkeypatch):
    monkeypatch.setattr(server, "CONNECTIONS", 8)
    with watched() as (_, address):
        port = int(address.rpartition(":")[2])
        until(lambda: alive(port))
        idle = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(12)]
        with socket.create_connection(("127.0.0.1", port), timeout=30) as late:
            late.sendall(f"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            running = server_of_process()._server
            until(lambda: len(running.server_state.connections) == 8)
            late.settimeout(0.2)
            with pytest.raises(TimeoutError):
                late.recv(1)
            for client in idle:
                client.close()
            late.settimeout(30)
            assert late.recv(100).startswith(b"HTTP/1.1 200")
        assert asyncio.run(many(port, 30, "/jobs")) == [200] * 30


def test_a_server_without_files_goes_on_when_there_are_some(monkeypatch):
    with watched() as (_, address):
        port = int(address.rpartition(":")[2])
        until(lambda: alive(port))
        running = server_of_process()._server
        real, failed = running._listening, []

        class Exhausted:
            def fileno(self):
                return real.fileno()

            def accept(self):
                failed.append(True)
                running._listening = real
                raise OSError(errno.EMFILE, "too many open files")

        running._listening = Exhausted()
        until(lambda: alive(port))
        assert failed


def test_who_asks_too_much_waits_and_is_told_so(monkeypatch):
    with watched(limited=True) as (run, address):
        port = int(address.rpartition(":")[2])
        until(lambda: alive(port))
        app = server_of_process()._server.config.app
        app.budget = Budget(share=0.001, burst=0.0005, wait=0.3)
        statuses = asyncio.run(many(port, 20, "/jobs"))
        assert 429 in statuses
        assert set(statuses) <= {200, 429}
        before = run.metrics.records
        until(lambda: run.metrics.records > before)


def test_a_slow_body_ends():
    with watched() as (run, address):
        port = int(address.rpartition(":")[2])
        running = server_of_process()
        until(lambda: running._server is not None)
        running._server.config.app._seconds = 0.2
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(
                f"POST /jobs/{run.job.id}/stop HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                "X-Millstream: 1\r\nContent-Length: 10\r\n\r\n{".encode()
            )
            said = b"".join(iter(lambda: client.recv(65536), b""))
            assert said.startswith(b"HTTP/1.1 408 ")
        assert run.status.name == "RUNNING"
