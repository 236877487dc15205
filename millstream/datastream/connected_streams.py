"""`ConnectedStreams`: two streams read by one function with a method for each."""

from __future__ import annotations

from typing import Any

from millstream.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from millstream.common.guesses import Guesses
from millstream.datastream.data_stream import DataStream
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.program import as_function
from millstream.errors import InvalidArgument
from millstream.graph import operators as ops
from millstream.graph.operators import Key

__all__ = ["ConnectedStreams"]


class ConnectedStreams(Guesses):
    """What `connect` gives. There is no order between the two inputs (rule 43)."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def __repr__(self) -> str:
        return f"<ConnectedStreams {self.stream1._described()} and {self.stream2._described()}>"

    def _instead_of(self, name: str) -> tuple[str, str] | None:
        if not hasattr(self.stream1, name):
            return None
        return "two connected streams are none yet", "call map, flat_map or process, and then that"

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: Any = None
    ) -> ConnectedStreams:
        """Key both streams, so that records with equal keys meet in one subtask and share state.

        >>> from millstream.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class WithKey(KeyedCoProcessFunction):
        ...     def process_element1(self, value, ctx):
        ...         yield ctx.get_current_key(), value
        ...
        ...     def process_element2(self, value, ctx):
        ...         yield ctx.get_current_key(), value
        >>> both = env.from_collection([("a", 1)]).connect(env.from_collection(["ab"]))
        >>> list(both.key_by(0, lambda text: text[0]).process(WithKey()).execute_and_collect())
        [('a', ('a', 1)), ('a', 'ab')]
        """
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def _keys(self) -> tuple[Key, ...]:
        first, second = self.stream1, self.stream2
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            return first._key, second._key
        return ()

    def _apply(self, name: str, operator: ops.Operator, output_type: Any) -> DataStream:
        inputs = (self.stream1._transformation, self.stream2._transformation)
        return self.stream1._apply(name, operator, output_type, inputs)

    def map(self, func: CoMapFunction, output_type: Any = None) -> DataStream:
        """Run a `CoMapFunction`.

        >>> from millstream.datastream import CoMapFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Length(CoMapFunction):
        ...     def map1(self, value):
        ...         return value
        ...
        ...     def map2(self, value):
        ...         return len(value)
        >>> both = env.from_collection([1]).connect(env.from_collection(["two"]))
        >>> sorted(both.map(Length()).execute_and_collect())
        [1, 3]
        """
        function = as_function("map", func, CoMapFunction, plain=False)
        return self._apply("Co-Map", ops.CoMapOp(function, self._keys()), output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: Any = None) -> DataStream:
        """Run a `CoFlatMapFunction`.

        >>> from millstream.datastream import CoFlatMapFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Words(CoFlatMapFunction):
        ...     def flat_map1(self, value):
        ...         return value.split()
        ...
        ...     def flat_map2(self, value):
        ...         return []  # heard and not repeated
        >>> both = env.from_collection(["to be"]).connect(env.from_collection([1]))
        >>> list(both.flat_map(Words()).execute_and_collect())
        ['to', 'be']
        """
        function = as_function("flat_map", func, CoFlatMapFunction, plain=False)
        return self._apply("Co-Flat Map", ops.CoFlatMapOp(function, self._keys()), output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Run a `CoProcessFunction`, or a `KeyedCoProcessFunction` if both streams are keyed.

        >>> from millstream.datastream import CoProcessFunction, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> class Sides(CoProcessFunction):
        ...     def process_element1(self, value, ctx):
        ...         yield "left", value
        ...
        ...     def process_element2(self, value, ctx):
        ...         yield "right", value
        >>> both = env.from_collection([1]).connect(env.from_collection([2]))
        >>> sorted(both.process(Sides()).execute_and_collect())
        [('left', 1), ('right', 2)]
        """
        keys = self._keys()
        if isinstance(func, KeyedCoProcessFunction):
            if not keys:
                msg = "a KeyedCoProcessFunction needs both streams keyed"
                raise InvalidArgument(msg, hint="call key_by on the connected streams first")
            return self._apply("Keyed Co-Process", ops.KeyedCoProcessOp(func, keys), output_type)
        function = as_function("process", func, CoProcessFunction, plain=False)
        return self._apply("Co-Process", ops.CoProcessOp(function), output_type)
