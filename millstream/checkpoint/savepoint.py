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
from collections.abc import Callable
from typing import Any, TypeVar

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
from millstream.checkpoint.statefile import StateFile, damaged, sign_file
from millstream.errors import CheckpointFailed, InvalidArgument, StateNotFound
from millstream.storage.open import open_storage
from millstream.storage.seal import Seal
from millstream.storage.storage import Storage, shown_root, stable

__all__ = ["open_checkpoint", "savepoint_path", "sign_savepoint", "write_savepoint"]

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
    target = open_storage(path, seal=source.seal)
    copied: dict[tuple[str, str], str] = {}

    def copy(root: str, file: File) -> File:
        key = (root, file.name)
        if key not in copied:
            target.copy_from(open_storage(root) if root else source, file.name, file.name)
            if target.size(file.name) != file.size:
                raise damaged(file.name, "its copy in the savepoint has another length")
            copied[key] = file.name
        return file

    # Savepoints are taken between epochs, when the sinks are committed.
    saved = msgspec.structs.replace(_with_files(manifest, copy), committables={}, origin=None)
    if timeout is not None and time.monotonic() - started > timeout:
        msg = "the savepoint took longer than a checkpoint may"
        raise CheckpointFailed(
            msg, timeout=f"{timeout:g} s", hint="raise execution.checkpointing.timeout"
        )
    target.publish(METADATA, encode_manifest(saved, target.seal))
    return stable(path)


def _with_files(manifest: Manifest, copy: Callable[[str, Any], Any]) -> Manifest:
    """The manifest of a savepoint, with its files as `copy` makes them of a root and a file."""
    stores = {
        name: msgspec.structs.replace(
            store,
            segments=[copy("", file) for file in store.segments],
            parents=[
                msgspec.structs.replace(
                    parent, root="", segments=[copy(parent.root, file) for file in parent.segments]
                )
                for parent in store.parents
            ],
        )
        for name, store in manifest.stores.items()
    }
    feedback = {uid: [copy("", file) for file in files] for uid, files in manifest.feedback.items()}
    return msgspec.structs.replace(manifest, stores=stores, feedback=feedback, savepoint=True)


def sign_savepoint(path: str, target_path: str, seal: Seal, before: Seal | None = None) -> str:
    """Copy a savepoint or checkpoint, signed with another key than `before`, or for the first time; the copy's absolute
    path. What a checkpoint has left to commit is left to whoever starts from the copy."""
    manifest, source = open_checkpoint(path, before)
    target = open_storage(target_path, seal=seal)
    if target.list(""):
        msg = "there is something at the path already: a savepoint is written to a new one"
        raise InvalidArgument(
            msg, path=shown_root(target_path), hint="give a path that does not exist yet"
        )

    def copy(root: str, file: File) -> File:
        storage = open_storage(root) if root else source
        with storage.open_read(file.name) as old, target.open_write(file.name) as new:
            size = sign_file(file.name, old, new, seal, before)
        return msgspec.structs.replace(file, size=size)

    target.publish(METADATA, encode_manifest(_with_files(manifest, copy), seal))
    return stable(target_path)


def open_checkpoint(path: str, seal: Seal | None = None) -> tuple[Manifest, Storage]:
    """The manifest behind a path, with what it has left to commit, and the storage that its file names are relative
    to."""
    path = path.rstrip("/")
    if path.endswith(f"/{METADATA}"):
        path = path.removesuffix(f"/{METADATA}")
    here = open_storage(path, seal=seal)
    try:
        data = here.read(METADATA)
    except (FileNotFoundError, NotADirectoryError):
        return _latest_of(path, here)
    manifest = decode_manifest(f"{path}/{METADATA}", data, seal)
    storage = here
    if not manifest.savepoint:
        storage = open_storage(path.rpartition("/")[0] or ".", seal=seal)
    check_files(storage, manifest)
    return left_to_commit(storage, manifest), storage


def _latest_of(path: str, here: Storage) -> tuple[Manifest, Storage]:
    epochs = list_epochs(here)
    if not epochs:
        msg = f"there is no savepoint or checkpoint at {shown_root(path)}"
        raise StateNotFound(
            msg,
            path=shown_root(path),
            hint="give the path of a savepoint, of a checkpoint (.../chk-12), or of a job's folder",
        )
    manifest = read_manifest(here, epochs[-1])
    check_files(here, manifest)
    return left_to_commit(here, manifest), here
