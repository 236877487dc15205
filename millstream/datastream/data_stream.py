"""`DataStream`: a stream of records, and what can be done with it (Flink's `DataStream`).

Every call adds a transformation to the environment's program and gives back the stream of its output. Nothing runs
until `execute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.common.count_windows import count_windows
from millstream.common.error_policy import as_policy
from millstream.common.execution_config import ExecutionConfig
from millstream.common.functions import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    SinkFunction,
)
from millstream.common.generics import K, T, U, W
from millstream.common.output_tag import OutputTag
from millstream.common.sink import Sink
from millstream.common.time import parse_duration
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.watermark_strategy import WatermarkStrategy, as_strategy
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.data_stream_sink import DataStreamSink, as_sink_function
from millstream.datastream.notebook import stream_html
from millstream.datastream.program import as_function, as_key, as_type, class_given, not_yet
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph import operators as ops
from millstream.graph.partitioning import Partitioning, Strategy
from millstream.graph.transformations import (
    ChainingStrategy,
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
    calling_line,
)

if TYPE_CHECKING:
    from millstream.common.window_assigner import WindowAssigner
    from millstream.common.windows import CountWindow
    from millstream.datastream.iterative_stream import IterativeStream
    from millstream.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from millstream.datastream.keyed_stream import KeyedStream
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.windowed_stream import AllWindowedStream

__all__ = ["DataStream"]

Self = TypeVar("Self", bound="DataStream[Any]")


class DataStream(Generic[T]):
    """A stream of records.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> numbers = env.from_collection([1, 2, 3])
    >>> list(numbers.map(lambda n: n * 10).execute_and_collect())
    [10, 20, 30]
    """

    def __init__(self, env: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._env = env
        self._transformation = transformation

    def _repr_html_(self) -> str:
        return stream_html(self)

    # -- settings of the operator that makes this stream --------------------------------------------------

    def _operator(self, call: str) -> OperatorTransformation:
        if not isinstance(self._transformation, OperatorTransformation):
            msg = f"{call} needs an operator; this stream is only a view of one"
            raise UnsupportedOperation(
                msg, hint=f"call {call} right after map, process and the like"
            )
        return self._transformation

    def name(self: Self, name: str) -> Self:
        """Name the operator, for plans, metrics and errors."""
        self._operator("name").name = name
        return self

    def get_name(self) -> str:
        """The operator's name."""
        return self._operator("get_name").name

    def uid(self: Self, uid: str) -> Self:
        """Give the operator an id by which its state is found again when the program has changed."""
        self._operator("uid").uid = uid
        return self

    def set_uid_hash(self: Self, uid_hash: str) -> Self:
        """As `uid`, with the hash itself."""
        self._operator("set_uid_hash").uid_hash = uid_hash
        return self

    def set_parallelism(self: Self, parallelism: int) -> Self:
        """How many subtasks the operator has."""
        operator = self._operator("set_parallelism")
        if not isinstance(parallelism, int) or parallelism < 1:
            raise InvalidArgument("parallelism must be 1 or more", got=repr(parallelism))
        if operator.most_parallelism is not None and parallelism > operator.most_parallelism:
            msg = f"'{operator.name}' cannot run with a parallelism of {parallelism}"
            hint = "set the parallelism of the operators that follow"
            raise InvalidArgument(msg, most=operator.most_parallelism, hint=hint)
        operator.parallelism = parallelism
        return self

    def set_max_parallelism(self: Self, max_parallelism: int) -> Self:
        """The number of the operator's key groups, and so the most it can be scaled to."""
        if not isinstance(max_parallelism, int) or not 0 < max_parallelism <= 32768:
            msg = "max parallelism must be from 1 to 32768"
            raise InvalidArgument(msg, got=repr(max_parallelism))
        self._operator("set_max_parallelism").max_parallelism = max_parallelism
        return self

    def force_non_parallel(self: Self) -> Self:
        """One subtask, and no way to change that."""
        operator = self._operator("force_non_parallel")
        operator.parallelism = operator.max_parallelism = operator.most_parallelism = 1
        return self

    def set_buffer_timeout(self: Self, timeout_millis: Any) -> Self:
        """How long a record may wait in a buffer for others, where the engine hands buffers on at once."""
        self._operator("set_buffer_timeout").buffer_timeout = parse_duration(timeout_millis)
        return self

    def start_new_chain(self: Self) -> Self:
        """Do not chain the operator to the one before it."""
        self._operator("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self: Self) -> Self:
        """Do not chain the operator to anything."""
        self._operator("disable_chaining").chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self: Self, slot_sharing_group: Any) -> Self:
        """Put the operator, and what follows it, into a slot sharing group."""
        name = getattr(slot_sharing_group, "get_name", lambda: slot_sharing_group)()
        self._operator("slot_sharing_group").slot_sharing_group = name
        return self

    def set_description(self: Self, description: str) -> Self:
        """A longer text for plans."""
        self._operator("set_description").description = description
        return self

    def get_type(self) -> TypeInformation:
        """The declared type of the records."""
        declared = self._transformation.output_type
        pickled: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        return pickled if declared is None else declared

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment this stream belongs to."""
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """The environment's configuration of executions."""
        return self._env.get_config()

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

    def process(self, func: ProcessFunction[T, U], output_type: Any = None) -> DataStream[U]:
        """Full control: any number of outputs and side outputs per record."""
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
        """The records of several streams, in no particular order between them."""
        if not all(isinstance(one, DataStream) for one in streams):
            raise InvalidArgument("union takes streams", got=repr(streams))
        self._check_same_environment("union", *streams)
        inputs = tuple(one._values()._transformation for one in (self, *streams))
        first = inputs[0].output_type
        common = first if all(one.output_type == first for one in inputs) else None
        return DataStream(
            self._env, UnionTransformation(self._env._next_id(), common, inputs=inputs)
        )

    def iterate(self) -> IterativeStream[T]:
        """Begin a loop: `close_with` on the result feeds records back into it, to be processed in the following epoch."""
        from millstream.datastream.iterative_stream import IterativeStream

        return IterativeStream(self._env, self._values())

    def connect(self, ds: Any) -> Any:
        """Two streams of different types, for one function with a method for each; or this stream and a
        `BroadcastStream`."""
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
        """Pairs of records of two streams with equal keys in one window."""
        from millstream.datastream.joined_streams import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """All records of two streams with one key in one window."""
        from millstream.datastream.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def on_error(self, policy: Any) -> DataStream[T]:
        """What this stream's operator does with a record that its function cannot process: an `ErrorPolicy`.

        >>> from millstream.common.error_policy import ErrorPolicy
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
        """The records that this stream's operator sent to a tag."""
        operator = self._operator("get_side_output")
        return DataStream(
            self._env,
            SideOutputTransformation(
                self._env._next_id(), output_tag.type_info, input=operator, tag_id=output_tag.tag_id
            ),
        )

    def _check_same_environment(self, call: str, *others: DataStream) -> None:
        if any(one._env is not self._env for one in others):
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
        """Each subtask sends to the subtask with its own number."""
        return self._partition(Partitioning(Strategy.FORWARD))

    def rebalance(self) -> DataStream[T]:
        """Round robin over all subtasks of the next operator."""
        return self._partition(Partitioning(Strategy.REBALANCE))

    def rescale(self) -> DataStream[T]:
        """Round robin over a part of the subtasks of the next operator."""
        return self._partition(Partitioning(Strategy.RESCALE))

    def shuffle(self) -> DataStream[T]:
        """A random subtask for each record; a replay makes the same choices."""
        return self._partition(Partitioning(Strategy.SHUFFLE))

    def broadcast(self, *map_state_descriptors: Any) -> Any:
        """Every subtask of the next operator gets every record; with descriptors of broadcast state, a
        `BroadcastStream` to connect another stream with."""
        stream = self._partition(Partitioning(Strategy.BROADCAST))
        if not map_state_descriptors:
            return stream
        from millstream.datastream.broadcast_stream import BroadcastStream

        return BroadcastStream(stream, *map_state_descriptors)

    def global_(self) -> DataStream[T]:
        """Everything goes to the first subtask of the next operator."""
        return self._partition(Partitioning(Strategy.GLOBAL))

    def partition_custom(
        self, partitioner: Partitioner | Callable[[Any, int], int], key_selector: Any
    ) -> DataStream:
        """Choose each record's subtask by a function of its key and the next operator's parallelism."""
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
        """Cut the whole stream into windows, in one subtask (rule 33)."""
        from millstream.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[T, CountWindow]:
        """Windows of so many records; with a slide, a new one after every so many. Only full ones fire."""
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
        """Call a `SinkFunction`, or a plain function, for each record. At-least-once."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        function = as_sink_function(sink_func)
        return DataStreamSink(self._sink("Sink: Unnamed", ops.SinkFunctionOp(function)))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write to a `Sink`, which commits with the checkpoint."""
        operator = getattr(sink, "to_operator", None)
        if callable(operator):
            return DataStreamSink(self._sink("Sink: Writer", operator()))
        if isinstance(sink, type):
            raise class_given("sink_to", sink)
        if not isinstance(sink, Sink):
            msg = "sink_to needs a Sink"
            raise InvalidArgument(
                msg, got=type(sink).__name__, hint="a SinkFunction goes to add_sink()"
            )
        return DataStreamSink(self._sink("Sink: Writer", ops.SinkOp(sink)))

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each record on the driver, with the subtask's number in front if there are several."""
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
        """
        if limit is not None and limit < 1:
            raise InvalidArgument("limit must be 1 or more", got=limit)
        iterator = self._env._collect(self, job_execution_name)
        if limit is None:
            return iterator
        with CloseableIterator(iterator._run, iterator._results, limit) as limited:
            return list(limited)

    def to_dataframe(self, schema: str | None = None) -> Any:
        """This stream as a Spark frame: of a bounded program a batch frame, else a streaming one.

        The schema is a DDL string such as ``"word string, n long"``; it can be left out if the stream declares
        a ROW or TUPLE type.
        """
        return self._env._to_dataframe(self, schema)
