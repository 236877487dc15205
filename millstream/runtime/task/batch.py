"""BATCH mode: bounded input, one key at a time (Flink's batch execution of DataStream programs).

The exchange is complete before a level begins. In it every record stands under its key group, and Spark sorts each
partition by that: a task meets one key group after the other, takes it apart by key, and runs each key to its end: all
its records in the order of time, then its timers, then its state is forgotten (rule 60). So a task never holds more
than one key group, and a key group that is too large is taken apart on disk. Nothing is saved: what fails is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter, length_hint
from typing import Any

import pyarrow as pa

from millstream.api.functions import KeySelector
from millstream.common.constants import NO_TIME
from millstream.graph.operators import Key, ReduceOp, RollingOp, WindowOp
from millstream.runtime.codegen.fields import field_getter
from millstream.runtime.task.batch_spill import (
    BY_TIME,
    CHUNK,
    PARTS,
    UNPACKED,
    Item,
    Spilled,
    in_order,
)
from millstream.runtime.task.chain import Chain
from millstream.runtime.task.failure import explain, explain_decoding
from millstream.runtime.task.spec import VertexSpec
from millstream.runtime.task.task import LevelTask
from millstream.runtime.wire.codec import Buffer, decode
from millstream.runtime.wire.input import ordered, rows_of
from millstream.runtime.wire.keys import canonical
from millstream.runtime.wire.output import GROUP_SHIFT
from millstream.runtime.wire.rows import BATCH_BYTES

__all__ = ["BatchTask"]

# Keys between two looks at what has been sent.
_KEYS = 64


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
        groups = {id_: _KeyGroup(chain, self) for id_, chain in self.chains.items()}
        memory = self.job.sort_memory
        rows = rows_of(batches) if self.job.presorted else ordered(batches, memory)
        for row in rows:
            edge = targets.get(row.edge)
            if edge is None or edge.level != self.level:
                payload = bytes(memoryview(row.payload))
                self.rows.add(row.target, row.channel, row.sequence, row.edge, payload)
                if self.rows.size >= BATCH_BYTES:
                    yield self.rows.take()
                continue
            began = self._now()
            chain = self.chains[edge.vertex]
            size = len(memoryview(row.payload))
            self._bytes_in[edge.vertex] = self._bytes_in.get(edge.vertex, 0) + size
            self._buffers_in[edge.vertex] = self._buffers_in.get(edge.vertex, 0) + 1
            group = row.sequence >> GROUP_SHIFT
            if groups[edge.vertex].takes(group):
                yield from groups[edge.vertex].add(group, edge.input_index, row.payload, memory)
                self._worked(edge.vertex, began)
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
            self._worked(edge.vertex, began)
        for vertex_id, key_group in groups.items():
            began = self._now()
            yield from key_group.finish()
            self._worked(vertex_id, began)
        self._ended = True
        yield from self.finish([])

    def _count(self, vertex: int, records: int) -> None:
        self._records_in[vertex] = self._records_in.get(vertex, 0) + records


class _KeyGroup:
    """The key group that a vertex is at: its buffers, until the last of them is there."""

    def __init__(self, chain: Chain, task: BatchTask) -> None:
        self._chain = chain
        self._task = task
        operator = chain.vertex.head.operator
        keys = operator.keys
        self._keyed = bool(keys)
        # Windows of a whole stream: all records have one key, and come without a key group.
        self._whole = isinstance(operator, WindowOp) and operator.all_windows
        carried = chain.settings.carried
        self._readers = [
            _brought if index in carried else key_reader(key) for index, key in enumerate(keys)
        ]
        # Only where it shows is a key's order anything else than that of arrival.
        self._sorts = chain.settings.stamped or len(keys) > 1
        # What only has a value for each key need not see one key at a time: at the end of the group all are given out.
        self._together = isinstance(operator, ReduceOp | RollingOp)
        self._group = 0
        self._buffers: list[tuple[int, bytes]] = []
        self._size = 0
        self._spilled: Spilled | None = None

    def takes(self, group: int) -> bool:
        """True if what comes under a key group, or under none (0), is to wait for the rest of it."""
        return self._whole or (self._keyed and group > 0)

    def add(self, group: int, index: int, payload: Any, memory: int) -> Iterator[pa.RecordBatch]:
        """A buffer of a key group; those of one group come together."""
        if group != self._group:
            yield from self.finish()
            self._group = group
        # A copy: what Spark hands over lives no longer than the batch it came in.
        data = bytes(memoryview(payload))
        self._buffers.append((index, data))
        self._size += len(data)
        if self._size * UNPACKED > memory:
            if self._spilled is None:
                self._spilled = Spilled(1)
            self._spill(self._spilled, self._buffers)
            self._buffers, self._size = [], 0

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Run the keys of the group at hand."""
        buffers, self._buffers, self._size = self._buffers, [], 0
        spilled, self._spilled = self._spilled, None
        if spilled is not None:
            self._spill(spilled, buffers)
            yield from self._run_spilled(spilled)
        elif buffers and self._sorts:
            yield from self._run_keys(self._items(buffers))
        elif buffers and self._together:
            yield from self._run_together(buffers)
        elif buffers:
            yield from self._run_plain(buffers)

    def _records(self, payload: bytes) -> Buffer:
        try:
            buffer = decode(payload)
        except Exception as error:
            raise explain_decoding(error, self._chain.vertex.head) from error
        self._task._count(self._chain.vertex.id, len(buffer.records))
        return buffer

    def _items(self, buffers: Iterable[tuple[int, bytes]]) -> Iterator[tuple[Any, Item]]:
        """Every record of some buffers, with its key."""
        for index, payload in buffers:
            buffer = self._records(payload)
            read = self._readers[index]
            stamps = buffer.timestamps
            for place, record in enumerate(buffer.records):
                at = NO_TIME if stamps is None else stamps[place]
                yield read(record), (at, index, record)

    def _run_together(self, buffers: list[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
        """All keys of the group together, where the order among keys cannot be seen."""
        for index, payload in buffers:
            self._process(index, self._records(payload).records, None, 0)
        buffers.clear()
        self._end_key()
        yield from self._task.full_rows(self._chain)

    def _run_plain(self, buffers: list[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
        """As `_run_keys`, where records have no times and come through one input."""
        by_key: dict[Any, list[Any]] = {}
        read = self._readers[0]
        for _, payload in buffers:
            for record in self._records(payload).records:
                key = read(record)
                records = by_key.get(key)
                if records is None:
                    by_key[key] = [record]
                else:
                    records.append(record)
        buffers.clear()
        for number, key in enumerate(list(by_key)):
            self._process(0, by_key.pop(key), None, 0)
            self._end_key()
            if number % _KEYS == 0:
                yield from self._task.full_rows(self._chain)
        yield from self._task.full_rows(self._chain)

    def _run_keys(self, items: Iterable[tuple[Any, Item]]) -> Iterator[pa.RecordBatch]:
        by_key: dict[Any, list[Item]] = {}
        for key, item in items:
            of_key = by_key.get(key)
            if of_key is None:
                by_key[key] = [item]
            else:
                of_key.append(item)
        for number, key in enumerate(list(by_key)):
            of_key = by_key.pop(key)
            if self._sorts:
                of_key.sort(key=BY_TIME)
            self._run_items(of_key)
            self._end_key()
            if number % _KEYS == 0:
                yield from self._task.full_rows(self._chain)
        yield from self._task.full_rows(self._chain)

    def _run_items(self, items: list[Item], done: int = 0) -> None:
        """Run the chain over records of a key, which are in the order of rule 60: those of one input at a time."""
        stamped = self._chain.settings.stamped
        start = 0
        while start < len(items):
            index, end = items[start][1], start + 1
            while end < len(items) and items[end][1] == index:
                end += 1
            part = items[start:end] if end - start < len(items) else items
            stamps = [item[0] for item in part] if stamped else None
            self._process(index, [item[2] for item in part], stamps, done + start)
            start = end

    def _process(self, index: int, records: list[Any], stamps: list[int] | None, done: int) -> None:
        chain = self._chain
        probe = iter(records)
        try:
            if stamps is None:
                chain.inputs[index](probe)
            else:
                chain.inputs[index](zip(probe, stamps, strict=True))
        except Exception as error:
            place = done + len(records) - length_hint(probe) - 1
            of = "a buffer" if self._together else "its key"
            position = f"input {index}, record {{index}} of {of}"
            raise explain(error, chain, place, position) from error

    def _end_key(self) -> None:
        chain = self._chain
        with self._task._explaining(chain):
            for end in chain.key_ends:
                end()
        for table in chain.store.tables.values():
            table.reset()
        chain.leave_keys()

    # -- key groups that do not fit into memory -------------------------------------------------------------

    def _spill(self, spilled: Spilled, buffers: list[tuple[int, bytes]]) -> None:
        spilled.write(self._items(buffers))

    def _run_spilled(self, spilled: Spilled) -> Iterator[pa.RecordBatch]:
        memory = self._task.job.sort_memory
        for part in range(PARTS):
            if spilled.sizes[part] * UNPACKED <= memory:
                yield from self._run_keys(spilled.read(part))
            elif len(spilled.keys[part]) == 1:
                yield from self._run_one(spilled, part)
            else:
                deeper = Spilled(spilled.depth + 1)
                deeper.write(spilled.read(part))
                yield from self._run_spilled(deeper)
        spilled.close()

    def _run_one(self, spilled: Spilled, part: int) -> Iterator[pa.RecordBatch]:
        """A single key with more records than fit into memory."""
        items: Iterator[Item] = (item for block in spilled.blocks(part) for _, item in block)
        if self._sorts:
            items = in_order(items, self._task.job.sort_memory)
        done = 0
        while chunk := list(islice(items, CHUNK)):
            self._run_items(chunk, done)
            done += len(chunk)
            yield from self._task.full_rows(self._chain)
        self._end_key()
        yield from self._task.full_rows(self._chain)


def _brought(record: tuple[Any, Any]) -> Any:
    """The canonical form of the key that a record has brought along."""
    return canonical(record[0])


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
        key = read(record)
        if convert is not None:
            key = convert(key)
        kind = type(key)
        return key if kind is str or kind is int else canonical(key)

    return canon
