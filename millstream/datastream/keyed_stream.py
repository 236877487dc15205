"""`KeyedStream`: a stream partitioned by key, whose operators work on one key at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, overload

from millstream.api.count_windows import count_windows
from millstream.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ReduceFunction,
)
from millstream.api.generics import K, T, U, W
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.datastream.data_stream import DataStream
from millstream.datastream.program import as_function, as_key, not_on_keyed
from millstream.errors import KeySelectorError, told
from millstream.graph import operators as ops
from millstream.graph.operators import Key
from millstream.graph.partitioning import Partitioning, Strategy
from millstream.graph.transformations import OperatorTransformation, PartitionTransformation
from millstream.runtime.codegen.fields import field_getter
from millstream.runtime.operators.field_reduce import checked_field

if TYPE_CHECKING:
    from millstream.api.window_assigner import WindowAssigner
    from millstream.api.windows import CountWindow
    from millstream.datastream.interval_join import IntervalJoin
    from millstream.datastream.windowed_stream import WindowedStream

__all__ = ["KeyedStream"]


class KeyedStream(DataStream[T], Generic[K, T]):
    """What `key_by` gives. All records with one key meet in one subtask, in the order they came in."""

    def __init__(self, stream: DataStream[T], key: Key) -> None:
        source = stream._values()
        env = stream.get_execution_environment()
        super().__init__(
            env,
            PartitionTransformation(
                env._next_id(),
                source._transformation.output_type,
                input=source._transformation,
                partitioning=Partitioning(Strategy.HASH, key),
            ),
        )
        self._key = key
        self._source = source

    def _described(self) -> str:
        key = self._key
        if key.selector is None:
            by = f"field {key.field!r}"
        else:
            by = getattr(key.selector, "__qualname__", type(key.selector).__name__)
        return f"of {self._source._described()}, by {by}"

    def _values(self) -> DataStream[T]:
        # Sinks, print and union read the values where they are, without moving them (rule 41).
        return self._source

    def map(
        self, func: Callable[[T], U] | MapFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """As on a `DataStream`, in the context of each record's key.

        >>> from millstream.datastream import MapFunction, StreamExecutionEnvironment
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Number(MapFunction):
        ...     def open(self, ctx):
        ...         self.seen = ctx.get_state(ValueStateDescriptor("seen"))
        ...
        ...     def map(self, value):
        ...         self.seen.update((self.seen.value() or 0) + 1)
        ...         return value, self.seen.value()
        >>> letters = env.from_collection(["a", "b", "a"]).key_by(lambda letter: letter)
        >>> list(letters.map(Number()).execute_and_collect())
        [('a', 1), ('b', 1), ('a', 2)]
        """
        function = as_function("map", func, MapFunction)
        return self._apply("Map", ops.MapOp(function, key=self._key), output_type)

    def flat_map(
        self, func: Callable[[T], Iterable[U]] | FlatMapFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """As on a `DataStream`, in the context of each record's key.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> words = env.from_collection([("a", 2), ("b", 1)])
        >>> list(words.key_by(0).flat_map(lambda w: [w[0]] * w[1]).execute_and_collect())
        ['a', 'a', 'b']
        """
        function = as_function("flat_map", func, FlatMapFunction)
        return self._apply("FlatMap", ops.FlatMapOp(function, key=self._key), output_type)

    def filter(self, func: Callable[[T], object] | FilterFunction[T]) -> DataStream[T]:
        """As on a `DataStream`, in the context of each record's key.

        >>> from millstream.datastream import FilterFunction, StreamExecutionEnvironment
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class First(FilterFunction):
        ...     def open(self, ctx):
        ...         self.seen = ctx.get_state(ValueStateDescriptor("seen"))
        ...
        ...     def filter(self, value):
        ...         first = self.seen.value() is None
        ...         self.seen.update(True)
        ...         return first
        >>> letters = env.from_collection(["a", "b", "a"]).key_by(lambda letter: letter)
        >>> list(letters.filter(First()).execute_and_collect())
        ['a', 'b']
        """
        function = as_function("filter", func, FilterFunction)
        result = self._apply("Filter", ops.FilterOp(function, key=self._key))
        result._transformation.output_type = self._transformation.output_type
        return result

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """Run a `KeyedProcessFunction`.

        >>> from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class WithKey(KeyedProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield ctx.get_current_key(), value
        >>> numbers = env.from_collection([1, 2]).key_by(lambda n: n % 2)
        >>> list(numbers.process(WithKey()).execute_and_collect())
        [(1, 1), (0, 2)]
        """
        function = as_function("process", func, KeyedProcessFunction, plain=False)
        return self._apply("KeyedProcess", ops.KeyedProcessOp(self._key, function), output_type)

    def reduce(self, func: Callable[[T, T], T] | ReduceFunction[T]) -> DataStream[T]:
        """Combine each key's records into one value, emitted after every record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> numbers = env.from_collection([1, 2, 3, 4])
        >>> list(numbers.key_by(lambda n: n % 2).reduce(lambda a, b: a + b).execute_and_collect())
        [1, 2, 4, 6]
        """
        function = as_function("reduce", func, ReduceFunction)
        return self._rolled("Reduce", ops.ReduceOp(self._key, function))

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T]:
        """The running sum of a field; the other fields are those of the key's first record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 3), ("a", 1), ("a", 5)])
        >>> list(bids.key_by(0).sum(1).execute_and_collect())
        [('a', 3), ('a', 4), ('a', 9)]
        """
        return self._rolling("sum", position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream[T]:
        """The smallest value of a field so far; the other fields are those of the key's first record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 3), ("a", 1), ("a", 5)])
        >>> list(bids.key_by(0).min(1).execute_and_collect())
        [('a', 3), ('a', 1), ('a', 1)]
        """
        return self._rolling("min", position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream[T]:
        """The largest value of a field so far; the other fields are those of the key's first record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 3), ("a", 1), ("a", 5)])
        >>> list(bids.key_by(0).max(1).execute_and_collect())
        [('a', 3), ('a', 3), ('a', 5)]
        """
        return self._rolling("max", position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T]:
        """The record with the smallest value of a field so far; the earlier one of equals.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 3, "x"), ("a", 1, "y"), ("a", 2, "z")])
        >>> list(bids.key_by(0).min_by(1).execute_and_collect())
        [('a', 3, 'x'), ('a', 1, 'y'), ('a', 1, 'y')]
        """
        return self._rolling("min_by", position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T]:
        """The record with the largest value of a field so far; the earlier one of equals.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", 1, "x"), ("a", 3, "y"), ("a", 3, "z")])
        >>> list(bids.key_by(0).max_by(1).execute_and_collect())
        [('a', 1, 'x'), ('a', 3, 'y'), ('a', 3, 'y')]
        """
        return self._rolling("max_by", position_to_max_by)

    def _rolling(self, kind: str, field: int | str) -> DataStream[T]:
        checked_field(kind, field, self._transformation.output_type)
        return self._rolled(kind.title().replace("_", ""), ops.RollingOp(self._key, kind, field))

    def _rolled(self, name: str, operator: ops.Operator) -> DataStream[T]:
        return self._apply(name, operator, self._transformation.output_type)

    @overload
    def key_by(
        self, key_selector: Callable[[T], U] | KeySelector[T, U], key_type: Any = None
    ) -> KeyedStream[U, T]: ...

    @overload
    def key_by(self, key_selector: int | str, key_type: Any = None) -> KeyedStream[Any, T]: ...

    def key_by(self, key_selector: Any, key_type: Any = None) -> KeyedStream[Any, T]:
        """Partition by another key.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> bids = env.from_collection([("a", "x", 1), ("b", "x", 2)]).key_by(0)
        >>> list(bids.key_by(1).sum(2).execute_and_collect())
        [('a', 'x', 1), ('a', 'x', 3)]
        """
        return KeyedStream(self._source, as_key(key_selector, key_type))

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> Any:
        """The records as `Row(f0=key, f1=value)` (rule 41).

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection([("a", 1)]).key_by(0).execute_and_collect())
        [Row(f0='a', f1=('a', 1))]
        """
        key = self._key

        def with_key(value: Any) -> Row:
            return Row(f0=read_key(key, value), f1=value)

        pairs = self._source.map(with_key)
        if limit is None:
            return pairs.execute_and_collect(job_execution_name)
        return pairs.execute_and_collect(job_execution_name, limit=limit)

    def get_type(self) -> Any:
        """`ROW(key, value)` (rule 41).

        >>> from millstream.common import Types
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> words = env.from_collection(["a"], Types.STRING())
        >>> words.key_by(len, Types.INT()).get_type()
        RowTypeInfo(Integer, String)
        """
        key_type = self._key.key_type or Types.PICKLED_BYTE_ARRAY()
        return Types.ROW([key_type, super().get_type()])

    def window(self, window_assigner: WindowAssigner[Any, W]) -> WindowedStream[K, T, W]:
        """Cut each key's records into windows.

        >>> from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> class Second(TimestampAssigner):
        ...     def extract_timestamp(self, value, record_timestamp):
        ...         return value[1]
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        ...     Second()
        ... )
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> clicks = env.from_collection([("a", 1000, 1), ("a", 2000, 1), ("a", 6000, 1)])
        >>> timed = clicks.assign_timestamps_and_watermarks(strategy)
        >>> windows = timed.key_by(0).window(TumblingEventTimeWindows.of("5 s"))
        >>> list(windows.sum(2).execute_and_collect())
        [('a', 1000, 2), ('a', 6000, 1)]
        """
        from millstream.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[K, T, CountWindow]:
        """Windows of so many records of a key; with a slide, a new one after every so many. Only full ones fire.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> numbers = env.from_collection([1, 2, 3, 4, 5])
        >>> windows = numbers.key_by(lambda n: "all").count_window(3, 1)
        >>> list(windows.reduce(lambda a, b: a + b).execute_and_collect())
        [6, 9, 12]
        """
        from millstream.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, count_windows(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Pairs of records of two keyed streams with equal keys and timestamps that are so far apart.

        >>> from millstream.common import TimestampAssigner, WatermarkStrategy
        >>> from millstream.datastream import ProcessJoinFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Second(TimestampAssigner):
        ...     def extract_timestamp(self, value, record_timestamp):
        ...         return value[1]
        >>> class Pair(ProcessJoinFunction):
        ...     def process_element(self, left, right, ctx):
        ...         yield left[0], left[1], right[1]
        >>> def keyed(records):
        ...     strategy = WatermarkStrategy.for_monotonous_timestamps()
        ...     stream = env.from_collection(records)
        ...     timed = strategy.with_timestamp_assigner(Second())
        ...     return stream.assign_timestamps_and_watermarks(timed).key_by(0)
        >>> orders, parcels = keyed([("tea", 100)]), keyed([("tea", 90), ("tea", 150)])
        >>> pairs = orders.interval_join(parcels).between(0, 60).process(Pair())
        >>> list(pairs.execute_and_collect())
        [('tea', 100, 150)]
        """
        from millstream.datastream.interval_join import IntervalJoin

        return IntervalJoin(self, other_stream)

    def _operator(self, call: str) -> OperatorTransformation:
        raise not_on_keyed(call)

    def _partition(self, partitioning: Partitioning) -> DataStream[T]:
        calls = {Strategy.CUSTOM: "partition_custom", Strategy.GLOBAL: "global_"}
        raise not_on_keyed(calls.get(partitioning.strategy, partitioning.strategy.value.lower()))


def read_key(key: Key, value: Any) -> Any:
    """A record's key, outside of generated code."""
    try:
        extracted = _find_key(key, value)
    except Exception as error:
        msg = f"the key selector raised {told(error)}"
        hint = "the selector must give a key for every record; filter out those without one"
        raise KeySelectorError(msg, hint=hint) from error
    return extracted if key.key_type is None else key.key_type.convert(extracted)


def _find_key(key: Key, value: Any) -> Any:
    if isinstance(key.field, int):
        return value[key.field]
    if key.field is not None:
        return field_getter(key.field)(value)
    return (
        key.selector.get_key(value)
        if isinstance(key.selector, KeySelector)
        else key.selector(value)
    )
