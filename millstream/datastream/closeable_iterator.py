"""`CloseableIterator`: the results of `execute_and_collect`, as they come."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic

from millstream.api.generics import T
from millstream.datastream.notebook import iterator_html
from millstream.datastream.what_stays import what_stays
from millstream.errors import MillstreamError, shortly
from millstream.runtime.driver.run import JobRun

__all__ = ["CloseableIterator", "ResultQueue"]

_END = object()


class ResultQueue:
    """Takes records from the driver's thread; bounded, so that a slow reader slows the job."""

    def __init__(self, size: int = 64) -> None:
        self._queue: queue.Queue[Any] = queue.Queue(size)
        self._closed = False

    def put(self, records: list[Any]) -> None:
        """Add records; waits while the reader is behind, gives up once it has closed."""
        while not self._closed:
            try:
                self._queue.put(records, timeout=0.1)
                return
            except queue.Full:
                continue

    def finish(self) -> None:
        """No more records will come."""
        self.put([_END])

    def get(self) -> list[Any]:
        """The next records. Waits in short steps, so that Ctrl-C is heard."""
        while not self._closed:
            try:
                records: list[Any] = self._queue.get(timeout=0.1)
                return records
            except queue.Empty:
                continue
        return []

    def close(self) -> None:
        """The reader has left."""
        self._closed = True


class CloseableIterator(Generic[T]):
    """Iterate over results; leaving the `with` block or calling `close` cancels the job if it still runs."""

    def __init__(self, run: JobRun, results: ResultQueue, limit: int | None = None) -> None:
        self._run = run
        self._results = results
        self._left = limit
        self._at_hand: Iterator[Any] = iter(())
        self._ended = False

    def __iter__(self) -> CloseableIterator[T]:
        return self

    def __next__(self) -> T:
        if self._left is not None and self._left <= 0:
            self.close()
        while not self._ended:
            for record in self._at_hand:
                if record is _END:
                    self._ended = True
                    self._result()
                    raise StopIteration
                if self._left is not None:
                    self._left -= 1
                element: T = record
                return element
            try:
                self._at_hand = iter(self._results.get())
            except KeyboardInterrupt:
                self.close()
                raise KeyboardInterrupt(what_stays(self._run)) from None
        raise StopIteration

    def _result(self) -> None:
        try:
            self._run.result()
        except MillstreamError as error:
            raise shortly(error) from error.__cause__

    def next(self) -> T:
        """The next record."""
        return next(self)

    def _repr_html_(self) -> str:
        return iterator_html(self)

    def close(self) -> None:
        """Stop reading, and the job with it."""
        self._ended = True
        self._results.close()
        if not self._run.done:
            self._run.cancel()

    def __enter__(self) -> CloseableIterator[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
