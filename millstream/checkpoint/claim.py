"""Checkpoints and savepoints that a job has claimed: started from by path, and taken over (Flink's claim mode CLAIM).

A claimed one is removed when the job does not need it any more: with the first checkpoint of its own that is left
alone, or with its end. Until then the job's manifests name it.
"""

from __future__ import annotations

from millstream.checkpoint.lease import await_end, read_lease, standing
from millstream.checkpoint.manifest import (
    METADATA,
    Manifest,
    list_epochs,
    manifest_name,
    read_manifest,
)
from millstream.checkpoint.savepoint import open_checkpoint
from millstream.errors import JobLocked, StateError
from millstream.storage.seal import Seal
from millstream.storage.storage import Storage, shown_root

__all__ = ["check_claimable", "remove_claimed"]


def check_claimable(manifest: Manifest, storage: Storage) -> None:
    """`JobLocked` if the job that has written a checkpoint is running: it would remove it, or need it. Waits until a
    driver that may have died can be told from one that lives."""
    if manifest.savepoint:
        return
    try:
        await_end(storage)
    except JobLocked as error:
        raise JobLocked(
            f"checkpoint {manifest.epoch} of {manifest.job_name!r} cannot be claimed: the job is running",
            hint="stop that job, or start without the claim mode CLAIM",
            **error.evidence,
        ) from None


def remove_claimed(path: str, seal: Seal | None = None) -> None:
    """Remove what was claimed: its manifest, then the files that no other checkpoint of its folder names. Nothing
    happens if it is gone."""
    try:
        manifest, storage = open_checkpoint(path, seal)
    except StateError:
        return
    holder = None if manifest.savepoint else read_lease(storage)
    if holder is not None and standing(holder) == "running":
        raise JobLocked(f"the job {holder.job_name!r} runs again", folder=shown_root(storage.root))
    if manifest.savepoint:
        storage.delete(METADATA)
    else:
        storage.delete(manifest_name(manifest.epoch))
        storage.delete_tree(f"chk-{manifest.epoch}")
    needed: set[str] = set()
    for epoch in list_epochs(storage):
        try:
            needed |= read_manifest(storage, epoch).files()
        except StateError:
            # It cannot be told what it needs, so all stays.
            return
    for name in sorted(manifest.files() - needed):
        storage.delete(name)
    # The folder goes too, unless there is something else in it.
    if _is_empty(storage, ""):
        storage.delete_tree("")


def _is_empty(storage: Storage, folder: str) -> bool:
    names = [f"{folder}/{name}" if folder else name for name in storage.list(folder)]
    return not any(storage.exists(name) for name in names) and all(
        _is_empty(storage, name) for name in names
    )
