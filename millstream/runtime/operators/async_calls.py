"""The event loop of one `AsyncFunction`, and the function's life in it.

`open` and `close` are called while the loop runs: clients, sessions and pools can be made where a program makes them,
and either method may be a coroutine.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from millstream.api.async_functions import AsyncFunction
from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.functions import Function, RuntimeContext
from millstream.redaction import get_logger

__all__ = ["AsyncFunctionHolder", "holder_of"]

_log = get_logger(__name__)

# How long requests that were cancelled may take to end, in seconds.
_PATIENCE = 5.0


class AsyncFunctionHolder(Function):
    """What the chain opens and closes in the place of the user's function."""

    def __init__(self, function: AsyncFunction[Any, Any]) -> None:
        self._function = function
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_close: Callable[[], list[asyncio.Task[None]]] = list

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of an opened function."""
        assert self._loop is not None
        return self._loop

    def open(self, runtime_context: RuntimeContext) -> None:
        """Make the loop; open the function in it."""
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(_called(self._function.open, runtime_context))
        except BaseException:
            self._end_loop()
            raise

    def close(self) -> None:
        """Cancel what is under way, close the function, end the loop."""
        if self._loop is None:
            return
        try:
            stuck = _end_tasks(self._loop, self.on_close())
            closing = self._loop.create_task(_called(self._function.close))
            if stuck:
                # They do not let themselves be cancelled; a `close` that waits for them must not wait for ever.
                _log.warning(
                    "%d requests go on although they were cancelled: %s", len(stuck), stuck
                )
                self._loop.run_until_complete(asyncio.wait([closing], timeout=_PATIENCE))
            else:
                self._loop.run_until_complete(closing)
            if closing.done():
                closing.result()
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        loop, self._loop = self._loop, None
        assert loop is not None
        try:
            # What the function itself left running. Those that were cancelled before have had their time.
            _end_tasks(loop, [task for task in asyncio.all_tasks(loop) if not task.cancelling()])
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class _CheckpointedHolder(AsyncFunctionHolder, CheckpointedFunction):
    """For a function that has operator state as well."""

    def initialize_state(self, context: Any) -> None:
        self._function.initialize_state(context)  # type: ignore[attr-defined]

    def snapshot_state(self, context: Any) -> None:
        self._function.snapshot_state(context)  # type: ignore[attr-defined]


def holder_of(function: AsyncFunction[Any, Any]) -> AsyncFunctionHolder:
    """The holder that fits a function."""
    fitting = (
        _CheckpointedHolder if isinstance(function, CheckpointedFunction) else AsyncFunctionHolder
    )
    return fitting(function)


async def _called(method: Callable[..., Any], *arguments: Any) -> None:
    result = method(*arguments)
    if inspect.isawaitable(result):
        await result


def _end_tasks(
    loop: asyncio.AbstractEventLoop, tasks: list[asyncio.Task[Any]]
) -> list[asyncio.Task[Any]]:
    """Cancel tasks and wait for them; those that go on all the same."""
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
        for task in tasks:
            if task.done() and not task.cancelled():
                # Looked at, so that nobody complains that it was not.
                task.exception()
    return [task for task in tasks if not task.done()]
