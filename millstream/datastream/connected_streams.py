"""`ConnectedStreams`: two streams read by one function with a method for each."""

from __future__ import annotations

from typing import Any

from millstream.common.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from millstream.datastream.data_stream import DataStream
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.program import as_function
from millstream.errors import InvalidArgument
from millstream.graph import operators as ops
from millstream.graph.operators import Key

__all__ = ["ConnectedStreams"]


class ConnectedStreams:
    """What `connect` gives. There is no order between the two inputs (rule 43)."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: Any, key_selector2: Any, key_type: Any = None
    ) -> ConnectedStreams:
        """Key both streams, so that records with equal keys meet in one subtask and share state."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def _keys(self) -> tuple[Key, ...]:
        one, two = self.stream1, self.stream2
        if isinstance(one, KeyedStream) and isinstance(two, KeyedStream):
            return one._key, two._key
        return ()

    def _apply(self, name: str, operator: ops.Operator, output_type: Any) -> DataStream:
        inputs = (self.stream1._transformation, self.stream2._transformation)
        return self.stream1._apply(name, operator, output_type, inputs)

    def map(self, func: CoMapFunction, output_type: Any = None) -> DataStream:
        """Run a `CoMapFunction`."""
        function = as_function("map", func, CoMapFunction, plain=False)
        return self._apply("Co-Map", ops.CoMapOp(function, self._keys()), output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: Any = None) -> DataStream:
        """Run a `CoFlatMapFunction`."""
        function = as_function("flat_map", func, CoFlatMapFunction, plain=False)
        return self._apply("Co-Flat Map", ops.CoFlatMapOp(function, self._keys()), output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: Any = None
    ) -> DataStream:
        """Run a `CoProcessFunction`, or a `KeyedCoProcessFunction` if both streams are keyed."""
        keys = self._keys()
        if isinstance(func, KeyedCoProcessFunction):
            if not keys:
                msg = "a KeyedCoProcessFunction needs both streams keyed"
                raise InvalidArgument(msg, hint="call key_by on the connected streams first")
            return self._apply("Keyed Co-Process", ops.KeyedCoProcessOp(func, keys), output_type)
        function = as_function("process", func, CoProcessFunction, plain=False)
        return self._apply("Co-Process", ops.CoProcessOp(function), output_type)
