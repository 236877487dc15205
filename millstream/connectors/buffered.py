"""Sources whose records only the driver can get, and only once: a thread fills a buffer.

```
thread   emit ──▶ buffer ──▶ fetch    driver: the records go out with the epoch that reads them
                    └──────▶ commit   driver: dropped, which makes room for more
```

Records stay until their epoch is committed, so an epoch that fails can be run again. They do not
survive the driver. A full buffer blocks the thread: this is the back pressure.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from millstream.api.source import SourceReader, SplitEnumerator, SplitPosition
from millstream.errors import MillstreamError, SourceError, told
from millstream.redaction import get_logger

__all__ = ["BufferedEnumerator", "DriverOnlyReader", "Stopped"]

CAPACITY = 100_000
_JOIN_SECONDS = 5.0

_log = get_logger(__name__)


class Stopped(BaseException):
    """Ends the thread with the job; not an Exception, so that no user code swallows it."""


class BufferedEnumerator(SplitEnumerator):
    """One split whose positions count records; a subclass says in `run` where they come from.

    >>> class Three(BufferedEnumerator):
    ...     def run(self):
    ...         for letter in "abc":
    ...             self.emit(letter)
    >>> source = Three("demo")
    >>> source.restored({})
    >>> source.discover()
    ['demo']
    >>> source.join()
    >>> source.available("demo", 0), source.fetch("demo", 1, 3), source.finished("demo", 3)
    (3, ['b', 'c'], True)
    """

    def __init__(self, split: str, capacity: int = CAPACITY) -> None:
        self._split = split
        self._capacity = capacity
        self._records: deque[Any] = deque()
        self._first = 0
        self._ended = False
        self._closing = False
        self._error: MillstreamError | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    # -- the thread's half ------------------------------------------------------------------------

    @abstractmethod
    def run(self) -> None:
        """Call `emit` for every record; return at the end of the stream."""

    def failure(self, error: Exception) -> MillstreamError:
        """The error that the job fails with when `run` raises."""
        return SourceError(f"the source failed: {told(error)}")

    def emit(self, record: Any) -> None:
        """Hand over one record; waits while the buffer is full."""
        with self._changed:
            while len(self._records) >= self._capacity and not self._closing:
                self._changed.wait()
            if self._closing:
                raise Stopped
            self._records.append(record)

    def emit_all(self, records: Iterable[Any]) -> None:
        """Hand over several records, as many at a time as there is room for."""
        waiting = iter(records)
        while True:
            with self._changed:
                while len(self._records) >= self._capacity and not self._closing:
                    self._changed.wait()
                if self._closing:
                    raise Stopped
                before = len(self._records)
                self._records.extend(islice(waiting, self._capacity - before))
                if len(self._records) < self._capacity:
                    return

    @property
    def closing(self) -> bool:
        """True once the job is being stopped."""
        return self._closing

    def pause(self, seconds: float) -> None:
        """Sleep, but not longer than the job runs."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing, seconds)
        if self._closing:
            raise Stopped

    def _main(self) -> None:
        error: MillstreamError | None = None
        try:
            self.run()
        except Stopped:
            return
        except MillstreamError as raised:
            error = raised
        except Exception as raised:  # the driver's thread raises it again
            error = self.failure(raised)
        with self._changed:
            self._error = error
            self._ended = error is None

    # -- the driver's half ------------------------------------------------------------------------

    def restored(self, positions: dict[str, int]) -> None:
        """Count on from where the split was; what came before that is gone."""
        self._first, self._ended = SplitPosition.of(positions.get(self._split, 0))

    def discover(self) -> Sequence[str]:
        """The one split; starts the thread when first called."""
        if self._thread is None and not self._ended and not self._closing:
            self._thread = threading.Thread(
                target=self._main, name=f"millstream-source-{self._split}", daemon=True
            )
            self._thread.start()
        return [self._split]

    def available(self, split: str, position: int) -> int:
        """The number of records so far; raises if the thread has failed."""
        with self._changed:
            if self._error is not None:
                raise self._error
            return max(position, self._first + len(self._records))

    def finished(self, split: str, position: int) -> bool:
        """True if the stream has ended at this position."""
        with self._changed:
            return self._ended and position >= self._first + len(self._records)

    def fetch(self, split: str, start: int, end: int) -> list[Any]:
        """The records of a range, without those that went with an earlier driver."""
        with self._changed:
            if start < min(end, self._first):
                _log.warning(
                    "source %s: records %d to %d were lost with the driver that had read them",
                    split,
                    start,
                    min(end, self._first),
                )
            begin = max(0, start - self._first)
            return list(islice(self._records, begin, max(begin, end - self._first)))

    def commit(self, split: str, position: int) -> None:
        """Forget records that are done; this makes room for new ones."""
        with self._changed:
            for _ in range(min(position - self._first, len(self._records))):
                self._records.popleft()
                self._first += 1
            self._changed.notify_all()

    def waits_for_commit(self, split: str, position: int) -> bool:
        """True if the buffer is full, and read."""
        with self._changed:
            held = len(self._records)
            return held >= self._capacity and position >= self._first + held

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self.join(_JOIN_SECONDS)
        if self._thread is not None and self._thread.is_alive():
            _log.warning("source %s: its thread has not stopped and is left alone", self._split)


class DriverOnlyReader(SourceReader):
    """The reader of a source that only the driver reads: workers have nothing of it, as records come with their epoch.

    >>> DriverOnlyReader().read("demo", 0, 0)
    []
    """

    def read(self, split: str, start: int, end: int) -> list[Any]:
        """Only an empty range can be read here."""
        if start == end:
            return []
        raise SourceError(
            "the records of this source are only on the driver",
            split=split,
            hint="this is a defect: the driver did not send them with the epoch",
        )
