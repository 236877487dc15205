"""An S3 of the tests' own: moto's server on this machine, behind a door that can be shut, lie and lose replies."""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import pytest

from millstream.api.sink import Sink
from millstream.common.serialization import Encoder
from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.sink import FileSink
from tests.crashes import Outlet
from tests.waiting import eventually

__all__ = ["S3", "S3Files", "_one_s3", "client_of", "s3", "s3_process", "start_s3"]

KEY, SECRET = "millstream-tests", "not much of a secret"
_numbers = itertools.count()

# What the door does to a request: pass it on (None), answer with a status, or pass it on and lose the reply.
Fault = Callable[[str, str], int | str | None]


class S3:
    """The server; `url` names a new bucket, `faults` decides what becomes of a request (method, path)."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        self._behind = self._moto.get_host_and_port()
        self.faults: Fault = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self._connections: set[socket.socket] = set()
        self._door = self._open_door(0)
        self.port = self._door.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _open_door(self, port: int) -> ThreadingHTTPServer:
        server = self

        class Door(_Door):
            s3 = server

        door = ThreadingHTTPServer(("127.0.0.1", port), Door)
        door.daemon_threads = True
        threading.Thread(target=door.serve_forever, daemon=True).start()
        return door

    def shut(self) -> None:
        """The server is away: connections are refused, and those that were open are cut."""
        self._door.shutdown()
        self._door.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        """The server is back, with all it had."""
        self._door = self._open_door(self.port)

    def url(self, path: str) -> str:
        """A URL that says everything, for processes that were started before the server."""
        asked = f"endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"
        return f"s3://{KEY}:{quote(SECRET)}@{path}?{asked}"

    def close(self) -> None:
        self.shut()
        self._moto.stop()

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"bucket-{next(_numbers)}"
        self.client().create_bucket(Bucket=name)
        return name

    @functools.cache  # noqa: B019  # there is one server
    def client(self) -> Any:
        """A client of the server itself, not through the door."""
        host, port = self._behind
        return client_of(f"http://{host}:{port}")

    def files(self, bucket: str) -> dict[str, bytes]:
        """All objects of a bucket."""
        client = self.client()
        found = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [one["Key"] for page in found for one in page.get("Contents", [])]
        return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def uploads(self, bucket: str) -> list[str]:
        """The names of uploads that nobody has completed."""
        found = self.client().list_multipart_uploads(Bucket=bucket)
        return [one["Key"] for one in found.get("Uploads", [])]


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    s3: S3

    def setup(self) -> None:
        super().setup()
        self.s3._connections.add(self.connection)

    def finish(self) -> None:
        self.s3._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def _pass(self) -> None:
        body = self._body()
        self.s3.requests.append((self.command, self.path))
        fault = self.s3.faults(self.command, self.path)
        if f"Credential={KEY}/" not in self.headers.get("Authorization", f"Credential={KEY}/"):
            self._answer(403, _error("InvalidAccessKeyId", "The key does not exist."))
        elif isinstance(fault, int):
            code = "SlowDown" if fault == 503 else "InternalError"
            self._answer(fault, _error(code, "Please try again."))
        else:
            status, headers, answer = self._ask(body)
            if fault == "lose the reply":
                self.close_connection = True
                self.connection.close()
            else:
                self._answer(status, answer, headers)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(*self.s3._behind, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "transfer-encoding"}
        connection.request(
            self.command, self.path, body, {**headers, "Content-Length": str(len(body))}
        )
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, response.getheaders(), answer

    def _answer(
        self, status: int, body: bytes, headers: list[tuple[str, str]] | None = None
    ) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers or [("Content-Type", "application/xml")]:
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length
            elif name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

    def log_message(self, *arguments: Any) -> None:
        pass


def _error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


@contextlib.contextmanager
def start_s3() -> Iterator[S3]:
    """A server while the context lasts, and its address in the environment."""
    server = S3()
    try:
        with patch.dict(os.environ, server.environment):
            yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def _one_s3() -> Iterator[S3]:
    with start_s3() as server:
        yield server


@pytest.fixture
def s3(_one_s3: S3) -> S3:
    """One server for all tests of a run, that does as it should until it is told otherwise."""
    _one_s3.faults = lambda method, path: None
    _one_s3.requests.clear()
    return _one_s3


class S3Files(Outlet):
    """A bucket that is written by the file sink."""

    def __init__(self, folder: Path, server: S3) -> None:
        self.server = server
        self.bucket = server.bucket()
        self.taken: Counter = Counter()

    def url(self) -> str:
        return f"s3://{self.bucket}/out"

    def builder(self) -> Any:
        files = FileSink.for_row_format(self.url(), Encoder.simple_string_encoder())
        return files.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())

    def sink(self) -> Sink:
        return self.builder().build()

    def there(self) -> Counter:
        files = self.server.files(self.bucket).values()
        return Counter(int(line) for file in files for line in file.decode().splitlines())

    def read(self) -> Counter:
        return self.taken + self.there()

    def take(self) -> None:
        self.taken = self.read()
        client = self.server.client()
        for key in self.server.files(self.bucket):
            client.delete_object(Bucket=self.bucket, Key=key)


@contextlib.contextmanager
def s3_process(port: int = 0) -> Iterator[str]:
    """A server in a process of its own, for clients that hold Python's lock while they wait; its endpoint."""
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    # Ends with its standard input, and so with the tests, whatever ends them.
    code = (
        "import os, sys, threading\n"
        "from moto.server import main\n"
        "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
        f"main(['-H', '127.0.0.1', '-p', '{port}'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: process.poll() is not None or _answers(port), 60)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def client_of(endpoint: str) -> Any:
    """A client of a server in another process."""
    import botocore.session
    from botocore.config import Config

    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )
