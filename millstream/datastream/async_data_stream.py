"""`AsyncDataStream`: asynchronous I/O on a stream (Flink's class of the same name)."""

from __future__ import annotations

import inspect
from typing import Any

from millstream.api.async_functions import NO_RETRY_STRATEGY, AsyncFunction, AsyncRetryStrategy
from millstream.common import options
from millstream.common.time import DurationLike, parse_duration
from millstream.datastream.data_stream import DataStream
from millstream.datastream.program import as_function
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph.operators import AsyncOp

__all__ = ["AsyncDataStream"]


class AsyncDataStream:
    """Ask something outside for every record of a stream, with many requests under way at once.

    >>> import asyncio
    >>> from millstream.common import Time
    >>> from millstream.datastream import AsyncFunction, StreamExecutionEnvironment
    >>> class Price(AsyncFunction):
    ...     async def async_invoke(self, value):
    ...         await asyncio.sleep(0.001)  # here: a request
    ...         return [(value, len(value) * 10)]
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> fruit = env.from_collection(["fig", "plum"])
    >>> list(AsyncDataStream.ordered_wait(fruit, Price(), Time.seconds(5)).execute_and_collect())
    [('fig', 30), ('plum', 40)]
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Results come as they are answered, but never on the other side of a watermark.

        A subtask has at most `capacity` requests under way. A record that is not answered within `timeout` gets
        the result of `AsyncFunction.timeout`.
        """
        return _wait(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, False
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As `unordered_wait`; what failed is asked again as the strategy says, within the one `timeout`."""
        return _wait(
            data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, False
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """Results come in the order of their records; those that are there wait for those before them."""
        return _wait(
            data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type, True
        )

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream:
        """As `ordered_wait`; what failed is asked again as the strategy says, within the one `timeout`."""
        return _wait(
            data_stream, async_function, timeout, async_retry_strategy, capacity, output_type, True
        )


def _wait(
    stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: DurationLike,
    retry: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: Any,
    ordered: bool,
) -> DataStream:
    call = "AsyncDataStream"
    if not isinstance(stream, DataStream):
        raise InvalidArgument(f"{call} takes a stream first", got=type(stream).__name__)
    function = as_function(call, function, AsyncFunction, plain=False)
    if not inspect.iscoroutinefunction(function.async_invoke):
        msg = f"async_invoke of {type(function).__name__} is not a coroutine"
        hint = "write `async def async_invoke(self, value)`, with `return` and no `yield`"
        raise InvalidArgument(msg, hint=hint)
    if inspect.iscoroutinefunction(function.timeout):
        msg = f"timeout of {type(function).__name__} is a coroutine"
        raise InvalidArgument(msg, hint="write `def timeout(self, value)`: it must not wait again")
    if options.get(stream._env.get_configuration(), options.PYTHON_MODE) == "thread":
        msg = "AsyncFunction is still not supported for 'thread' mode."
        raise UnsupportedOperation(msg, hint=f"leave {options.PYTHON_MODE.key} out")
    timeout_ms = parse_duration(timeout)
    if timeout_ms <= 0:
        raise InvalidArgument("the timeout of a request must be above 0", got=f"{timeout_ms} ms")
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        msg = "capacity is the number of requests under way at once, 1 or more"
        raise InvalidArgument(msg, got=repr(capacity))
    if not isinstance(retry, AsyncRetryStrategy):
        msg = f"{call} needs an AsyncRetryStrategy"
        hint = "for example AsyncRetryStrategy.fixed_delay(3, 100, None, has_exception_predicate)"
        raise InvalidArgument(msg, got=type(retry).__name__, hint=hint)
    operator = AsyncOp(function, ordered, timeout_ms, capacity, retry)
    return stream._apply("AsyncWait", operator, output_type)
