"""Changes a savepoint: a new one is written, the old one stays as it is."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.checkpoint.manifest import METADATA, StoreState, encode_manifest
from millstream.checkpoint.statefile import load_plain, table_name
from millstream.errors import InvalidArgument, StateNotFound, UnsupportedOperation
from millstream.runtime.base import clock
from millstream.runtime.base.text import shorten
from millstream.runtime.state.codec import codec_of_file, readable
from millstream.runtime.state.store import StateStore
from millstream.runtime.state.store_files import load_store, write_full
from millstream.runtime.state.storing import Storing, not_serializable
from millstream.runtime.state.table import DELETED, Table, isolate
from millstream.runtime.state.trust import Outside
from millstream.runtime.wire.codec import dumps
from millstream.runtime.wire.keys import canonical, key_group, original_key, subtask_of
from millstream.state.reader import SavepointReader
from millstream.storage.open import open_storage
from millstream.storage.storage import shown_root, stable

__all__ = ["SavepointEditor", "edit"]


class SavepointEditor:
    """Collects changes to keyed value state (value, reducing, aggregating, and what `reduce` and `sum` keep) and writes
    them as a new savepoint. A value is made to fit the state's declared type as it is when a job puts it, or refused;
    of a dataclass it is a dictionary by field. Pickles are read only with `allow_pickle`: all tables of a subtask that
    is changed are written anew."""

    def __init__(
        self, path: str, *, allow_pickle: bool = False, hmac_key_file: str | None = None
    ) -> None:
        self._reader = SavepointReader(path, allow_pickle=allow_pickle, hmac_key_file=hmac_key_file)
        self._trust = Outside(allow_pickle=allow_pickle)
        self._loaded: dict[str, StateStore] = {}

    def _store(self, name: str, store: StoreState) -> StateStore:
        if name not in self._loaded:
            self._loaded[name] = load_store(self._reader.storage, store, self._trust)
        return self._loaded[name]

    def _stores(self, uid: str, state: str) -> list[tuple[StoreState, StateStore, list[Table]]]:
        """The stores of an operator with the tables of a state: several if its parts were written differently."""
        described = self._reader.describe(uid, state)
        name = table_name(uid, state)
        kind, own = str(described["kind"]), state.startswith("#")
        if kind not in _VALUES or own:
            raise _not_editable(uid, state, "the operator's own" if own else f"{kind} state")
        stores = []
        for store_name, version in self._reader.stores_of(uid).items():
            store = self._store(store_name, version)
            stores.append((version, store, [t for t in store.tables.values() if t.name == name]))
        tables = [table for _, _, of_store in stores for table in of_store]
        if any(map(_of_windows, tables)):
            raise _not_editable(uid, state, "kept by window")
        return stores

    def update(self, uid: str, state: str, function: Callable[[Any, Any], Any]) -> int:
        """Replace each value by ``function(key, value)``; None removes the key. The number of values changed."""
        changed = 0
        for _, _, tables in self._stores(uid, state):
            for table in tables:
                changed += self._update(table, function)
        return changed

    def _update(self, table: Table, function: Callable[[Any, Any], Any]) -> int:
        decode, encode, key_of = readable(table.info), _encoder(table), self._trust.keys(table.name)
        changes: dict[Any, Any] = {}
        for canon in list(table.keys()):
            kept = table.read(canon, None)
            bare, at = kept if table.ttl else (kept, None)
            # The function may change what it is given.
            after = function(key_of(canon), decode(isolate(bare)))
            if after is None:
                changes[canon] = DELETED
                continue
            plain = encode(after)
            # A set that is made again may list its elements in another order than it did.
            made = dumps(plain)
            if made != dumps(bare) and made != dumps(encode(decode(isolate(bare)))):
                changes[canon] = (plain, at) if table.ttl else plain
        table.changes.update(changes)
        table.absorb()
        return len(changes)

    def put(
        self, uid: str, state: str, key: Any, value: Any, *, new_key_type: bool = False
    ) -> None:
        """Set the value of one key; None removes it. A key of another type than all that are there is refused, because
        the job would hardly find it, unless `new_key_type` says that it is meant."""
        canon = canonical(key)
        stores = self._stores(uid, state)
        if not new_key_type:
            self._check_key(stores, uid, state, key, canon)
        infos = [table.info for _, _, tables in stores for table in tables]
        for version, store, tables in stores:
            group = key_group(canon, version.max_parallelism)
            if subtask_of(group, version.parallelism, version.max_parallelism) != version.subtask:
                continue
            if not tables and infos:
                tables = [store.table_of(infos[0])]
            for table in tables:
                table.changes[canon] = DELETED
            if tables and value is not None:
                plain = _encoder(tables[0])(value)
                tables[0].changes[canon] = (plain, clock.now()) if tables[0].ttl else plain
            for table in tables:
                table.absorb()
            if tables:
                return
        msg = f"no key has state '{state}' yet, so it is not known how its values are written"
        raise StateNotFound(
            msg, operator=uid, key=shorten(key), hint="start the job once with a key, then edit"
        )

    def _check_key(self, stores: Any, uid: str, state: str, key: Any, canon: Any) -> None:
        kinds: set[type] = set()
        for table in (table for _, _, tables in stores for table in tables):
            key_of = self._trust.keys(table.name)
            for known in table.keys():  # noqa: SIM118 - a table is no dictionary
                if known == canon:
                    return
                kinds.add(type(key_of(known)))
        if kinds and type(original_key(canon)) not in kinds:
            raise InvalidArgument(
                f"the keys of '{state}' are of another type",
                operator=uid,
                key=shorten(key),
                found=type(key).__name__,
                wanted=", ".join(sorted(kind.__name__ for kind in kinds)),
                hint="give the key as the job's key selector gives it; new_key_type=True if it is meant",
            )

    def remove(self, uid: str, state: str, key: Any) -> None:
        """Forget one key."""
        self.put(uid, state, key, None)

    def write(self, path: str) -> str:
        """Write the changed savepoint to a new path, which is returned in its absolute form."""
        reader = self._reader
        target = open_storage(path, seal=reader.storage.seal)
        if target.list(""):
            msg = "there is something at the path already: a savepoint is written to a new one"
            raise InvalidArgument(
                msg, path=shown_root(path), hint="give a path that does not exist yet"
            )
        stores = {}
        for name, store in reader.manifest.stores.items():
            loaded = self._loaded.get(name)
            if loaded is None and store.parents:
                loaded = self._store(name, store)
            if loaded is None:
                for file in store.segments:
                    target.copy_from(reader.storage, file.name, file.name)
                stores[name] = store
            else:
                file = write_full(target, name, loaded, reader.manifest.epoch, secrets.token_hex(8))
                stores[name] = msgspec.structs.replace(store, segments=[file], parents=[])
        for fed_back in reader.manifest.feedback.values():
            for fed in fed_back:
                target.copy_from(reader.storage, fed.name, fed.name)
        # What a checkpoint has left to commit is left to whoever starts from here.
        saved = msgspec.structs.replace(reader.manifest, stores=stores, savepoint=True)
        target.publish(METADATA, encode_manifest(saved, target.seal))
        return stable(path)


_VALUES = ("value", "reducing", "aggregating")


def _not_editable(uid: str, state: str, kind: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"'{state}' is {kind}, which cannot be edited",
        operator=uid,
        hint="value, reducing and aggregating state of a key can; read() works for every kind",
    )


def _of_windows(table: Table) -> bool:
    """True if values belong to a part of a key, such as a window, so that the key alone does not say which is meant."""
    return table.kind == "pane" or any(type(canon) is tuple for canon in table.keys())  # noqa: SIM118


def _encoder(table: Table) -> Callable[[Any], Any]:
    """What makes a value fit and then plain, as a job's state does when it is put and written."""
    codec = codec_of_file(table.info)
    storing, encode = Storing(table.name, codec), codec.encode
    checked = load_plain if table.info.codec == "plain" else pickle.loads

    def plain(value: Any) -> Any:
        fits = storing.fit(value)
        made = fits if encode is None else encode(fits)
        try:
            checked(dumps(made))
        except Exception as error:
            raise not_serializable(table.name, value, error) from error
        return made

    return plain


def edit(
    path: str, *, allow_pickle: bool = False, hmac_key_file: str | None = None
) -> SavepointEditor:
    """Begin to change a savepoint or checkpoint; nothing is written before `write`. With a key, what is read must be
    signed with it, and what is written is."""
    return SavepointEditor(path, allow_pickle=allow_pickle, hmac_key_file=hmac_key_file)
