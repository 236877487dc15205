"""A job ready to run, and the shape in which workers get it."""

from __future__ import annotations

import os
import sys
import sysconfig
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle

from millstream.api.source import Boundedness
from millstream.checkpoint.coordinator import Layout
from millstream.checkpoint.manifest import OperatorInfo, StoreState
from millstream.common.dependencies import Declared
from millstream.common.restart_strategy import RestartStrategyConfiguration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import FunctionNotSerializable, UnsupportedOperation, told
from millstream.graph.job_graph import JobVertex, build_job_graph
from millstream.graph.level_plan import Edge, LevelPlan, build_level_plan
from millstream.graph.operators import (
    AssignOp,
    FeedbackSourceOp,
    FrameSourceOp,
    SinkOp,
    SourceOp,
)
from millstream.graph.partitioning import Strategy
from millstream.graph.rescale import at_parallelism
from millstream.graph.stream_graph import StreamGraph
from millstream.ha.services import HighAvailability
from millstream.runtime.codegen.keys import is_repeatable
from millstream.runtime.driver.culprits import culprit_in
from millstream.runtime.operators.combining import combining
from millstream.runtime.operators.window_columns import columns_wanted
from millstream.runtime.task.dependencies import Dependencies, stage
from millstream.runtime.task.spec import EdgeTarget, JobSpec, LevelSpec, VertexSpec, store_name
from millstream.runtime.time.valve import InputEdge
from millstream.runtime.wire.key_objects import classes_in
from millstream.runtime.wire.ranges import SourceSpec

__all__ = [
    "Job",
    "JobSettings",
    "build_job",
]


@dataclass(frozen=True)
class JobSettings:
    """What the configuration says about running a job. Times are in seconds."""

    name: str = "Millstream Streaming Job"
    epoch_interval: float = 1.0
    round_interval: float = 1.0
    checkpoint_interval: float | None = None
    checkpoint_timeout: float | None = None
    min_pause: float = 0.0
    tolerable_failures: int = 0
    buffer_bytes: int = 256 << 10
    buffer_records: int = 8192
    sort_memory: int = 64 << 20
    checkpoint_dir: str | None = None
    savepoint_dir: str | None = None
    local_dir: str | None = None
    key_file: str | None = None
    mode: str = "EXACTLY_ONCE"
    retained: int = 1
    retention: str = "NO_EXTERNALIZED_CHECKPOINTS"
    backend: str = "hashmap"
    recovery_path: str | None = None
    allow_non_restored: bool = False
    claim_mode: str | None = None
    resume: str = "auto"
    restart: RestartStrategyConfiguration | None = None
    print_code: bool = False
    watermark_interval: float = 0.2
    share_panes: bool = True
    columns: bool = True
    object_reuse: bool = False
    runtime_mode: str = "STREAMING"
    execution_mode: str = "MICRO_BATCH"
    flow_timeout: int = 2
    """Where records flow through all levels at once: how many milliseconds one may wait in a buffer, -1 for as long as
    it is not full."""
    job_parameters: dict[str, str] = field(default_factory=dict)
    epoch_records: int | None = None
    dependencies: Declared = field(default_factory=Declared)
    spark: dict[str, str] = field(default_factory=dict)
    progress: str = "auto"
    latency_interval: float = 1.0
    scheduler_mode: str | None = None
    """REACTIVE: the parallelism follows the slots that there are."""
    slots_settle: float = 60.0
    slots_settle_at_start: float = 0.0
    rescale_pause: float = 30.0
    reporters: dict[str, str] = field(default_factory=dict)
    """What the configuration says of metrics reporters, by its keys."""
    high_availability: HighAvailability | None = None
    program: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """How the command line names the program: the words that do, and its arguments. None if it cannot."""


@dataclass(frozen=True)
class Job:
    """A job on the driver."""

    id: str
    settings: JobSettings
    graph: StreamGraph
    plan: LevelPlan
    dependencies: Dependencies = field(default_factory=Dependencies)

    @property
    def split_sources(self) -> list[SourceSpec]:
        """The sources that are read by splits."""
        return [
            SourceSpec(
                v.head.uid,
                v.id,
                v.head.name,
                v.head.operator.source,
                v.parallelism,
                timed=any(edge.watermarked for edge in self.plan.out_edges(v)),
                strategies=tuple(_strategies(v)),
            )
            for v in self.plan.sources
            if isinstance(v.head.operator, SourceOp)
        ]

    @property
    def frame_sources(self) -> list[JobVertex]:
        """The sources that are Spark frames."""
        return [v for v in self.plan.sources if isinstance(v.head.operator, FrameSourceOp)]

    @property
    def bounded(self) -> bool:
        """True if every source ends."""
        return all(
            s.source.boundedness() is Boundedness.BOUNDED for s in self.split_sources
        ) and all(
            v.head.operator.bounded  # type: ignore[attr-defined]
            for v in self.frame_sources
        )

    @property
    def batch(self) -> bool:
        """True if the job runs in BATCH mode."""
        mode = self.settings.runtime_mode
        return mode == "BATCH" or (mode == "AUTOMATIC" and self.bounded and not self.loops)

    @property
    def pipelined(self) -> bool:
        """True if records flow through all levels at once, and not epoch by epoch."""
        return self.settings.execution_mode == "PIPELINED" and not self.batch

    @property
    def reactive(self) -> bool:
        """True if the job's parallelism follows the slots that there are."""
        return self.settings.scheduler_mode == "REACTIVE"

    @property
    def loops(self) -> bool:
        """True if the job has iterations."""
        return any(isinstance(v.head.operator, FeedbackSourceOp) for v in self.plan.sources)

    @property
    def one_epoch(self) -> bool:
        """True if the whole job can run as a single epoch: it ends, nothing makes it wait, and nobody wants
        checkpoints on the way."""
        if self.batch:
            return True
        return (
            not self.pipelined
            and self.bounded
            and self.settings.checkpoint_interval is None
            and not any(s.source.paced() for s in self.split_sources)
            and self.settings.epoch_records is None
        )

    def with_max_parallelism(self, maximums: dict[str, int]) -> Job:
        """The job whose operators have the maximum parallelism that is `found` of them, where nobody has set it."""
        nodes = {
            id_: replace(node, max_parallelism=maximums[node.uid])
            if node.derived_maximum and maximums.get(node.uid, 0) >= node.parallelism
            else node
            for id_, node in self.graph.nodes.items()
        }
        if nodes == self.graph.nodes:
            return self
        graph = replace(self.graph, nodes=nodes)
        return replace(self, graph=graph, plan=build_level_plan(build_job_graph(graph)))

    def at_parallelism(self, parallelism: int, *, everything: bool = False) -> Job:
        """The same job with another default parallelism; with `everything`, whatever the program has set for single
        operators. Raises if it cannot have that."""
        graph = at_parallelism(self.graph, parallelism, everything=everything)
        return replace(self, graph=graph, plan=build_level_plan(build_job_graph(graph)))

    def layout(self, job_id: str) -> Layout:
        """The job as its checkpoint coordinator sees it."""
        stores = {
            store_name(vertex, subtask): StoreState(
                subtask=subtask,
                parallelism=vertex.parallelism,
                max_parallelism=vertex.head.max_parallelism,
                operators=[node.uid for node in vertex.nodes],
            )
            for vertex in self.plan.vertices
            for subtask in range(vertex.parallelism)
        }
        operators = {
            node.uid: OperatorInfo(
                name=node.name,
                parallelism=node.parallelism,
                max_parallelism=node.max_parallelism,
            )
            for node in self.graph.nodes.values()
        }
        tasks = [level.parallelism for level in self.plan.levels]
        sinks = frozenset(
            node.uid for node in self.graph.nodes.values() if isinstance(node.operator, SinkOp)
        )
        return Layout(job_id, self.settings.name, tasks, stores, operators, sinks)

    def spec(
        self,
        state_dir: str,
        *,
        job_id: str | None = None,
        durable: bool = False,
        first_epoch: int = 0,
        base_epoch: int | None = None,
        restored: bool = False,
    ) -> JobSpec:
        """The job for the workers; raises if a function cannot be shipped."""
        settings = self.settings
        inputs: dict[int, int] = {}
        for edge in self.plan.edges:
            inputs[edge.target_vertex] = max(
                inputs.get(edge.target_vertex, 1), edge.input_index + 1
            )
        classes: dict[str, type] = {}
        levels = tuple(
            LevelSpec(
                tuple(
                    VertexSpec(
                        v.id,
                        v.parallelism,
                        inputs.get(v.id, 1),
                        isinstance(v.head.operator, SourceOp),
                        _ship(v, self._out_edges(v), classes),
                        self._stamped(v),
                        () if self.batch else _input_edges(self.plan.in_edges(v)),
                        self._carried(v),
                    )
                    for v in level.vertices
                ),
                level.parallelism,
            )
            for level in self.plan.levels
        )
        return JobSpec(
            run_id=uuid.uuid4().hex,
            job_id=job_id or self.id,
            state_dir=state_dir,
            durable=durable,
            first_epoch=first_epoch,
            first_batch=0,
            base_epoch=base_epoch,
            restored=restored,
            strict=not settings.allow_non_restored,
            # One key at a time is always small.
            backend="hashmap" if self.batch else settings.backend,
            local_dir=settings.local_dir,
            key_file=settings.key_file,
            levels=levels,
            targets={
                e.id: EdgeTarget(e.target_level, e.target_vertex, e.input_index, _is_broadcast(e))
                for e in self.plan.edges
            },
            python_path=_python_path(installed=not settings.dependencies.environment),
            buffer_bytes=settings.buffer_bytes,
            buffer_records=settings.buffer_records,
            sort_memory=settings.sort_memory,
            job_parameters=settings.job_parameters,
            print_code=settings.print_code,
            dependencies=self.dependencies,
            ask_generators=settings.watermark_interval > 0,
            share_panes=settings.share_panes,
            columns=settings.columns,
            object_reuse=settings.object_reuse,
            batch=self.batch,
            latency_interval=0.0 if self.batch else settings.latency_interval,
            classes=_ship_classes(classes),
            flow_timeout=settings.flow_timeout if self.pipelined else None,
            while_there=os.environ.get("MILLSTREAM_JOB_FOLDER"),
        )

    def _out_edges(self, vertex: JobVertex) -> list[Edge]:
        heads = {v.id: v for v in self.plan.vertices}
        edges = [
            replace(edge, carries_key=edge.input_index in self._carried(heads[edge.target_vertex]))
            for edge in self.plan.out_edges(vertex)
        ]
        if not self.batch:
            return [self._with_columns(edge, heads[edge.target_vertex]) for edge in edges]
        return [
            replace(
                edge,
                watermarked=False,
                waits=not _is_broadcast(edge)
                and any(map(_is_broadcast, self.plan.in_edges(heads[edge.target_vertex]))),
                **combining(edge, heads[edge.target_vertex].head),
            )
            for edge in edges
        ]

    def _with_columns(self, edge: Edge, target: JobVertex) -> Edge:
        """The edge, if its target takes columns with what its senders have to know of that."""
        settings = self.settings
        if not settings.columns or edge.carries_key:
            return edge
        wanted = columns_wanted(edge, target, share_panes=settings.share_panes)
        return edge if wanted is None else replace(edge, columns=wanted)

    def _carried(self, vertex: JobVertex) -> tuple[int, ...]:
        """The inputs whose records bring their keys, because nothing shows that the selector would give the same one
        again: it is called once for each record, by the sender (rule 65)."""
        keys = vertex.head.operator.keys
        edges = self.plan.in_edges(vertex)
        return tuple(
            index
            for index, key in enumerate(keys)
            if not is_repeatable(key)
            and all(
                edge.partitioning.strategy is Strategy.HASH
                for edge in edges
                if edge.input_index == index
            )
        )

    def _stamped(self, vertex: JobVertex) -> bool:
        """True if the vertex receives timestamps with its records."""
        if isinstance(vertex.head.operator, FeedbackSourceOp):
            return any(edge.stamped for edge in self.plan.out_edges(vertex))
        if isinstance(vertex.head.operator, SourceOp):
            return vertex.head.operator.source.stamped()
        return any(edge.stamped for edge in self.plan.in_edges(vertex))


def _strategies(vertex: JobVertex) -> Iterator[WatermarkStrategy]:
    """The watermark strategies that a source's splits go through before any exchange."""
    for node in vertex.nodes:
        if isinstance(node.operator, SourceOp | AssignOp) and node.operator.strategy is not None:
            yield node.operator.strategy


def _is_broadcast(edge: Edge) -> bool:
    """True for what is read before everything beside it (rules 50 and 60)."""
    return edge.partitioning.strategy is Strategy.BROADCAST


def _input_edges(edges: Sequence[Edge]) -> tuple[InputEdge, ...]:
    """The edges that bring a vertex watermarks, each under a name of its own: two may lead from one operator to it."""
    inputs: list[InputEdge] = []
    known: dict[str, int] = {}
    for edge in edges:
        if not edge.watermarked:
            continue
        senders: list[list[int]] = [[] for _ in range(edge.target_parallelism)]
        for sender in range(edge.source_parallelism):
            for target in edge.targets_of(sender):
                senders[target].append(sender)
        name = f"{edge.source_uid}|{edge.tag_id or ''}|{edge.input_index}"
        known[name] = known.get(name, 0) + 1
        inputs.append(
            InputEdge(
                edge.id,
                edge.input_index,
                name if known[name] == 1 else f"{name}|{known[name]}",
                edge.from_splits,
                edge.from_frame,
                tuple(tuple(subtasks) for subtasks in senders),
                edge.source_parallelism,
            )
        )
    return tuple(inputs)


def _python_path(*, installed: bool) -> tuple[str, ...]:
    """Where this process imports from, for workers that see the same disk; without what is `installed` if that is
    shipped."""
    own = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return tuple(path for path in sys.path if installed or path not in own)


def build_job(graph: StreamGraph, settings: JobSettings, id_: str | None = None) -> Job:
    """From a stream graph to a job, with a new id unless it has one."""
    plan = build_level_plan(build_job_graph(graph))
    dependencies = stage(settings.dependencies, settings.local_dir)
    job = Job(id_ or uuid.uuid4().hex, settings, graph, plan, dependencies)
    if job.loops:
        _check_loops(job)
    if not job.batch:
        return job
    for source in job.split_sources:
        if source.source.boundedness() is not Boundedness.BOUNDED:
            raise _endless(source.name)
    for vertex in job.frame_sources:
        if not job.bounded:
            raise _endless(vertex.head.name)
    # What fails is run again from the beginning: there is nothing to go on from.
    settings = replace(settings, checkpoint_interval=None, checkpoint_dir=None, epoch_records=None)
    return replace(job, settings=settings)


def _check_loops(job: Job) -> None:
    """A loop needs one epoch after the other."""
    if job.batch:
        msg = "iterate() cannot run in BATCH mode"
        raise UnsupportedOperation(msg, hint="use RuntimeExecutionMode.STREAMING or AUTOMATIC")
    for vertex in job.frame_sources:
        if vertex.head.operator.bounded:  # type: ignore[attr-defined]
            msg = f"'{vertex.head.name}' is a batch frame in a job that has an iteration"
            raise UnsupportedOperation(
                msg,
                declared_at=vertex.head.declared_at,
                hint="read it as a stream (spark.readStream), or use from_collection for small data",
            )


def _endless(name: str) -> UnsupportedOperation:
    msg = f"the source '{name}' has no end, so the job cannot run in BATCH mode"
    return UnsupportedOperation(
        msg, hint="use RuntimeExecutionMode.STREAMING or AUTOMATIC, or bound the source"
    )


def _ship_classes(classes: dict[str, type]) -> bytes:
    return bytes(cloudpickle.dumps(classes)) if classes else b""


def _ship(vertex: JobVertex, edges: Sequence[Edge], classes: dict[str, type]) -> bytes:
    try:
        nodes = [classes_in(node, classes) for node in vertex.nodes]
        parts = (vertex.id, nodes, vertex.inner, [classes_in(edge, classes) for edge in edges])
        return bytes(cloudpickle.dumps(parts))
    except Exception as error:
        for node in vertex.nodes:
            subject = f"the function of '{node.name}'"
            _check_ships(subject, node.name, node.declared_at, node.operator, error)
        for edge in edges:
            name = next(n.name for n in vertex.nodes if n.id == edge.source_node)
            key = edge.partitioning.key
            line = None if key is None else key.declared_at
            _check_ships(f"the key selector after '{name}'", name, line, key, error)
            _check_ships(f"the partitioner after '{name}'", name, line, edge.partitioning, error)
        raise


def _check_ships(subject: str, operator: str, line: Any, part: Any, original: Exception) -> None:
    try:
        cloudpickle.dumps(part)
    except Exception as error:
        raise FunctionNotSerializable(
            f"{subject} cannot be sent to the workers",
            operator=operator,
            declared_at=line,
            cannot_be_sent=culprit_in(part),
            cause=told(error),
            hint="create connections, locks and open files in open(), "
            "not in __init__ or at module level",
        ) from original
