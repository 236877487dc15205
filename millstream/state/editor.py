"""Changes a savepoint: a new one is written, the old one stays as it is."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.checkpoint.manifest import METADATA, StoreState, encode_manifest
from millstream.checkpoint.statefile import table_name
from millstream.checkpoint.storage import open_storage, stable
from millstream.errors import StateNotFound, UnsupportedOperation
from millstream.runtime.keys import canonical, key_group, original_key, subtask_of
from millstream.runtime.state import DELETED, Table
from millstream.runtime.state_codec import readable, writable
from millstream.runtime.store import StateStore
from millstream.runtime.store_files import load_store, write_full
from millstream.state.reader import SavepointReader

__all__ = ["SavepointEditor", "edit"]


class SavepointEditor:
    """Collects changes to keyed value state (value, reducing, aggregating) and writes them as a new savepoint."""

    def __init__(self, path: str) -> None:
        self._reader = SavepointReader(path)
        self._loaded: dict[str, StateStore] = {}

    def _store(self, name: str, store: StoreState) -> StateStore:
        if name not in self._loaded:
            self._loaded[name] = load_store(self._reader.storage, store)
        return self._loaded[name]

    def _table(self, store: StateStore, uid: str, state: str) -> Table | None:
        described = self._reader.describe(uid, state)
        table = store.tables.get(table_name(uid, state))
        if str(described["kind"]).startswith("operator") or (
            table is not None and table.shape != "value"
        ):
            msg = f"'{state}' is {described['kind']} state, which cannot be edited"
            raise UnsupportedOperation(
                msg, hint="value, reducing and aggregating state can; read() works for every kind"
            )
        return table

    def update(self, uid: str, state: str, function: Callable[[Any, Any], Any]) -> int:
        """Replace each value by ``function(key, value)``; None removes the key. The number of values changed."""
        changed = 0
        for name, store in self._reader.stores_of(uid).items():
            table = self._table(self._store(name, store), uid, state)
            if table is None:
                continue
            decode, encode = readable(table.info), writable(table.info)
            for canon in list(table.keys()):
                before = table.changes.get(canon, None) or table.read(canon, None)
                value = decode(before)
                after = function(original_key(canon), value)
                if after != value or type(after) is not type(value):
                    table.changes[canon] = DELETED if after is None else encode(after, before)
                    changed += 1
            table.fold()
        return changed

    def put(self, uid: str, state: str, key: Any, value: Any) -> None:
        """Set the value of one key; None removes it."""
        canon = canonical(key)
        for name, store in self._reader.stores_of(uid).items():
            group = key_group(canon, store.max_parallelism)
            if subtask_of(group, store.parallelism, store.max_parallelism) != store.subtask:
                continue
            table = self._table(self._store(name, store), uid, state)
            if table is None:
                break
            encode = writable(table.info)
            before = table.read(canon, None)
            table.changes[canon] = DELETED if value is None else encode(value, before)
            table.fold()
            return
        msg = f"the subtask that the key belongs to has no state '{state}' yet"
        raise StateNotFound(msg, key=repr(key), hint="start the job once with the key, then edit")

    def remove(self, uid: str, state: str, key: Any) -> None:
        """Forget one key."""
        self.put(uid, state, key, None)

    def write(self, path: str) -> str:
        """Write the changed savepoint to a new path, which is returned in its absolute form."""
        reader, target = self._reader, open_storage(path)
        stores = {}
        for name, store in reader.manifest.stores.items():
            loaded = self._loaded.get(name)
            if loaded is None and store.parents:
                loaded = self._store(name, store)
            if loaded is None:
                for file in store.chain:
                    target.copy_from(reader.storage, file.name, file.name)
                stores[name] = store
            else:
                file = write_full(target, name, loaded, reader.manifest.epoch, secrets.token_hex(8))
                stores[name] = msgspec.structs.replace(store, chain=[file], parents=[])
        for fed_back in reader.manifest.feedback.values():
            for one in fed_back:
                target.copy_from(reader.storage, one.name, one.name)
        # What a checkpoint has left to commit is left to whoever starts from here.
        saved = msgspec.structs.replace(reader.manifest, stores=stores, savepoint=True)
        target.publish(METADATA, encode_manifest(saved))
        return stable(path)


def edit(path: str) -> SavepointEditor:
    """Begin to change a savepoint or checkpoint; nothing is written before `write`."""
    return SavepointEditor(path)
