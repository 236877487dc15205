"""`JoinedStreams` and `CoGroupedStreams`: records of two streams with equal keys in one window (Flink's classes of the
same names; PyFlink has neither).

```
orders.join(prices).where(0).equal_to(0).window(assigner).apply(function)
```

Nothing exists before `apply` names the function: then both streams are keyed and go into one window operator, whose
windows hold pairs ``(0 or 1 for the stream, record)``, Flink's `TaggedUnion`. These pairs are what an assigner, a
trigger or an evictor sees, and what late records come as.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.evictor import Evictor
from millstream.api.functions import Function, RuntimeContext
from millstream.api.join_functions import CoGroupFunction, FlatJoinFunction, JoinFunction
from millstream.api.output_tag import OutputTag
from millstream.api.trigger import Trigger
from millstream.api.window_functions import WindowFunction
from millstream.common.guesses import Guesses
from millstream.common.time import DurationLike
from millstream.datastream.data_stream import DataStream
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.program import as_function, as_key
from millstream.datastream.windowed_stream import WindowedStream
from millstream.errors import InvalidArgument
from millstream.graph import operators as ops
from millstream.graph.operators import Key

__all__ = ["CoGroupedStreams", "JoinedStreams"]

Results = Callable[[Callable[..., Any], list[Any], list[Any]], Iterable[Any] | None]
"""What makes the results of a window: of the user's function and the records of either stream."""


class _WithWindow(Guesses):
    """Two keyed streams cut into windows."""

    def __init__(self, first: KeyedStream, second: KeyedStream, window_assigner: Any) -> None:
        self._first = first
        self._second = second
        # It checks and notes what is said about the windows.
        self._windows = WindowedStream(first, window_assigner)

    def trigger(self: With, trigger: Trigger[Any, Any]) -> With:
        """When results are due, in the place of the assigner's own trigger."""
        self._windows.trigger(trigger)
        return self

    def evictor(self: With, evictor: Evictor[Any, Any]) -> With:
        """Take records out of windows before or after the function."""
        self._windows.evictor(evictor)
        return self

    def allowed_lateness(self: With, time_ms: DurationLike) -> With:
        """How long after its end a window is kept for late records; each of them makes it fire again."""
        self._windows.allowed_lateness(time_ms)
        return self

    def side_output_late_data(self: With, output_tag: OutputTag) -> With:
        """Where records go that are too late for all their windows, as pairs (0 or 1 for the stream, record)."""
        self._windows.side_output_late_data(output_tag)
        return self

    def _build(
        self, name: str, function: Any, call: Any, results: Results, output_type: Any
    ) -> DataStream:
        windows, first, second = self._windows, self._first, self._second
        sides = _RememberingSides if isinstance(function, CheckpointedFunction) else _Sides
        trigger = windows._chosen_trigger()
        operator = ops.WindowJoinOp(
            first._key,
            assigner=windows._assigner,
            trigger=trigger,
            evictor=windows._evictor,
            lateness=windows._lateness,
            late_tag=None if windows._late_tag is None else windows._late_tag.tag_id,
            kind="list",
            incremental=None,
            function=sides(function, call, results),
            all_windows=False,
            second=second._key,
        )
        inputs = first._transformation, second._transformation
        result = first._apply(name, operator, output_type, inputs)
        parts = (windows._assigner, trigger, windows._evictor)
        told = [repr(part) for part in parts if part is not None]
        told.append(str(getattr(function, "__name__", type(function).__name__)))
        return result.set_description(f"{name}({', '.join(told)})")


With = TypeVar("With", bound=_WithWindow)


class _JoinedWindows(_WithWindow):
    def apply(self, function: Any, output_type: Any = None) -> DataStream:
        """Make a result of each pair of records: by a `JoinFunction` or a callable, or any number of results by a
        `FlatJoinFunction`. They have the last timestamp of the window."""
        if isinstance(function, FlatJoinFunction):
            return self._build("Join", function, function.join, _flat_joined, output_type)
        joining = as_function("apply", function, JoinFunction)
        call = joining.join if isinstance(joining, JoinFunction) else joining
        return self._build("Join", joining, call, _joined, output_type)


class _CoGroupedWindows(_WithWindow):
    def apply(self, function: Any, output_type: Any = None) -> DataStream:
        """Make results of all records of a key's window, by a `CoGroupFunction` or a callable that is given both lists.
        They have the last timestamp of the window."""
        grouping = as_function("apply", function, CoGroupFunction)
        call = grouping.co_group if isinstance(grouping, CoGroupFunction) else grouping
        return self._build("Co-Group", grouping, call, _co_grouped, output_type)


class _EqualTo(Generic[With]):
    """Both streams have their keys; `window` says when records meet."""

    def __init__(self, first: KeyedStream, second: KeyedStream, kind: type[With]) -> None:
        self._streams = first, second
        self._kind = kind

    def window(self, window_assigner: Any) -> With:
        """Only records in the same window meet."""
        return self._kind(*self._streams, window_assigner)


class _Where(Generic[With]):
    """The first stream has its key; `equal_to` says what the second one's is."""

    def __init__(self, streams: tuple[DataStream, DataStream], key: Key, kind: type[With]) -> None:
        self._streams = streams
        self._key = key
        self._kind = kind

    def equal_to(self, key_selector: Any, key_type: Any = None) -> _EqualTo[With]:
        """The key of the second stream: a callable, a `KeySelector`, a field's name or its position."""
        where, equal = self._key, as_key(key_selector, key_type, "equal_to")
        declared = where.key_type or equal.key_type
        if equal.key_type not in (None, declared):
            msg = "the keys of the two streams have different types"
            hint = "records meet if their keys are equal: declare the same type for both, or none"
            raise InvalidArgument(
                msg, where=str(where.key_type), equal_to=str(equal.key_type), hint=hint
            )
        first, second = (
            KeyedStream(stream, Key(key.selector, key.field, declared, key.declared_at))
            for stream, key in zip(self._streams, (where, equal), strict=True)
        )
        return _EqualTo(first, second, self._kind)


class JoinedStreams(Guesses):
    """What `DataStream.join` gives: an inner join per key and window.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> from millstream.datastream.window import CountTrigger, GlobalWindows
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> orders = env.from_collection([("tea", 3), ("rye", 1)])
    >>> prices = env.from_collection([("rye", 5), ("tea", 2)])
    >>> both = orders.join(prices).where(0).equal_to(0).window(GlobalWindows.create())
    >>> totals = both.trigger(CountTrigger.of(2)).apply(lambda o, p: (o[0], o[1] * p[1]))
    >>> sorted(totals.execute_and_collect())
    [('rye', 5), ('tea', 6)]
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self._streams = _both("join", stream1, stream2)

    def where(self, key_selector: Any, key_type: Any = None) -> _Where[_JoinedWindows]:
        """The key of the first stream: a callable, a `KeySelector`, a field's name or its position."""
        return _Where(self._streams, as_key(key_selector, key_type, "where"), _JoinedWindows)


class CoGroupedStreams(Guesses):
    """What `DataStream.co_group` gives: all records of both streams with one key in one window.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> from millstream.datastream.window import CountTrigger, GlobalWindows
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> words = env.from_collection(["ant", "bee", "asp"])
    >>> letters = env.from_collection(["a", "b", "c"])
    >>> both = words.co_group(letters).where(lambda w: w[0]).equal_to(lambda x: x)
    >>> counts = (
    ...     both.window(GlobalWindows.create())
    ...     .trigger(CountTrigger.of(2))
    ...     .apply(lambda words, letters: [len(words) + len(letters)])
    ... )
    >>> list(counts.execute_and_collect())
    [2, 2]
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self._streams = _both("co_group", stream1, stream2)

    def where(self, key_selector: Any, key_type: Any = None) -> _Where[_CoGroupedWindows]:
        """The key of the first stream: a callable, a `KeySelector`, a field's name or its position."""
        return _Where(self._streams, as_key(key_selector, key_type, "where"), _CoGroupedWindows)


def _both(call: str, first: DataStream, second: Any) -> tuple[DataStream, DataStream]:
    if not isinstance(second, DataStream):
        raise InvalidArgument(f"{call} takes a stream", got=type(second).__name__)
    first._check_same_environment(call, second)
    return first, second


class _Sides(WindowFunction[Any, Any, Any, Any]):
    """Gives a window's records to the user's function, those of either stream by themselves."""

    def __init__(self, function: Any, call: Callable[..., Any], results: Results) -> None:
        self._function = function
        self._call = call
        self._results = results

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        first: list[Any] = []
        second: list[Any] = []
        for side, value in inputs:
            (second if side else first).append(value)
        return self._results(self._call, first, second)


class _RememberingSides(_Sides, CheckpointedFunction):
    """Sides for a function of the user's that has operator state."""

    def initialize_state(self, context: Any) -> None:
        self._function.initialize_state(context)

    def snapshot_state(self, context: Any) -> None:
        self._function.snapshot_state(context)


def _joined(call: Callable[..., Any], first: list[Any], second: list[Any]) -> Iterator[Any]:
    for left in first:
        for right in second:
            yield call(left, right)


def _flat_joined(call: Callable[..., Any], first: list[Any], second: list[Any]) -> Iterator[Any]:
    for left in first:
        for right in second:
            results = call(left, right)
            if results is not None:
                yield from results


def _co_grouped(
    call: Callable[..., Any], first: list[Any], second: list[Any]
) -> Iterable[Any] | None:
    results: Iterable[Any] | None = call(first, second)
    return results
