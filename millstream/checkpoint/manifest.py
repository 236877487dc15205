"""The manifest of a checkpoint: the one file that says what the checkpoint consists of.

It is published after every task of the epoch has acknowledged, atomically, once, as `chk-<epoch>/_metadata`. What no
manifest names does not exist. A savepoint has the same file, and everything it names lies beside it.

```
MSMF 1 <crc32 of the rest>[ <signature of the rest>]\\n
{"epoch": 7, ...}
```
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec

from millstream.checkpoint.statefile import StateFile, damaged
from millstream.common.constants import NO_TIME
from millstream.errors import StateDamaged, StateNotFound
from millstream.storage import seal as seals
from millstream.storage.seal import Seal
from millstream.storage.storage import Storage

__all__ = [
    "Feedback",
    "FeedbackFile",
    "GeneratorState",
    "Manifest",
    "OperatorInfo",
    "Origin",
    "Parent",
    "SplitTimes",
    "StoreState",
    "decode_manifest",
    "encode_manifest",
    "list_epochs",
    "manifest_name",
    "read_manifest",
    "write_manifest",
]

METADATA = "_metadata"
_FIRST_LINE = re.compile(rb"MSMF (\d+) ([0-9a-f]{8})(?: ([0-9a-f]{64}))?\n")
_VERSION = 1


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """State to begin with that was written by a subtask of another layout. `root` is where its files are, empty for
    the job's own folder."""

    root: str
    subtask: int
    parallelism: int
    operators: list[str]
    segments: list[StateFile] = msgspec.field(name="chain")


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one vertex's subtask: its segments, a full one first, then changes. Before the first full one stands
    what the parents hold of the subtask's key groups. `attempt` is the attempt that won the last epoch."""

    subtask: int
    parallelism: int
    max_parallelism: int
    operators: list[str]
    segments: list[StateFile] = msgspec.field(default_factory=list, name="chain")
    parents: list[Parent] = []
    attempt: str = ""


class OperatorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that has state, or is a source or a sink: how it is called, and what its states are."""

    name: str
    parallelism: int
    max_parallelism: int
    states: dict[str, dict[str, Any]] = {}


class GeneratorState(msgspec.Struct, frozen=True, array_like=True):
    """How far a watermark generator has come with one split; `generator` is a user-written one, pickled."""

    max_timestamp: int = NO_TIME
    watermark: int = NO_TIME
    idle: bool = False
    generator: bytes = b""


SplitTimes = dict[str, dict[str, dict[str, GeneratorState]]]
"""Of each source (by uid) and split: its generators, by the uid of the operator."""


class FeedbackFile(msgspec.Struct, frozen=True):
    """What a subtask at the end of an iteration has fed back in one epoch."""

    name: str
    epoch: int
    size: int
    records: int


Feedback = dict[str, list[FeedbackFile]]
"""What has been fed back and not been read yet, by the uid of the iteration's source."""


class Origin(msgspec.Struct, frozen=True):
    """Which job has written committables, and in which epoch. With the sink's uid this names a commit for good, also
    when a job of another id repeats it under another number."""

    job_id: str
    epoch: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`stores` by "uid of the chain's head/subtask"; `offsets`, `times`, `committables` and `feedback` by the uid of
    the source or sink. `origin` is whose `committables` they are, if the checkpoint was not written by an epoch but is
    what a job of another layout, or in another folder, begins with.
    `ended` if nothing follows; `savepoint` if every file lies beside this one; `restored_from` is the path that the
    user has started the job from, `claims` too, if the job is to remove what is there."""

    epoch: int
    job_id: str
    job_name: str = ""
    version: int = _VERSION
    created_at: float = 0.0
    stores: dict[str, StoreState] = {}
    operators: dict[str, OperatorInfo] = {}
    offsets: dict[str, dict[str, int]] = {}
    times: SplitTimes = {}
    committables: dict[str, list[bytes]] = {}
    origin: Origin | None = None
    feedback: Feedback = {}
    ended: bool = False
    savepoint: bool = False
    extra: dict[str, Any] = {}
    restored_from: str = ""
    claims: str = ""

    @property
    def made(self) -> Origin:
        """Who has written the committables, and when."""
        return self.origin or Origin(self.job_id, self.epoch)

    def files(self) -> set[str]:
        """The files of the job's own folder that the checkpoint needs."""
        own = {file.name for store in self.stores.values() for file in store.segments}
        inherited = {
            file.name
            for store in self.stores.values()
            for parent in store.parents
            if not parent.root
            for file in parent.segments
        }
        fed_back = {file.name for files in self.feedback.values() for file in files}
        return own | inherited | fed_back


def manifest_name(epoch: int) -> str:
    """Where the manifest of an epoch is kept.

    >>> manifest_name(12)
    'chk-12/_metadata'
    """
    return f"chk-{epoch}/{METADATA}"


def encode_manifest(manifest: Manifest, seal: Seal | None = None) -> bytes:
    """The manifest as bytes, with a checksum, and signed if there is a seal."""
    body = msgspec.json.encode(manifest)
    signature = b"" if seal is None else b" " + seal.manifest(body).hex().encode()
    return b"MSMF %d %08x%s\n" % (manifest.version, crc32(body), signature) + body


def decode_manifest(name: str, data: bytes, seal: Seal | None = None) -> Manifest:
    """A manifest from bytes, or a `StateDamaged` that names the file; a `StateNotSigned` if it must be and is not."""
    first = _FIRST_LINE.match(data)
    if first is None:
        raise damaged(name, "it does not begin as a manifest")
    if int(first[1]) != _VERSION:
        raise damaged(name, f"its format is {int(first[1])}, known is {_VERSION}")
    body = memoryview(data)[first.end() :]
    if crc32(body) != int(first[2], 16):
        raise damaged(name, "its checksum does not match")
    if seal is not None:
        if first[3] is None:
            raise seals.unsigned(name)
        if not seals.same(seal.manifest(body), bytes.fromhex(first[3].decode())):
            raise seals.forged(name)
    try:
        return msgspec.json.decode(body, type=Manifest)
    except msgspec.DecodeError as error:
        raise damaged(name, str(error)) from None


def write_manifest(storage: Storage, manifest: Manifest) -> int:
    """Publish; its size. `FileExistsError` if the epoch has been published before."""
    data = encode_manifest(manifest, storage.seal)
    storage.publish(manifest_name(manifest.epoch), data)
    return len(data)


def read_manifest(storage: Storage, epoch: int) -> Manifest:
    """The manifest of an epoch that is known to be complete."""
    name = manifest_name(epoch)
    try:
        manifest = decode_manifest(name, storage.read(name), storage.seal)
    except FileNotFoundError:
        msg = f"checkpoint {epoch} is missing"
        raise StateNotFound(msg, file=name, folder=storage.root) from None
    if manifest.epoch != epoch:
        raise damaged(name, f"it is the manifest of checkpoint {manifest.epoch}")
    return manifest


def list_epochs(storage: Storage) -> list[int]:
    """The epochs that have a manifest, oldest first."""
    epochs = []
    for name in storage.list(""):
        number = name.removeprefix("chk-")
        if number != name and number.isdigit() and storage.exists(manifest_name(int(number))):
            epochs.append(int(number))
    return sorted(epochs)


def check_files(storage: Storage, manifest: Manifest) -> None:
    """Every file that the manifest names is there, and as long as it was."""
    named: list[Sequence[StateFile | FeedbackFile]] = list(manifest.feedback.values())
    for store in manifest.stores.values():
        named.append(store.segments)
        named += [parent.segments for parent in store.parents if not parent.root]
    for file in itertools.chain.from_iterable(named):
        size = storage.size(file.name)
        if size is None:
            raise damaged(file.name, "it is missing")
        if size != file.size:
            raise damaged(file.name, f"it has {size} bytes, {file.size} were written")


def is_damage(error: BaseException) -> bool:
    """True if a checkpoint cannot be used because of its files."""
    return isinstance(error, StateDamaged | StateNotFound)
