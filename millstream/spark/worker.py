"""What Spark's Python workers call: the entry of every level, around `millstream.runtime.task.task`.

These functions are shipped by reference. They carry the job as bytes, which a worker unpacks once per run.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from millstream import __version__
from millstream.checkpoint.lease import read_lease
from millstream.connectors.columns import as_columns, fitted_columns
from millstream.errors import JobError, MillstreamError, UserFunctionError, encode, told
from millstream.runtime.base import failpoints
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.task.flow import LevelFlow, SourceFlow, tasks_of
from millstream.runtime.task.mode import task_for
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.codec import decode
from millstream.runtime.wire.link import HubAddress, connect
from millstream.runtime.wire.ranges import ONLY, Round, SubtaskRanges
from millstream.runtime.wire.rows import client_edge
from millstream.spark.dependencies import enter
from millstream.spark.modules import enter_program
from millstream.spark.slots.head import ROUND
from millstream.spark.slots.process import stay_while
from millstream.spark.unfit import another_version
from millstream.spark.work import read_work

__all__ = [
    "FRAME_PARTITION",
    "as_property",
    "decode_client_rows",
    "flow_level",
    "flow_source",
    "frame_level",
    "level",
    "pack",
    "source_level",
]

FRAME_PARTITION = "__millstream_partition"

_specs: dict[str, JobSpec] = {}
_tasks = 0
_UNFREEZE_EVERY = 200
# A worker of a session serves many jobs in turn.
_KEPT_SPECS = 64

Batches = Iterator[pa.RecordBatch]


def _begin_task() -> None:
    """Keep the garbage collector away from what stays.

    After every task Spark's worker runs a full collection, which takes 40 to 70 ms with PySpark, pandas and Arrow
    loaded, more with state: most of a small epoch's time. Everything alive right now has just survived such a
    collection, so it is set aside; once in a while it is taken back, for cycles that have died since.
    """
    global _tasks
    failpoints.role("worker")
    _tasks += 1
    if _tasks == 1:
        # Records are mostly short-lived tuples; the default of 700 makes a quarter of decoding's cost.
        gc.set_threshold(50_000, 20, 20)
    if _tasks % _UNFREEZE_EVERY == 0:
        gc.unfreeze()
    else:
        gc.freeze()


def pack(spec: JobSpec) -> bytes:
    """The job for the workers, behind the version of whoever packs it: another may not be able to unpack it."""
    return __version__.encode() + b"\n" + pickle.dumps(spec)


def load(run_id: str, spec: bytes) -> JobSpec:
    """The job, unpacked once per process and run."""
    if run_id not in _specs:
        version, _, pickled = spec.partition(b"\n")
        problem = another_version(version.decode(), sys.executable)
        if problem is not None:
            raise problem
        while len(_specs) >= _KEPT_SPECS:
            _specs.pop(next(iter(_specs)))
        if os.environ.get("MILLSTREAM_PYFLINK"):
            # The job is a PyFlink program: its modules, shipped by name, may import pyflink.
            import_module("millstream.pyflink").install()
        job: JobSpec = pickle.loads(pickled)
        _specs[run_id] = job
        stay_while(_any_runs)
    unpacked = _specs[run_id]
    # Functions from modules beside the user's script are shipped by name.
    enter_program(unpacked.python_path, unpacked.dependencies)
    enter(unpacked)
    return unpacked


def _any_runs() -> bool:
    """True if a job that this process has worked for still runs, as far as can be told. A process that runs no tasks
    asks now and then, and ends if there is none: its state would be in nobody's way but memory's."""
    return any(map(_runs, _specs.values()))


def _runs(job: JobSpec) -> bool:
    try:
        return (
            read_lease(job.storage()) is not None if job.durable else os.path.isdir(job.state_dir)
        )
    except Exception:  # of any class a remote file system's driver has
        return True


def _batch(context: TaskContext | None) -> int:
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    return int(batch) if batch else 0


def _stage(context: TaskContext | None) -> int:
    """The number of the stage, under which Spark's page shows it."""
    return -1 if context is None else context.stageId()


def as_property(job: JobSpec, epoch: int, of_epoch: Round) -> str:
    """The epoch and the round of a micro-batch, as the driver tells its tasks."""
    return f"{job.run_id} {epoch} {of_epoch.number} {int(of_epoch.last)}"


def _place(job: JobSpec, context: TaskContext | None) -> tuple[int, Round]:
    """The epoch and the round that a task belongs to."""
    told = context.getLocalProperty(ROUND) if context is not None else None
    if told:
        run_id, epoch, number, last = told.rsplit(" ", 3)
        if run_id == job.run_id:
            return int(epoch), Round(int(number), last == "1")
    return job.first_epoch + _batch(context) - job.first_batch, ONLY


def _guarded(batches: Callable[[], Batches]) -> Batches:
    """Errors of our own cross to the driver inside the text of Spark's."""
    try:
        yield from batches()
    except MillstreamError as error:
        raise RuntimeError(f"{error}\n{encode(error)}") from error.__cause__
    except SystemExit as error:
        # Left alone it would end the worker, which looks like a failure of Spark's.
        ended = UserFunctionError(
            f"the job was ended by {told(error)}",
            hint="raise an exception instead of calling exit() in a function",
        )
        raise RuntimeError(f"{ended}\n{encode(ended)}") from error
    except Exception as error:
        wrapped = JobError(f"a task failed: {told(error)}")
        raise RuntimeError(f"{error}\n{encode(wrapped)}") from error


def source_level(
    run_id: str, spec: bytes, works: Sequence[bytes] | None
) -> Callable[[Batches], Batches]:
    """Level 0 for split-based sources. A row's number stands for a piece of work: one of `works`, or, if the job
    has many epochs, a file that the driver has written for the epoch."""

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        _begin_task()
        return _guarded(lambda: steps(batches))

    def steps(batches: Iterable[pa.RecordBatch]) -> Batches:
        job = load(run_id, spec)
        epoch, of_epoch = _place(job, TaskContext.get())
        for batch in batches:
            for number in batch.column(batch.num_columns - 1).to_pylist():
                data = (
                    works[number]
                    if works is not None
                    else read_work(job, epoch, of_epoch.number, number)
                )
                if data is not None:
                    work: SubtaskRanges = pickle.loads(data)
                    task = task_for(
                        job, 0, work.subtask, epoch, source=work.vertex, of_epoch=work.round
                    )
                    task.stage = _stage(TaskContext.get())
                    yield from task.run_source(work)

    return run


def frame_level(
    run_id: str, spec: bytes, node: int, parallelism: int, bounded: bool
) -> Callable[[Batches], Batches]:
    """Level 0 for a Spark frame: its rows become named `Row`s."""

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        _begin_task()
        return _guarded(lambda: steps(iter(batches)))

    def steps(batches: Batches) -> Batches:
        job, context = load(run_id, spec), TaskContext.get()
        first = next(batches, None)
        while first is not None and first.num_rows == 0:
            first = next(batches, None)
        if first is not None:
            partition = first.column(first.num_columns - 1)[0].as_py()
        else:
            partition = context.partitionId() if context is not None else 0
        epoch, _ = _place(job, context)
        task = task_for(job, 0, partition % parallelism, epoch, source=node)
        task.stage = _stage(context)
        return task.run_frame(node, partition, _without_partition(first, batches), ended=bounded)

    return run


def _without_partition(first: pa.RecordBatch | None, rest: Batches) -> Batches:
    batch = first
    while batch is not None:
        # The last column is the partition's number.
        yield batch.select(list(range(batch.num_columns - 1)))
        batch = next(rest, None)


def level(run_id: str, spec: bytes, index: int) -> Callable[[Batches], Batches]:
    """A level below the sources; Spark's partition number is the subtask."""

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        _begin_task()

        def steps() -> Batches:
            context = TaskContext.get()
            assert context is not None
            job = load(run_id, spec)
            epoch, of_epoch = _place(job, context)
            task = task_for(job, index, context.partitionId(), epoch, of_epoch=of_epoch)
            task.stage = _stage(context)
            return task.run(batches)

        return _guarded(steps)

    return run


def flow_source(run_id: str, spec: bytes, address: HubAddress) -> Callable[[Batches], Batches]:
    """Level 0 of a pipelined job; Spark's partition number is the task's. Its input has no rows."""

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        _begin_task()

        def steps() -> Batches:
            context = TaskContext.get()
            assert context is not None
            job, number = load(run_id, spec), context.partitionId()
            link = connect(address, (0, *tasks_of(job)[0][number]))
            flow = SourceFlow(job, link, 0, number)
            flow.stage = _stage(context)
            return flow.run()

        return _guarded(steps)

    return run


def flow_level(
    run_id: str, spec: bytes, level: int, address: HubAddress
) -> Callable[[Batches], Batches]:
    """A level below the sources of a pipelined job."""

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        _begin_task()

        def steps() -> Batches:
            context = TaskContext.get()
            assert context is not None
            job, number = load(run_id, spec), context.partitionId()
            link = connect(address, (level, *tasks_of(job)[level][number]))
            flow = LevelFlow(job, link, level, number)
            flow.stage = _stage(context)
            return flow.run(batches)

        return _guarded(steps)

    return run


def decode_client_rows(node: int, schema: pa.Schema) -> Callable[[Batches], Batches]:
    """Records that an operator sent to the driver, as columns of a Spark frame."""
    edge = client_edge(node)

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        return _guarded(lambda: steps(batches))

    def steps(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            edges = batch.column(3).to_pylist()
            for i, payload in enumerate(batch.column(4)):
                if edges[i] == edge:
                    yield _in_frame(decode(payload.as_buffer()).records, schema)

    return run


def _in_frame(records: list[Any] | ColumnBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Records as the columns of a frame, whatever they came as."""
    if isinstance(records, ColumnBatch):
        fitted = fitted_columns(records.data, schema, named=records.shape.has_names)
        if fitted is not None:
            return fitted
        records = records.records()
    return as_columns(records, schema)
