"""`CompletableFuture`: a result that is not there yet.

What the asynchronous calls of a `JobClient` return. Answers to Java's `CompletableFuture`; unlike
PyFlink's it belongs to no event loop, so any thread may complete it and any thread may wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

from millstream.errors import MillstreamError, shortly

__all__ = ["CompletableFuture"]

T = TypeVar("T")
"""The type of the result."""


class CompletableFuture(Generic[T]):
    """A result to come, over `concurrent.futures.Future`.

    >>> future = CompletableFuture()
    >>> future.done()
    False
    >>> future.set_result(5)
    True
    >>> future.result()
    5
    """

    def __init__(self, future: Future[T] | None = None) -> None:
        self._future: Future[T] = Future() if future is None else future

    def cancel(self) -> bool:
        """Give the result up; False if it is there already or being worked on.

        >>> CompletableFuture().cancel()
        True
        """
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Whether the future was given up.

        >>> CompletableFuture().cancelled()
        False
        """
        return self._future.cancelled()

    def done(self) -> bool:
        """Whether there is a result, an error, or neither because it was given up.

        >>> CompletableFuture().done()
        False
        """
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result; raises the error if there is one instead.

        >>> future = CompletableFuture()
        >>> _ = future.set_exception(ValueError("no"))
        >>> future.result()
        Traceback (most recent call last):
        ValueError: no
        """
        try:
            return self._future.result(timeout)
        except MillstreamError as error:
            raise shortly(error) from error.__cause__

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; the error, or None if all went well.

        >>> future = CompletableFuture()
        >>> _ = future.set_result(1)
        >>> future.exception() is None
        True
        """
        return self._future.exception(timeout)

    def set_result(self, result: T) -> bool:
        """Complete the future; False if somebody else was first.

        >>> future = CompletableFuture()
        >>> future.set_result(1), future.set_result(2), future.result()
        (True, False, 1)
        """
        try:
            self._future.set_result(result)
        except InvalidStateError:
            return False
        return True

    def set_exception(self, exception: BaseException) -> bool:
        """Complete the future with an error; False if somebody else was first.

        >>> CompletableFuture().set_exception(ValueError())
        True
        """
        try:
            self._future.set_exception(exception)
        except InvalidStateError:
            return False
        return True

    def add_done_callback(self, callback: Callable[[CompletableFuture[T]], Any]) -> None:
        """Call a function when the future is done; at once if it is.

        >>> future = CompletableFuture()
        >>> future.add_done_callback(lambda done: print("got", done.result()))
        >>> _ = future.set_result(1)
        got 1
        """
        self._future.add_done_callback(lambda _: callback(self))

    def __repr__(self) -> str:
        if self.cancelled():
            state = "cancelled"
        elif not self.done():
            state = "not done"
        else:
            state = "failed" if self.exception() else "done"
        return f"<CompletableFuture {state}>"
