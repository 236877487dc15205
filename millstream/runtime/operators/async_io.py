"""Asynchronous I/O in a chain (Flink's `AsyncWaitOperator`).

A subtask's requests run in an event loop of its own, which is driven by the task's thread: a record costs no hand-over
between threads, and results are emitted where nothing else runs.

```
process      start a request; first, if `capacity` are under way, run the loop until there is room
poll         after each chunk, and between records that take long: one turn of the loop
advance      a watermark: wait for all that is under way, so that no result crosses it (rule 59)
settle       the end of a split or of an epoch: the same, so that a checkpoint holds no half-done request
```

What an attempt asked before it failed is forgotten with it: the epoch is replayed, its requests are made again, and
each record has its results in the output once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any

from millstream.api.async_functions import AsyncFunction
from millstream.common.constants import NO_TIME
from millstream.errors import MillstreamError, UserFunctionError, told
from millstream.graph.operators import AsyncOp
from millstream.runtime.base.text import shorten
from millstream.runtime.base.user_lines import user_line, user_traceback
from millstream.runtime.codegen.bad_records import BadRecords, Cursor
from millstream.runtime.operators.async_calls import AsyncFunctionHolder
from millstream.runtime.state.copying import own

__all__ = [
    "AsyncIO",
]

# Between records the loop gets a turn if it has not had one for so long, in seconds.
_POLL_AFTER = 0.002
# While other records keep the thread busy for longer, no request can make progress, and its time does not run.
_LONGEST_GAP = 0.05


class _Request:
    """A record, and what has become of it."""

    __slots__ = (
        "attempts",
        "came",
        "deadline",
        "done",
        "error",
        "given_up",
        "place",
        "result",
        "task",
        "timestamp",
        "value",
    )

    def __init__(
        self, value: Any, timestamp: int, place: tuple[str, int] | None, deadline: float
    ) -> None:
        self.value = value
        # For a letter: the record as it came, whatever the function does to it.
        self.came = value
        self.timestamp = timestamp
        self.place = place
        self.deadline = deadline
        self.attempts = 1
        self.done = False
        self.given_up = False
        self.result: list[Any] = []
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None


class AsyncIO:
    """One subtask's requests."""

    def __init__(
        self,
        op: AsyncOp,
        name: str,
        holder: AsyncFunctionHolder,
        emit: Callable[[Any, int], None],
        cursor: Cursor | None,
        bad: BadRecords | None = None,
        emit_letter: Callable[[Any, int], None] | None = None,
        fit: Callable[[Any], Any] | None = None,
        *,
        reuse: bool = False,
    ) -> None:
        self.watermark = NO_TIME
        self._name = name
        self._function: AsyncFunction[Any, Any] = op.function
        self._ordered = op.ordered
        self._capacity = op.capacity
        self._timeout = op.timeout_ms / 1000
        self._holder = holder
        self._emit_one = emit
        self._cursor = cursor
        self._bad = bad
        self._emit_letter = emit_letter
        self._fit = fit
        self._reuse = reuse
        self._strategy = op.retry
        predicate = op.retry.get_retry_predicate()
        self._poor = predicate.result_predicate()
        self._passing = predicate.exception_predicate()
        self._retries = self._poor is not None or self._passing is not None
        # All that has not been emitted, in the order of the records and so of the deadlines.
        self._open: OrderedDict[_Request, None] = OrderedDict()
        self._running = 0
        # Without order: what is done and has not been emitted.
        self._done: deque[_Request] = deque()
        # With order: the request whose end makes room.
        self._head: _Request | None = None
        self._wait_for_all = False
        self._failed: _Request | None = None
        # Requests that came too late and have not noticed yet.
        self._leaving: set[asyncio.Task[None]] = set()
        # The time that counts for deadlines, and when the loop last had its turn.
        self._clock = 0.0
        self._left = monotonic()
        holder.on_close = self._give_up

    # -- from the chain -------------------------------------------------------------------------------------

    def process(self, value: Any, timestamp: int) -> None:
        """Begin the request for a record, once there is room for it."""
        if self._bad is not None:
            self._bad.seen += 1
        while len(self._open) >= self._capacity:
            self._wait()
        gap = monotonic() - self._left
        cursor = self._cursor
        request = _Request(
            value,
            timestamp,
            None if cursor is None else cursor.place(),
            self._clock + min(gap, _LONGEST_GAP) + self._timeout,
        )
        if self._emit_letter is not None and not self._reuse:
            request.came = own(value)
        self._open[request] = None
        self._running += 1
        request.task = self._holder.loop.create_task(self._ask(request))
        if gap > _POLL_AFTER:
            self.poll()

    def poll(self, _: int = 0) -> None:
        """One turn of the loop, without waiting for anything."""
        if self._open:
            self._run(None)

    def settle(self, _: int = 0) -> None:
        """Wait for everything that is under way."""
        self._wait_for_all = True
        while self._open:
            self._wait()
        self._wait_for_all = False

    def advance(self, watermark: int) -> None:
        """Results of records from before a watermark go before it."""
        self.settle()
        self.watermark = watermark

    # -- the loop -------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Run the loop until there is something to emit, or a request is out of time."""
        head = next(iter(self._open))
        self._head = head
        self._run(head.deadline)
        self._head = None

    def _run(self, deadline: float | None) -> None:
        loop = self._holder.loop
        entered = monotonic()
        self._clock += min(entered - self._left, _LONGEST_GAP)
        alarm: asyncio.TimerHandle | None = None
        if deadline is None:
            # Stopped before it starts, a loop makes one turn.
            loop.stop()
        else:
            alarm = loop.call_later(max(0.0, deadline - self._clock), loop.stop)
        try:
            loop.run_forever()
        finally:
            if alarm is not None:
                alarm.cancel()
            self._left = monotonic()
            self._clock += self._left - entered
        self._end_late_ones()
        if self._failed is not None:
            raise self._explained(self._failed) from self._failed.error
        self._emit_done()

    async def _ask(self, request: _Request) -> None:
        """The task of a request."""
        try:
            if self._retries:
                result = await self._ask_again(request)
            else:
                result = await self._function.async_invoke(request.value)
            request.result = self._checked(result, "async_invoke")
        except asyncio.CancelledError as error:
            if request.given_up:
                raise
            request.error = error
        except Exception as error:
            request.error = error
        if not request.given_up:
            self._end(request)
            if self._is_awaited(request):
                self._holder.loop.stop()

    async def _ask_again(self, request: _Request) -> Any:
        while True:
            result: Any = None
            failure: Exception | None = None
            try:
                result = await self._function.async_invoke(request.value)
            except Exception as error:
                failure = error
            if failure is not None:
                again = self._passing is not None and self._passing(failure)
            else:
                # What is not a list is the program's mistake, which no other attempt mends.
                fit = result is None or isinstance(result, list | tuple)
                again = fit and self._poor is not None and self._poor(result)
            if not again or not self._strategy.can_retry(request.attempts):
                if failure is not None:
                    raise failure
                return result
            pause = self._strategy.get_backoff_time_millis(request.attempts)
            await asyncio.sleep(max(0, pause) / 1000)
            request.attempts += 1

    def _end(self, request: _Request) -> None:
        """A request has its result, or has failed."""
        request.done = True
        self._running -= 1
        if not self._ordered:
            self._done.append(request)
        if request.error is not None and self._bad is None and self._failed is None:
            self._failed = request

    def _is_awaited(self, request: _Request) -> bool:
        if self._failed is not None or not self._running:
            return True
        return not self._wait_for_all and (not self._ordered or request is self._head)

    def _end_late_ones(self) -> None:
        late = []
        for request in self._open:
            if request.deadline > self._clock:
                break
            if not request.done:
                late.append(request)
        for request in late:
            assert request.task is not None
            request.given_up = True
            request.task.cancel()
            self._leaving.add(request.task)
            request.task.add_done_callback(self._leaving.discard)
            try:
                request.result = self._timed_out(request)
            except Exception as error:
                request.error = error
            self._end(request)

    def _timed_out(self, request: _Request) -> list[Any]:
        if type(self._function).timeout is AsyncFunction.timeout:
            raise UserFunctionError(
                f"the function of '{self._name}' gave no answer within {self._timeout:g} s",
                hint="raise the timeout, lower the capacity, or let timeout(value) give a result",
            )
        return self._checked(self._function.timeout(request.value), "timeout")

    def _checked(self, result: Any, method: str) -> list[Any]:
        # A text is taken for one result that was meant, not for its letters.
        if isinstance(result, Iterable) and not isinstance(result, str | bytes | bytearray):
            if self._fit is not None:
                return list(map(self._fit, result))
            return result if isinstance(result, list) else list(result)
        what = "cannot be none" if result is None else "should be of list type"
        raise UserFunctionError(
            f"The result of AsyncFunction {what}, please check the methods 'async_invoke' and 'timeout' of class "
            f"'{type(self._function)}'.",
            returned=f"{type(result).__name__}, by {method}",
            hint="return a list of results, [] for none",
        )

    def _give_up(self) -> list[asyncio.Task[None]]:
        """Cancel everything that is under way."""
        tasks = list(self._leaving)
        for request in self._open:
            request.given_up = True
            if request.task is not None and not request.task.done():
                request.task.cancel()
                tasks.append(request.task)
        self._open.clear()
        self._done.clear()
        return tasks

    # -- results --------------------------------------------------------------------------------------------

    def _emit_done(self) -> None:
        waiting = self._open
        if not self._ordered:
            while self._done:
                request = self._done.popleft()
                del waiting[request]
                self._hand_on(request)
            return
        while waiting:
            request = next(iter(waiting))
            if not request.done:
                return
            del waiting[request]
            self._hand_on(request)

    def _hand_on(self, request: _Request) -> None:
        if request.error is None:
            emit, timestamp = self._emit_one, request.timestamp
            for result in request.result:
                emit(result, timestamp)
            return
        assert self._bad is not None
        error = request.error
        letter = self._bad.take(
            error if isinstance(error, Exception) else self._explained(request), request.came
        )
        if self._emit_letter is not None:
            if request.place is not None:
                letter = letter._replace(source=request.place[0], position=request.place[1])
            self._emit_letter(letter, request.timestamp)

    def _explained(self, request: _Request) -> MillstreamError:
        """The error for a request, which is seldom the one of the record at hand."""
        error = request.error
        assert error is not None
        facts: dict[str, Any] = {
            "operator": self._name,
            "line": user_line(error.__traceback__),
            "record": shorten(request.value),
            "attempts": request.attempts if request.attempts > 1 else None,
            "position": (
                "the operator does not read its input directly"
                if request.place is None
                else f"{request.place[0]}, record {request.place[1]}"
            ),
        }
        if isinstance(error, MillstreamError):
            return type(error)(error.what, hint=error.hint, **{**facts, **error.evidence})
        return UserFunctionError(
            f"the function of '{self._name}' raised {told(error)}",
            **facts,
            traceback=user_traceback(error, error.__traceback__),
        )
