"""Reads the state of a savepoint or checkpoint: what there is, and its entries as rows or frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from millstream.checkpoint.manifest import Manifest, OperatorInfo, StoreState
from millstream.checkpoint.savepoint import open_checkpoint
from millstream.checkpoint.statefile import TableInfo, table_name
from millstream.errors import StateNotFound, UnsupportedOperation
from millstream.runtime.state.codec import codec_of_file, readable
from millstream.runtime.state.operator_state import element_reader, parts_of
from millstream.runtime.state.store_files import load_store
from millstream.runtime.state.trust import Outside
from millstream.storage.seal import Seal
from millstream.storage.storage import Storage, shown_root, stable

__all__ = ["SavepointReader", "open_savepoint", "read", "read_pandas", "rows_of"]


class SavepointReader:
    """A savepoint, a retained checkpoint, or the latest checkpoint of a job's folder. Pickles in it are read only with
    `allow_pickle`, because reading them runs what their writer put there; with `hmac_key_file` nothing is read that is
    not signed with that key."""

    def __init__(
        self, path: str, *, allow_pickle: bool = False, hmac_key_file: str | None = None
    ) -> None:
        self.path = path
        self.allow_pickle = allow_pickle
        self.hmac_key_file = None if hmac_key_file is None else stable(hmac_key_file)
        self.manifest: Manifest
        self.storage: Storage
        self.manifest, self.storage = open_checkpoint(path, Seal.of(self.hmac_key_file))

    @property
    def operators(self) -> dict[str, OperatorInfo]:
        """The operators that have state, by uid."""
        return {uid: info for uid, info in self.manifest.operators.items() if info.states}

    def stores_of(self, uid: str) -> dict[str, StoreState]:
        """The stores that hold an operator's state."""
        stores = self.manifest.stores.items()
        return {name: store for name, store in stores if uid in store.operators}

    def describe(self, uid: str, state: str) -> dict[str, Any]:
        """What a state is; `StateNotFound` if there is none of that name."""
        info = self.operators.get(uid)
        if info is None or state not in info.states:
            known = info.states if info is not None else self.operators
            msg = f"there is no state '{state}' of an operator '{uid}' in {shown_root(self.path)}"
            raise StateNotFound(
                msg, found=", ".join(known) or "none", hint="millstream savepoint show lists all"
            )
        return info.states[state]

    def rows(self, uid: str, state: str) -> Iterator[tuple[Any, ...]]:
        """The entries: (key, value) of value, reducing and aggregating state, (key, element) of a list, (key, map key,
        value) of a map, (subtask, element) of operator lists, (map key, value) of broadcast state."""
        self.describe(uid, state)
        kind = str(self.describe(uid, state)["kind"])
        for store in self.stores_of(uid).values():
            yield from rows_of(self.storage, store, uid, state, allow_pickle=self.allow_pickle)
            if kind == "operator broadcast":
                # It is the same in all of them.
                return


def rows_of(
    storage: Storage, store: StoreState, uid: str, state: str, *, allow_pickle: bool
) -> Iterator[tuple[Any, ...]]:
    """The entries of one subtask."""
    name = table_name(uid, state)
    trust = Outside(allow_pickle=allow_pickle, only=name)
    loaded = load_store(storage, store, trust)
    saved = loaded.operator_state.content().get(name)
    if saved is not None:
        broadcast = saved["kind"] == "broadcast"
        for codec, schema, elements in parts_of(saved):
            trust.elements(name, codec)
            info = TableInfo(name, "map" if broadcast else "list", codec, schema)
            read = element_reader(codec_of_file(info), codec, schema)
            for element in elements:
                record = read(element)
                yield tuple(record) if broadcast else (store.subtask, record)
        return
    table = loaded.tables.get(name)
    if table is None:
        return
    show = readable(table.info)
    decode = _timeless(show) if table.ttl else show
    key_of = trust.keys(name)
    for kind, entries in table.full():
        for key, value in entries:
            shown_key = key_of(key)
            if kind == "M":
                for _, entry in value:
                    map_key, item = decode(entry)
                    yield shown_key, map_key, item
            elif table.shape == "list":
                for record in value:
                    yield shown_key, decode(record)
            else:
                yield shown_key, decode(value)


def _timeless(show: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda kept: show(kept[0])


def open_savepoint(
    path: str, *, allow_pickle: bool = False, hmac_key_file: str | None = None
) -> SavepointReader:
    """Look into a savepoint."""
    return SavepointReader(path, allow_pickle=allow_pickle, hmac_key_file=hmac_key_file)


def read_pandas(
    path: str,
    uid: str,
    state: str,
    *,
    allow_pickle: bool = False,
    hmac_key_file: str | None = None,
) -> Any:
    """A state as a pandas frame."""
    import pandas as pd

    reader = open_savepoint(path, allow_pickle=allow_pickle, hmac_key_file=hmac_key_file)
    columns = column_names(reader.describe(uid, state))
    return pd.DataFrame(list(reader.rows(uid, state)), columns=columns)


def read(
    path: str,
    uid: str,
    state: str,
    spark: Any = None,
    *,
    allow_pickle: bool = False,
    hmac_key_file: str | None = None,
) -> Any:
    """A state as a Spark frame, read by one task per subtask of the job that wrote it."""
    reader = open_savepoint(path, allow_pickle=allow_pickle, hmac_key_file=hmac_key_file)
    described = reader.describe(uid, state)
    if not reader.stores_of(uid):
        raise UnsupportedOperation(f"the operator '{uid}' has written no state yet", path=path)
    frames = import_module("millstream.spark.state_frame")
    return frames.state_frame(reader, uid, state, column_names(described), spark)


def column_names(described: dict[str, Any]) -> list[str]:
    """The columns of a state's rows."""
    match described["kind"]:
        case "map":
            return ["key", "map_key", "value"]
        case "operator broadcast":
            return ["map_key", "value"]
        case "operator list" | "operator union":
            return ["subtask", "value"]
        case _:
            return ["key", "value"]
