"""A line between the driver and a task that lives for many epochs: messages over a socket, each way in order.

```
driver ──▶ task      Begin, Work, End, Leave     pickled: they bring records of the user's own classes
task ──▶ driver      Hello, Opened, Progress, Rows, Closed, Failed     MessagePack, which runs no code
```

A task shows that it belongs to the run before anything it says is looked at, and the driver shows the same before the
task unpickles anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import pickle
import secrets
import select
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Any

import cloudpickle
import msgspec

from millstream.errors import EngineError
from millstream.runtime.wire.ranges import SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress

__all__ = [
    "Begin",
    "Closed",
    "End",
    "Failed",
    "FromTask",
    "HubAddress",
    "Leave",
    "Link",
    "LinkClosed",
    "Opened",
    "Progress",
    "Rows",
    "TaskId",
    "ToTask",
    "Work",
    "connect",
    "receive_hello",
]

_LENGTH = struct.Struct("!I")
_LARGEST = (1 << 32) - 1
_NONCE = 32
_CONNECT_SECONDS = 30.0

TaskId = tuple[int, int, int]
"""Level, source vertex (-1 below level 0), subtask."""


class LinkClosed(ConnectionError):
    """The other side is gone."""


@dataclass(frozen=True)
class HubAddress:
    """Where the driver listens, and what shows that somebody belongs to the run."""

    host: str
    port: int
    secret: bytes

    def __repr__(self) -> str:
        return f"HubAddress({self.host}:{self.port})"


# -- what the driver says ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """To sources: an epoch begins. The work has no records, and tells of splits."""

    epoch: int
    work: SubtaskRanges


@dataclass(frozen=True)
class Work:
    """To sources: read this."""

    work: SubtaskRanges


@dataclass(frozen=True)
class End:
    """To sources: the epoch ends here, and with `ended` the job."""

    ended: bool


@dataclass(frozen=True)
class Leave:
    """To all: no further epoch comes."""


ToTask = Begin | Work | End | Leave


# -- what tasks say ------------------------------------------------------------------------------------------------


class _Hello(msgspec.Struct, frozen=True, tag="hello"):
    task: TaskId


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The task is ready for the records of an epoch: its state is open."""

    epoch: int


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """A source has read what it was told to, in so many seconds."""

    splits: list[SplitProgress]
    seconds: float


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """Rows for the driver: (edge, sequence, channel, payload). With `last` the report among them is that of the epoch,
    and not of a part of it."""

    rows: list[tuple[int, int, int, bytes]]
    last: bool = False


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """All of the epoch is done here; the report has gone before."""

    epoch: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The task has failed; the error as `millstream.errors.encode` writes it."""

    error: str


FromTask = Opened | Progress | Rows | Closed | Failed
_decode = msgspec.msgpack.Decoder(_Hello | Opened | Progress | Rows | Closed | Failed).decode
_encode = msgspec.msgpack.Encoder().encode


class Link:
    """One end of the line. One thread receives; any may send."""

    def __init__(self, sock: socket.socket) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            # Messages are small, and somebody waits for each.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._sending = threading.Lock()
        self._received = bytearray()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def tell_task(self, message: ToTask) -> None:
        """From the driver to a task."""
        self._send(cloudpickle.dumps(message))

    def tell_driver(self, message: FromTask) -> None:
        """From a task to the driver."""
        self._send(_encode(message))

    def from_driver(self, timeout: float | None) -> ToTask | None:
        """In a task: the next message; None if there is none in time."""
        data = self._receive(timeout)
        message: ToTask | None = None if data is None else pickle.loads(data)
        return message

    def from_task(self) -> FromTask:
        """On the driver: the next message."""
        data = self._receive(None)
        assert data is not None
        message = _decode(data)
        if isinstance(message, _Hello):
            raise LinkClosed("a task has introduced itself twice")
        said: FromTask = message
        return said

    def _send(self, data: bytes) -> None:
        if len(data) > _LARGEST:
            raise EngineError("a message to a task is larger than 4 GB", bytes=len(data))
        try:
            with self._sending:
                self._sock.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise LinkClosed(f"the line to a task is broken: {error}") from error

    def _receive(self, timeout: float | None) -> bytes | None:
        received = self._received
        while True:
            if len(received) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(received)
                end = _LENGTH.size + length
                if len(received) >= end:
                    data = bytes(memoryview(received)[_LENGTH.size : end])
                    del received[:end]
                    return data
                # The rest of a message is on its way.
                timeout = None
            if timeout is not None and not self._poll.poll(max(0.0, timeout) * 1000):
                return None
            try:
                part = self._sock.recv(1 << 20)
            except OSError as error:
                raise LinkClosed(f"the line is broken: {error}") from error
            if not part:
                raise LinkClosed("the other side has closed the line")
            received += part

    def close(self) -> None:
        """Close the line from this side."""
        # The other side may have been first.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def _proof(secret: bytes, side: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, side + nonce, hashlib.sha256)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise LinkClosed("the other side has closed the line")
        data += part
    return data


def connect(address: HubAddress, task: TaskId) -> Link:
    """In a task: the line to the driver."""
    try:
        sock = socket.create_connection((address.host, address.port), _CONNECT_SECONDS)
        theirs, ours = _exactly(sock, _NONCE), secrets.token_bytes(_NONCE)
        sock.sendall(_proof(address.secret, b"task", theirs) + ours)
        answer = _exactly(sock, hashlib.sha256().digest_size)
    except OSError as error:
        raise EngineError(
            f"a task cannot reach the driver: {error}",
            address=f"{address.host}:{address.port}",
            hint="executors must be able to connect to the driver's host (spark.driver.host)",
        ) from error
    if not hmac.compare_digest(answer, _proof(address.secret, b"driver", ours)):
        sock.close()
        raise EngineError("who answers at the driver's address is not the driver of this job")
    sock.settimeout(None)
    link = Link(sock)
    link._send(_encode(_Hello(task)))
    return link


def receive_hello(sock: socket.socket, secret: bytes) -> tuple[TaskId, Link]:
    """On the driver: who has connected. Raises if it does not belong to the run."""
    sock.settimeout(_CONNECT_SECONDS)
    ours = secrets.token_bytes(_NONCE)
    sock.sendall(ours)
    answer = _exactly(sock, hashlib.sha256().digest_size)
    if not hmac.compare_digest(answer, _proof(secret, b"task", ours)):
        raise LinkClosed("somebody who does not belong to the job has connected")
    sock.sendall(_proof(secret, b"driver", _exactly(sock, _NONCE)))
    sock.settimeout(None)
    link = Link(sock)
    data = link._receive(_CONNECT_SECONDS)
    hello: Any = None if data is None else _decode(data)
    if not isinstance(hello, _Hello):
        raise LinkClosed("a task has not said who it is")
    return hello.task, link
