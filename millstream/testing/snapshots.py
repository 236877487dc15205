"""What a harness leaves behind and another goes on from (Flink's `OperatorSubtaskState`)."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator

from millstream.checkpoint.manifest import Manifest, list_epochs, read_manifest
from millstream.checkpoint.savepoint import write_savepoint
from millstream.runtime.state.store_files import load_store
from millstream.runtime.state.table import Table
from millstream.storage.storage import Storage

__all__ = ["Snapshot", "folder_owned_by", "latest", "tables"]

# Every call of a harness writes some small files, for which a busy disk takes longer than the call itself.
_IN_MEMORY = "/dev/shm"


class Snapshot:
    """A savepoint in a temporary folder, which goes with the last reference to this object.

    `path` may be given to `millstream.state` to look into it.
    """

    def __init__(
        self, storage: Storage, *, processing_time: int, max_parallelism: int, state_backend: str
    ) -> None:
        folder = folder_owned_by(self, "snapshot")
        self.path = write_savepoint(os.path.join(folder, "savepoint"), storage, latest(storage))
        self.processing_time = processing_time
        self.max_parallelism = max_parallelism
        self.state_backend = state_backend


def folder_owned_by(owner: object, purpose: str) -> str:
    """A folder that is removed when its owner is gone, or when the process ends."""
    in_memory = "TMPDIR" not in os.environ and os.access(_IN_MEMORY, os.W_OK)
    folder = tempfile.mkdtemp(
        prefix=f"millstream-{purpose}-", dir=_IN_MEMORY if in_memory else None
    )
    weakref.finalize(owner, _remove, folder, os.getpid())
    return folder


def _remove(folder: str, process: int) -> None:
    # A worker that was forked meanwhile has a copy of the owner, and none of its rights.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def latest(storage: Storage) -> Manifest:
    """The last complete checkpoint."""
    return read_manifest(storage, list_epochs(storage)[-1])


def tables(storage: Storage) -> Iterator[Table]:
    """All keyed state of the last complete checkpoint."""
    for version in latest(storage).stores.values():
        yield from load_store(storage, version).tables.values()
