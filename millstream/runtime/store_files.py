"""Whole stores outside of a job: read one from its files, write one as a single file."""

from __future__ import annotations

from millstream.checkpoint.manifest import StoreState
from millstream.checkpoint.statefile import Header, StateFile, StateWriter
from millstream.checkpoint.storage import Storage
from millstream.runtime.codec import dumps
from millstream.runtime.store import StateStore, store_folder

__all__ = ["load_store", "write_full"]


def load_store(storage: Storage, version: StoreState) -> StateStore:
    """All state of a subtask, in memory, as it was written: nothing is known of the program's types."""
    store = StateStore(storage, "outside/0", operators=version.operators)
    store.open(version)
    return store


def write_full(
    storage: Storage, owner: str, store: StateStore, epoch: int, attempt: str
) -> StateFile:
    """One file that holds everything."""
    name = f"shared/{store_folder(owner)}/{epoch:012d}-{attempt}"
    tables = list(store.tables.values())
    header = Header(name, epoch, True, [table.info for table in tables])
    with storage.open_write(name) as stream:
        writer = StateWriter(stream, header, dumps)
        writer.operator_state(store.operator_state.content())
        for place, table in enumerate(tables):
            for kind, entries in table.full():
                writer.entries(place, kind, entries)
        writer.end()
    return StateFile(name, epoch, True, writer.size)
