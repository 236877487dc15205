"""The broadcast state pattern: a stream whose every record reaches every subtask, beside one that is spread out."""

from __future__ import annotations

from typing import Any

from millstream.api.broadcast_functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from millstream.api.state import MapStateDescriptor
from millstream.common.guesses import Guesses
from millstream.datastream.data_stream import DataStream
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.program import as_function
from millstream.errors import InvalidArgument
from millstream.graph import operators as ops

__all__ = ["BroadcastConnectedStream", "BroadcastStream"]


class BroadcastStream(Guesses):
    """What `broadcast(descriptor, ...)` gives: connect another stream with it."""

    def __init__(
        self, input_stream: DataStream, *map_state_descriptors: MapStateDescriptor
    ) -> None:
        for descriptor in map_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                msg = "broadcast takes descriptors of the broadcast state"
                raise InvalidArgument(
                    msg, got=type(descriptor).__name__, hint='pass MapStateDescriptor("rules")'
                )
        self.input_stream = input_stream
        self.broadcast_state_descriptors = map_state_descriptors


class BroadcastConnectedStream(Guesses):
    """A stream, keyed or not, connected with a broadcast one.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> rules = MapStateDescriptor("rules")
    >>> class Scale(BroadcastProcessFunction):
    ...     def process_element(self, value, ctx):
    ...         yield value * (ctx.get_broadcast_state(rules).get("factor") or 1)
    ...
    ...     def process_broadcast_element(self, value, ctx):
    ...         ctx.get_broadcast_state(rules).put("factor", value)
    >>> numbers = env.from_collection([1, 2])
    >>> factors = env.from_collection([10]).broadcast(rules)
    >>> sorted(numbers.connect(factors).process(Scale()).execute_and_collect())
    [10, 20]
    """

    def __init__(self, non_broadcast_stream: DataStream, broadcast_stream: BroadcastStream) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream

    def process(
        self,
        func: BroadcastProcessFunction | KeyedBroadcastProcessFunction,
        output_type: Any = None,
    ) -> DataStream:
        """Run a `KeyedBroadcastProcessFunction` if the stream is keyed, else a `BroadcastProcessFunction`.

        >>> from millstream.datastream import KeyedBroadcastProcessFunction
        >>> from millstream.datastream.state import MapStateDescriptor
        >>> from millstream.testing import OperatorHarness
        >>> names = MapStateDescriptor("names")
        >>> class Named(KeyedBroadcastProcessFunction):
        ...     def process_element(self, value, ctx):
        ...         yield ctx.get_current_key(), ctx.get_broadcast_state(names).get(value)
        ...
        ...     def process_broadcast_element(self, value, ctx):
        ...         ctx.get_broadcast_state(names).put(*value)
        >>> def named(numbers, told):
        ...     return numbers.key_by(lambda n: n).connect(told.broadcast(names)).process(Named())
        >>> with OperatorHarness(named) as harness:
        ...     harness.process_element2((1, "one"))
        ...     harness.process_element1(1)
        ...     harness.extract_output()
        [(1, 'one')]
        """
        stream = self.non_broadcast_stream
        key = stream._key if isinstance(stream, KeyedStream) else None
        wanted = BroadcastProcessFunction if key is None else KeyedBroadcastProcessFunction
        function = as_function("process", func, wanted, plain=False)
        name = "Broadcast-Process" if key is None else "Keyed-Broadcast-Process"
        inputs = (stream._transformation, self.broadcast_stream.input_stream._transformation)
        states = self.broadcast_stream.broadcast_state_descriptors
        operator = ops.BroadcastProcessOp(function, key, states)
        return stream._apply(name, operator, output_type, inputs)
