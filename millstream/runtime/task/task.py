"""One task of one level: what runs inside a Spark task, and inside the in-process runner.

```
open      load the plan, compile the chains (once per subtask in each process), bring state to the version before the
          epoch, open the functions
run       level 0: read the ranges of splits      deeper: buffers in order, each to the chain it is for
finish    last watermarks, pre-commit the sinks, flush all lists, snapshot the functions, write state changes
report    one row to the driver that says all of it
```

Opened chains are kept in the process and used again in the next epoch. A task that fails closes and drops its slot, and
the next attempt builds a new one.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import length_hint
from typing import Any

import msgspec
import pyarrow as pa

from millstream.api.sink import WriterContext
from millstream.api.source import Timestamped, Watermark
from millstream.checkpoint.manifest import Manifest, read_manifest
from millstream.checkpoint.statefile import StateFile
from millstream.common.constants import NO_TIME
from millstream.errors import CheckpointFailed, JobError, MillstreamError, StateLost, told
from millstream.errors import decode as decode_error
from millstream.errors import encode as encode_error
from millstream.redaction import get_logger
from millstream.runtime.base import clock
from millstream.runtime.base.failpoints import reached
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.columns.records import as_records
from millstream.runtime.state.copying import own
from millstream.runtime.task.chain import Chain
from millstream.runtime.task.chain_time import OF_THE_JOB
from millstream.runtime.task.columns import CHUNK, ColumnInput, batches_of
from millstream.runtime.task.failure import explain, explain_decoding, explain_source
from millstream.runtime.task.latency import LatencyMarkers
from millstream.runtime.task.slot import calling, drop_slot, slot_for
from millstream.runtime.task.spec import JobSpec, VertexSpec
from millstream.runtime.task.state_access import (
    adopt_windows,
    check_claimed,
    check_keys,
)
from millstream.runtime.wire.codec import END_OF_INPUT, LATENCY, decode
from millstream.runtime.wire.input import Received, ordered
from millstream.runtime.wire.key_objects import note_program
from millstream.runtime.wire.ranges import ONLY, Round, SplitRange, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress, TaskReport
from millstream.runtime.wire.rows import BATCH_BYTES, FLOW_BYTES, REPORT, own_channel

__all__ = ["LevelTask"]

_log = get_logger(__name__)

_HOST = socket.gethostname()


class LevelTask:
    """An attempt to run one level's subtask for one epoch; of level 0, for one source."""

    def __init__(
        self,
        job: JobSpec,
        level: int,
        subtask: int,
        epoch: int,
        *,
        source: int = -1,
        of_epoch: Round = ONLY,
    ) -> None:
        self.job = job
        self.level = level
        self.subtask = subtask
        self.epoch = epoch
        self.attempt = uuid.uuid4().hex[:16]
        self._key = (job.run_id, level, source, subtask)
        note_program(job.run_id, job.classes)
        self._slot = slot_for(job, level, source, subtask)
        self._round = of_epoch
        self._goes_on = self._slot.ran == (epoch, of_epoch.number - 1)
        self._slot.ran = None
        self.rows = self._slot.rows
        """What waits to go out."""
        self._most_bytes = BATCH_BYTES if job.flow_timeout is None else FLOW_BYTES
        self._started_at = time.time()
        self._started = time.perf_counter()
        # What has passed while others had the rows that this task gives.
        self._away = 0.0
        # By vertex, how long it was worked for.
        self._busy: dict[int, float] = {}
        self._buffers_in: dict[int, int] = {}
        self._markers = LatencyMarkers(job.latency_interval, self._slot.marked)
        self.chains: dict[int, Chain] = {}
        """The chains that run here, by their vertices."""
        self._records_in: dict[int, int] = {}
        self._bytes_in: dict[int, int] = {}
        self._committables: dict[str, list[bytes]] = {}
        self._manifest: Manifest | None = None
        self._ended = False
        self.stage = -1

    # -- level 0 ----------------------------------------------------------------------------------------

    def run_source(self, work: SubtaskRanges) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a split-based source."""
        return self._guarded(lambda: self._run_source(work))

    def _run_source(self, work: SubtaskRanges) -> Iterator[pa.RecordBatch]:
        chain = self.open_source(work.vertex)
        progress = yield from self.read(chain, work)
        yield from self.finish(progress, ended=work.ended)

    def open_source(self, vertex_id: int) -> Chain:
        """The chain of a source, ready for the epoch."""
        began = self._now()
        chain = self._begin(self._vertex(vertex_id))
        self._worked(vertex_id, began)
        return chain

    def read(
        self, chain: Chain, work: SubtaskRanges
    ) -> Generator[pa.RecordBatch, None, list[SplitProgress]]:
        """Read ranges of splits; how far their time has come."""
        began = self._now()
        progress: list[SplitProgress] = []
        for part in work.ranges:
            for writer in chain.writers.values():
                writer.start(part.channel)
            split = part.progress
            with self._explaining(chain):
                chain.time.begin_split(
                    split.times,
                    new=part.new,
                    records=split.end > split.start,
                    quiet_ms=part.quiet_ms,
                )
            if split.end > split.start:
                yield from self._read_split(chain, part)
            with self._explaining(chain):
                times = chain.time.end_split(finished=split.finished, over=work.over)
            progress.append(msgspec.structs.replace(split, times=times))
        if work.over and not any(split.finished for split in progress):
            for writer in chain.writers.values():
                writer.start(own_channel(self.subtask))
            chain.time.source_over()
        self._worked(work.vertex, began)
        return progress

    def _read_split(self, chain: Chain, part: SplitRange) -> Iterator[pa.RecordBatch]:
        split, start, end = part.progress.split, part.progress.start, part.progress.end
        position = f"split '{split}', positions {start} to {end}, record {{index}} of these"
        if chain.columns is not None and part.records is None:
            yield from self._read_columns(chain, part.progress, position)
            return
        source: Iterator[Any] | None = None
        done = 0
        while True:
            # Extended in place: if reading fails, the list says how far it came.
            chunk: list[Any] = []
            try:
                if source is None:
                    reader = self._slot.reader(chain)
                    source = iter(
                        reader.read(split, start, end) if part.records is None else part.records
                    )
                    if chain.copies_input:
                        source = map(own, source)
                chunk.extend(islice(source, CHUNK))
            except Exception as error:
                where = position.replace("{index}", str(done + len(chunk)))
                raise explain_source(error, chain.vertex.head, where) from error
            if not chunk:
                break
            marker = self._markers.due()
            if chain.settings.stamped:
                yield from self._process_stamped(chain, chunk, position, done, split, start)
            else:
                yield from self._process(chain, 0, chunk, None, position, done, split, start)
            if marker:
                self._markers.passed(chain, marker)
            done += len(chunk)
        vertex_id = chain.vertex.id
        self._records_in[vertex_id] = self._records_in.get(vertex_id, 0) + done

    def _process_stamped(
        self, chain: Chain, chunk: list[Any], position: str, done: int, split: str, start: int
    ) -> Iterator[pa.RecordBatch]:
        """Records that bring their timestamps, with watermarks between them."""
        values: list[Any] = []
        stamps: list[int] = []
        for place, item in enumerate(chunk):
            if type(item) is Watermark:
                self._records_in[chain.vertex.id] = self._records_in.get(chain.vertex.id, 0) - 1
                first = done + place - len(values)
                yield from self._process(chain, 0, values, stamps, position, first, split, start)
                values, stamps = [], []
                stage = chain.time.head_stage
                if stage is not None and not stage.makes_watermarks:
                    with self._explaining(chain):
                        stage.emit_watermark(item.timestamp)
            else:
                stamped = item if type(item) is Timestamped else Timestamped(item, NO_TIME)
                values.append(stamped.value)
                stamps.append(stamped.timestamp)
        first = done + len(chunk) - len(values)
        yield from self._process(chain, 0, values, stamps, position, first, split, start)

    def _read_columns(
        self, chain: Chain, progress: SplitProgress, position: str
    ) -> Iterator[pa.RecordBatch]:
        """Read a range of a split as columns, for a chain that takes them."""
        split, start = progress.split, progress.start
        rows = ColumnInput(self, chain, position, split, start)
        source: Iterator[pa.RecordBatch] | None = None
        while True:
            try:
                if source is None:
                    reader = self._slot.reader(chain)
                    source = batches_of(reader.read_columns(split, start, progress.end))
                batch = next(source, None)
            except Exception as error:
                where = position.replace("{index}", str(rows.done))
                raise explain_source(error, chain.vertex.head, where) from error
            if batch is None:
                break
            marker = self._markers.due()
            yield from rows.take(batch)
            if marker:
                self._markers.passed(chain, marker)
        yield from rows.cut()
        vertex_id = chain.vertex.id
        self._records_in[vertex_id] = self._records_in.get(vertex_id, 0) + rows.done

    def run_frame(
        self, node: int, channel: int, batches: Iterable[pa.RecordBatch], *, ended: bool
    ) -> Iterator[pa.RecordBatch]:
        """Take the rows of a Spark frame."""
        return self._guarded(lambda: self._run_frame(node, channel, batches, ended))

    def _run_frame(
        self, node: int, channel: int, batches: Iterable[pa.RecordBatch], ended: bool
    ) -> Iterator[pa.RecordBatch]:
        chain = self._begin(self._vertex(node))
        for writer in chain.writers.values():
            writer.start(channel)
        position = f"partition {channel}, record {{index}} of this epoch"
        done, source = 0, f"partition {channel}"
        rows = ColumnInput(self, chain, position, source)
        chain.time.begin_split({}, new=False, records=True, quiet_ms=0)
        for batch in batches:
            began, marker = self._now(), self._markers.due()
            if chain.columns is not None:
                yield from rows.take(batch)
                yield from rows.cut()
            else:
                records = as_records(batch, batch.num_columns)
                yield from self._process(chain, 0, records, None, position, done, source)
            if marker:
                self._markers.passed(chain, marker)
            self._worked(node, began)
            done += batch.num_rows
        with self._explaining(chain):
            chain.time.end_split(finished=False, over=False)
        self._records_in[node] = done
        yield from self.finish([], ended=ended)

    # -- deeper levels ----------------------------------------------------------------------------------

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Receive buffers; run those of this level, pass the others on."""
        return self._guarded(lambda: self._run(batches))

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.open_level()
        begun = False
        first = {edge for edge, target in self.job.targets.items() if target.first}
        for row in ordered(batches, self.job.sort_memory, first):
            if row.sequence >= 0 and not begun:
                begun = True
                self.begin_time()
            yield from self.take(row)
        if not begun:
            self.begin_time()
        for chain in self.chains.values():
            with self._explaining(chain):
                chain.time.frames_done()
            if not self._ended:
                yield from self.tick(chain)
        yield from self.finish([])

    def open_level(self) -> Iterator[pa.RecordBatch]:
        """The chains of a level, ready for the epoch."""
        for vertex in self.job.levels[self.level].vertices:
            if self.subtask < vertex.parallelism:
                chain = self._begin(vertex)
                for writer in chain.writers.values():
                    writer.start(self.subtask)
                yield from self.tick(chain)

    def take(self, row: Received) -> Iterator[pa.RecordBatch]:
        """A buffer came: run it, or pass it on if it is for a deeper level."""
        edge = self.job.targets.get(row.edge)
        if edge is None or edge.level != self.level:
            self.rows.add(row.target, row.channel, row.sequence, row.edge, _as_bytes(row.payload))
            if self.rows.size >= self._most_bytes:
                yield self.rows.take()
            return
        vertex_id = edge.vertex
        chain = self.chains[vertex_id]
        began = self._now()
        try:
            buffer = decode(row.payload)
        except Exception as error:
            raise explain_decoding(error, chain.vertex.head) from error
        size = len(memoryview(row.payload))
        self._bytes_in[vertex_id] = self._bytes_in.get(vertex_id, 0) + size
        self._records_in[vertex_id] = self._records_in.get(vertex_id, 0) + len(buffer.records)
        self._buffers_in[vertex_id] = self._buffers_in.get(vertex_id, 0) + 1
        position = f"input {edge.input_index}, channel {row.channel}, buffer {row.sequence}, record {{index}}"
        done = 0
        stamps = buffer.timestamps
        if buffer.records:
            chain.time.heard(row.edge)
        markers = [mark.value for mark in buffer.marks if mark.kind == LATENCY]
        for mark in (*buffer.marks, None):
            if mark is not None and mark.kind == LATENCY:
                continue
            stop = len(buffer.records) if mark is None else mark.place
            if stop > done:
                whole = stop - done == len(buffer.records)
                source = f"channel {row.channel}"
                if type(buffer.records) is list:
                    part = buffer.records if whole else buffer.records[done:stop]
                    times = stamps if stamps is None or whole else stamps[done:stop]
                    yield from self._process(
                        chain, edge.input_index, part, times, position, done, source
                    )
                else:
                    yield from self._process_columns(chain, buffer.records, position, source)
                done = stop
            if mark is None:
                continue
            if mark.kind == END_OF_INPUT and mark.value == OF_THE_JOB:
                self._ended = True
            with self._explaining(chain):
                chain.time.received(row.edge, row.channel, mark.kind, mark.value)
            yield from self.full_rows(chain)
        for marker in markers:
            self._markers.passed(chain, marker)
        self._worked(vertex_id, began)

    def begin_time(self) -> None:
        """All is read that comes before the epoch's first buffers."""
        first = self.epoch == self.job.first_epoch and self._round.number == 0
        for chain in self.chains.values():
            with self._explaining(chain):
                chain.time.begin(first=first)

    @property
    def input_ended(self) -> bool:
        """True once a sender has said that the job ends."""
        return self._ended

    def settle(self) -> None:
        """Wait for what is under way."""
        for chain in self.chains.values():
            with self._explaining(chain):
                chain.time.settle()

    def probe(self, chain: Chain) -> int | None:
        """Look whether streams have become idle; when to look again."""
        with self._explaining(chain):
            return chain.time.probe()

    def rows_left(self) -> Iterator[pa.RecordBatch]:
        """The rows that wait to go out."""
        if len(self.rows):
            yield self.rows.take()

    def was_away(self, seconds: float) -> None:
        """Others had the rows that this task has given for so long."""
        self._away += seconds

    def tick(self, chain: Chain) -> Iterator[pa.RecordBatch]:
        """Fire the timers of the clock that are due."""
        with self._explaining(chain):
            due = chain.time.next_tick()
            if due is not None and due <= (now := clock.now()):
                chain.time.tick(now)
        yield from self.full_rows(chain)

    def full_rows(self, chain: Chain) -> Iterator[pa.RecordBatch]:
        """Send the buffers that are full, and the rows if they are many."""
        for writer in chain.writers.values():
            writer.flush_full()
        if self.rows.size >= self._most_bytes:
            yield self.rows.take()

    @contextlib.contextmanager
    def _explaining(self, chain: Chain) -> Iterator[None]:
        """Around everything that time sets off: what fails has no record, but an operator."""
        try:
            yield
        except Exception as error:
            watermark = chain.time.watermark
            raise explain(error, chain, None, f"at watermark {watermark}") from error

    def _process(
        self,
        chain: Chain,
        input_index: int,
        records: list[Any],
        stamps: Sequence[int] | None,
        position: str,
        offset: int,
        source: str,
        start: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        process, periodic = chain.inputs[input_index], chain.time.periodic
        cursor, first = chain.cursor, start + offset
        writers = chain.writers.values()
        for begin in range(0, len(records), CHUNK):
            chunk = records if len(records) <= CHUNK else records[begin : begin + CHUNK]
            probe = iter(chunk)
            cursor.at(source, first + begin, chunk, probe)
            try:
                if not chain.settings.stamped:
                    process(probe)
                elif stamps is None:
                    process(zip(probe, repeat(NO_TIME)))
                else:
                    process(zip(probe, stamps[begin : begin + CHUNK], strict=True))
                periodic()
            except Exception as error:
                index = offset + begin + len(chunk) - length_hint(probe) - 1
                raise explain(error, chain, index, position) from error
            reached("mid batch")
            for writer in writers:
                writer.flush_full()
            if self.rows.size >= self._most_bytes:
                yield self.rows.take()

    def _process_columns(
        self, chain: Chain, columns: Any, position: str, source: str
    ) -> Iterator[pa.RecordBatch]:
        """A buffer of columns, which are sent only to who takes them."""
        assert chain.columns is not None
        chain.cursor.at_columns(source, 0, len(columns))
        try:
            chain.columns(columns)
            chain.time.periodic()
        except Exception as error:
            raise explain(error, chain, len(columns) - 1, position) from error
        reached("mid batch")
        yield from self.full_rows(chain)

    # -- begin and end ----------------------------------------------------------------------------------

    def _vertex(self, vertex_id: int) -> VertexSpec:
        return next(v for v in self.job.levels[self.level].vertices if v.id == vertex_id)

    def _now(self) -> float:
        """A clock that stands still while others have the rows that this task gives."""
        return time.perf_counter() - self._away

    def _worked(self, vertex_id: int, began: float) -> None:
        self._busy[vertex_id] = self._busy.get(vertex_id, 0.0) + self._now() - began

    def _begin(self, vertex: VertexSpec) -> Chain:
        if self._round.number:
            return self._go_on(vertex)
        chain = self._slot.chain(vertex)
        self.chains[vertex.id] = chain
        chain = self._open_state(vertex, chain)
        self._begin_counting(chain)
        place = self.subtask, vertex.parallelism, self.epoch, self.attempt, self.job.job_id
        for unit in chain.beginning:
            context = WriterContext(*place, sink=unit.node.uid, storage=self._slot.storage)
            with calling(unit, "opening"):
                unit.begin_epoch(context)
        return chain

    def _begin_counting(self, chain: Chain) -> None:
        chain.counting.begin()
        for writer in chain.writers.values():
            writer.begin(self.epoch)

    def _go_on(self, vertex: VertexSpec) -> Chain:
        """The next round of an epoch: state, writers and time are as the last one has left them in this process."""
        if not self._goes_on:
            raise self._failed_before() or StateLost(
                "a process has ended in the middle of an epoch, and with it what its subtask had changed since "
                "the last checkpoint",
                epoch=self.epoch,
                hint="the job goes on from the last checkpoint if its restart strategy allows it",
            )
        chain = self.chains[vertex.id] = self._slot.chains[vertex.id]
        chain.time.go_on()
        self._begin_counting(chain)
        return chain

    def _failure_name(self) -> str:
        place = f"{self.level}-{self._key[2]}-{self.subtask}"
        return f"work/{self.job.run_id}/{self.epoch:012d}-{self._round.number}-{place}-failed"

    def _failed_before(self) -> MillstreamError | None:
        """What an attempt of this round has failed with: what it had is lost, and the user should hear why."""
        try:
            return decode_error(self._slot.storage.read(self._failure_name()).decode())
        except OSError:
            return None

    def _note_failure(self, error: BaseException) -> None:
        if not self._round.number or not isinstance(error, Exception):
            return
        if not isinstance(error, MillstreamError):
            error = JobError(f"a task failed: {told(error)}")
        with contextlib.suppress(Exception):
            self._slot.storage.write(self._failure_name(), encode_error(error).encode())

    def _open_state(self, vertex: VertexSpec, chain: Chain) -> Chain:
        """Bring state to the version before the epoch, then open the functions if they are not."""
        first = not chain.opened
        if not first and not chain.with_functions and not chain.store.in_use:
            # Without function objects nobody can ask for state.
            return chain
        manifest = self._version()
        version = None if manifest is None else manifest.stores.get(chain.store.owner)
        written = version is not None and bool(version.segments or version.parents)
        if not first and not chain.store.in_use and not written:
            # Nobody has asked for state yet, here or in another process.
            return chain
        if not first and chain.checkpointed and not chain.store.is_current(version):
            # What the functions hold is not what the last epoch left: another process ran it.
            chain = self.chains[vertex.id] = self._slot.reopen(vertex)
            first = True
        chain.store.open(version)
        chain.leave_keys()
        times = self._slot.times.get(vertex.id)
        chain.time.load([] if times is None else times.content(), self.subtask)
        if first:
            self._open_functions(chain, manifest)
        return chain

    def _open_functions(self, chain: Chain, manifest: Manifest | None) -> None:
        for unit in chain.checkpointed:
            with calling(unit, "initialize_state()"):
                unit.initialize(restored=manifest is not None)
        for unit in chain.with_functions:
            with calling(unit, "open()"):
                unit.open()
        chain.opened = True
        registered = chain.store.registered
        self._slot.eager[chain.vertex.id] = {uid: set(of) for uid, of in registered.items()}
        if manifest is not None and self.epoch == self.job.first_epoch:
            if self.job.strict:
                check_claimed(chain, manifest)
                check_keys(chain)
            adopt_windows(chain, manifest)

    def _version(self) -> Manifest | None:
        """The checkpoint before this epoch."""
        if self._manifest is None and not self.job.untracked:
            before = self.job.base_epoch if self.epoch == self.job.first_epoch else self.epoch - 1
            if before is not None:
                self._manifest = read_manifest(self._slot.storage, before)
        return self._manifest

    def finish(
        self, splits: list[SplitProgress], *, ended: bool | None = None, last: bool | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The end of the epoch, or of a round of it, if `last` does not say that it is the epoch's; `ended` if nothing
        follows in the whole job, where the input does not tell."""
        if ended is not None:
            self._ended = ended
        if last is not None:
            self._round = Round(self._round.number, last)
        stores: dict[str, StateFile | None] = {}
        registered: dict[str, dict[str, dict[str, Any]]] = {}
        loads = rebuilds = 0
        wake: list[int] = []
        for vertex_id, chain in self.chains.items():
            began = self._now()
            with self._explaining(chain):
                yield from self._finish_time(chain, wake)
            self._worked(vertex_id, began)
        prepared = self._now()
        for vertex_id, chain in self.chains.items():
            began = self._now()
            if self._round.last:
                self._prepare_commit(chain)
            for writer in chain.writers.values():
                writer.flush_all()
            if self._round.last:
                self._save_state(chain, stores, registered)
                loads += chain.store.loads
                rebuilds += chain.store.rebuilds - chain.rebuilds_reported
                chain.rebuilds_reported = chain.store.rebuilds
            else:
                chain.leave_keys()
            self._worked(vertex_id, began)
        writers = [w for chain in self.chains.values() for w in chain.writers.values()]
        units = [unit for chain in self.chains.values() for unit in chain.units]
        report = TaskReport(
            epoch=self.epoch,
            level=self.level,
            subtask=self.subtask,
            attempt=self.attempt,
            started_at=self._started_at,
            seconds=time.perf_counter() - self._started,
            snapshot=self._now() - prepared,
            busy=self._busy,
            host=_HOST,
            pid=os.getpid(),
            stage=self.stage,
            records_in=self._records_in,
            bytes_in=self._bytes_in,
            buffers_in=self._buffers_in,
            records_out={w.edge: w.records_out for w in writers},
            bytes_out={w.edge: w.bytes_out for w in writers},
            buffers_out={w.edge: w.buffers_out for w in writers},
            operators={
                uid: numbers
                for vertex_id, chain in self.chains.items()
                for uid, numbers in chain.counting.report(
                    self._records_in.get(vertex_id, 0), chain.writers
                ).items()
            },
            latency=self._markers.report(),
            splits=splits,
            input_ended=self._ended,
            bad_records={
                unit.node.uid: unit.bad.report() for unit in units if unit.bad is not None
            },
            stores=stores,
            registered=registered,
            committables=self._committables,
            late_records={unit.node.uid: late for unit in units if (late := unit.take_late())},
            waiting=self._waiting(units),
            metrics={unit.node.uid: told for unit in units if (told := unit.take_metrics())},
            wake_at=min(wake, default=None),
            watermarks={
                vertex_id: chain.time.watermark
                for vertex_id, chain in self.chains.items()
                if chain.time.watermark != NO_TIME
            },
            state_loads=loads,
            state_rebuilds=rebuilds,
        )
        self._slot.marked = self._markers.last
        if not self._round.last:
            self._slot.ran = self.epoch, self._round.number
        if self._ended:
            self._close()
        self.rows.add(self.subtask, self.subtask, 0, REPORT, report.encode())
        yield self.rows.take()

    def _prepare_commit(self, chain: Chain) -> None:
        for unit in chain.committing:
            with calling(unit, "finishing the epoch"):
                committable = unit.prepare_commit()
            if committable is not None:
                self._committables.setdefault(unit.node.uid, []).append(committable)

    def _waiting(self, units: list[OperatorUnit[Any]]) -> dict[str, int]:
        """What the end of the input finds waiting for the clock (rule 15)."""
        return {u.node.uid: count for u in units if self._ended and (count := u.waiting())}

    def _finish_time(self, chain: Chain, wake: list[int]) -> Iterator[pa.RecordBatch]:
        """The last watermarks of the epoch, and of the job if it ends."""
        chain.time.settle()
        of_source = chain.vertex.is_source
        if not of_source:
            chain.time.periodic()
            # What the last watermarks have set off.
            chain.time.settle()
            times = (None if self._ended else chain.time.probe(), chain.time.next_tick())
            wake.extend(at for at in times if at is not None)
        times_state = self._slot.times.get(chain.vertex.id)
        if times_state is not None and self._round.last:
            # Before the end: who goes on from here has more to come, or the job would not have been drained.
            saved = [chain.time.save(self.subtask)]
            if times_state.content() != saved:
                times_state.update(saved)
        if self._ended:
            chain.time.end()
            if not self.job.batch:
                _mark_all(chain, END_OF_INPUT, OF_THE_JOB)
        yield from self.full_rows(chain)

    def _save_state(
        self,
        chain: Chain,
        stores: dict[str, StateFile | None],
        registered: dict[str, dict[str, dict[str, Any]]],
    ) -> None:
        self._snapshot_functions(chain)
        if chain.store.in_use or chain.store.inherits:
            reached("before state flush")
            try:
                stores[chain.store.owner] = chain.store.snapshot(self.epoch, self.attempt)
            except OSError as error:
                msg = f"the state of '{chain.vertex.name}' could not be written: {error}"
                raise CheckpointFailed(msg, epoch=self.epoch) from error
            reached("after state flush")
            registered.update(self._news(chain))

    def _snapshot_functions(self, chain: Chain) -> None:
        """Let functions put what they hold into their operator state."""
        chain.leave_keys()
        for unit in chain.checkpointed:
            with calling(unit, "snapshot_state()"):
                unit.snapshot(self.epoch)

    def _news(self, chain: Chain) -> dict[str, dict[str, dict[str, Any]]]:
        """The states that the program has asked for, if the driver does not know of all of them. Those asked for after
        open() are marked: a restore cannot expect them there."""
        eager = self._slot.eager.get(chain.vertex.id, {})
        known = self._manifest.operators if self._manifest is not None else {}
        news: dict[str, dict[str, dict[str, Any]]] = {}
        for uid, states in chain.store.registered.items():
            for name, described in states.items():
                if name not in eager.get(uid, ()):
                    described = {**described, "lazy": True}
                if uid not in known or known[uid].states.get(name) != described:
                    news.setdefault(uid, {})[name] = described
        return news

    def _close(self) -> None:
        slot = drop_slot(self._key)
        if slot is not None:
            slot.close()

    def _guarded(self, steps: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Run; on failure drop the slot, so that a retry starts from nothing this attempt has touched."""
        try:
            for rows in steps():
                left = time.perf_counter()
                yield rows
                self.was_away(time.perf_counter() - left)
        except BaseException as error:
            self._note_failure(error)
            self.give_up()
            raise

    def give_up(self) -> None:
        """Drop the slot, and take back what sinks have open."""
        slot = drop_slot(self._key)
        if slot is not None:
            # What failed first is what the user should hear of.
            with contextlib.suppress(Exception):
                slot.close()
        for chain in self.chains.values():
            for unit in chain.units:
                unit.abort()


def _mark_all(chain: Chain, kind: int, value: int = 0) -> None:
    for edge_id, writer in chain.writers.items():
        if edge_id >= 0:
            writer.mark(kind, value)


def _as_bytes(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else memoryview(payload).tobytes()
