"""`IntervalJoin` and `IntervalJoined`: records of two keyed streams whose timestamps are so far apart (Flink's
`KeyedStream.IntervalJoin`; PyFlink has no such join).

```
orders.interval_join(parcels).between("0 s", "2 h").process(function)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.api.join_functions import ProcessJoinFunction
from millstream.api.output_tag import OutputTag
from millstream.common.time import DurationLike, parse_duration
from millstream.datastream.program import as_function
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph import operators as ops

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream
    from millstream.datastream.keyed_stream import KeyedStream

__all__ = ["IntervalJoin", "IntervalJoined"]


class IntervalJoin:
    """What `KeyedStream.interval_join` gives; `between` says which records meet."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        if not isinstance(right, type(left)):
            msg = "interval_join needs another keyed stream"
            hint = "call key_by on both streams"
            raise InvalidArgument(msg, got=type(right).__name__, hint=hint)
        left._check_same_environment("interval_join", right)
        left_type, right_type = left._key.key_type, right._key.key_type
        if left_type is not None and right_type is not None and left_type != right_type:
            msg = "the keys of the two streams have different types"
            hint = "records meet if their keys are equal: declare the same type for both, or none"
            raise InvalidArgument(msg, left=str(left_type), right=str(right_type), hint=hint)
        self._left = left
        self._right = right

    def in_event_time(self) -> IntervalJoin:
        """By the records' own time, which is the only way."""
        return self

    def in_processing_time(self) -> IntervalJoin:
        """Not possible, as in Flink."""
        msg = "an interval join works by event time only"
        hint = (
            "leave in_processing_time() out; for the time of arrival use for_ingestion_time() as the"
            " watermark strategy of both streams"
        )
        raise UnsupportedOperation(msg, hint=hint)

    def between(self, lower_bound: DurationLike, upper_bound: DurationLike) -> IntervalJoined:
        """A right record meets the left ones with ``left + lower <= right <= left + upper``, all in milliseconds.

        A bound may be negative: then the right record is the earlier one.
        """
        lower, upper = parse_duration(lower_bound), parse_duration(upper_bound)
        if lower > upper:
            msg = "the lower bound of an interval join must not be above the upper one"
            raise InvalidArgument(msg, lower=f"{lower} ms", upper=f"{upper} ms")
        return IntervalJoined(self._left, self._right, lower, upper)


class IntervalJoined:
    """An interval join that only lacks its function.

    >>> from millstream.common import TimestampAssigner, WatermarkStrategy
    >>> from millstream.datastream import ProcessJoinFunction, StreamExecutionEnvironment
    >>> class Second(TimestampAssigner):
    ...     def extract_timestamp(self, value, record_timestamp):
    ...         return value[1]
    >>> class Pair(ProcessJoinFunction):
    ...     def process_element(self, left, right, ctx):
    ...         yield left[0], left[1], right[1]
    >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> orders = env.from_collection([("tea", 100), ("rye", 200)])
    >>> parcels = env.from_collection([("tea", 150), ("rye", 190), ("tea", 400)])
    >>> left, right = (
    ...     stream.assign_timestamps_and_watermarks(strategy).key_by(0)
    ...     for stream in (orders, parcels)
    ... )
    >>> list(left.interval_join(right).between(0, 60).process(Pair()).execute_and_collect())
    [('tea', 100, 150)]
    """

    def __init__(self, left: KeyedStream, right: KeyedStream, lower: int, upper: int) -> None:
        self._left = left
        self._right = right
        self._lower = lower
        self._upper = upper
        self._without_lower = False
        self._without_upper = False
        self._late_tags: list[str | None] = [None, None]

    def lower_bound_exclusive(self) -> IntervalJoined:
        """Leave out what is exactly at the lower bound."""
        self._without_lower = True
        return self

    def upper_bound_exclusive(self) -> IntervalJoined:
        """Leave out what is exactly at the upper bound."""
        self._without_upper = True
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Where left records go that are behind the watermark; without this they are dropped."""
        self._late_tags[0] = _tag("side_output_left_late_data", output_tag)
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Where right records go that are behind the watermark; without this they are dropped."""
        self._late_tags[1] = _tag("side_output_right_late_data", output_tag)
        return self

    def process(
        self,
        process_join_function: ProcessJoinFunction[Any, Any, Any],
        output_type: Any = None,
    ) -> DataStream:
        """Run a `ProcessJoinFunction` for each pair; results have the later one of its two timestamps."""
        function = as_function("process", process_join_function, ProcessJoinFunction, plain=False)
        lower = self._lower + 1 if self._without_lower else self._lower
        upper = self._upper - 1 if self._without_upper else self._upper
        if lower > upper:
            msg = "nothing is between the exclusive bounds of an interval join"
            raise InvalidArgument(msg, lower=f"{self._lower} ms", upper=f"{self._upper} ms")
        left, right = self._left, self._right
        operator = ops.IntervalJoinOp(
            function,
            (left._key, right._key),
            lower,
            upper,
            (self._late_tags[0], self._late_tags[1]),
        )
        inputs = left._transformation, right._transformation
        result = left._apply("Interval Join", operator, output_type, inputs)
        told = f"IntervalJoin({lower} ms to {upper} ms, {type(function).__name__})"
        return result.set_description(told)


def _tag(call: str, given: Any) -> str:
    if isinstance(given, OutputTag):
        return given.tag_id
    msg = f"{call} needs an OutputTag"
    raise InvalidArgument(msg, got=repr(given)[:200], hint='for example OutputTag("late")')
