"""What is different between two versions of a job's state: by operator, state and key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.checkpoint.manifest import Manifest, StoreState
from millstream.checkpoint.statefile import TableInfo
from millstream.runtime.state.codec import codec_of_file, readable
from millstream.runtime.state.operator_state import element_reader, parts_of
from millstream.runtime.state.store_files import load_store
from millstream.runtime.wire.codec import dumps
from millstream.runtime.wire.keys import original_key
from millstream.storage.storage import Storage

__all__ = ["ABSENT", "StateChange", "changes"]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
"""Stands for no value at all."""

# How far the inputs of a chain have come: the engine's own, and partly the clock's.
_TIME = "#time"

Entries = dict[tuple[str, str], dict[Any, tuple[Any, Any]]]
"""By operator and state, and by what names an entry: how it is shown, and its value."""


@dataclass(frozen=True)
class StateChange:
    """An entry that was added, changed or removed. The key of a map's entry is a pair of both; that of operator state
    is the subtask, or the key of the broadcast entry."""

    operator: str
    state: str
    key: Any
    before: Any
    after: Any

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        if self.before is ABSENT:
            return "added"
        return "removed" if self.after is ABSENT else "changed"


def changes(
    storage: Storage,
    before: Manifest | None,
    after: Manifest | None,
    without: Collection[str] = (),
) -> list[StateChange]:
    """What is different in `after`; operators in `without` are not looked at. Only stores whose files are other ones
    are read, and these as a whole."""
    found: list[StateChange] = []
    first = {} if before is None else before.stores
    second = {} if after is None else after.stores
    for name in dict.fromkeys([*first, *second]):
        one, other = first.get(name), second.get(name)
        if one is not None and other is not None and _files(one) == _files(other):
            continue
        found += _compared(_entries(storage, one, without), _entries(storage, other, without))
    return found


def _files(store: StoreState) -> Any:
    return store.segments, store.parents


def _compared(before: Entries, after: Entries) -> Iterator[StateChange]:
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place, {}), after.get(place, {})
        for name, (key, value) in old.items():
            then = new[name][1] if name in new else ABSENT
            if then is ABSENT or not _same(value, then):
                yield StateChange(*place, key, value, then)
        for name, (key, value) in new.items():
            if name not in old:
                yield StateChange(*place, key, ABSENT, value)


def _same(one: Any, other: Any) -> bool:
    try:
        if bool(one == other):
            return True
    except Exception:
        # Whatever a value's own comparison does, its bytes decide.
        pass
    return type(one) is type(other) and dumps(one) == dumps(other)


def _entries(storage: Storage, version: StoreState | None, without: Collection[str]) -> Entries:
    """All that a subtask keeps."""
    found: Entries = {}
    if version is None:
        return found
    store = load_store(storage, version)
    for table in store.tables.values():
        uid, _, state = table.name.rpartition("/")
        if uid in without:
            continue
        place = found.setdefault((uid, state), {})
        for name, key, value in _of_table(table):
            place[name] = key, value
    for full_name, saved in store.operator_state.content().items():
        uid, _, state = full_name.rpartition("/")
        if uid in without or state == _TIME:
            continue
        place = found.setdefault((uid, state), {})
        for name, value in _of_operator(full_name, saved, version.subtask):
            place[name] = name, value
    return found


def _of_table(table: Any) -> Iterator[tuple[Any, Any, Any]]:
    show = readable(table.info)
    # When a value was last used, which time-to-live goes by, is not what it is.
    decode: Callable[[Any], Any] = (lambda kept: show(kept[0])) if table.ttl else show
    for _, entries in table.full():
        for canon, value in entries:
            key = original_key(canon)
            if table.shape == "map":
                for name, entry in value:
                    map_key, item = decode(entry)
                    yield (canon, name), (key, map_key), item
            elif table.shape == "list":
                yield canon, key, [decode(record) for record in value]
            else:
                yield canon, key, decode(value)


def _of_operator(name: str, saved: dict[str, Any], subtask: int) -> Iterator[tuple[Any, Any]]:
    broadcast = saved["kind"] == "broadcast"
    if broadcast and subtask:
        # It is the same in every subtask.
        return
    elements: list[Any] = []
    for codec, schema, written in parts_of(saved):
        info = TableInfo(name, "map" if broadcast else "list", codec, schema)
        read = element_reader(codec_of_file(info), codec, schema)
        elements += [read(element) for element in written]
    if not broadcast:
        yield subtask, elements
        return
    for map_key, value in elements:
        yield repr(map_key), value
