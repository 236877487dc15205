"""Tables of keyed state with a version per epoch (Flink's `HeapKeyedStateBackend`).

**An attempt of epoch n sees exactly the state of epoch n-1.** What `read` gives is version n-1 and is never changed by
a task; the task's own writes go to `changes`, and at its end into a file with a name no other attempt can have. Whoever
opens epoch n+1 learns from the manifest whose file won. If it is this process's, its changes are absorbed; if not, the
winner's file is read. So a task that is retried, doubled by speculation, or still running as a zombie cannot spoil
anything.

There are three shapes: one value per key, a list of elements per key, a map of entries per key. Changes to lists and
maps are kept by element, so that adding to a long list costs one element and not the list.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from millstream.checkpoint.statefile import TableInfo
from millstream.runtime.base.contracts import TableIndex
from millstream.runtime.state.codec import PICKLED, SchemaMismatch, ValueCodec
from millstream.runtime.wire.codec import dumps

__all__ = [
    "DELETED",
    "MISSING",
    "ListChange",
    "MapChange",
    "Table",
    "isolate",
]

Entries = list[Any]
Convert = Callable[[Any], Any]

_BLOCK = 4096


class _Sentinel:
    """An object that is equal to nothing else and stays itself through pickling."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return self._name


MISSING = _Sentinel("MISSING")
DELETED = _Sentinel("DELETED")

ATOMIC = frozenset({str, int, float, bool, bytes, type(None), complex})
_all_atomic = ATOMIC.issuperset


def isolate(value: Any) -> Any:
    """A value that nobody else can change: itself if it cannot be changed at all, else a copy (rule 45)."""
    kind = type(value)
    if kind in ATOMIC or (kind is tuple and _fixed(value)):
        return value
    return pickle.loads(dumps(value))


def _fixed(value: tuple[Any, ...]) -> bool:
    """True if nothing in a tuple can be changed."""
    if _all_atomic(map(type, value)):
        return True
    return all(type(part) in ATOMIC or (type(part) is tuple and _fixed(part)) for part in value)


class ListChange:
    """What an epoch does to a key's list: put `items` in its place, or after it."""

    __slots__ = ("items", "replace")

    def __init__(self, items: list[Any], *, replace: bool) -> None:
        self.items = items
        self.replace = replace


class MapChange:
    """What an epoch does to a key's map: empty it first if `cleared`, then put and remove entries."""

    __slots__ = ("cleared", "entries")

    def __init__(self, *, cleared: bool = False) -> None:
        self.cleared = cleared
        self.entries: dict[Any, Any] = {}


class Table(ABC):
    """One state of one operator. `changes` stays the same object for life, because generated code holds its methods.

    `read(key, default)` gives version n-1. Of a list that is the list; of a map use `read_entry` and `read_entries`.
    """

    def __init__(
        self, name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> None:
        self.name = name
        self.kind = kind
        self.codec = codec
        self.ttl = ttl
        self.changes: dict[Any, Any] = {}
        self.read: Callable[[Any, Any], Any]
        # What finds the table's entries by time, if anything does; it must know of all that changes.
        self.index: TableIndex | None = None
        # What the values of a table that nobody has asked for yet are written in.
        self.unclaimed: TableInfo | None = None

    @property
    def shape(self) -> str:
        """`value`, `list` or `map`: how the kind is kept."""
        return shape_of(self.kind)

    @property
    def info(self) -> TableInfo:
        """As the header of a file describes the table."""
        if self.unclaimed is not None:
            return self.unclaimed
        codec = self.codec
        return TableInfo(self.name, self.kind, codec.name, codec.schema, self.ttl)

    @abstractmethod
    def read_entry(self, key: Any, entry: Any, default: Any) -> Any:
        """One entry of a key's map at version n-1."""

    @abstractmethod
    def read_entries(self, key: Any) -> Iterable[tuple[Any, Any]]:
        """All entries of a key's map at version n-1."""

    @abstractmethod
    def absorb(self) -> None:
        """Make the changes part of what `read` gives."""

    @abstractmethod
    def reset(self) -> None:
        """Forget all entries, and the changes."""

    def discard(self) -> None:
        """Forget the changes."""
        if self.changes and self.index is not None:
            self.index.valid = False
        self.changes.clear()

    @abstractmethod
    def apply(self, kind: str, entries: Entries, decode: Convert | None) -> None:
        """Put entries of a file into what `read` gives."""

    @abstractmethod
    def full(self) -> Iterator[tuple[str, Entries]]:
        """All entries as they will be once the changes are absorbed, as blocks of a file."""

    @abstractmethod
    def keys(self) -> Iterator[Any]:
        """All keys, changes included."""

    def walk(self) -> Iterator[Any]:
        """The keys, for a search that goes on over several epochs while keys come and go."""
        # A list, because removing changes what is gone through.
        return iter(list(self.keys()))

    def delta(self) -> Iterator[tuple[str, Entries]]:
        """The changes as blocks of a file."""
        changes, encode, shape = self.changes, self.encode, self.shape
        if shape == "map":
            gone = [k for k, v in changes.items() if v is DELETED or v.cleared]
        else:
            gone = [k for k, v in changes.items() if v is DELETED]
        yield from blocks_of("D", gone)
        match shape:
            case "value" if encode is None and not gone:
                # Nearly every epoch of nearly every job: no step per key but those of the pickler.
                yield from blocks_of("P", changes.items())
            case "value":
                yield from blocks_of(
                    "P",
                    (
                        (k, encode(v)) if encode else (k, v)
                        for k, v in changes.items()
                        if v is not DELETED
                    ),
                )
            case "list":
                for kind, replace in (("P", True), ("A", False)):
                    yield from blocks_of(
                        kind,
                        (
                            (k, [encode(item) for item in v.items] if encode else v.items)
                            for k, v in changes.items()
                            if v is not DELETED and v.replace is replace
                        ),
                    )
            case _:
                yield from blocks_of("M", self._map_changes())
                removed = (
                    (k, [m for m, v in change.entries.items() if v is DELETED])
                    for k, change in changes.items()
                    if change is not DELETED and not change.cleared
                )
                yield from blocks_of("R", ((k, names) for k, names in removed if names))

    def _map_changes(self) -> Iterator[Any]:
        encode = self.encode
        for key, change in self.changes.items():
            if change is not DELETED:
                put = [
                    (m, encode(v) if encode else v)
                    for m, v in change.entries.items()
                    if v is not DELETED
                ]
                if put:
                    yield key, put

    @property
    def encode(self) -> Convert | None:
        """What makes a value plain for a file; None if it is written as it is."""
        encode = None if self.unclaimed is not None else self.codec.encode
        return None if encode is None else self._inside(encode)

    def decoder(self, written: TableInfo) -> Convert | None:
        """What reads the values of a file; None if they are read as they are. Raises `SchemaMismatch`."""
        if (
            shape_of(written.kind) != self.shape
            or written.kind != self.kind
            or written.ttl != self.ttl
        ):
            raise SchemaMismatch
        decode = self.codec.decoder(written.codec, written.schema)
        return None if decode is None else self._inside(decode)

    def _inside(self, convert: Convert) -> Convert:
        """The conversion of a bare value, for the values that are kept: those with time-to-live have their time
        beside them."""
        return (lambda pair: (convert(pair[0]), pair[1])) if self.ttl else convert


class HashTable(Table):
    """A table as Python objects in a dictionary, which stays the same object for life."""

    def __init__(
        self, name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> None:
        super().__init__(name, kind, codec, ttl=ttl)
        self.base: dict[Any, Any] = {}
        self.read = self.base.get

    def read_entry(self, key: Any, entry: Any, default: Any) -> Any:
        entries = self.base.get(key)
        return default if entries is None else entries.get(entry, default)

    def read_entries(self, key: Any) -> Iterable[tuple[Any, Any]]:
        entries: dict[Any, Any] = self.base.get(key, {})
        return entries.items()

    def reset(self) -> None:
        self.base.clear()
        self.changes.clear()
        if self.index is not None:
            self.index.clear()

    def keys(self) -> Iterator[Any]:
        changes = self.changes
        for key in self.base:
            if changes.get(key) is not DELETED:
                yield key
        for key, value in changes.items():
            if value is not DELETED and key not in self.base:
                yield key

    def absorb(self) -> None:
        base, shape = self.base, self.shape
        if shape == "value":
            gone = [key for key, value in self.changes.items() if value is DELETED]
            base.update(self.changes)
            for key in gone:
                del base[key]
        else:
            merge = _merge_list if shape == "list" else _merge_map
            for key, change in self.changes.items():
                merged = None if change is DELETED else merge(base.get(key), change)
                if merged:
                    base[key] = merged
                else:
                    base.pop(key, None)
        self.changes.clear()

    def apply(self, kind: str, entries: Entries, decode: Convert | None) -> None:
        base = self.base
        if self.index is not None:
            self.index.applied(kind, entries)
        if kind == "D":
            for key in entries:
                base.pop(key, None)
        elif kind == "P":
            if self.shape == "list" and decode is not None:
                base.update((key, [decode(item) for item in value]) for key, value in entries)
            elif decode is not None:
                base.update((key, decode(value)) for key, value in entries)
            else:
                base.update(entries)
        elif kind == "A":
            for key, items in entries:
                more = items if decode is None else [decode(item) for item in items]
                base.setdefault(key, []).extend(more)
        elif kind == "M":
            for key, put in entries:
                pairs = put if decode is None else ((m, decode(v)) for m, v in put)
                base.setdefault(key, {}).update(pairs)
        elif kind == "R":
            for key, names in entries:
                known = base.get(key, {})
                for name in names:
                    known.pop(name, None)
                if not known:
                    base.pop(key, None)

    def full(self) -> Iterator[tuple[str, Entries]]:
        encode = self.encode
        match self.shape:
            case "value":
                together = {**self.base, **self.changes} if self.changes else self.base
                yield from blocks_of(
                    "P",
                    (
                        (k, encode(v) if encode else v)
                        for k, v in together.items()
                        if v is not DELETED
                    ),
                )
            case "list":
                merged = ((k, self._merged(k, _merge_list)) for k in self.keys())
                yield from blocks_of(
                    "P",
                    ((k, [encode(item) for item in v] if encode else v) for k, v in merged if v),
                )
            case _:
                maps = ((k, self._merged(k, _merge_map)) for k in self.keys())
                yield from blocks_of(
                    "M",
                    (
                        (k, [(m, encode(v) if encode else v) for m, v in entries.items()])
                        for k, entries in maps
                        if entries
                    ),
                )

    def _merged(self, key: Any, merge: Callable[[Any, Any], Any]) -> Any:
        change = self.changes.get(key)
        base = self.base.get(key)
        # Merging must not touch the version that others still read.
        return base if change is None else merge(None if base is None else base.copy(), change)


def shape_of(kind: str) -> str:
    """How a kind of state is kept.

    >>> [shape_of(kind) for kind in ("value", "reducing", "aggregating", "list", "map")]
    ['value', 'value', 'value', 'list', 'map']
    """
    return kind if kind in ("list", "map") else "value"


def _merge_list(base: list[Any] | None, change: ListChange) -> list[Any]:
    if change.replace or base is None:
        return list(change.items)
    base.extend(change.items)
    return base


def _merge_map(base: dict[Any, Any] | None, change: MapChange) -> dict[Any, Any]:
    result = {} if change.cleared or base is None else base
    for name, value in change.entries.items():
        if value is DELETED:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def blocks_of(kind: str, entries: Iterable[Any]) -> Iterator[tuple[str, Entries]]:
    pending = iter(entries)
    while block := list(islice(pending, _BLOCK)):
        yield kind, block
