"""Savepoints: a checkpoint with everything it needs beside it, that belongs to the user.

```
savepoint-<job>-<random>/
  files/...     the state files, copied
  _metadata     the manifest, written last: without it there is no savepoint
```

`open_checkpoint` finds what a path means: a savepoint, a retained checkpoint `.../chk-12`, or a job's folder, of which
it takes the latest checkpoint.
"""

from __future__ import annotations

import secrets
import time
from typing import TypeVar

import msgspec

from millstream.checkpoint.manifest import (
    METADATA,
    FeedbackFile,
    Manifest,
    check_files,
    decode_manifest,
    encode_manifest,
    list_epochs,
    read_manifest,
)
from millstream.checkpoint.pending import left_to_commit
from millstream.checkpoint.statefile import StateFile, damaged
from millstream.checkpoint.storage import Storage, open_storage, shown, stable
from millstream.errors import CheckpointFailed, StateNotFound

__all__ = ["open_checkpoint", "savepoint_path", "write_savepoint"]

File = TypeVar("File", StateFile, FeedbackFile)


def savepoint_path(folder: str, job_id: str) -> str:
    """A new name for a savepoint below a folder, as Flink writes it."""
    return f"{folder.rstrip('/')}/savepoint-{job_id[:6]}-{secrets.token_hex(6)}"


def write_savepoint(
    path: str, source: Storage, manifest: Manifest, timeout: float | None = None
) -> str:
    """Copy a complete checkpoint to `path`; its absolute form. The job's own files may go on to change. It is given up
    after `timeout` seconds."""
    started = time.monotonic()
    target = open_storage(path)
    copied: dict[tuple[str, str], str] = {}

    def copy(root: str, file: File) -> File:
        key = (root, file.name)
        if key not in copied:
            target.copy_from(open_storage(root) if root else source, file.name, file.name)
            if target.size(file.name) != file.size:
                raise damaged(file.name, "its copy in the savepoint has another length")
            copied[key] = file.name
        return file

    stores = {
        name: msgspec.structs.replace(
            store,
            chain=[copy("", file) for file in store.chain],
            parents=[
                msgspec.structs.replace(
                    parent, root="", chain=[copy(parent.root, file) for file in parent.chain]
                )
                for parent in store.parents
            ],
        )
        for name, store in manifest.stores.items()
    }
    for files in manifest.feedback.values():
        for file in files:
            copy("", file)
    # Savepoints are taken between epochs, when the sinks are committed.
    saved = msgspec.structs.replace(
        manifest, stores=stores, committables={}, origin=None, savepoint=True
    )
    if timeout is not None and time.monotonic() - started > timeout:
        msg = "the savepoint took longer than a checkpoint may"
        raise CheckpointFailed(
            msg, timeout=f"{timeout:g} s", hint="raise execution.checkpointing.timeout"
        )
    target.publish(METADATA, encode_manifest(saved))
    return stable(path)


def open_checkpoint(path: str) -> tuple[Manifest, Storage]:
    """The manifest behind a path, with what it has left to commit, and the storage that its file names are relative
    to."""
    path = path.rstrip("/")
    if path.endswith(f"/{METADATA}"):
        path = path.removesuffix(f"/{METADATA}")
    here = open_storage(path)
    try:
        data = here.read(METADATA)
    except (FileNotFoundError, NotADirectoryError):
        return _latest_of(path, here)
    manifest = decode_manifest(f"{path}/{METADATA}", data)
    storage = here if manifest.savepoint else open_storage(path.rpartition("/")[0] or ".")
    check_files(storage, manifest)
    return left_to_commit(storage, manifest), storage


def _latest_of(path: str, here: Storage) -> tuple[Manifest, Storage]:
    epochs = list_epochs(here)
    if not epochs:
        msg = f"there is no savepoint or checkpoint at {shown(path)}"
        raise StateNotFound(
            msg,
            path=shown(path),
            hint="give the path of a savepoint, of a checkpoint (.../chk-12), or of a job's folder",
        )
    manifest = read_manifest(here, epochs[-1])
    check_files(here, manifest)
    return left_to_commit(here, manifest), here
