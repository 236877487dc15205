"""Runs a `SourceFunction` in a thread of the driver (Flink's `StreamSource` operator)."""

from __future__ import annotations

import traceback
from typing import Any

import cloudpickle

from millstream.api.functions import RuntimeContext, SourceFunction
from millstream.api.source import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
    Timestamped,
    Watermark,
)
from millstream.connectors.buffered import CAPACITY, BufferedEnumerator, DriverOnlyReader
from millstream.errors import FunctionNotSerializable, InvalidArgument, SourceError, told
from millstream.redaction import get_logger
from millstream.runtime.state.copying import own

__all__ = ["SourceFunctionSource"]

_log = get_logger(__name__)


class SourceFunctionSource(Source):
    """What a `SourceFunction` emits. Each run works on a copy of the function, as subtasks do.

    >>> class Numbers(SourceFunction):
    ...     def run(self, ctx):
    ...         for number in range(3):
    ...             ctx.collect(number)
    ...
    ...     def cancel(self):
    ...         pass
    >>> source = SourceFunctionSource(Numbers()).create_enumerator(1)
    >>> source.restored({})
    >>> (split,) = source.discover()
    >>> source.join()
    >>> source.fetch(split, 0, 3)
    [0, 1, 2]
    """

    def __init__(
        self, function: SourceFunction, name: str | None = None, *, buffer_size: int = CAPACITY
    ) -> None:
        if not isinstance(function, SourceFunction):
            raise InvalidArgument("this is not a SourceFunction", got=type(function).__name__)
        if buffer_size < 1:
            raise InvalidArgument("the buffer must hold 1 record or more", got=buffer_size)
        self._function = function
        self._name = name or type(function).__name__
        self._buffer_size = buffer_size

    def reads_again(self) -> bool:
        """Nobody keeps what has come."""
        return False

    def boundedness(self) -> Boundedness:
        """Unbounded: nobody knows whether `run` will return."""
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """A thread with a copy of the function."""
        try:
            copy: SourceFunction = cloudpickle.loads(cloudpickle.dumps(self._function))
        except Exception as error:
            raise FunctionNotSerializable(
                f"the source function '{self._name}' cannot be copied: {error}",
                hint="create locks, connections and files in run(), not in __init__()",
            ) from error
        return _FunctionThread(copy, self._name, self._buffer_size)

    def create_reader(self) -> SourceReader:
        """Nothing: records come with their epoch."""
        return DriverOnlyReader()

    def stamped(self) -> bool:
        """Always: nobody knows whether `run` will emit with timestamps."""
        return True

    def max_parallelism(self) -> int:
        """One: the function runs once."""
        return 1


class _FunctionThread(BufferedEnumerator):
    def __init__(self, function: SourceFunction, name: str, capacity: int) -> None:
        super().__init__("function", capacity)
        self._function = function
        self._name = name

    def run(self) -> None:
        self._function.open(RuntimeContext(self._name, 0, 1, 1))
        try:
            self._function.run(_Context(self))
        finally:
            self._function.close()

    def failure(self, error: Exception) -> SourceError:
        # The first frames are this module's.
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        frames = [frame for frame in own if not frame.filename.endswith("connectors/buffered.py")]
        text = traceback.format_list(frames) + traceback.format_exception_only(error)
        return SourceError(
            f"the source function '{self._name}' raised {told(error)}",
            traceback="".join(text),
        )

    def close(self) -> None:
        try:
            self._function.cancel()
        except Exception:  # the thread is stopped all the same
            _log.warning("cancel() of the source function '%s' raised", self._name, exc_info=True)
        super().close()


class _Context(SourceFunction.SourceContext):
    def __init__(self, thread: _FunctionThread) -> None:
        self._thread = thread

    def collect(self, element: Any) -> None:
        # Copied here: the function may change it before the epoch is planned that takes it.
        self._thread.emit(own(element))

    def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
        self._thread.emit(Timestamped(own(element), timestamp))

    def emit_watermark(self, watermark: int) -> None:
        self._thread.emit(Watermark(watermark))

    def is_running(self) -> bool:
        return not self._thread.closing
