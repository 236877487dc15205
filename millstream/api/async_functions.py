"""Asynchronous I/O: functions that ask something outside and wait for many answers at once (Flink's `AsyncFunction`,
`AsyncRetryStrategy` and `AsyncRetryPredicate`).

Contracts and the three strategies that come with them; `millstream.runtime.operators.async_io` runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.api.functions import Function
from millstream.errors import InvalidArgument

__all__ = [
    "NO_RETRY_STRATEGY",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

IN = TypeVar("IN")
OUT = TypeVar("OUT")
ResultPredicate = Callable[[Any], bool]
ExceptionPredicate = Callable[[Exception], bool]


class AsyncFunction(Function, Generic[IN, OUT]):
    """For `AsyncDataStream`: asks something outside for each record, without waiting for one answer before it asks for
    the next.

    All calls of a subtask share one event loop. `open` and `close` run in it as well, so clients and pools may be made
    there; either may be a coroutine.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for a record, as a list."""

    def timeout(self, value: IN) -> list[OUT]:
        """The results for a record whose answer did not come in time; by default the job fails."""
        msg = f"no answer in time for {value!r}"
        raise TimeoutError(msg)


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Which outcomes of a call are reason to ask again."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Says yes to a result that is not good enough; None if every result is."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """Says yes to an exception that may pass; None if none does."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Whether, and after how long, a request is made again. Attempts are counted from 1, the first call."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """True if there may be another attempt after so many."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """How long to wait before the next attempt, after so many."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Which outcomes are reason to ask again."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """One attempt for each record.

        >>> AsyncRetryStrategy.no_restart().can_retry(1)
        False
        """
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy[Any]:
        """Up to `max_attempts` more attempts, with the same pause before each.

        >>> strategy = AsyncRetryStrategy.fixed_delay(2, 100, lambda result: not result, None)
        >>> [strategy.can_retry(attempts) for attempts in (1, 2, 3)]
        [True, True, False]
        """
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy[Any]:
        """Up to `max_attempts` more attempts, with a pause that grows from one to the next.

        >>> strategy = AsyncRetryStrategy.exponential_backoff(5, 100, 500, 2.0, None, None)
        >>> [strategy.get_backoff_time_millis(attempts) for attempts in (1, 2, 3, 4)]
        [100, 200, 400, 500]
        """
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[Any]):
    """Two functions as a predicate."""

    def __init__(
        self,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        for name, given in (("result", result_predicate), ("exception", exception_predicate)):
            if given is not None and not callable(given):
                msg = f"{name}_predicate must be a function, or None"
                raise InvalidArgument(msg, got=repr(given))
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[Any]):
    """One attempt for each record, and no other."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return RetryPredicate(None, None)


NO_RETRY_STRATEGY: AsyncRetryStrategy[Any] = NoRetryStrategy()


class _LimitedRetryStrategy(AsyncRetryStrategy[Any]):
    """So many attempts beyond the first one."""

    def __init__(
        self,
        max_attempts: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._max_attempts: int = _positive("max_attempts", max_attempts)
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return self._predicate


class FixedDelayRetryStrategy(_LimitedRetryStrategy):
    """The same pause before each attempt."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._backoff: int = _positive("backoff_time_millis", backoff_time_millis)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff


class ExponentialBackoffDelayRetryStrategy(_LimitedRetryStrategy):
    """A pause that grows by a factor from attempt to attempt, up to a limit."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._initial: int = _positive("initial_delay", initial_delay)
        self._most: int = _positive("max_retry_delay", max_retry_delay)
        self._multiplier: float = _positive("multiplier", multiplier, fraction=True)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        # Worked out from the attempt alone: the requests of many records share this object.
        delay: float = self._initial
        for _ in range(current_attempts - 1):
            delay *= self._multiplier
            if delay >= self._most or delay < 1:
                break
        return int(min(delay, self._most))


def _positive(name: str, value: Any, *, fraction: bool = False) -> Any:
    kinds = int | float if fraction else int
    if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
        msg = f"{name} must be a {'number' if fraction else 'whole number'} above 0"
        raise InvalidArgument(msg, got=repr(value))
    return value
