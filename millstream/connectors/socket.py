"""Lines of text from a TCP connection (Flink's `SocketTextStreamFunction`). For trying things out.

The driver is the client; the server sends lines. Nobody keeps them, so what the driver had read is
lost with it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.connectors.buffered import CAPACITY, BufferedEnumerator, DriverOnlyReader
from millstream.errors import InvalidArgument, SourceError
from millstream.redaction import get_logger
from millstream.runtime.base.text import shorten

__all__ = ["SocketTextSource"]

_CONNECT_SECONDS = 5.0
_POLL_SECONDS = 0.1
_RETRY_SECONDS = 0.5
_READ_BYTES = 1 << 16
MAX_LINE_BYTES = 16 << 20

_log = get_logger(__name__)


class SocketTextSource(Source):
    """The texts between delimiters that a server sends, until it closes the connection.

    A lost or closed connection is opened again up to `max_retry` times, -1 for ever. With the
    delimiter "\\n" a line may also end in "\\r\\n". Bytes that are not UTF-8 become U+FFFD, as in
    Java. A line of more than `max_line_bytes` ends the job.

    >>> SocketTextSource("localhost", 9999).boundedness().name
    'CONTINUOUS_UNBOUNDED'
    """

    def __init__(
        self,
        host: str,
        port: int,
        delimiter: str = "\n",
        max_retry: int = 0,
        *,
        buffer_size: int = CAPACITY,
        retry_seconds: float = _RETRY_SECONDS,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        if not isinstance(port, int) or not 0 < port < 65536:
            raise InvalidArgument("a port is a number from 1 to 65535", got=port)
        if not delimiter:
            raise InvalidArgument("the delimiter must not be empty")
        if max_retry < -1:
            raise InvalidArgument("max_retry is 0 or more, or -1 for ever", got=max_retry)
        if buffer_size < 1:
            raise InvalidArgument("the buffer must hold 1 line or more", got=buffer_size)
        if max_line_bytes < 1:
            raise InvalidArgument("a line must have room for 1 byte or more", got=max_line_bytes)
        self.max_line_bytes = max_line_bytes
        self.host = host
        self.port = port
        self.delimiter = delimiter
        self.max_retry = max_retry
        self.buffer_size = buffer_size
        self.retry_seconds = retry_seconds

    def reads_again(self) -> bool:
        """Nobody keeps what has come."""
        return False

    def boundedness(self) -> Boundedness:
        """Unbounded, although the server may end it."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """The client; it connects when the job starts."""
        return _SocketClient(self)

    def create_reader(self) -> SourceReader:
        """Nothing: lines come with their epoch."""
        return DriverOnlyReader()

    def keeps_records(self) -> bool:
        """Texts cannot be changed."""
        return False

    def max_parallelism(self) -> int:
        """One: there is one connection."""
        return 1


class _SocketClient(BufferedEnumerator):
    def __init__(self, source: SocketTextSource) -> None:
        super().__init__(f"{source.host}:{source.port}", source.buffer_size)
        self._source = source
        self._delimiter = source.delimiter.encode()
        self._heard = False

    def run(self) -> None:
        """Connect and read; again after a connection has ended, as often as allowed."""
        source = self._source
        retries = 0
        closed_properly = False
        while True:
            try:
                self._heard = False
                for lines in self._connection():
                    self.emit_all(lines)
                closed_properly, failure = True, None
            except OSError as error:
                # A server that has said goodbye and does not answer any more is not a failure.
                closed_properly = closed_properly and not self._heard
                failure = error
            if source.max_retry != -1 and retries >= source.max_retry:
                break
            retries += 1
            _log.info("source %s: connection ended (%s), trying again", self._split, failure)
            self.pause(source.retry_seconds)
        if not closed_properly:
            raise SourceError(
                f"no connection to {self._split}: {failure}",
                server=self._split,
                retries=retries,
                hint=f"start the server first, for example: nc -lk {source.port}",
            ) from failure

    def _connection(self) -> Iterator[list[str]]:
        """Lists of lines of one connection."""
        address = self._source.host, self._source.port
        with socket.create_connection(address, _CONNECT_SECONDS) as connection:
            self._heard = True
            connection.settimeout(_POLL_SECONDS)
            rest = b""
            while not self.closing:
                try:
                    data = connection.recv(_READ_BYTES)
                except TimeoutError:
                    continue
                *lines, rest = (rest + data).split(self._delimiter)
                yield [self._text(line) for line in lines]
                if len(rest) > self._source.max_line_bytes:
                    raise self._endless(rest)
                if not data:
                    if rest:
                        yield [self._text(rest)]
                    return

    def _endless(self, rest: bytes) -> SourceError:
        """What would be kept in memory until there is no more."""
        return SourceError(
            f"{self._split} has sent {len(rest):,} bytes without a delimiter",
            server=self._split,
            delimiter=repr(self._source.delimiter),
            begins=shorten(rest[:60]),
            hint="check the delimiter, or raise max_line_bytes of the source",
        )

    def _text(self, line: bytes) -> str:
        if self._delimiter == b"\n":
            line = line.removesuffix(b"\r")
        return line.decode("utf-8", "replace")
