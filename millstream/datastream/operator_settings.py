"""The settings of the operator that makes a stream: its name, uid, parallelism and the like.

Flink has them in `SingleOutputStreamOperator`; in PyFlink every `DataStream` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from millstream.common import options
from millstream.common.execution_config import (
    ExecutionConfig,
    checked_max_parallelism,
    checked_parallelism,
)
from millstream.common.guesses import Guesses
from millstream.common.names import checked_name
from millstream.common.time import parse_duration
from millstream.common.typeinfo import TypeInformation, Types
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph.transformations import (
    ChainingStrategy,
    OperatorTransformation,
    Transformation,
)

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["OperatorSettings"]

Self = TypeVar("Self", bound="OperatorSettings")


class OperatorSettings(Guesses):
    """What every stream has; on a view, such as a keyed stream, settings are refused."""

    def __init__(self, env: StreamExecutionEnvironment, transformation: Transformation) -> None:
        self._env = env
        self._transformation = transformation

    def _operator(self, call: str) -> OperatorTransformation:
        if not isinstance(self._transformation, OperatorTransformation):
            msg = f"{call} needs an operator; this stream is only a view of one"
            raise UnsupportedOperation(
                msg, hint=f"call {call} right after map, process and the like"
            )
        return self._transformation

    def name(self: Self, name: str) -> Self:
        """Name the operator, for plans, metrics and errors.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection([1]).map(str).name("as text").get_name()
        'as text'
        """
        self._operator("name").name = checked_name(name, "the name of an operator")
        return self

    def get_name(self) -> str:
        """The operator's name.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection([1]).map(str).get_name()
        'Map'
        """
        return self._operator("get_name").name

    def uid(self: Self, uid: str) -> Self:
        """Give the operator an id by which its state is found again when the program has changed.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> counts = env.from_collection([("a", 1), ("a", 1)]).key_by(0).sum(1).uid("counts")
        >>> list(counts.execute_and_collect())
        [('a', 1), ('a', 2)]
        """
        self._operator("uid").uid = checked_name(uid, "the uid of an operator")
        return self

    def set_uid_hash(self: Self, uid_hash: str) -> Self:
        """As `uid`, with the hash itself.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> numbers = env.from_collection([1]).map(str).set_uid_hash("0123456789abcdef" * 2)
        >>> list(numbers.execute_and_collect())
        ['1']
        """
        self._operator("set_uid_hash").uid_hash = uid_hash
        return self

    def set_parallelism(self: Self, parallelism: int) -> Self:
        """How many subtasks the operator has.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> squares = env.from_collection([1, 2, 3]).map(lambda n: n * n).set_parallelism(2)
        >>> sorted(squares.execute_and_collect())
        [1, 4, 9]
        """
        operator = self._operator("set_parallelism")
        checked_parallelism(parallelism)
        if operator.most_parallelism is not None and parallelism > operator.most_parallelism:
            msg = f"'{operator.name}' cannot run with a parallelism of {parallelism}"
            hint = "set the parallelism of the operators that follow"
            raise InvalidArgument(msg, most=operator.most_parallelism, hint=hint)
        operator.parallelism = parallelism
        return self

    def set_max_parallelism(self: Self, max_parallelism: int) -> Self:
        """The number of the operator's key groups, and so the most it can be scaled to.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sums = env.from_collection([("a", 1), ("a", 1)]).key_by(0).sum(1)
        >>> list(sums.set_max_parallelism(16).set_parallelism(4).execute_and_collect())
        [('a', 1), ('a', 2)]
        """
        maximum = checked_max_parallelism(max_parallelism)
        self._operator("set_max_parallelism").max_parallelism = maximum
        return self

    def force_non_parallel(self: Self) -> Self:
        """One subtask, and no way to change that.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection([1]).map(str).force_non_parallel().set_parallelism(2)
        Traceback (most recent call last):
        ...
        millstream.errors.InvalidArgument: [INVALID_ARGUMENT] 'Map' cannot run with a parallelism of 2...
        """
        operator = self._operator("force_non_parallel")
        operator.parallelism = operator.max_parallelism = operator.most_parallelism = 1
        return self

    def set_buffer_timeout(self: Self, timeout_millis: Any) -> Self:
        """How long a record may wait in a buffer for others, where the engine hands buffers on at once; -1 means
        until it is full.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1]).map(str).set_buffer_timeout("10 ms")
        >>> list(text.execute_and_collect())
        ['1']
        """
        wait = f"{parse_duration(timeout_millis)} ms"
        operator = self._operator("set_buffer_timeout")
        operator.buffer_timeout = options.checked(options.BUFFER_TIMEOUT, wait)
        return self

    def start_new_chain(self: Self) -> Self:
        """Do not chain the operator to the one before it.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection([1]).map(str).start_new_chain().execute_and_collect())
        ['1']
        """
        self._operator("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self: Self) -> Self:
        """Do not chain the operator to anything.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection([1]).map(str).disable_chaining().execute_and_collect())
        ['1']
        """
        self._operator("disable_chaining").chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self: Self, slot_sharing_group: Any) -> Self:
        """Put the operator, and what follows it, into a slot sharing group.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> list(env.from_collection([1]).map(str).slot_sharing_group("slow").execute_and_collect())
        ['1']
        """
        operator = self._operator("slot_sharing_group")
        if isinstance(slot_sharing_group, SlotSharingGroup):
            self._env._meet_slot_sharing_group(slot_sharing_group)
            slot_sharing_group = slot_sharing_group.name
        if not isinstance(slot_sharing_group, str):
            msg = "a slot sharing group is a name or a SlotSharingGroup"
            raise InvalidArgument(msg, got=repr(slot_sharing_group)[:200])
        operator.slot_sharing_group = slot_sharing_group
        return self

    def set_description(self: Self, description: str) -> Self:
        """A longer text for plans.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> text = env.from_collection([1]).map(str).set_description("numbers as people read them")
        >>> list(text.execute_and_collect())
        ['1']
        """
        self._operator("set_description").description = description
        return self

    def get_type(self) -> TypeInformation:
        """The declared type of the records.

        >>> from millstream.common import Types
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection([1]).map(str, Types.STRING()).get_type()
        String
        """
        declared = self._transformation.output_type
        pickled: TypeInformation = Types.PICKLED_BYTE_ARRAY()
        return pickled if declared is None else declared

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment this stream belongs to.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.from_collection([1]).get_execution_environment() is env
        True
        """
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """The environment's configuration of executions.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.set_parallelism(4).from_collection([1]).get_execution_config().get_parallelism()
        4
        """
        return self._env.get_config()
