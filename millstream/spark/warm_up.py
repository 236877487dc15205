"""A small job that has done all that a job needs of Spark, so that the next one finds it done.

The first epochs of a process are ten times as long as those after them: Java loads classes, Spark plans and compiles,
Python workers start and import. A driver that stands by runs this job now and then, with as many levels and subtasks as
the job that it waits for has. It also has the workers unpickle that job's functions, which imports what they are made
of, and opens none of them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace

from millstream.api.sink import Committer, Sink, SinkWriter
from millstream.api.state import ValueStateDescriptor
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.connectors.number_seq import NumberSequenceSource
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.data_stream import DataStream
from millstream.graph.job_graph import build_job_graph
from millstream.graph.level_plan import build_level_plan
from millstream.runtime.driver.job import Job
from millstream.runtime.task.spec import VertexSpec
from millstream.storage.open import open_storage

__all__ = ["warm_up_folder", "warm_up_job"]

_RECORDS = 60
_EPOCH = 20


class _Count(KeyedProcessFunction):
    """Counts by key, after the workers have imported what the job's own functions need."""

    def __init__(self, vertices: tuple[VertexSpec, ...]) -> None:
        self._vertices = vertices

    def open(self, runtime_context):  # type: ignore[no-untyped-def]
        for vertex in self._vertices:
            # Whoever cannot be made here fails when the job runs.
            with contextlib.suppress(Exception):
                vertex.load()
        self._vertices = ()
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):  # type: ignore[no-untyped-def]
        self._count.update((self._count.value() or 0) + 1)
        yield value


class _Nowhere(Sink):
    """Takes records and drops them."""

    def create_writer(self, context):  # type: ignore[no-untyped-def]
        return _Drop()

    def create_committer(self):  # type: ignore[no-untyped-def]
        return _Nothing()


class _Drop(SinkWriter):
    def write(self, value):  # type: ignore[no-untyped-def]
        pass

    def prepare_commit(self):  # type: ignore[no-untyped-def]
        return None


class _Nothing(Committer):
    def commit(self, epoch, committables):  # type: ignore[no-untyped-def]
        pass


def warm_up_job(job: Job, checkpoint_dir: str | None) -> Job:
    """A job like another one, with data of its own; its files are below `checkpoint_dir`, or go with it."""
    vertices: tuple[VertexSpec, ...] = ()
    with contextlib.suppress(Exception):
        levels = job.spec("/nowhere").levels
        vertices = tuple(vertex for level in levels for vertex in level.vertices)
    env = StreamExecutionEnvironment(Configuration())
    env.set_parallelism(max(level.parallelism for level in job.plan.levels))
    stream: DataStream = env.from_source(
        NumberSequenceSource(1, _RECORDS), WatermarkStrategy.no_watermarks(), "numbers"
    )
    for _ in range(max(1, len(job.plan.levels) - 1)):
        stream = stream.key_by(_key, Types.LONG()).process(_Count(vertices))
        vertices = ()
    stream.sink_to(_Nowhere())
    graph = env._graph(env._sinks)
    settings = replace(
        job.settings,
        name=f"warm-up-{uuid.uuid4().hex[:12]}",
        checkpoint_dir=checkpoint_dir,
        checkpoint_interval=0.001,
        checkpoint_timeout=None,
        min_pause=0.0,
        epoch_records=_EPOCH,
        mode="EXACTLY_ONCE",
        recovery_path=None,
        resume="never",
        restart=None,
        print_code=False,
        reporters={},
        high_availability=None,
        program=None,
    )
    plan = build_level_plan(build_job_graph(graph))
    return Job(uuid.uuid4().hex, settings, graph, plan, job.dependencies)


def _key(number: int) -> int:
    return number % 7


@contextlib.contextmanager
def warm_up_folder(job: Job, *, shared: bool) -> Iterator[str | None]:
    """Where the job keeps its state: where every host can see it, if that is needed."""
    if not shared or job.settings.high_availability is None:
        yield None
        return
    root = f"{job.settings.high_availability.folder}/warm-up-{uuid.uuid4().hex[:12]}"
    try:
        yield root
    finally:
        open_storage(root).delete_tree("")
