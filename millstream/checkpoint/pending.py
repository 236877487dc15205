"""What a checkpoint has left to commit.

A manifest holds the committables of its epoch, and whether they were committed is not written into it: the commit comes
after it. It is known all the same, in two ways. Epoch n+1 is not begun before n is committed, so the manifest of an
epoch n+1 tells it of n. And a driver that ends, or that has committed what another had left, writes it down beside the
manifest, as `chk-<epoch>/_committed`. What cannot be known to be committed is committed again.
"""

from __future__ import annotations

import msgspec

from millstream.checkpoint.manifest import Manifest, manifest_name, read_manifest
from millstream.errors import StateError
from millstream.storage.seal import signed
from millstream.storage.storage import Storage

__all__ = ["left_to_commit", "mark_committed"]


def left_to_commit(storage: Storage, manifest: Manifest) -> Manifest:
    """The manifest, without committables if they are known to be committed."""
    if not manifest.committables or not _is_committed(storage, manifest):
        return manifest
    return msgspec.structs.replace(manifest, committables={})


def mark_committed(storage: Storage, manifest: Manifest) -> None:
    """Write down that the committables of a published manifest are committed."""
    name = _mark_of(manifest.epoch)
    storage.write(name, signed(storage.seal, name, _mark(manifest)))


def _is_committed(storage: Storage, manifest: Manifest) -> bool:
    if manifest.savepoint:
        # Nothing follows a savepoint in its folder.
        return False
    mark = _mark_of(manifest.epoch)
    try:
        if storage.read(mark) == signed(storage.seal, mark, _mark(manifest)):
            return True
    except FileNotFoundError:
        pass
    following = manifest.epoch + 1
    if not storage.exists(manifest_name(following)):
        return False
    try:
        after = read_manifest(storage, following)
    except StateError:
        return False
    # What a job begins with is published before anything is committed, and may come from elsewhere.
    return after.origin is None and after.job_id == manifest.job_id


def _mark_of(epoch: int) -> str:
    return f"chk-{epoch}/_committed"


def _mark(manifest: Manifest) -> bytes:
    # The time tells it from another checkpoint of the same number, which may have been removed and come back.
    return f"{manifest.job_id} {manifest.epoch} {manifest.created_at!r}".encode()
