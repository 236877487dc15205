"""`IterativeStream`: a stream with a part of itself fed back into it (Flink's `IterativeStream`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.api.generics import T
from millstream.datastream.data_stream import DataStream
from millstream.errors import InvalidArgument
from millstream.graph.operators import FeedbackOp, FeedbackSourceOp
from millstream.graph.transformations import (
    IterationTransformation,
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
    calling_line,
)
from millstream.runtime.operators.feedback import FeedbackSource

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["IterativeStream"]


class IterativeStream(DataStream[T]):
    """The beginning of a loop: the records of a stream, and those that `close_with` feeds back.

    What is fed back in one epoch is processed in the next one and belongs to the checkpoint between them. A job with
    bounded sources ends when they have ended and nothing is fed back any more. `name`, `uid` and `set_parallelism` are
    those of the operator that reads what was fed back.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> loop = env.from_collection([6, 11]).iterate()
    >>> halves = loop.map(lambda n: n // 2)
    >>> _ = loop.close_with(halves.filter(lambda n: n > 1))
    >>> list(halves.execute_and_collect())
    [3, 5, 1, 2, 1]
    """

    def __init__(self, env: StreamExecutionEnvironment, stream: DataStream[T]) -> None:
        source = stream._transformation
        number = env._next_id()
        self._head = IterationTransformation(
            number,
            source.output_type,
            name=f"IterationSource-{number}",
            operator=FeedbackSourceOp(FeedbackSource()),
            inputs=(),
            declared_at=calling_line(),
        )
        if isinstance(source, OperatorTransformation):
            self._head.parallelism = source.parallelism
        inputs = (source, self._head)
        super().__init__(
            env, UnionTransformation(env._next_id(), source.output_type, inputs=inputs)
        )

    def _operator(self, call: str) -> OperatorTransformation:
        return super()._operator(call) if call == "get_side_output" else self._head

    def close_with(self, feedback_stream: DataStream[T]) -> DataStream[T]:
        """Feed a stream's records back to the beginning of the loop; the stream itself is returned."""
        if not isinstance(feedback_stream, DataStream):
            raise InvalidArgument("close_with takes a stream", got=type(feedback_stream).__name__)
        self._check_same_environment("close_with", feedback_stream)
        if self._head.tail is not None:
            msg = "close_with was called twice on the same iteration"
            raise InvalidArgument(
                msg,
                closed_at=self._head.tail.declared_at,
                hint="union the streams that are fed back, and call close_with once",
            )
        values = feedback_stream._values()
        source = values._transformation
        if not _comes_from(source, self._head):
            msg = "close_with was given a stream that does not come from its iteration"
            raise InvalidArgument(
                msg,
                iteration=self._head.declared_at,
                hint="feed back what operators have made of the stream that iterate() gave; "
                "records of other sources are added with union() before iterate()",
            )
        wanted, got = self._transformation.output_type, source.output_type
        if wanted is not None and got is not None and wanted != got:
            msg = "close_with was given records of another type than its iteration has"
            raise InvalidArgument(msg, iteration=str(wanted), got=str(got))
        number = self._env._next_id()
        tail = OperatorTransformation(
            number,
            name=f"IterationSink-{self._head.id}",
            operator=FeedbackOp(self._head.id),
            inputs=(source,),
            declared_at=calling_line(),
        )
        if isinstance(source, OperatorTransformation):
            tail.parallelism = source.parallelism
            tail.most_parallelism = source.most_parallelism
        self._head.tail = tail
        return feedback_stream


def _comes_from(stream: Transformation, head: IterationTransformation) -> bool:
    """True if records of the loop's beginning reach the stream."""
    seen: set[int] = set()
    pending = [stream]
    while pending:
        at = pending.pop()
        if at is head:
            return True
        if at.id in seen:
            continue
        seen.add(at.id)
        match at:
            case OperatorTransformation(inputs=inputs) | UnionTransformation(inputs=inputs):
                pending.extend(inputs)
            case PartitionTransformation(input=above) | SideOutputTransformation(input=above):
                pending.append(above)
    return False
