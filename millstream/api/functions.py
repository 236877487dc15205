"""The functions a user writes (Flink's `api.common.functions` and `streaming.api.functions`).

Every class here is a contract only; how each one is run is in `millstream.runtime`. A function object is
copied once per subtask: `open` runs on that copy before its first record, `close` after its last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Generic

from millstream.api.generics import ACC, T1, T2, K, T, U
from millstream.api.metrics import MetricGroup
from millstream.common.dependencies import DistributedCache
from millstream.errors import UnsupportedOperation

__all__ = [
    "AggregateFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "MapFunction",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimerService",
]


class RuntimeContext:
    """What a function may ask of the subtask it runs in."""

    __slots__ = (
        "_attempt",
        "_cached_files",
        "_index",
        "_job_parameters",
        "_keyed",
        "_max_parallelism",
        "_metrics",
        "_parallelism",
        "_task_name",
    )

    def __init__(
        self,
        task_name: str,
        index: int,
        parallelism: int,
        max_parallelism: int,
        attempt: int = 0,
        job_parameters: dict[str, str] | None = None,
        keyed: Any = None,
        cached_files: dict[str, str] | None = None,
        metrics: Callable[[], MetricGroup] = MetricGroup,
    ) -> None:
        self._keyed = keyed
        self._metrics = cache(metrics)
        self._task_name = task_name
        self._index = index
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._attempt = attempt
        self._job_parameters = job_parameters or {}
        self._cached_files = cached_files or {}

    def get_task_name(self) -> str:
        """The name of the operator."""
        return self._task_name

    def get_task_name_with_subtasks(self) -> str:
        """The name with the 1-based subtask number, as in ``Map (1/2)``."""
        return f"{self._task_name} ({self._index + 1}/{self._parallelism})"

    def get_index_of_this_subtask(self) -> int:
        """The subtask's number, from 0."""
        return self._index

    def get_number_of_parallel_subtasks(self) -> int:
        """How many subtasks the operator has."""
        return self._parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """The operator's maximum parallelism, the number of its key groups."""
        return self._max_parallelism

    def get_attempt_number(self) -> int:
        """How often this task has been tried before, from 0."""
        return self._attempt

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter, or the default."""
        return self._job_parameters.get(key, default_value)

    def get_distributed_cache(self) -> DistributedCache:
        """The files that `env.register_cached_file` has given to all workers.

        >>> context = RuntimeContext("Map", 0, 1, 128, cached_files={"words": "/tmp/words.txt"})
        >>> context.get_distributed_cache().get_file("words").name
        'words.txt'
        """
        return DistributedCache(self._cached_files)

    def get_metrics_group(self) -> MetricGroup:
        """The metrics of this operator's functions in this subtask. What they came to is told at the end of every
        epoch, and what an attempt counted that failed is not.

        >>> context = RuntimeContext("Map", 0, 1, 128)
        >>> context.get_metrics_group().counter("broken").inc()
        >>> context.get_metrics_group().counter("broken").get_count()
        1
        """
        return self._metrics()

    def get_state(self, state_descriptor: Any) -> Any:
        """Keyed value state, for a `ValueStateDescriptor`; only of functions on a keyed stream."""
        return self._state(state_descriptor, "value")

    def get_list_state(self, state_descriptor: Any) -> Any:
        """Keyed list state, for a `ListStateDescriptor`."""
        return self._state(state_descriptor, "list")

    def get_map_state(self, state_descriptor: Any) -> Any:
        """Keyed map state, for a `MapStateDescriptor`."""
        return self._state(state_descriptor, "map")

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        """Keyed reducing state, for a `ReducingStateDescriptor`."""
        return self._state(state_descriptor, "reducing")

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        """Keyed aggregating state, for an `AggregatingStateDescriptor`."""
        return self._state(state_descriptor, "aggregating")

    def _state(self, descriptor: Any, kind: str) -> Any:
        if self._keyed is None:
            msg = f"'{self._task_name}' has no key, so it cannot have keyed state"
            raise UnsupportedOperation(msg, hint="call key_by(...) first")
        return self._keyed.get(descriptor, kind)


class Function(ABC):
    """The root of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once on each subtask's copy, before its first record."""

    def close(self) -> None:
        """Called once on each subtask's copy, after its last record."""


class MapFunction(Function, Generic[T, U]):
    """One value in, one value out."""

    @abstractmethod
    def map(self, value: T) -> U:
        """The value to emit."""


class CoMapFunction(Function, Generic[T1, T2, U]):
    """A map over two connected streams."""

    @abstractmethod
    def map1(self, value: T1) -> U | None:
        """Called for each value of the first stream; None emits nothing."""

    @abstractmethod
    def map2(self, value: T2) -> U | None:
        """Called for each value of the second stream; None emits nothing."""


class FlatMapFunction(Function, Generic[T, U]):
    """One value in, any number out."""

    @abstractmethod
    def flat_map(self, value: T) -> Iterable[U]:
        """An iterable of the values to emit, often a generator."""


class CoFlatMapFunction(Function, Generic[T1, T2, U]):
    """A flat map over two connected streams; either method may return None."""

    @abstractmethod
    def flat_map1(self, value: T1) -> Iterable[U] | None:
        """Called for each value of the first stream."""

    @abstractmethod
    def flat_map2(self, value: T2) -> Iterable[U] | None:
        """Called for each value of the second stream."""


class FilterFunction(Function, Generic[T]):
    """Keeps the values that `filter` says yes to."""

    @abstractmethod
    def filter(self, value: T) -> bool:
        """True keeps the value."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values into one of the same type."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """`value1` is the result so far."""


class AggregateFunction(Function, Generic[T, ACC, U]):
    """An incremental aggregation with an accumulator of its own type."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """A new, empty accumulator."""

    @abstractmethod
    def add(self, value: T, accumulator: ACC) -> ACC:
        """The accumulator with the value added."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> U:
        """The result that the accumulator stands for."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Two accumulators as one."""


class KeySelector(Function, Generic[T, K]):
    """Takes the key out of a value; must give the same key each time it is asked."""

    @abstractmethod
    def get_key(self, value: T) -> K:
        """The value's key."""


class Partitioner(Function):
    """Chooses the target subtask of a record for `partition_custom`."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """A number from 0 to `num_partitions` - 1."""


class TimerService(ABC):
    """Time as a process function sees it (Flink's `TimerService`)."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The wall clock, in milliseconds."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's event-time watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the wall clock reaches the timestamp."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark reaches the timestamp."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget a timer; unknown timers are ignored."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget a timer; unknown timers are ignored."""


class ProcessFunction(Function, Generic[T, U]):
    """Full control over one stream: any number of outputs, side outputs, time to read.

    Yield or return values; ``yield tag, value`` with an `OutputTag` goes to that side output.
    """

    class Context(ABC):
        """What `process_element` may ask about the record at hand."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Timers, and the time as the operator sees it."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The record's timestamp, or None if it has none."""

    @abstractmethod
    def process_element(self, value: T, ctx: ProcessFunction.Context) -> Iterable[U] | None:
        """Called for each record."""


class KeyedProcessFunction(Function, Generic[T, U]):
    """A process function with a current key, keyed state and timers."""

    class Context(ProcessFunction.Context):
        """Adds the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the record at hand."""

    class OnTimerContext(Context):
        """Adds which kind of timer fired."""

        @abstractmethod
        def time_domain(self) -> Any:
            """Event time or processing time."""

    @abstractmethod
    def process_element(self, value: T, ctx: KeyedProcessFunction.Context) -> Iterable[U] | None:
        """Called for each record."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """Called when a timer fires."""


class CoProcessFunction(Function):
    """A process function over two connected streams."""

    class Context(ProcessFunction.Context):
        """As in `ProcessFunction`."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Called for each record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Called for each record of the second stream."""


class KeyedCoProcessFunction(Function):
    """A process function over two streams that share keys, keyed state and timers."""

    class Context(KeyedProcessFunction.Context):
        """As in `KeyedProcessFunction`."""

    class OnTimerContext(KeyedProcessFunction.OnTimerContext):
        """As in `KeyedProcessFunction`."""

    @abstractmethod
    def process_element1(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record of the first stream."""

    @abstractmethod
    def process_element2(
        self, value: Any, ctx: KeyedCoProcessFunction.Context
    ) -> Iterable[Any] | None:
        """Called for each record of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        """Called when a timer fires."""


class SinkFunction(Function):
    """A sink written as a class: `invoke` is called for each record. At-least-once."""

    class Context:
        """What `invoke` may ask about the record at hand."""

        __slots__ = ("_timestamp",)

        def __init__(self) -> None:
            self._timestamp: int | None = None

        def timestamp(self) -> int | None:
            """The record's timestamp, or None if it has none."""
            return self._timestamp

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Write one record."""

    def flush(self) -> None:
        """Called at the end of every epoch, before the epoch counts as done."""


class SourceFunction(Function):
    """A source written as a loop that pushes records; runs once, not in parallel, on the driver.

    Its records cannot be read again after the driver is lost, so it is at-most-once across such a loss.
    Implement a `millstream.api.source.Source` to be replayable.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is SourceFunction:
            raise _of_java("SourceFunction", args)
        return super().__new__(cls)

    def __init__(self, source_func: Any = None) -> None:
        """PyFlink's takes a Java object or the name of its class, which cannot be used here."""
        if source_func is not None:
            raise _of_java("SourceFunction", (source_func,))

    class SourceContext(ABC):
        """Where the `run` of a source function puts records."""

        @abstractmethod
        def collect(self, element: Any) -> None:
            """Emit a record; blocks while too many wait to be read."""

        @abstractmethod
        def collect_with_timestamp(self, element: Any, timestamp: int) -> None:
            """Emit a record with its event time in milliseconds."""

        @abstractmethod
        def emit_watermark(self, watermark: int) -> None:
            """Say that no record at or before this time follows."""

        @abstractmethod
        def is_running(self) -> bool:
            """False once the job is being stopped."""

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        """Emit records until the source ends or `cancel` is called."""

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon."""


def _of_java(name: str, given: tuple[Any, ...]) -> UnsupportedOperation:
    msg = f"a {name} of Java's cannot be used: no Java runs in a Millstream program"
    return UnsupportedOperation(
        msg,
        got=repr(given[0])[:200] if given else None,
        hint=f"write a class that extends {name}, with run(ctx) and cancel()",
    )


def unkeyed_timers(call: str) -> UnsupportedOperation:
    """The error for a timer registered where there is no key (rule 16)."""
    msg = f"{call}: only keyed functions may register timers"
    return UnsupportedOperation(msg, hint="call key_by(...) first and use a KeyedProcessFunction")
