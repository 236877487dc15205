"""Whole stores outside of a job: read one from its files, write one as a single file."""

from __future__ import annotations

from millstream.checkpoint.manifest import StoreState
from millstream.checkpoint.statefile import Header, Loads, StateFile
from millstream.runtime.state.segments import store_folder, write_segment
from millstream.runtime.state.store import StateStore
from millstream.runtime.state.trust import load_own
from millstream.storage.storage import Storage

__all__ = ["load_store", "write_full"]


def load_store(storage: Storage, version: StoreState, loads: Loads = load_own) -> StateStore:
    """All state of a subtask, in memory, as it was written: nothing is known of the program's types."""
    store = StateStore(storage, "outside/0", operators=version.operators, loads=loads)
    store.open(version)
    return store


def write_full(
    storage: Storage, owner: str, store: StateStore, epoch: int, attempt: str
) -> StateFile:
    """Write one file that holds all of a store."""
    name = f"shared/{store_folder(owner)}/{epoch:012d}-{attempt}"
    parts = [(table.info, table.full()) for table in store.tables.values()]
    size = write_segment(storage, Header(name, epoch, True), store.operator_state.content(), parts)
    return StateFile(name, epoch, True, size)
