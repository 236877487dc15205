"""Writing into an LMDB environment: blocks of state files, within the transaction of the store."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from millstream.checkpoint.statefile import TableInfo
from millstream.runtime.state.lmdb import keys as layout
from millstream.runtime.state.table import ATOMIC, Entries
from millstream.runtime.wire.codec import dumps

__all__ = ["Entry", "TableWriter", "is_small", "sized_blocks"]

# A list is kept in chunks. To a chunk that is smaller than this, elements are added; behind a larger one a new one
# begins, so that adding to a long list does not write the list.
_CHUNK_BYTES = 1024
_MAX_CHUNK = 0xFFFFFFFF
_SMALL = 1024
# A block of a full file ends at so many entries, or bytes.
_BLOCK_ENTRIES = 4096
_BLOCK_BYTES = 4 << 20


def _pickled(value: Any) -> bytes:
    # The same by a shorter way: of the cheap values there are most.
    return pickle.dumps(value, 5) if type(value) in ATOMIC else dumps(value)


def is_small(value: Any) -> bool:
    """True if a value surely takes little memory."""
    return type(value) in ATOMIC and (type(value) not in (str, bytes) or len(value) <= _SMALL)


class Entry(msgspec.Struct):
    """A table as the environment knows it: its number, and the ways its values are written."""

    id: int
    infos: list[TableInfo] = []

    @property
    def prefix(self) -> bytes:
        """What all keys of the table begin with."""
        return self.id.to_bytes(2, "big")

    def schema(self, info: TableInfo) -> int:
        """The number of a way of writing values, new if need be."""
        if info not in self.infos:
            assert len(self.infos) < 127
            self.infos.append(info)
        return self.infos.index(info)


class TableWriter:
    """Puts the blocks of a table into a transaction."""

    def __init__(self, txn: Any, prefix: bytes, schema: int, shape: str) -> None:
        self._txn = txn
        self._prefix = prefix
        self._schema = schema
        self._shape = shape

    def write(self, kind: str, entries: Entries) -> None:
        """A block as `statefile` describes it."""
        match kind, self._shape:
            case "D", "value":
                for key in entries:
                    self._txn.delete(layout.value_key(self._prefix, key))
            case "D", _:
                for key in entries:
                    self._remove(layout.keyed(self._prefix, key))
            case "P", "value":
                self._put_values(entries)
            case "P", _:
                for key, items in entries:
                    start = layout.keyed(self._prefix, key)
                    self._remove(start)
                    self._put_chunk(start, 0, key, items)
            case "A", _:
                for key, items in entries:
                    if items:
                        self._append(key, items)
            case "M", _:
                for key, put in entries:
                    self._put_entries(key, put)
            case "R", _:
                for key, names in entries:
                    start = layout.keyed(self._prefix, key)
                    for name in names:
                        self._txn.delete(layout.map_key(start, name))
            case _:
                raise AssertionError(kind)

    def _put_values(self, entries: Entries) -> None:
        prefix, schema = self._prefix, self._schema
        rows = []
        for key, value in entries:
            place = layout.value_key(prefix, key)
            full = (key,) if layout.is_digest(place[2:]) else None
            rows.append((place, layout.stored_value(_pickled(value), schema, full)))
        # In order, neighbours are put into a page that is at hand.
        rows.sort()
        self._txn.cursor().putmulti(rows)

    def _put_entries(self, key: Any, put: Iterable[tuple[Any, Any]]) -> None:
        start = layout.keyed(self._prefix, key)
        digest = layout.is_digest(start[4:])
        for name, entry in put:
            place = layout.map_key(start, name)
            full = (key, name) if digest or layout.is_digest(place[len(start) :]) else None
            self._txn.put(place, layout.stored_value(_pickled(entry), self._schema, full))

    def _put_chunk(self, start: bytes, number: int, key: Any, items: list[Any]) -> None:
        full = (key,) if layout.is_digest(start[4:]) else None
        self._txn.put(
            layout.chunk_key(start, number),
            layout.stored_value(_pickled(items), self._schema, full),
        )

    def _append(self, key: Any, items: list[Any]) -> None:
        start = layout.keyed(self._prefix, key)
        cursor = self._txn.cursor()
        number = 0
        if cursor.set_range(layout.chunk_key(start, _MAX_CHUNK)):
            going = cursor.prev()
        else:
            going = cursor.last()
        if going and cursor.key().startswith(start):
            (number,) = layout.CHUNK.unpack(cursor.key()[len(start) :])
            data = cursor.value()
            if len(data) < _CHUNK_BYTES and layout.schema_number(data) == self._schema:
                items = pickle.loads(data) + items
            else:
                number += 1
        self._put_chunk(start, number, key, items)

    def _remove(self, start: bytes) -> None:
        cursor = self._txn.cursor()
        going = cursor.set_range(start)
        while going and cursor.key().startswith(start):
            # Deleting moves on to what follows; the key is empty behind the last.
            cursor.delete()
            going = bool(cursor.key())


def sized_blocks(
    kind: str, entries: Iterable[tuple[Any, Any, int]]
) -> Iterator[tuple[str, Entries]]:
    """Blocks of (key, value, bytes) that stay small if values are large."""
    block: Entries = []
    size = 0
    for key, value, more in entries:
        block.append((key, value))
        size += more
        if len(block) >= _BLOCK_ENTRIES or size >= _BLOCK_BYTES:
            yield kind, block
            block, size = [], 0
    if block:
        yield kind, block
