"""BATCH mode: bounded input, one key at a time (Flink's batch execution of DataStream programs).

The exchange is complete before a level begins. In it every record stands under its key group, and Spark sorts each
partition by that: a task meets one key group after the other, takes it apart by key, and runs each key to its end: all
its records in the order of time, then its timers, then its state is forgotten (rule 60). So a task never holds more
than one key group, and a key group that is too large is taken apart on disk. Nothing is saved: what fails is run again.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import IO, Any

import pyarrow as pa

from millstream.common.functions import KeySelector
from millstream.graph.operators import Key
from millstream.runtime.chain import Chain
from millstream.runtime.clock import NO_TIME
from millstream.runtime.codec import decode, dumps
from millstream.runtime.exchange import field_getter
from millstream.runtime.failure import explain, explain_decoding
from millstream.runtime.input import ordered, rows_of
from millstream.runtime.job import JobSpec, VertexSpec
from millstream.runtime.keys import canonical, key_group
from millstream.runtime.output import GROUP_SHIFT
from millstream.runtime.rows import BATCH_BYTES
from millstream.runtime.task import LevelTask

__all__ = ["BatchTask", "task_for"]

# Into so many parts a key group is taken that does not fit into memory.
_PARTS = 64
# Keys between two looks at what has been sent.
_KEYS = 64

# A record with its timestamp and the input it came through.
Item = tuple[int, int, Any]


def task_for(job: JobSpec, level: int, subtask: int, epoch: int, *, source: int = -1) -> LevelTask:
    """The task that runs a level's subtask, in the job's mode."""
    make = BatchTask if job.batch else LevelTask
    return make(job, level, subtask, epoch, source=source)


class BatchTask(LevelTask):
    """A task of a batch job."""

    def _open_state(self, vertex: VertexSpec, chain: Chain) -> Chain:
        if not chain.opened:
            chain.store.open(None)
            chain.leave_keys()
            chain.time.load([], self.subtask)
            self._open_functions(chain, None)
        return chain

    def _save_state(self, chain: Chain, stores: Any, registered: Any) -> None:
        """Nothing is kept."""

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for vertex in self.job.levels[self.level].vertices:
            if self.subtask < vertex.parallelism:
                chain = self._begin(vertex)
                for writer in chain.writers.values():
                    writer.start(self.subtask)
        targets = self.job.targets
        groups = {id_: _KeyGroup(chain, self) for id_, chain in self._chains.items()}
        memory = self.job.sort_memory
        rows = rows_of(batches) if self.job.presorted else ordered(batches, memory)
        for row in rows:
            edge = targets.get(row.edge)
            if edge is None or edge.level != self.level:
                payload = bytes(memoryview(row.payload))
                self._rows.add(row.target, row.channel, row.sequence, row.edge, payload)
                if self._rows.size >= BATCH_BYTES:
                    yield self._rows.take()
                continue
            chain = self._chains[edge.vertex]
            size = len(memoryview(row.payload))
            self._bytes_in[edge.vertex] = self._bytes_in.get(edge.vertex, 0) + size
            group = row.sequence >> GROUP_SHIFT
            if group and groups[edge.vertex].keyed:
                yield from groups[edge.vertex].add(group, edge.input_index, row.payload, memory)
                continue
            try:
                buffer = decode(row.payload)
            except Exception as error:
                raise explain_decoding(error, chain.vertex.head) from error
            self._count(edge.vertex, len(buffer.records))
            position = f"input {edge.input_index}, channel {row.channel}, record {{index}}"
            yield from self._process(
                chain,
                edge.input_index,
                buffer.records,
                buffer.timestamps,
                position,
                0,
                f"channel {row.channel}",
            )
        for one in groups.values():
            yield from one.finish()
        self._ended = True
        yield from self._finish([])

    def _count(self, vertex: int, records: int) -> None:
        self._records_in[vertex] = self._records_in.get(vertex, 0) + records


class _KeyGroup:
    """The key group that a vertex is at: its buffers, until the last of them is there."""

    def __init__(self, chain: Chain, task: BatchTask) -> None:
        self._chain = chain
        self._task = task
        keys = chain.vertex.head.operator.keys
        self.keyed = bool(keys)
        self._readers = [key_reader(key) for key in keys]
        self._group = 0
        self._buffers: list[tuple[int, bytes]] = []
        self._size = 0
        self._spilled: _Spilled | None = None

    def add(self, group: int, index: int, payload: Any, memory: int) -> Iterator[pa.RecordBatch]:
        """A buffer of a key group; those of one group come together."""
        if group != self._group:
            yield from self.finish()
            self._group = group
        # A copy: what Spark hands over lives no longer than the batch it came in.
        data = bytes(memoryview(payload))
        self._buffers.append((index, data))
        self._size += len(data)
        if self._size > memory:
            if self._spilled is None:
                self._spilled = _Spilled(1)
            self._spill(self._spilled, self._buffers)
            self._buffers, self._size = [], 0

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Run the keys of the group at hand."""
        buffers, self._buffers, self._size = self._buffers, [], 0
        spilled, self._spilled = self._spilled, None
        if spilled is not None:
            self._spill(spilled, buffers)
            yield from self._run_spilled(spilled)
        elif buffers:
            yield from self._run_keys(self._items(buffers))

    def _items(self, buffers: Iterable[tuple[int, bytes]]) -> Iterator[tuple[Any, Item]]:
        """Every record of some buffers, with its key."""
        vertex = self._chain.vertex.id
        for index, payload in buffers:
            try:
                buffer = decode(payload)
            except Exception as error:
                raise explain_decoding(error, self._chain.vertex.head) from error
            read = self._readers[index]
            self._task._count(vertex, len(buffer.records))
            stamps = buffer.timestamps
            for place, record in enumerate(buffer.records):
                at = NO_TIME if stamps is None else stamps[place]
                yield read(record), (at, index, record)

    def _run_keys(self, items: Iterable[tuple[Any, Item]]) -> Iterator[pa.RecordBatch]:
        by_key: dict[Any, list[Item]] = {}
        for key, item in items:
            found = by_key.get(key)
            if found is None:
                by_key[key] = [item]
            else:
                found.append(item)
        for number, key in enumerate(list(by_key)):
            self._run_key(by_key.pop(key))
            self._end_key()
            if number % _KEYS == 0:
                yield from self._task._full_rows(self._chain)
        yield from self._task._full_rows(self._chain)

    def _run_key(self, items: list[Item]) -> None:
        """A key's records: in the order of time, those of equal times as they came (rule 60)."""
        chain = self._chain
        if chain.stamped or len(self._readers) > 1:
            items.sort(key=itemgetter(0, 1))
        start = 0
        while start < len(items):
            index, end = items[start][1], start + 1
            while end < len(items) and items[end][1] == index:
                end += 1
            part = items[start:end] if end - start < len(items) else items
            records = [item[2] for item in part]
            probe: Iterator[Any] = iter(records)
            try:
                if chain.stamped:
                    chain.inputs[index](zip(probe, [item[0] for item in part], strict=True))
                else:
                    chain.inputs[index](probe)
            except Exception as error:
                left = len(list(probe))
                position = f"input {index}, record {{index}} of its key"
                raise explain(error, chain, start + len(records) - left - 1, position) from error
            start = end

    def _end_key(self) -> None:
        chain = self._chain
        with self._task._explaining(chain):
            for end in chain.key_ends:
                end()
        for table in chain.store.tables.values():
            table.reset()
        chain.leave_keys()

    # -- key groups that do not fit into memory -------------------------------------------------------------

    def _spill(self, spilled: _Spilled, buffers: list[tuple[int, bytes]]) -> None:
        spilled.write(self._items(buffers))

    def _run_spilled(self, spilled: _Spilled) -> Iterator[pa.RecordBatch]:
        memory = self._task.job.sort_memory
        for part in range(_PARTS):
            if spilled.sizes[part] <= memory:
                yield from self._run_keys(spilled.read(part))
            elif len(spilled.keys[part]) == 1:
                yield from self._run_one(spilled, part)
            else:
                deeper = _Spilled(spilled.depth + 1)
                deeper.write(spilled.read(part))
                yield from self._run_spilled(deeper)
        spilled.close()

    def _run_one(self, spilled: _Spilled, part: int) -> Iterator[pa.RecordBatch]:
        """A single key with more records than fit into memory. They stay in the order they came in."""
        for block in spilled.blocks(part):
            self._run_key([item for _, item in block])
            yield from self._task._full_rows(self._chain)
        self._end_key()
        yield from self._task._full_rows(self._chain)


class _Spilled:
    """Records on disk, in parts by their keys."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._files: list[IO[bytes] | None] = [None] * _PARTS
        self.sizes = [0] * _PARTS
        # Up to two keys of each part: whether there is more than one.
        self.keys: list[set[Any]] = [set() for _ in range(_PARTS)]

    def write(self, items: Iterable[tuple[Any, Item]]) -> None:
        """Take them apart."""
        waiting: list[list[tuple[Any, Item]]] = [[] for _ in range(_PARTS)]
        # Another number of groups at each depth, so that keys which were together are not again.
        modulus = (_PARTS + 2 * self.depth + 1) * _PARTS
        for key, item in items:
            part = key_group(key, modulus) % _PARTS
            keys = self.keys[part]
            if len(keys) < 2:
                keys.add(key)
            waiting[part].append((key, item))
            if len(waiting[part]) >= 256:
                self._put(part, waiting[part])
                waiting[part] = []
        for part, rest in enumerate(waiting):
            if rest:
                self._put(part, rest)

    def _put(self, part: int, block: list[tuple[Any, Item]]) -> None:
        file = self._files[part]
        if file is None:
            file = self._files[part] = tempfile.TemporaryFile(prefix="millstream-batch-")  # noqa: SIM115
        data = dumps(block)
        file.write(len(data).to_bytes(8, "little"))
        file.write(data)
        self.sizes[part] += len(data)

    def blocks(self, part: int) -> Iterator[list[tuple[Any, Item]]]:
        """A part's records, some at a time."""
        file = self._files[part]
        if file is None:
            return
        file.seek(0)
        while size := file.read(8):
            yield pickle.loads(file.read(int.from_bytes(size, "little")))
        file.close()
        self._files[part] = None

    def read(self, part: int) -> Iterator[tuple[Any, Item]]:
        """A part's records."""
        for block in self.blocks(part):
            yield from block

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            if file is not None:
                file.close()


def key_reader(key: Key) -> Callable[[Any], Any]:
    """Reads a record's key, in its canonical form."""
    read: Callable[[Any], Any]
    if isinstance(key.field, int):
        read = itemgetter(key.field)
    elif key.field is not None:
        read = field_getter(key.field)
    elif isinstance(key.selector, KeySelector):
        read = key.selector.get_key
    else:
        read = key.selector
    convert = None if key.key_type is None else key.key_type.convert

    def canon(record: Any) -> Any:
        found = read(record)
        if convert is not None:
            found = convert(found)
        kind = type(found)
        return found if kind is str or kind is int else canonical(found)

    return canon
