"""The DataStream API, module by module as in PyFlink."""

from __future__ import annotations

from millstream.api.aggregates import count, max_of, mean_of, min_of, sum_of
from millstream.api.async_functions import (
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from millstream.api.batch_functions import (
    FilterBatchesFunction,
    FlatMapBatchesFunction,
    MapBatchesFunction,
)
from millstream.api.broadcast_functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
)
from millstream.api.join_functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    ProcessJoinFunction,
)
from millstream.api.output_tag import OutputTag
from millstream.api.trigger import Trigger, TriggerResult
from millstream.api.window_assigner import MergingWindowAssigner, WindowAssigner
from millstream.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.api.windows import CountWindow, GlobalWindow, TimeWindow, Window
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.datastream.async_data_stream import AsyncDataStream
from millstream.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.closeable_iterator import CloseableIterator
from millstream.datastream.connected_streams import ConnectedStreams
from millstream.datastream.data_stream import DataStream
from millstream.datastream.data_stream_sink import DataStreamSink
from millstream.datastream.externalized_checkpoint_retention import (
    ExternalizedCheckpointRetention,
)
from millstream.datastream.interval_join import IntervalJoin, IntervalJoined
from millstream.datastream.iterative_stream import IterativeStream
from millstream.datastream.joined_streams import CoGroupedStreams, JoinedStreams
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from millstream.datastream.state_backend import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    PredefinedOptions,
    StateBackend,
)
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.time_domain import TimeDomain
from millstream.datastream.timerservice import TimerService
from millstream.datastream.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoGroupedStreams",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterBatchesFunction",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapBatchesFunction",
    "FlatMapFunction",
    "Function",
    "GlobalWindow",
    "HashMapStateBackend",
    "IntervalJoin",
    "IntervalJoined",
    "IterativeStream",
    "JobManagerCheckpointStorage",
    "JoinFunction",
    "JoinedStreams",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapBatchesFunction",
    "MapFunction",
    "MemorySize",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "count",
    "max_of",
    "mean_of",
    "min_of",
    "sum_of",
]
