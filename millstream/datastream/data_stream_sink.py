"""`DataStreamSink`: the settings of a sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.api.functions import SinkFunction
from millstream.common.execution_config import checked_parallelism
from millstream.common.guesses import Guesses
from millstream.common.names import checked_name
from millstream.datastream.program import as_function
from millstream.graph.transformations import ChainingStrategy, OperatorTransformation

__all__ = ["DataStreamSink", "as_sink_function"]


class DataStreamSink(Guesses):
    """What a sink call returns; every method gives the sink back."""

    def __init__(self, transformation: OperatorTransformation) -> None:
        self._transformation = transformation

    def __repr__(self) -> str:
        return f"<DataStreamSink '{self._transformation.name}'>"

    def _instead_of(self, name: str) -> tuple[str, str] | None:
        from millstream.datastream.data_stream import DataStream

        if not hasattr(DataStream, name):
            return None
        return "a sink ends its stream", f"call {name} on the stream, before or beside the sink"

    def name(self, name: str) -> DataStreamSink:
        """Name the sink.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().name("screen")
        >>> result = env.execute()
        1
        2
        """
        name = checked_name(name, "the name of a sink")
        self._transformation.name = name if name.startswith("Sink: ") else f"Sink: {name}"
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Give the sink an id that survives changes of the program.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().uid("screen")
        >>> result = env.execute()
        1
        2
        """
        self._transformation.uid = checked_name(uid, "the uid of a sink")
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """As `uid`, with the hash itself.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().set_uid_hash("0123456789abcdef" * 2)
        >>> result = env.execute()
        1
        2
        """
        self._transformation.uid_hash = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """How many subtasks write.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().set_parallelism(1)
        >>> result = env.execute()
        1
        2
        """
        self._transformation.parallelism = checked_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """A longer text for plans.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().set_description("what the user sees")
        >>> result = env.execute()
        1
        2
        """
        self._transformation.description = description
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Do not chain the sink to the operator before it.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().disable_chaining()
        >>> result = env.execute()
        1
        2
        """
        self._transformation.chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: Any) -> DataStreamSink:
        """Put the sink into a slot sharing group.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sink = env.from_collection([1, 2]).print().slot_sharing_group("output")
        >>> result = env.execute()
        1
        2
        """
        name = getattr(slot_sharing_group, "get_name", lambda: slot_sharing_group)()
        self._transformation.slot_sharing_group = name
        return self


def as_sink_function(sink_func: Any) -> SinkFunction:
    """What `add_sink` was given, if it can be a sink: a `SinkFunction` or a plain function."""
    function = as_function("add_sink", sink_func, SinkFunction)
    return function if isinstance(function, SinkFunction) else _CallbackSink(function)


class _CallbackSink(SinkFunction):
    """A plain function as a sink."""

    def __init__(self, function: Callable[[Any], None]) -> None:
        self._function = function

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        self._function(value)
