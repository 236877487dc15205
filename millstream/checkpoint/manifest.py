"""The manifest of an epoch: the one file that says which state files are the state after it.

Written after every task of the epoch has acknowledged, atomically, once. What no manifest names does not exist.
"""

from __future__ import annotations

import msgspec

from millstream.checkpoint.statefile import StateFile
from millstream.checkpoint.storage import Storage
from millstream.errors import StateError

__all__ = ["Manifest", "manifest_name", "read_manifest", "write_manifest"]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`state` maps "vertex uid/subtask" to its chain of files: a full one first, then changes.
    `committables` is what the sinks have to make visible, by node, so that it can be done again."""

    epoch: int
    job_id: str
    version: int = 1
    state: dict[str, list[StateFile]] = {}
    committables: dict[int, list[bytes]] = {}


def manifest_name(epoch: int) -> str:
    """Where the manifest of an epoch is kept."""
    return f"manifests/{epoch:012d}.json"


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Publish."""
    storage.write(manifest_name(manifest.epoch), msgspec.json.encode(manifest))


def read_manifest(storage: Storage, epoch: int) -> Manifest:
    """The manifest of an epoch that is known to be complete."""
    name = manifest_name(epoch)
    try:
        return msgspec.json.decode(storage.read(name), type=Manifest)
    except FileNotFoundError:
        msg = f"the manifest of epoch {epoch} is missing"
        raise StateError(msg, file=name, folder=storage.root) from None
    except msgspec.DecodeError as error:
        msg = f"the manifest of epoch {epoch} cannot be read: {error}"
        raise StateError(msg, file=name, folder=storage.root) from None
