"""`WindowedStream` and `AllWindowedStream`: streams cut into windows, until a function makes results of them.

Nothing of a window exists before the function is named: `trigger`, `evictor`, `allowed_lateness` and
`side_output_late_data` only note what was said, and `reduce`, `aggregate`, `apply`, `process` and the rest make
one operator of it all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, overload

from millstream.api.aggregates import FieldAggregate
from millstream.api.evictor import Evictor
from millstream.api.functions import AggregateFunction, Function, ReduceFunction
from millstream.api.generics import ACC, T2, K, T, U, W
from millstream.api.output_tag import OutputTag
from millstream.api.trigger import Trigger
from millstream.api.window_assigner import MergingWindowAssigner, WindowAssigner
from millstream.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.common.guesses import Guesses
from millstream.common.time import DurationLike, parse_duration
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.program import as_function, as_type, class_given
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph import operators as ops
from millstream.graph.operators import Key
from millstream.runtime.operators.declared_aggregates import (
    DeclaredAggregates,
    KeyAndResults,
    checked_aggregates,
)
from millstream.runtime.operators.field_reduce import FieldReduce, checked_field

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.keyed_stream import KeyedStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["AllWindowedStream", "WindowedStream"]

Self = TypeVar("Self", bound="_Windowed[Any, Any]")

AnyWindowFunction: TypeAlias = (
    WindowFunction[T, U, Any, Any]
    | AllWindowFunction[T, U, Any]
    | ProcessWindowFunction[T, U, Any, Any]
    | ProcessAllWindowFunction[T, U, Any]
)
"""What may be given where a window function is asked for; which of them fits, the stream says."""


class _Windowed(Guesses, Generic[T, W]):
    """What windows per key and windows of a whole stream share."""

    _all_windows: ClassVar[bool]
    _apply_class: ClassVar[type[Function]]
    _process_class: ClassVar[type[Function]]

    def __init__(self, call: str, stream: DataStream, window_assigner: Any, key: Key) -> None:
        self._stream = stream
        self._key = key
        self._assigner = _one(call, window_assigner, WindowAssigner)
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness = 0
        self._late_tag: OutputTag | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._assigner}, {self._stream._described()}>"

    def _instead_of(self, name: str) -> tuple[str, str] | None:
        if not hasattr(self._stream, name):
            return None
        return (
            "windows are no stream yet",
            "call reduce, aggregate, process, apply, sum, min or max, and then that",
        )

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment this stream belongs to.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection([1]).count_window_all(2).get_execution_environment() is env
        True
        """
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The declared type of the records in the windows.

        >>> from millstream.common import Types
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection(["a"], Types.STRING()).count_window_all(2).get_input_type()
        String
        """
        return self._stream._values().get_type()

    # -- settings ---------------------------------------------------------------------------------------

    def trigger(self: Self, trigger: Trigger[Any, Any]) -> Self:
        """When results are due, in the place of the assigner's own trigger.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([1, 2, 3, 4]).window_all(GlobalWindows.create())
        >>> in_pairs = windows.trigger(PurgingTrigger.of(CountTrigger.of(2)))
        >>> list(in_pairs.sum().execute_and_collect())
        [3, 7]
        """
        self._trigger = self._fitting(_one("trigger", trigger, Trigger))
        return self

    def evictor(self: Self, evictor: Evictor[Any, Any]) -> Self:
        """Take records out of windows before or after the function; the windows then keep all their records.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.window import CountEvictor
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([1, 2, 3, 4]).count_window_all(4)
        >>> list(windows.evictor(CountEvictor.of(2)).sum().execute_and_collect())
        [7]
        """
        self._evictor = _one("evictor", evictor, Evictor)
        return self

    def allowed_lateness(self: Self, time_ms: DurationLike) -> Self:
        """How long after its end a window is kept for late records; each of them makes it fire again.

        Windows that do not end by watermark know no lateness and ignore it.

        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> from millstream.testing import OperatorHarness
        >>> def sums(stream):
        ...     windows = stream.window_all(TumblingEventTimeWindows.of("1 s"))
        ...     return windows.allowed_lateness("5 s").sum()
        >>> with OperatorHarness(sums) as harness:
        ...     harness.process_element(1, 100)
        ...     harness.process_watermark(999)
        ...     harness.process_element(10, 200)  # late
        ...     harness.extract_output()
        [1, 11]
        """
        lateness = parse_duration(time_ms)
        if lateness < 0:
            raise InvalidArgument("the allowed lateness must not be negative", got=repr(time_ms))
        self._lateness = lateness
        return self

    def side_output_late_data(self: Self, output_tag: OutputTag) -> Self:
        """Where records go that are too late for all their windows; without this they are dropped.

        They are read with `get_side_output(output_tag)` on the stream of the results.

        >>> from millstream.datastream import OutputTag
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> from millstream.testing import OperatorHarness
        >>> late = OutputTag("late")
        >>> def sums(stream):
        ...     windows = stream.window_all(TumblingEventTimeWindows.of("1 s"))
        ...     return windows.side_output_late_data(late).sum()
        >>> with OperatorHarness(sums, side_outputs=[late]) as harness:
        ...     harness.process_watermark(999)
        ...     harness.process_element(10, 200)
        ...     harness.get_side_output(late)
        [10]
        """
        self._late_tag = _one("side_output_late_data", output_tag, OutputTag)
        return self

    # -- functions --------------------------------------------------------------------------------------

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: None = None,
        output_type: Any = None,
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[T, T], T] | ReduceFunction[T],
        window_function: AnyWindowFunction[T, U],
        output_type: Any = None,
    ) -> DataStream[U]: ...

    def reduce(
        self, reduce_function: Any, window_function: Any = None, output_type: Any = None
    ) -> DataStream[Any]:
        """Combine each window's records into one value of their own type, which is kept in their place.

        A window function gets that value as its only element, and knows the window.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection(["a", "b", "c", "d"]).count_window_all(2)
        >>> list(windows.reduce(lambda one, other: one + other).execute_and_collect())
        ['ab', 'cd']
        """
        reduce = as_function("reduce", reduce_function, ReduceFunction)
        function = self._window_function("reduce", window_function)
        if output_type is None and function is None:
            output_type = self._stream._transformation.output_type
        return self._build("reduce", reduce, function, output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, U],
        window_function: None = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[U]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, T2],
        window_function: AnyWindowFunction[T2, U],
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[U]: ...

    def aggregate(
        self,
        aggregate_function: AggregateFunction[Any, Any, Any],
        window_function: Any = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[Any]:
        """Add each window's records to an accumulator, which is kept in their place.

        A window function gets the result as its only element, and knows the window.

        >>> from millstream.datastream import AggregateFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Mean(AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0, 0
        ...
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        ...
        ...     def merge(self, acc_a, acc_b):
        ...         return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]
        >>> windows = env.from_collection([1, 2, 3, 5]).count_window_all(2)
        >>> list(windows.aggregate(Mean()).execute_and_collect())
        [1.5, 4.0]
        """
        aggregate = as_function("aggregate", aggregate_function, AggregateFunction, plain=False)
        function = self._window_function("aggregate", window_function)
        kept = as_type(accumulator_type)
        return self._build("aggregate", aggregate, function, output_type, kept)

    def aggregate_of(
        self,
        *aggregates: FieldAggregate,
        window_function: Any = None,
        output_type: Any = None,
    ) -> DataStream[Any]:
        """Aggregates of fields that are named and not written: `sum_of`, `count`, `min_of`, `max_of`, `mean_of`.

        The result is a tuple: the key, then one value for each aggregate; of a whole stream's windows the values alone.
        A window function gets the tuple of values as its only element, and knows the key and the window.

        >>> from millstream.datastream import StreamExecutionEnvironment, count, mean_of, sum_of
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([("a", 3), ("a", 5)]).key_by(0).count_window(2)
        >>> list(windows.aggregate_of(sum_of(1), count(), mean_of(1)).execute_and_collect())
        [('a', 8, 2, 4.0)]
        """
        declared = self._stream._transformation.output_type
        checked = checked_aggregates(aggregates, declared)
        function = self._window_function("aggregate_of", window_function)
        if function is None and not self._all_windows:
            function = KeyAndResults()
        incremental = DeclaredAggregates(checked, type(self._assigner).__name__)
        return self._build("aggregate", incremental, function, output_type)

    def apply(
        self, window_function: AnyWindowFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """Run a window function over all records of each window.

        >>> from millstream.datastream import StreamExecutionEnvironment, WindowFunction
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Middle(WindowFunction):
        ...     def apply(self, key, window, inputs):
        ...         yield key, sorted(inputs)[1]
        >>> windows = env.from_collection([("a", 5), ("a", 1), ("a", 3)]).key_by(0).count_window(3)
        >>> list(windows.apply(Middle()).execute_and_collect())
        [('a', ('a', 3))]
        """
        function = as_function("apply", window_function, self._apply_class, plain=False)
        return self._build("list", None, function, output_type)

    def process(
        self, process_window_function: AnyWindowFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """Run a process function over all records of each window; it may also ask for time and state.

        >>> from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Size(ProcessWindowFunction):
        ...     def process(self, key, context, elements):
        ...         yield key, len(list(elements))
        >>> windows = env.from_collection(["a", "b", "a"]).key_by(lambda x: x).count_window(2)
        >>> list(windows.process(Size()).execute_and_collect())
        [('a', 2)]
        """
        function = as_function("process", process_window_function, self._process_class, plain=False)
        return self._build("list", None, function, output_type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T]:
        """The sum of a field over each window; the other fields are those of the window's first record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([("a", 3), ("a", 5)]).key_by(0).count_window(2)
        >>> list(windows.sum(1).execute_and_collect())
        [('a', 8)]
        """
        return self._field("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T]:
        """The smallest value of a field in each window; the other fields are those of its first record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([("a", 3), ("a", 5)]).key_by(0).count_window(2)
        >>> list(windows.min(1).execute_and_collect())
        [('a', 3)]
        """
        return self._field("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T]:
        """The largest value of a field in each window; the other fields are those of its first record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([("a", 3), ("a", 5)]).key_by(0).count_window(2)
        >>> list(windows.max(1).execute_and_collect())
        [('a', 5)]
        """
        return self._field("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T]:
        """The record of each window with the smallest value of a field; the earlier one of equals.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 3, "x"), ("a", 5, "y")])
        >>> list(bids.key_by(0).count_window(2).min_by(1).execute_and_collect())
        [('a', 3, 'x')]
        """
        return self._field("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T]:
        """The record of each window with the largest value of a field; the earlier one of equals.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 3, "x"), ("a", 5, "y")])
        >>> list(bids.key_by(0).count_window(2).max_by(1).execute_and_collect())
        [('a', 5, 'y')]
        """
        return self._field("max_by", position_to_max_by)

    def _field(self, kind: str, field: Any) -> DataStream[T]:
        declared = self._stream._transformation.output_type
        name = type(self._assigner).__name__
        reduce = FieldReduce(kind, checked_field(kind, field, declared), name)
        return self._build("reduce", reduce, None, declared)

    # -- the operator -----------------------------------------------------------------------------------

    def _fitting(self, trigger: Trigger[Any, Any]) -> Trigger[Any, Any]:
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            msg = f"{type(self._assigner).__name__} merges windows, which {trigger!r} cannot follow"
            hint = (
                "use a trigger whose can_merge() is true, such as EventTimeTrigger or CountTrigger"
            )
            raise UnsupportedOperation(msg, hint=hint)
        return trigger

    def _chosen_trigger(self) -> Trigger[Any, Any]:
        if self._trigger is not None:
            return self._trigger
        default = self._assigner.get_default_trigger(self.get_execution_environment())
        call = f"get_default_trigger of {type(self._assigner).__name__}"
        if not isinstance(default, Trigger):
            hint = "let it return a trigger, or set one with trigger(...)"
            raise InvalidArgument(f"{call} gave no Trigger", got=type(default).__name__, hint=hint)
        return self._fitting(default)

    def _window_function(self, call: str, function: Any) -> Any:
        if function is None or isinstance(function, self._apply_class):
            return function
        if isinstance(function, self._process_class):
            return function
        if isinstance(function, type) and issubclass(function, Function):
            raise class_given(call, function)
        wanted = f"{self._apply_class.__name__} or {self._process_class.__name__}"
        msg = f"the window function of {call} must be a {wanted}"
        raise InvalidArgument(msg, got=type(function).__name__)

    def _build(
        self,
        kind: str,
        incremental: Any,
        function: Any,
        output_type: Any,
        accumulator_type: Any = None,
    ) -> DataStream:
        trigger = self._chosen_trigger()
        operator = ops.WindowOp(
            self._key,
            assigner=self._assigner,
            trigger=trigger,
            evictor=self._evictor,
            lateness=self._lateness,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            # An evictor needs the records themselves (rule 34).
            kind=kind if self._evictor is None else "list",
            incremental=incremental,
            function=function,
            all_windows=self._all_windows,
            accumulator_type=accumulator_type,
        )
        result = self._stream._apply(type(self._assigner).__name__, operator, output_type)
        parts = (self._assigner, trigger, self._evictor)
        told = [repr(part) for part in parts if part is not None]
        told += [_name(part) for part in (incremental, function) if part is not None]
        return result.set_description(f"Window({', '.join(told)})")


class WindowedStream(_Windowed[T, W], Generic[K, T, W]):
    """What `KeyedStream.window` gives: each key has windows of its own.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> from millstream.datastream.window import CountTumblingWindowAssigner
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> bids = env.from_collection([("a", 3), ("b", 9), ("a", 5), ("a", 1)])
    >>> pairs = bids.key_by(0).window(CountTumblingWindowAssigner.of(2))
    >>> list(pairs.max(1).execute_and_collect())
    [('a', 5)]
    """

    _all_windows = False
    _apply_class = WindowFunction
    _process_class = ProcessWindowFunction

    def __init__(
        self, keyed_stream: KeyedStream[K, T], window_assigner: Any, call: str = "window"
    ) -> None:
        super().__init__(call, keyed_stream, window_assigner, keyed_stream._key)


class AllWindowedStream(_Windowed[T, W]):
    """What `DataStream.window_all` gives: windows over all records, in one subtask.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> from millstream.datastream.window import CountTumblingWindowAssigner
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> numbers = env.from_collection([1, 2, 3, 4, 5])
    >>> list(numbers.window_all(CountTumblingWindowAssigner.of(2)).sum().execute_and_collect())
    [3, 7]
    """

    _all_windows = True
    _apply_class = AllWindowFunction
    _process_class = ProcessAllWindowFunction

    def __init__(
        self, data_stream: DataStream[T], window_assigner: Any, call: str = "window_all"
    ) -> None:
        together = data_stream._values().global_()
        super().__init__(call, together, window_assigner, Key(selector=_same_key))

    def _build(self, *args: Any, **kwargs: Any) -> DataStream:
        # All records have one key, so only one subtask could ever have work (rule 33).
        return super()._build(*args, **kwargs).force_non_parallel()


def _same_key(_value: Any) -> int:
    return 0


def _one(call: str, given: Any, wanted: type[Any]) -> Any:
    """The argument, if it is an object of the wanted class."""
    if isinstance(given, wanted):
        return given
    if isinstance(given, type) and issubclass(given, wanted):
        raise class_given(call, given)
    article = "an" if wanted.__name__[0] in "AEIOU" else "a"
    msg = f"{call} needs {article} {wanted.__name__}"
    raise InvalidArgument(msg, got=repr(given)[:200], hint=_HINTS.get(wanted))


_HINTS: dict[type[Any], str] = {
    WindowAssigner: 'for example TumblingEventTimeWindows.of("5 s")',
    Trigger: "for example CountTrigger.of(100), or an object of your own class that extends Trigger",
    Evictor: "for example CountEvictor.of(100), or an object of your own class that extends Evictor",
    OutputTag: 'for example OutputTag("late", Types.STRING())',
}


def _name(function: Any) -> str:
    if isinstance(function, FieldReduce):
        return f"{function.kind}({function.field!r})"
    if isinstance(function, DeclaredAggregates):
        return repr(function)
    return str(getattr(function, "__name__", type(function).__name__))
