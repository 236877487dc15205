"""What sessions, their clients and the processes of jobs say to each other: JSON, a message in a line."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import Any

import msgspec

from millstream.errors import SessionError

__all__ = ["Channel", "peer_uid"]

TAKE_BACK = "take back"
"""What a session asks of a process if nobody waits any more for what it has asked before."""

LONGEST = 256 << 20
"""The longest message. Arguments of programs are in it, and nobody says how long these are."""

_CHUNK = 1 << 16


class Channel:
    """One end of a connection. Several threads may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Send one message."""
        with self._sending:
            self.connection.sendall(msgspec.json.encode(message) + b"\n")

    def receive(self) -> Any:
        """The next message; None at the end of the connection, also in the middle of a message."""
        searched = 0
        while (at := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LONGEST:
                raise SessionError(f"a message has at most {LONGEST} bytes")
            if not self._more():
                return None
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 1]
        try:
            return msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise SessionError(f"a message cannot be read: {error}") from None

    def receive_bytes(self, size: int) -> bytes:
        """The next so many bytes, as they are."""
        while len(self._buffer) < size:
            if not self._more():
                raise SessionError("the connection ended in the middle of a message")
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _more(self) -> bool:
        try:
            part = self.connection.recv(_CHUNK)
        except ConnectionError:
            return False
        self._buffer += part
        return bool(part)

    def gone(self) -> bool:
        """True if the other end has closed it."""
        try:
            if not select.select([self.connection], [], [], 0)[0]:
                return False
            return not self.connection.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close it; who waits for a message at either end gets None."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a unix socket, as the kernel knows it."""
    size = struct.calcsize("3i")
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", found)[1])
