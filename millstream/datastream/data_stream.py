"""`DataStream`: a stream of records, and what can be done with it (Flink's `DataStream`).

Every call adds a transformation to the environment's program and gives back the stream of its output. Nothing runs
until `execute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, overload

from millstream.api.batch_functions import (
    FilterBatchesFunction,
    FlatMapBatchesFunction,
    MapBatchesFunction,
)
from millstream.api.count_windows import count_windows
from millstream.api.error_policy import as_policy
from millstream.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from millstream.api.generics import K, T, U, W
from millstream.api.output_tag import OutputTag
from millstream.api.sink import Sink
from millstream.common.time import DurationLike, parse_duration
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy, as_strategy
from millstream.datastream.batches import batches_op
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.data_stream_sink import DataStreamSink, as_sink_function
from millstream.datastream.notebook import stream_html
from millstream.datastream.operator_settings import OperatorSettings
from millstream.datastream.program import (
    as_function,
    as_key,
    as_type,
    class_given,
    not_yet,
    or_build,
)
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph import operators as ops
from millstream.graph.partitioning import Partitioning, Strategy
from millstream.graph.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
    calling_line,
)

if TYPE_CHECKING:
    from millstream.api.window_assigner import WindowAssigner
    from millstream.api.windows import CountWindow
    from millstream.connectors.spark import SparkSink

    # PyFlink has these in this module too (`X as X`); when a program runs, `millstream.names` finds them.
    from millstream.datastream.broadcast_stream import (
        BroadcastConnectedStream as BroadcastConnectedStream,
    )
    from millstream.datastream.broadcast_stream import BroadcastStream as BroadcastStream
    from millstream.datastream.connected_streams import ConnectedStreams as ConnectedStreams
    from millstream.datastream.iterative_stream import IterativeStream
    from millstream.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from millstream.datastream.keyed_stream import KeyedStream as KeyedStream
    from millstream.datastream.windowed_stream import AllWindowedStream as AllWindowedStream
    from millstream.datastream.windowed_stream import WindowedStream as WindowedStream
    from millstream.notebook import LiveView

__all__ = ["DataStream"]


class DataStream(OperatorSettings, Generic[T]):
    """A stream of records.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> numbers = env.from_collection([1, 2, 3])
    >>> list(numbers.map(lambda n: n * 10).execute_and_collect())
    [10, 20, 30]
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._described()}>"

    def _described(self) -> str:
        made = self._transformation
        if isinstance(made, OperatorTransformation):
            return f"'{made.name}'"
        if isinstance(made, UnionTransformation):
            return f"of {len(made.inputs)} streams"
        if isinstance(made, SideOutputTransformation):
            return f"'{made.tag_id}' of {DataStream(self._env, made.input)._described()}"
        assert isinstance(made, PartitionTransformation)
        before = DataStream(self._env, made.input)._described()
        return f"of {before}, {made.partitioning.strategy.value}"

    def _repr_html_(self) -> str:
        return stream_html(self)

    def __iter__(self) -> Iterator[T]:
        msg = "a stream has no records to loop over: they come when the program runs"
        raise UnsupportedOperation(msg, hint="for record in stream.execute_and_collect(): ...")

    def _instead_of(self, name: str) -> tuple[str, str] | None:
        from millstream.datastream.keyed_stream import KeyedStream

        if not hasattr(KeyedStream, name):
            return None
        whole = (
            f", or {name}_all(...) for all keys together" if hasattr(self, f"{name}_all") else ""
        )
        return "it needs a key", f"call key_by first: stream.key_by(...).{name}(...){whole}"

    # -- transformations --------------------------------------------------------------------------------

    def _apply(
        self,
        name: str,
        operator: ops.Operator,
        output_type: Any = None,
        inputs: tuple[Transformation, ...] | None = None,
    ) -> DataStream:
        transformation = OperatorTransformation(
            self._env._next_id(),
            as_type(output_type),
            name=name,
            operator=operator,
            inputs=inputs or (self._transformation,),
            declared_at=calling_line(),
        )
        return DataStream(self._env, transformation)

    def map(
        self, func: Callable[[T], U] | MapFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """Turn each record into one.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection(["a", "b"]).map(str.upper).execute_and_collect())
        ['A', 'B']
        """
        return self._apply("Map", ops.MapOp(as_function("map", func, MapFunction)), output_type)

    def flat_map(
        self, func: Callable[[T], Iterable[U]] | FlatMapFunction[T, U], output_type: Any = None
    ) -> DataStream[U]:
        """Turn each record into any number of them; the function returns an iterable.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection(["to be"]).flat_map(str.split).execute_and_collect())
        ['to', 'be']
        """
        function = as_function("flat_map", func, FlatMapFunction)
        return self._apply("FlatMap", ops.FlatMapOp(function), output_type)

    def filter(self, func: Callable[[T], object] | FilterFunction[T]) -> DataStream[T]:
        """Keep the records the function says yes to.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection(range(5)).filter(lambda n: n % 2).execute_and_collect())
        [1, 3]
        """
        function = as_function("filter", func, FilterFunction)
        result = self._apply("Filter", ops.FilterOp(function))
        # The records are the input's, already of its type.
        result._transformation.output_type = self._transformation.output_type
        return result

    def map_batches(
        self,
        func: Callable[[Any], Any] | MapBatchesFunction,
        batch_size: int = 1024,
        batch_format: str = "list",
        output_type: Any = None,
    ) -> DataStream:
        """Turn each record into one, with one call of the function for up to `batch_size` records: what a model needs.

        The function gets a list of records, or columns of "numpy", "pandas" or "arrow" as `batch_format` says, and
        gives as many results, in the order of the records. See docs/batches.md.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> def score(columns):
        ...     return columns["f0"] * 0.5 + columns["f1"]
        >>> features = env.from_collection([(2.0, 1.0), (4.0, 0.5)])
        >>> list(features.map_batches(score, batch_format="numpy").execute_and_collect())
        [2.0, 2.5]
        """
        operator = batches_op("map", func, batch_size, batch_format)
        return self._apply("Map batches", operator, output_type)

    def filter_batches(
        self,
        func: Callable[[Any], Any] | FilterBatchesFunction,
        batch_size: int = 1024,
        batch_format: str = "list",
    ) -> DataStream[T]:
        """Keep some records, with one call of the function for up to `batch_size` of them: it gives a mask, one boolean
        for each record.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> prices = env.from_collection([("tea", 3), ("gold", 60)])
        >>> dear = prices.filter_batches(lambda frame: frame["f1"] > 50, batch_format="pandas")
        >>> list(dear.execute_and_collect())
        [('gold', 60)]
        """
        operator = batches_op("filter", func, batch_size, batch_format)
        result = self._apply("Filter batches", operator)
        result._transformation.output_type = self._transformation.output_type
        return result

    def flat_map_batches(
        self,
        func: Callable[[Any], Any] | FlatMapBatchesFunction,
        batch_size: int = 1024,
        batch_format: str = "list",
        output_type: Any = None,
    ) -> DataStream:
        """Turn each record into any number, with one call of the function for up to `batch_size` records: for each of
        them it gives an iterable of results, which have that record's timestamp.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> lines = env.from_collection(["to be", "", "or not"])
        >>> words = lines.flat_map_batches(lambda batch: [line.split() for line in batch])
        >>> list(words.execute_and_collect())
        ['to', 'be', 'or', 'not']
        """
        operator = batches_op("flat_map", func, batch_size, batch_format)
        return self._apply("FlatMap batches", operator, output_type)

    def process(self, func: ProcessFunction[T, U], output_type: Any = None) -> DataStream[U]:
        """Full control: any number of outputs and side outputs per record.

        >>> from millstream.datastream import ProcessFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Halves(ProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield value // 2
        ...         yield value - value // 2
        >>> list(env.from_collection([5, 8]).process(Halves()).execute_and_collect())
        [2, 3, 4, 4]
        """
        if isinstance(func, KeyedProcessFunction) and not isinstance(func, ProcessFunction):
            msg = f"{type(func).__name__} is a KeyedProcessFunction, and this stream has no key"
            raise InvalidArgument(msg, hint="call key_by first: stream.key_by(...).process(...)")
        function = as_function("process", func, ProcessFunction, plain=False)
        return self._apply("Process", ops.ProcessOp(function), output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep the fields with these positions, in this order.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection([(1, "a", True)]).project(2, 0).execute_and_collect())
        [(True, 1)]
        """
        if not field_indexes or not all(isinstance(i, int) and i >= 0 for i in field_indexes):
            raise InvalidArgument("project needs field positions from 0", got=repr(field_indexes))
        declared = self._transformation.output_type
        projected = None
        types = getattr(declared, "get_field_types", lambda: None)()
        if types is not None:
            if max(field_indexes) >= len(types):
                msg = "project was given a position that the type does not have"
                raise InvalidArgument(msg, got=max(field_indexes), type=str(declared))
            chosen = [types[i] for i in field_indexes]
            projected = (
                Types.TUPLE(chosen) if "Tuple" in type(declared).__name__ else Types.ROW(chosen)
            )
        return self._apply("Projection", ops.ProjectOp(field_indexes), projected)

    @overload
    def key_by(
        self, key_selector: Callable[[T], K] | KeySelector[T, K], key_type: Any = None
    ) -> KeyedStream[K, T]: ...

    @overload
    def key_by(self, key_selector: int | str, key_type: Any = None) -> KeyedStream[Any, T]: ...

    def key_by(self, key_selector: Any, key_type: Any = None) -> KeyedStream[Any, T]:
        """Partition by key: a callable, a `KeySelector`, a field's name or its position.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> words = env.from_collection([("a", 1), ("b", 1), ("a", 1)])
        >>> list(words.key_by(0).sum(1).execute_and_collect())
        [('a', 1), ('b', 1), ('a', 2)]
        """
        from millstream.datastream.keyed_stream import KeyedStream

        return KeyedStream(self, as_key(key_selector, key_type))

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """The records of several streams, in no particular order between them.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> small, large = env.from_collection([1, 2]), env.from_collection([100])
        >>> sorted(small.union(large).execute_and_collect())
        [1, 2, 100]
        """
        if not all(isinstance(stream, DataStream) for stream in streams):
            hint = "make a stream of it first, with env.from_collection(...) or another source"
            raise InvalidArgument("union takes streams", got=repr(streams), hint=hint)
        self._check_same_environment("union", *streams)
        inputs = tuple(stream._values()._transformation for stream in (self, *streams))
        first = inputs[0].output_type
        common = (
            first if all(transformation.output_type == first for transformation in inputs) else None
        )
        return DataStream(
            self._env, UnionTransformation(self._env._next_id(), common, inputs=inputs)
        )

    def iterate(self) -> IterativeStream[T]:
        """Begin a loop: `close_with` on the result feeds records back into it, for the following epoch.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> loop = env.from_collection([20]).iterate()
        >>> halves = loop.map(lambda n: n // 2)
        >>> fed_back = loop.close_with(halves.filter(lambda n: n > 1))
        >>> list(halves.execute_and_collect())
        [10, 5, 2, 1]
        """
        from millstream.datastream.iterative_stream import IterativeStream

        return IterativeStream(self._env, self._values())

    def connect(self, ds: Any) -> Any:
        """Two streams of different types, for one function with a method for each; or this stream and a
        `BroadcastStream`.

        >>> from millstream.datastream import CoMapFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class AsText(CoMapFunction):
        ...     def map1(self, value):
        ...         return f"number {value}"
        ...
        ...     def map2(self, value):
        ...         return f"word {value}"
        >>> both = env.from_collection([1]).connect(env.from_collection(["a"]))
        >>> sorted(both.map(AsText()).execute_and_collect())
        ['number 1', 'word a']
        """
        from millstream.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from millstream.datastream.connected_streams import ConnectedStreams

        if isinstance(ds, BroadcastStream):
            self._check_same_environment("connect", ds.input_stream)
            return BroadcastConnectedStream(self, ds)
        if not isinstance(ds, DataStream):
            raise InvalidArgument("connect takes a stream", got=type(ds).__name__)
        self._check_same_environment("connect", ds)
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Pairs of records of two streams with equal keys in one window.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.window import CountTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> orders = env.from_collection([("tea", 3)])
        >>> prices = env.from_collection([("tea", 2)])
        >>> both = orders.join(prices).where(0).equal_to(0).window(GlobalWindows.create())
        >>> totals = both.trigger(CountTrigger.of(2)).apply(lambda o, p: (o[0], o[1] * p[1]))
        >>> list(totals.execute_and_collect())
        [('tea', 6)]
        """
        from millstream.datastream.joined_streams import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """All records of two streams with one key in one window.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.window import CountTrigger, GlobalWindows
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> words = env.from_collection(["ant"])
        >>> letters = env.from_collection(["a"])
        >>> both = words.co_group(letters).where(lambda w: w[0]).equal_to(lambda x: x)
        >>> windows = both.window(GlobalWindows.create()).trigger(CountTrigger.of(2))
        >>> list(windows.apply(lambda words, letters: [(words, letters)]).execute_and_collect())
        [(['ant'], ['a'])]
        """
        from millstream.datastream.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def on_error(self, policy: Any) -> DataStream[T]:
        """What this stream's operator does with a record that its function cannot process: an `ErrorPolicy`.

        >>> from millstream.api.error_policy import ErrorPolicy
        >>> from millstream.datastream import OutputTag, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> numbers = env.from_collection(["1", "x", "3"]).map(int)
        >>> bad = OutputTag("bad")
        >>> good = numbers.on_error(ErrorPolicy.dead_letter(bad))
        >>> letters = good.get_side_output(bad).map(lambda letter: letter.error)
        >>> list(letters.execute_and_collect())
        ["ValueError: invalid literal for int() with base 10: 'x'"]
        """
        operator = self._operator("on_error")
        if not operator.inputs:
            msg = "on_error has no meaning on a source"
            raise UnsupportedOperation(msg, hint="set it on the operator that reads the records")
        operator.error_policy = as_policy(policy)
        return self

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The records that this stream's operator sent to a tag.

        >>> from millstream.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> odd = OutputTag("odd")
        >>> class Even(ProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield (odd, value) if value % 2 else value
        >>> even = env.from_collection([1, 2, 3]).process(Even())
        >>> list(even.get_side_output(odd).execute_and_collect())
        [1, 3]
        """
        operator = self._operator("get_side_output")
        return DataStream(
            self._env,
            SideOutputTransformation(
                self._env._next_id(), output_tag.type_info, input=operator, tag_id=output_tag.tag_id
            ),
        )

    def _check_same_environment(self, call: str, *others: DataStream) -> None:
        if any(stream._env is not self._env for stream in others):
            msg = f"{call} was given a stream of another environment"
            raise InvalidArgument(msg, hint="read all sources of a program with the same env")

    def _values(self) -> DataStream[T]:
        """The stream as sinks and unions see it."""
        return self

    # -- exchange strategies ----------------------------------------------------------------------------

    def _partition(self, partitioning: Partitioning) -> DataStream[T]:
        return DataStream(
            self._env,
            PartitionTransformation(
                self._env._next_id(),
                self._transformation.output_type,
                input=self._transformation,
                partitioning=partitioning,
            ),
        )

    def forward(self) -> DataStream[T]:
        """Each subtask sends to the subtask with its own number.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1, 2, 3]).forward().map(str).set_parallelism(1)
        >>> list(text.execute_and_collect())
        ['1', '2', '3']
        """
        return self._partition(Partitioning(Strategy.FORWARD))

    def rebalance(self) -> DataStream[T]:
        """Round robin over all subtasks of the next operator.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1, 2, 3]).rebalance().map(str).set_parallelism(2)
        >>> sorted(text.execute_and_collect())
        ['1', '2', '3']
        """
        return self._partition(Partitioning(Strategy.REBALANCE))

    def rescale(self) -> DataStream[T]:
        """Round robin over a part of the subtasks of the next operator.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1, 2, 3]).rescale().map(str).set_parallelism(2)
        >>> sorted(text.execute_and_collect())
        ['1', '2', '3']
        """
        return self._partition(Partitioning(Strategy.RESCALE))

    def shuffle(self) -> DataStream[T]:
        """A random subtask for each record; a replay makes the same choices.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1, 2, 3]).shuffle().map(str).set_parallelism(2)
        >>> sorted(text.execute_and_collect())
        ['1', '2', '3']
        """
        return self._partition(Partitioning(Strategy.SHUFFLE))

    def broadcast(self, *map_state_descriptors: Any) -> Any:
        """Every subtask of the next operator gets every record; with descriptors of broadcast state, a
        `BroadcastStream` to connect another stream with.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1, 2]).broadcast().map(str).set_parallelism(2)
        >>> sorted(text.execute_and_collect())
        ['1', '1', '2', '2']
        """
        stream = self._partition(Partitioning(Strategy.BROADCAST))
        if not map_state_descriptors:
            return stream
        from millstream.datastream.broadcast_stream import BroadcastStream

        return BroadcastStream(stream, *map_state_descriptors)

    def global_(self) -> DataStream[T]:
        """Everything goes to the first subtask of the next operator.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1, 2]).global_().map(str).set_parallelism(2)
        >>> list(text.execute_and_collect())
        ['1', '2']
        """
        return self._partition(Partitioning(Strategy.GLOBAL))

    def partition_custom(
        self, partitioner: Partitioner | Callable[[Any, int], int], key_selector: Any
    ) -> DataStream:
        """Choose each record's subtask by a function of its key and the next operator's parallelism.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> numbers = env.from_collection([1, 2, 3])
        >>> by_size = numbers.partition_custom(lambda key, count: min(key, count - 1), lambda n: n)
        >>> sorted(by_size.map(str).set_parallelism(2).execute_and_collect())
        ['1', '2', '3']
        """
        function = as_function("partition_custom", partitioner, Partitioner)
        key = as_key(key_selector, call="partition_custom")
        return self._partition(Partitioning(Strategy.CUSTOM, key, function))

    # -- time and windows: their place ------------------------------------------------------------------

    def assign_timestamps_and_watermarks(
        self, watermark_strategy: WatermarkStrategy
    ) -> DataStream[T]:
        """Give records timestamps and the stream watermarks, in the place of those it has.

        >>> from millstream.common import TimestampAssigner, WatermarkStrategy
        >>> from millstream.datastream import ProcessFunction, StreamExecutionEnvironment
        >>> class Second(TimestampAssigner):
        ...     def extract_timestamp(self, value, record_timestamp):
        ...         return value[1]
        >>> class Stamps(ProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield value[0], ctx.timestamp()
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        ...     Second()
        ... )
        >>> stream = env.from_collection([("a", 1000), ("b", 2000)])
        >>> list(
        ...     stream.assign_timestamps_and_watermarks(strategy)
        ...     .process(Stamps())
        ...     .execute_and_collect()
        ... )
        [('a', 1000), ('b', 2000)]
        """
        strategy = as_strategy(watermark_strategy)
        result = self._values()._apply("Timestamps/Watermarks", ops.AssignOp(strategy))
        result._transformation.output_type = self._values()._transformation.output_type
        return result

    def window_all(self, window_assigner: WindowAssigner[Any, W]) -> AllWindowedStream[T, W]:
        """Cut the whole stream into windows, in one subtask (rule 33).

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.window import CountTumblingWindowAssigner
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> in_pairs = CountTumblingWindowAssigner.of(2)
        >>> windows = env.from_collection([1, 5, 3, 4]).window_all(in_pairs)
        >>> list(windows.max().execute_and_collect())
        [5, 4]
        """
        from millstream.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T, CountWindow]:
        """Windows of so many records; with a slide, a new one after every so many. Only full ones fire.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> windows = env.from_collection([1, 2, 3, 4, 5]).count_window_all(2)
        >>> list(windows.reduce(lambda a, b: a + b).execute_and_collect())
        [3, 7]
        """
        from millstream.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, count_windows(size, slide))

    def cache(self) -> DataStream[T]:
        """Keep the stream for later programs."""
        raise not_yet("cache", "run the program again, or write the stream to files and read them")

    # -- sinks ------------------------------------------------------------------------------------------

    def _sink(
        self, name: str, operator: ops.Operator, *, like_input: bool = False
    ) -> OperatorTransformation:
        values = self._values()
        source = values._transformation
        transformation = OperatorTransformation(
            self._env._next_id(),
            name=name,
            operator=operator,
            inputs=(source,),
            declared_at=calling_line(),
            is_sink=True,
        )
        if like_input and isinstance(source, OperatorTransformation):
            transformation.parallelism = source.parallelism
            transformation.most_parallelism = source.most_parallelism
        self._env._add_sink(transformation)
        return transformation

    def add_sink(self, sink_func: SinkFunction | Callable[[Any], None]) -> DataStreamSink:
        """Call a `SinkFunction`, or a plain function, for each record. At-least-once.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).add_sink(print)
        >>> result = env.execute()
        1
        2
        """
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        function = as_sink_function(sink_func)
        return DataStreamSink(self._sink("Sink: Unnamed", ops.SinkFunctionOp(function)))

    def sink_to(self, sink: Sink | SparkSink) -> DataStreamSink:
        """Write to a `Sink`, which commits with the checkpoint.

        >>> import tempfile
        >>> from pathlib import Path
        >>> from millstream.common import Encoder
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> from millstream.datastream.connectors.file_system import FileSink
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = FileSink.for_row_format(folder, Encoder.simple_string_encoder()).build()
        ...     sink = env.from_collection(["a", "b"]).sink_to(files)
        ...     result = env.execute()
        ...     [path.read_text() for path in Path(folder).rglob("part-*")]
        ['a\\nb\\n']
        """
        operator = getattr(sink, "to_operator", None)
        if callable(operator):
            return DataStreamSink(self._sink("Sink: Writer", operator()))
        if isinstance(sink, type):
            raise class_given("sink_to", sink)
        if not isinstance(sink, Sink):
            msg = "sink_to needs a Sink"
            hint = or_build(sink, "a SinkFunction goes to add_sink()")
            raise InvalidArgument(msg, got=type(sink).__name__, hint=hint)
        return DataStreamSink(self._sink("Sink: Writer", ops.SinkOp(sink)))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record on the driver, with the subtask's number in front if there are several.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection(["a", "b"]).print("seen")
        >>> result = env.execute()
        seen> a
        seen> b
        """
        return DataStreamSink(self._sink("Sink: Print to Std. Out", ops.PrintOp(sink_identifier)))

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T]: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[T]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> Any:
        """Run the program and iterate over this stream's records as they come.

        With `limit`, a list of at most so many.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> with env.from_collection([1, 2, 3]).execute_and_collect() as results:
        ...     [n * 10 for n in results]
        [10, 20, 30]
        >>> env.from_collection([1, 2, 3]).execute_and_collect(limit=2)
        [1, 2]
        """
        if limit is not None and limit < 1:
            raise InvalidArgument("limit must be 1 or more", got=limit)
        iterator = self._env._collect(self, job_execution_name)
        if limit is None:
            return iterator
        with CloseableIterator(iterator._run, iterator._results, limit) as limited:
            return list(limited)

    def show(
        self,
        rows: int = 20,
        *,
        y: str | None = None,
        x: str | tuple[str, str] | None = None,
        by: str | None = None,
        keep: int = 1000,
        every: DurationLike = "500 ms",
        job_execution_name: str | None = None,
    ) -> LiveView:
        """Run the program and draw this stream in a notebook while it runs: the last `rows` records, and a chart.

        The chart is of the records a second, or of the field `y` over `x`, with a line or a colour for each value of
        `by`; a pair of fields as `x`, start and end, draws windows (`millstream.notebook.chart`). `keep` is how many
        records the chart and `frame()` have. The call returns at once; the view has `stop()`, as the button does, and
        `wait()`. Needs `pip install 'millstream[notebook]'`.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> words = env.from_collection([("mill", 1), ("stream", 2)])
        >>> view = words.show(y="f1", x="f0")  # doctest: +SKIP
        """
        from millstream.notebook import LiveView

        pause = parse_duration(every) / 1000
        view = LiveView(rows, keep, pause, x, y, by)
        view.open()
        self._env._show(self, view, job_execution_name)
        return view

    def to_dataframe(self, schema: str | None = None) -> Any:
        """This stream as a Spark frame: of a bounded program a batch frame, else a streaming one.

        The schema is a DDL string such as ``"word string, n long"``; it can be left out if the stream declares
        a ROW or TUPLE type. Fields with names go by name, a dict to a map or a struct. A value that a column cannot
        hold as it is fails the query, as does a name that is missing or unknown.

        Nobody completes the epochs of a query that you start, so an unbounded program must keep nothing from one to the
        next: it reads Spark's own streaming frames (`from_dataframe`) and has no state. `SparkSink` has no such limit.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection([("a", 1)])
        >>> words.to_dataframe("word string, n long").show()  # doctest: +SKIP
        """
        return self._env._to_dataframe(self, schema)
