"""A table in an LMDB environment: for state that is larger than memory.

What `read` gives comes from the transaction that the store opened for the epoch. Values are kept as the files have
them, plain, and each says by which schema it was written; they are converted when they are read. In memory are the
changes of the epoch and a cache of values that were read last.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from millstream.runtime.state.codec import PICKLED, ValueCodec
from millstream.runtime.state.lmdb import keys as layout
from millstream.runtime.state.lmdb.write import Entry, TableWriter, is_small, sized_blocks
from millstream.runtime.state.table import DELETED, MISSING, Convert, Entries, Table

__all__ = ["LmdbTable"]

# The two halves of the cache take about so many bytes of pickles each, an entry no less than the second number.
_CACHE_HALF = 4 << 20
_CACHE_ENTRY = 400
# Entries of a map that are written together.
_TOGETHER = 256

_loads = pickle.loads
_ABSENT: Any = object()


def _nothing(key: bytes) -> None:
    return None


def _not_open(key: bytes) -> None:
    msg = "state is read while no epoch is open"
    raise RuntimeError(msg)


class LmdbTable(Table):
    """One state of one operator in the store's environment."""

    def __init__(
        self, name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> None:
        super().__init__(name, kind, codec, ttl=ttl)
        self.writer: TableWriter | None = None
        self._entry: Entry | None = None
        self._prefix = b""
        self._txn: Any = None
        self._get: Callable[[bytes], bytes | None] = _not_open
        self._decoders: dict[int, Convert | None] = {}
        self._hot: dict[Any, Any] = {}
        self._cold: dict[Any, Any] = {}
        self._weight = 0
        self.read = self._read_list if self.shape == "list" else self._read_value

    # -- the store's side -------------------------------------------------------------------------------

    def bind(self, txn: Any, entry: Entry | None) -> None:
        """Read from a transaction; None until the next epoch is open."""
        self._txn, self._entry = txn, entry
        self._decoders.clear()
        if txn is None:
            self._get = _not_open
        elif entry is None:
            self._get = _nothing
        else:
            self._get, self._prefix = txn.get, entry.prefix

    def remember(self) -> None:
        """The changes have become part of the version: bring the cache along."""
        hot, cold = self._hot, self._cold
        shape = self.shape
        for key, change in self.changes.items():
            if shape == "map":
                if change is DELETED or change.cleared:
                    self.forget()
                    return
                for name in change.entries:
                    hot.pop((key, name), None)
                    cold.pop((key, name), None)
                continue
            known = hot if key in hot else cold
            if key in known:
                if change is DELETED:
                    known[key] = MISSING
                elif shape == "value" and is_small(change):
                    known[key] = change
                else:
                    # How much room it takes is found out when it is read again.
                    del known[key]

    def forget(self) -> None:
        """Empty the cache."""
        self._hot.clear()
        self._cold.clear()
        self._weight = 0
        self._decoders.clear()

    # -- reading ----------------------------------------------------------------------------------------

    def _read_value(self, key: Any, default: Any = None) -> Any:
        value = self._hot.get(key, _ABSENT)
        if value is _ABSENT:
            value = self._cold.get(key, _ABSENT)
            if value is _ABSENT:
                data = self._get(layout.value_key(self._prefix, key))
                value = MISSING if data is None else self._decode(data)
                self._keep(key, value, 0 if data is None else len(data))
        return default if value is MISSING else value

    def _read_list(self, key: Any, default: Any = None) -> Any:
        value = self._hot.get(key, _ABSENT)
        if value is _ABSENT:
            value = self._cold.get(key, _ABSENT)
            if value is _ABSENT:
                items: list[Any] = []
                size = 0
                for _, data in self._scan(layout.keyed(self._prefix, key)):
                    items += self._decode_list(data)
                    size += len(data)
                value = items or MISSING
                self._keep(key, value, size)
        return default if value is MISSING else value

    def read_entry(self, key: Any, entry: Any, default: Any) -> Any:
        place = key, entry
        value = self._hot.get(place, _ABSENT)
        if value is _ABSENT:
            value = self._cold.get(place, _ABSENT)
            if value is _ABSENT:
                data = self._get(layout.map_key(layout.keyed(self._prefix, key), entry))
                value = MISSING if data is None else self._decode(data)
                self._keep(place, value, 0 if data is None else len(data))
        return default if value is MISSING else value

    def read_entries(self, key: Any) -> Iterator[tuple[Any, Any]]:
        for place, data in self._scan(layout.keyed(self._prefix, key)):
            yield layout.name_of(place, data), self._decode(data)

    def _keep(self, key: Any, value: Any, size: int) -> None:
        self._weight += size + _CACHE_ENTRY
        if self._weight > _CACHE_HALF:
            self._cold, self._hot, self._weight = self._hot, {}, size
        if size < _CACHE_HALF:
            self._hot[key] = value

    def _decode(self, data: bytes) -> Any:
        decode = self._decoder_of(layout.schema_number(data))
        return _loads(data) if decode is None else decode(_loads(data))

    def _decode_list(self, data: bytes) -> list[Any]:
        decode = self._decoder_of(layout.schema_number(data))
        items: list[Any] = _loads(data)
        return items if decode is None else [decode(item) for item in items]

    def _decoder_of(self, schema: int) -> Convert | None:
        try:
            return self._decoders[schema]
        except KeyError:
            assert self._entry is not None
            info = self._entry.infos[schema]
            made = None if self.unclaimed is not None else self.decoder(info)
            self._decoders[schema] = made
            return made

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._entry is None:
            self._get(b"")
            return
        cursor = self._txn.cursor()
        if cursor.set_range(prefix):
            for key, data in cursor:
                if not key.startswith(prefix):
                    return
                yield key, data

    # -- all of it --------------------------------------------------------------------------------------

    def _base_keys(self, start: bytes = b"") -> Iterator[tuple[bytes, Any]]:
        """Every key of the version before with its place; only those behind `start` if that is given."""
        if self._entry is None:
            return
        prefix, single = self._prefix, self.shape == "value"
        cursor = self._txn.cursor()
        going = cursor.set_range(start or prefix)
        while going and cursor.key().startswith(prefix):
            raw = cursor.key()
            place, body = (raw, raw[2:]) if single else layout.split(raw)[:2]
            if layout.is_digest(body):
                yield place, layout.full_key(cursor.value())[0]
            else:
                yield place, layout.key_of(body)
            going = cursor.next() if single else cursor.set_range(layout.after(place))

    def keys(self) -> Iterator[Any]:
        changes = self.changes
        for _, key in self._base_keys():
            if changes.get(key) is not DELETED:
                yield key
        for key, value in changes.items():
            if value is not DELETED and not self._holds(key):
                yield key

    def _holds(self, key: Any) -> bool:
        if self.shape == "value":
            return self._get(layout.value_key(self._prefix, key)) is not None
        return next(self._scan(layout.keyed(self._prefix, key)), None) is not None

    def walk(self) -> Iterator[Any]:
        place = b""
        # A cursor lives no longer than the epoch's transaction, this iterator does.
        while batch := list(islice(self._base_keys(place), 1000)):
            place = batch[-1][0] + b"\0" if self.shape == "value" else layout.after(batch[-1][0])
            yield from (key for _, key in batch)

    def full(self) -> Iterator[tuple[str, Entries]]:
        yield from self.full_of(None)

    def full_of(self, schema: int | None) -> Iterator[tuple[str, Entries]]:
        """All entries with the changes; of a table with values of several schemas, those of one."""
        if self.shape == "map":
            yield from sized_blocks("M", self._all_entries(schema))
        else:
            yield from sized_blocks("P", self._all_values(schema))

    def _plain(self, data: bytes) -> Any:
        """A value or list chunk as it goes into a file."""
        assert self._entry is not None
        if self.unclaimed is not None or self._entry.infos[layout.schema_number(data)] == self.info:
            return _loads(data)
        encode = self.encode
        if self.shape == "list":
            items = self._decode_list(data)
            return items if encode is None else [encode(item) for item in items]
        value = self._decode(data)
        return value if encode is None else encode(value)

    def _all_values(self, schema: int | None) -> Iterator[tuple[Any, Any, int]]:
        changes, encode, single = self.changes, self.encode, self.shape == "value"
        for place, key in self._base_keys():
            change = changes.get(key)
            if change is DELETED or (change is not None and (single or change.replace)):
                continue
            chunks = [(place, self._get(place))] if single else list(self._scan(place))
            data = [chunk for _, chunk in chunks if chunk is not None]
            if schema is not None and layout.schema_number(data[0]) != schema:
                continue
            size = sum(map(len, data))
            if single:
                yield key, self._plain(data[0]), size
            else:
                items = [item for chunk in data for item in self._plain(chunk)]
                if change is not None:
                    items += [encode(item) for item in change.items] if encode else change.items
                yield key, items, size
        for key, change in changes.items():
            if change is DELETED:
                continue
            if single:
                yield key, encode(change) if encode else change, _CACHE_ENTRY
            elif change.items and (change.replace or not self._holds(key)):
                yield key, [encode(item) for item in change.items] if encode else change.items, 0

    def _all_entries(self, schema: int | None) -> Iterator[tuple[Any, Any, int]]:
        changes, encode = self.changes, self.encode
        for place, key in self._base_keys():
            change = changes.get(key)
            if change is DELETED or (change is not None and change.cleared):
                continue
            changed = () if change is None else change.entries
            rows = self._scan(place)
            while some := list(islice(rows, _TOGETHER)):
                put = [
                    (name, self._plain(data))
                    for name, data in ((layout.name_of(place, data), data) for place, data in some)
                    if name not in changed and schema in (None, layout.schema_number(data))
                ]
                if put:
                    yield key, put, sum(len(data) for _, data in some)
        for key, change in changes.items():
            if change is not DELETED:
                put = [(m, v) for m, v in change.entries.items() if v is not DELETED]
                if put:
                    yield key, [(m, encode(v) if encode else v) for m, v in put], 64 * len(put)

    # -- writing ----------------------------------------------------------------------------------------

    def reset(self) -> None:
        self.changes.clear()
        self.forget()

    def absorb(self) -> None:
        # Just what another process will read from the file.
        for kind, entries in self.delta():
            self.apply(kind, entries, None)

    def apply(self, kind: str, entries: Entries, decode: Convert | None) -> None:
        assert self.writer is not None
        self.writer.write(kind, entries)
