"""`StreamExecutionEnvironment`: where a program begins and where it is run."""

from __future__ import annotations

import itertools
import json
import linecache
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from millstream.api.functions import SourceFunction
from millstream.api.generics import T
from millstream.api.source import Source
from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.common.execution_config import ExecutionConfig
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.guesses import Guesses
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.names import checked_name
from millstream.common.time import parse_duration
from millstream.common.watermark_strategy import WatermarkStrategy, as_strategy
from millstream.connectors.collection import CollectionSource
from millstream.connectors.file.format import BulkFormat
from millstream.connectors.file.source import FileSource
from millstream.connectors.socket import MAX_LINE_BYTES, SocketTextSource
from millstream.connectors.source_function import SourceFunctionSource
from millstream.datastream import forgotten, overrides
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.closeable_iterator import CloseableIterator, ResultQueue
from millstream.datastream.data_stream import DataStream
from millstream.datastream.dependency_settings import DependencySettings
from millstream.datastream.environment_settings import AcceptedSettings
from millstream.datastream.executor import create_run, show_run
from millstream.datastream.program import as_type, class_given, or_build
from millstream.datastream.progress import progress_of
from millstream.datastream.settings import buffer_timeout, job_settings
from millstream.datastream.what_stays import what_stays
from millstream.errors import InvalidArgument, MillstreamError, UnsupportedOperation, shortly
from millstream.graph.operators import CollectOp, FrameSourceOp, Operator, SourceOp
from millstream.graph.plan_json import plan_as_json
from millstream.graph.stream_graph import StreamGraph, build_stream_graph
from millstream.graph.transformations import OperatorTransformation, calling_line
from millstream.redaction import shown
from millstream.runtime.driver.job import Job, JobSettings, build_job
from millstream.runtime.driver.pipelined import check_pipelined
from millstream.runtime.driver.run import JobRun

__all__ = ["StreamExecutionEnvironment"]


class StreamExecutionEnvironment(DependencySettings, AcceptedSettings, Guesses):
    """Holds the program while it is written down, and runs it.

    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> env.from_collection([1, 2]).map(lambda n: n + 1).print()
    <DataStreamSink 'Sink: Print to Std. Out'>
    >>> result = env.execute("add one")
    2
    3
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._sinks: list[OperatorTransformation] = []
        self._ids = itertools.count(1)
        self._token = object()
        self._warned: set[str] = set()
        options.check_values(configuration)
        self._warn_of_keys()

    def __repr__(self) -> str:
        count = len(self._sinks)
        return (
            f"<StreamExecutionEnvironment with {count} sink{'' if count == 1 else 's'} to execute>"
        )

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | str | None = None,
    ) -> StreamExecutionEnvironment:
        """An environment; a string is short for the option `execution.target`."""
        merged = Configuration()
        for key, value in overrides.configuration().items():
            merged.set_string(key, value)
        if isinstance(configuration, str):
            merged.set_string(options.TARGET.key, configuration)
        elif configuration is not None:
            merged.add_all(configuration)
        return StreamExecutionEnvironment(merged)

    # -- configuration ----------------------------------------------------------------------------------

    def get_configuration(self) -> Configuration:
        """The configuration itself."""
        return self._configuration

    def get_config(self) -> ExecutionConfig:
        """The configuration of executions."""
        return ExecutionConfig(self._configuration)

    def configure(self, configuration: Configuration) -> None:
        """Add to the configuration."""
        options.check_values(configuration)
        self._configuration.add_all(configuration)
        self._warn_of_keys()

    def _warn_of_keys(self) -> None:
        """Say once of each key that is unknown or has no effect that it is so."""
        for text in options.check_known(self._configuration):
            if text not in self._warned:
                self._warned.add(text)
                line = calling_line()
                file, number = (line.file, line.line) if line else (__file__, 0)
                # Python quotes the line from its file: not one that is not to be shown as it is.
                if line and line.text != linecache.getline(file, number).strip():
                    number = 0
                warnings.warn_explicit(shown(text), UserWarning, file, number)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """The parallelism of operators that do not set their own."""
        self.get_config().set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The parallelism of operators that do not set their own."""
        value: int = options.get(self._configuration, options.PARALLELISM)
        return value

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """The number of key groups of operators that do not set their own."""
        self.get_config().set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups of operators that do not set their own, -1 if it is derived from the parallelism."""
        value: int = options.get(self._configuration, options.MAX_PARALLELISM)
        return value

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Results as records come, or, of bounded input, per key at its end.

        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env = env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        >>> words = env.from_collection([("a", 1), ("b", 1), ("a", 1)])
        >>> sorted(words.key_by(0).sum(1).execute_and_collect())
        [('a', 2), ('b', 1)]
        """
        if not isinstance(execution_mode, RuntimeExecutionMode):
            msg = "set_runtime_mode needs a RuntimeExecutionMode"
            raise InvalidArgument(msg, got=repr(execution_mode)[:200])
        self._configuration.set_string(options.RUNTIME_MODE.key, execution_mode.name)
        return self

    def set_execution_mode(self, mode: str) -> StreamExecutionEnvironment:
        """How records go through the job: "micro-batch", epoch by epoch, or "pipelined", all the way as they come, in
        milliseconds.

        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> sorted(
        ...     env.set_execution_mode("pipelined")
        ...     .from_collection([("a", 1), ("a", 2)])
        ...     .key_by(0)
        ...     .sum(1)
        ...     .execute_and_collect()
        ... )
        [('a', 1), ('a', 3)]
        """
        options.put(self._configuration, options.EXECUTION_MODE, mode)
        return self

    def set_buffer_timeout(self, timeout_millis: Any) -> StreamExecutionEnvironment:
        """How long a record may wait in a buffer for others; -1: until it is full."""
        wait = f"{parse_duration(timeout_millis)} ms"
        options.put(self._configuration, options.BUFFER_TIMEOUT, wait)
        return self

    def get_buffer_timeout(self) -> int:
        """How long a record may wait in a buffer for others, in milliseconds."""
        value: int = options.get(self._configuration, options.BUFFER_TIMEOUT)
        return value

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Run every operator in a vertex of its own."""
        self._configuration.set_boolean(options.OPERATOR_CHAINING.key, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """True if operators are chained."""
        value: bool = options.get(self._configuration, options.OPERATOR_CHAINING)
        return value

    def enable_checkpointing(
        self, interval: Any, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Checkpoint every `interval`, which is the length of an epoch."""
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The configuration of checkpoints."""
        return CheckpointConfig(self._configuration)

    def get_checkpoint_interval(self) -> int:
        """Milliseconds between checkpoints, -1 if there are none."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """What checkpoints guarantee."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """The folder of savepoints that are not given one."""
        self._configuration.set_string(options.SAVEPOINT_DIRECTORY.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """The folder of savepoints that are not given one, None if there is none."""
        value: str | None = options.get(self._configuration, options.SAVEPOINT_DIRECTORY)
        return value

    # -- sources ----------------------------------------------------------------------------------------

    def _next_id(self) -> int:
        return next(self._ids)

    def _source(
        self, name: str, operator: Operator, type_info: Any, most: int | None = None
    ) -> DataStream:
        transformation = OperatorTransformation(
            self._next_id(),
            as_type(type_info),
            name=f"Source: {name}",
            operator=operator,
            inputs=(),
            declared_at=calling_line(),
        )
        transformation.most_parallelism = most
        return DataStream(self, transformation)

    def from_collection(self, collection: Iterable[T], type_info: Any = None) -> DataStream[T]:
        """A stream of the elements of a collection, at parallelism 1."""
        if isinstance(collection, str | bytes) or not isinstance(collection, Iterable):
            msg = "from_collection needs a list or another collection"
            hint = "put what is to be one record into a list"
            raise InvalidArgument(msg, got=type(collection).__name__, hint=hint)
        source = CollectionSource(list(collection))
        return self._source("Collection Source", SourceOp(source), type_info, most=1)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: Any = None,
    ) -> DataStream:
        """A stream read from a `Source`."""
        if isinstance(source, type):
            raise class_given("from_source", source)
        if not isinstance(source, Source):
            msg = "from_source needs a Source"
            hint = or_build(source, "a SourceFunction goes to add_source()")
            raise InvalidArgument(msg, got=type(source).__name__, hint=hint)
        strategy: WatermarkStrategy | None = None
        if watermark_strategy is not None:
            strategy = as_strategy(watermark_strategy)
            if strategy == WatermarkStrategy.no_watermarks():
                strategy = None
        validate = getattr(source, "validate", None)
        if callable(validate):
            validate()
        most = source.max_parallelism()
        return self._source(source_name, SourceOp(source, strategy), type_info, most)

    def create_input(self, input_format: Any, type_info: Any = None) -> DataStream:
        """A stream read from the path of an `AvroInputFormat`. Other formats of PyFlink's are Java's."""
        path = getattr(input_format, "path", None)
        if not isinstance(input_format, BulkFormat) or path is None:
            raise UnsupportedOperation(
                "create_input reads an AvroInputFormat; others are of Java, and no Java library is used here",
                got=type(input_format).__name__,
                hint="use from_source with a FileSource or a Source of yours",
            )
        source = FileSource.for_bulk_file_format(input_format, path).build()
        return self.from_source(
            source, WatermarkStrategy.no_watermarks(), "Custom File Source", type_info
        )

    def add_source(
        self, source_func: SourceFunction, source_name: str = "Custom Source", type_info: Any = None
    ) -> DataStream:
        """A stream pushed by a `SourceFunction`, which runs on the driver."""
        if isinstance(source_func, type):
            raise class_given("add_source", source_func)
        if not isinstance(source_func, SourceFunction):
            msg = "add_source needs a SourceFunction"
            raise InvalidArgument(
                msg, got=type(source_func).__name__, hint="a Source goes to from_source()"
            )
        source = SourceFunctionSource(source_func, source_name)
        return self._source(source_name, SourceOp(source), type_info, most=1)

    def socket_text_stream(
        self,
        hostname: str,
        port: int,
        delimiter: str = "\n",
        max_retry: int = 0,
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> DataStream:
        """The lines that a TCP server sends; one that is longer than `max_line_bytes` ends the job."""
        source = SocketTextSource(
            hostname, port, delimiter, max_retry, max_line_bytes=max_line_bytes
        )
        return self._source("Socket Stream", SourceOp(source), None, most=1)

    def from_dataframe(self, df: Any, name: str = "Spark Frame") -> DataStream:
        """The rows of any Spark batch or streaming frame, as named `Row`s. Structs are `Row`s too, maps dicts."""
        streaming = getattr(df, "isStreaming", None)
        if streaming is None:
            msg = "from_dataframe needs a Spark DataFrame"
            raise InvalidArgument(msg, got=type(df).__name__)
        return self._source(name, FrameSourceOp(df, bounded=not streaming), None)

    # -- execution --------------------------------------------------------------------------------------

    def _add_sink(self, transformation: OperatorTransformation) -> None:
        self._sinks.append(transformation)
        forgotten.sink_declared(self._token, transformation)

    def _graph(self, sinks: Sequence[OperatorTransformation]) -> StreamGraph:
        maximum = self.get_max_parallelism()
        return build_stream_graph(
            sinks,
            parallelism=self.get_parallelism(),
            max_parallelism=maximum if maximum > 0 else None,
            buffer_timeout=buffer_timeout(self._configuration),
            chaining_enabled=self.is_chaining_enabled(),
            generate_uids=options.get(self._configuration, options.AUTO_GENERATE_UIDS),
        )

    def get_execution_plan(self) -> str:
        """The program as the JSON that Flink's plan visualizer reads."""
        forgotten.executed(self._token)
        return json.dumps(plan_as_json(self._graph(self._sinks)), indent=2)

    def _take_job(self, job_name: str | None) -> Job:
        """The program so far as a job; the environment is empty afterwards (rule 57)."""
        forgotten.executed(self._token)
        if job_name is not None:
            checked_name(job_name, "the name of a job")
        # What the program has put into the configuration itself nobody has looked at yet.
        options.check_values(self._configuration)
        self._warn_of_keys()
        graph = self._graph(self._sinks)
        self._sinks = []
        hand_over = overrides.plan_callback()
        if hand_over is not None:
            hand_over(plan_as_json(graph))
            raise overrides.PlanReady
        job = build_job(graph, self._job_settings(graph, job_name), overrides.take_job_id())
        check_pipelined(job)
        take_job = overrides.job_callback()
        if take_job is not None:
            take_job(job)
            raise overrides.PlanReady
        return job

    def _job_settings(self, graph: StreamGraph, job_name: str | None) -> JobSettings:
        lines = (node.declared_at for node in graph.nodes.values())
        program = overrides.program({line.file for line in lines if line is not None})
        return replace(job_settings(self._configuration, job_name), program=program)

    def _create_run(self, job: Job) -> JobRun:
        target: str = options.get(self._configuration, options.TARGET)
        run = create_run(target, job)
        try:
            show_run(run, self._configuration)
        except BaseException as error:
            # Somebody may have seen it, and wait for its end.
            run.refuse(error)
            raise
        return run

    def _submit(self, job: Job) -> JobRun:
        run = self._create_run(job)
        run.start()
        return run

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run everything that leads to a sink and wait for the end. Ctrl-C cancels the job."""
        try:
            run = self._submit(self._take_job(job_name))
            try:
                with progress_of(run):
                    seconds = run.result()
            except KeyboardInterrupt:
                run.leave()
                raise KeyboardInterrupt(what_stays(run)) from None
        except MillstreamError as error:
            raise shortly(error) from error.__cause__
        return JobExecutionResult(JobID(run.job.id), round(seconds * 1000))

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start everything that leads to a sink and return at once."""
        try:
            run = self._submit(self._take_job(job_name))
        except MillstreamError as error:
            raise shortly(error) from error.__cause__
        return JobClient(run.job.id, run.job.settings.name, run)

    def _collect(self, stream: DataStream, job_name: str | None) -> CloseableIterator:
        results = ResultQueue()
        try:
            job = self._take_job_with(stream, "Sink: Collect", CollectOp(results.put), job_name)[0]
            run = self._create_run(job)
        except MillstreamError as error:
            raise shortly(error) from error.__cause__
        run.on_done(results.finish)
        run.start()
        return CloseableIterator(run, results)

    def _show(self, stream: DataStream, view: Any, job_name: str | None) -> None:
        """Run the program so far and hand this stream's records to a view."""
        try:
            collect = CollectOp(view.take, at_once=True)
            job = self._take_job_with(stream, "Sink: Show", collect, job_name)[0]
            run = self._create_run(job)
        except MillstreamError as error:
            raise shortly(error) from error.__cause__
        view.begin(run)

    def _to_dataframe(self, stream: DataStream, schema: str | None) -> Any:
        from importlib import import_module

        from millstream.datastream.frames import schema_of

        ddl = schema or schema_of(stream.get_type())
        job, node = self._take_job_with(stream, "Sink: Spark Frame", CollectOp(None, ddl), None)
        return import_module("millstream.spark.frames").job_as_frame(job, node, ddl)

    def _take_job_with(
        self, stream: DataStream, name: str, operator: CollectOp, job_name: str | None
    ) -> tuple[Job, int]:
        """The program so far with one more sink, which is gone again if the program cannot be built."""
        sink = stream._sink(name, operator, like_input=True)
        try:
            return self._take_job(job_name), sink.id
        finally:
            if sink in self._sinks:
                self._sinks.remove(sink)

    def close(self) -> None:
        """Nothing is held between executions."""
