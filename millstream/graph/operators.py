"""What each operator is, as inert data. How each one runs is `millstream.runtime.operators.registry`.

An operator holds what the program has handed in: its function, the keys of its inputs, a window's assigner and trigger.
It has no behaviour, so that a graph can be printed, compared and shipped without running anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.functions import Function
from millstream.api.sink import Sink
from millstream.api.source import Source
from millstream.common.watermark_strategy import WatermarkStrategy

__all__ = [
    "AssignOp",
    "AsyncOp",
    "BatchesOp",
    "BroadcastProcessOp",
    "CoFlatMapOp",
    "CoMapOp",
    "CoProcessOp",
    "CollectOp",
    "FeedbackOp",
    "FeedbackSourceOp",
    "FilterOp",
    "FlatMapOp",
    "FrameSourceOp",
    "IntervalJoinOp",
    "Key",
    "KeyedCoProcessOp",
    "KeyedProcessOp",
    "MapOp",
    "Operator",
    "PrintOp",
    "ProcessOp",
    "ProjectOp",
    "ReduceOp",
    "RollingOp",
    "SinkFunctionOp",
    "SinkOp",
    "SourceOp",
    "WindowJoinOp",
    "WindowOp",
]


@dataclass(frozen=True, eq=False)
class Key:
    """How to take the key out of a record: by field, which is inlined, or by calling `selector`."""

    selector: Any = None
    field: int | str | None = None
    key_type: Any = None
    declared_at: Any = None


@dataclass(frozen=True, eq=False)
class Operator:
    """The root. `keys` has a `Key` for each keyed input, which come first; empty for operators without keys."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """One key per input, for operators that run in the context of a key."""
        return ()

    @property
    def user_function(self) -> Any:
        """The user's function object, if there is one."""
        return getattr(self, "function", None)

    @property
    def stateful(self) -> bool:
        """True if the operator may keep something from one epoch to the next. A function object may have state: of its
        own, or of the key at hand; a lambda has neither."""
        function = self.user_function
        own = isinstance(function, CheckpointedFunction)
        return own or (bool(self.keys) and isinstance(function, Function))


class _Keeps(Operator):
    """An operator that keeps state whatever its function is."""

    @property
    def stateful(self) -> bool:
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class _MaybeKeyedOp(Operator):
    key: Key | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        return () if self.key is None else (self.key,)


@dataclass(frozen=True, eq=False)
class SourceOp(_Keeps):
    """Reads a split-based source from where it was, with timestamps and watermarks by its strategy if it has one."""

    source: Source
    strategy: WatermarkStrategy | None = None


@dataclass(frozen=True, eq=False)
class FeedbackSourceOp(SourceOp):
    """The beginning of a loop: reads what was fed back in the epoch before."""


@dataclass(frozen=True, eq=False)
class FrameSourceOp(Operator):
    """Reads a Spark frame; `frame` stays on the driver."""

    frame: Any
    bounded: bool

    def __reduce__(self) -> tuple[Any, ...]:
        # The frame belongs to the driver; the workers only see its rows.
        return FrameSourceOp, (None, self.bounded)


@dataclass(frozen=True, eq=False)
class MapOp(_MaybeKeyedOp):
    """One in, one out."""

    function: Any


@dataclass(frozen=True, eq=False)
class AssignOp(_Keeps):
    """Gives records timestamps and the stream watermarks."""

    strategy: WatermarkStrategy


@dataclass(frozen=True, eq=False)
class ProjectOp(Operator):
    """Keeps some fields of a tuple or row, in the given order."""

    fields: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class FlatMapOp(_MaybeKeyedOp):
    """One in, any number out."""

    function: Any


@dataclass(frozen=True, eq=False)
class FilterOp(_MaybeKeyedOp):
    """Keeps what the function says yes to."""

    function: Any


@dataclass(frozen=True, eq=False)
class ProcessOp(Operator):
    """A `ProcessFunction`."""

    function: Function


@dataclass(frozen=True, eq=False)
class _KeyedOp(Operator):
    key: Key

    @property
    def keys(self) -> tuple[Key, ...]:
        return (self.key,)


@dataclass(frozen=True, eq=False)
class KeyedProcessOp(_KeyedOp):
    """A `KeyedProcessFunction`."""

    function: Function


@dataclass(frozen=True, eq=False)
class ReduceOp(_Keeps, _KeyedOp):
    """A rolling reduce."""

    function: Any


@dataclass(frozen=True, eq=False)
class RollingOp(_Keeps, _KeyedOp):
    """A rolling `sum`, `min`, `max`, `min_by` or `max_by` of one field."""

    kind: str
    field: int | str


@dataclass(frozen=True, eq=False)
class CoMapOp(Operator):
    """A `CoMapFunction`, with keys if both inputs are keyed."""

    function: Any
    input_keys: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.input_keys


@dataclass(frozen=True, eq=False)
class CoFlatMapOp(Operator):
    """A `CoFlatMapFunction`, with keys if both inputs are keyed."""

    function: Any
    input_keys: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.input_keys


@dataclass(frozen=True, eq=False)
class CoProcessOp(Operator):
    """A `CoProcessFunction`."""

    function: Function


@dataclass(frozen=True, eq=False)
class KeyedCoProcessOp(Operator):
    """A `KeyedCoProcessFunction`."""

    function: Function
    input_keys: tuple[Key, ...]

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.input_keys


@dataclass(frozen=True, eq=False)
class BroadcastProcessOp(_Keeps):
    """A `BroadcastProcessFunction`, or with a key a `KeyedBroadcastProcessFunction`. Input 1 is the broadcast side;
    `states` are the descriptors that it was broadcast with."""

    function: Function
    key: Key | None = None
    states: tuple[Any, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return () if self.key is None else (self.key,)


@dataclass(frozen=True, eq=False)
class SinkFunctionOp(Operator):
    """A `SinkFunction`."""

    function: Function


@dataclass(frozen=True, eq=False)
class SinkOp(Operator):
    """A `Sink` with writers and a committer."""

    sink: Sink


@dataclass(frozen=True, eq=False)
class FeedbackOp(_Keeps):
    """The end of a loop: feeds records back to its beginning, the node `head`."""

    head: int


@dataclass(frozen=True, eq=False)
class PrintOp(Operator):
    """Formats records as lines that the driver prints."""

    identifier: str | None


@dataclass(frozen=True, eq=False)
class CollectOp(Operator):
    """Hands records to the driver: `execute_and_collect` and sinks that run on the driver.

    `consumer` runs on the driver and stays there; `schema` is set when Spark writes the records. With `at_once` it does
    not wait for a checkpoint, as `print` does not.
    """

    consumer: Any
    schema: str | None = None
    at_once: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return CollectOp, (None, self.schema)


@dataclass(frozen=True, eq=False)
class WindowOp(_Keeps, _KeyedOp):
    """A function over windows.

    `kind` says what a window keeps: "reduce" and "aggregate" one value that `incremental` combines with
    each record, "list" its records, over which `incremental`, if there is one, runs when the window fires (that is
    so with an evictor). `function` gets the result, or the records; without it the result is emitted.
    """

    assigner: Any
    trigger: Any
    evictor: Any
    lateness: int
    """How long after its end a window still takes records, in milliseconds."""

    late_tag: str | None
    """The id of the side output for records that are too late."""

    kind: str
    incremental: Any
    function: Any
    all_windows: bool
    """Whether the windows are those of a whole stream: then `key` is the same for all records, and the function
    is not told of it."""

    accumulator_type: Any = None
    """The declared type of what "aggregate" keeps."""

    @property
    def user_function(self) -> Any:
        """The function that sees the window, or else the one that combines its records."""
        return self.incremental if self.function is None else self.function


@dataclass(frozen=True, eq=False)
class WindowJoinOp(WindowOp):
    """A function over windows of two streams: a window holds pairs (0 or 1 for the stream, record)."""

    second: Key = field(kw_only=True)
    """The key of the second stream, where `key` is that of the first."""

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.key, self.second


@dataclass(frozen=True, eq=False)
class IntervalJoinOp(_Keeps):
    """A `ProcessJoinFunction` over pairs whose right record is from `lower` to `upper` ms after the left one."""

    function: Any
    input_keys: tuple[Key, ...]
    lower: int
    upper: int
    late_tags: tuple[str | None, str | None]
    """The ids of the side outputs for late records of either stream."""

    @property
    def keys(self) -> tuple[Key, ...]:
        return self.input_keys


@dataclass(frozen=True, eq=False)
class AsyncOp(Operator):
    """An `AsyncFunction`, with results in the order of the records or as they come."""

    function: Any
    ordered: bool
    timeout_ms: int
    """For all attempts of a record together."""

    capacity: int
    """The most requests that a subtask has under way."""

    retry: Any


@dataclass(frozen=True, eq=False)
class BatchesOp(Operator):
    """A function over many records at once; `kind` is what its results mean: "map", "filter" or "flat_map"."""

    function: Any
    kind: str
    batch_size: int
    """The most records that the function is given."""

    batch_format: str
    """What it is given them as: one of `BATCH_FORMATS`."""
