"""At-most-once: before an epoch reads anything it is written down how far it is going to read.

What was about to be read when the driver was lost is not read again: it may have been in the output.
"""

from __future__ import annotations

import msgspec

from millstream.checkpoint.events import Offsets
from millstream.checkpoint.manifest import Feedback, Manifest
from millstream.runtime.driver.job_folder import INTENT
from millstream.storage.seal import signed, verified
from millstream.storage.storage import Storage

__all__ = ["Intent", "after_intent", "read_intent", "write_intent"]


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """How far an epoch is going to read, and what it leaves of what was fed back."""

    epoch: int
    offsets: Offsets
    unread: Feedback = {}


def write_intent(storage: Storage, epoch: int, offsets: Offsets, unread: Feedback) -> None:
    """The ranges up to here are about to be read."""
    intent = Intent(epoch=epoch, offsets=offsets, unread=unread)
    storage.write(INTENT, signed(storage.seal, INTENT, msgspec.json.encode(intent)))


def read_intent(storage: Storage, since: int) -> Intent | None:
    """What was about to be read when the driver was lost, if that was not before checkpoint `since`."""
    try:
        data = storage.read(INTENT)
    except FileNotFoundError:
        return None
    intent = msgspec.json.decode(verified(storage.seal, INTENT, data), type=Intent)
    return intent if intent.epoch >= since else None


def after_intent(storage: Storage, manifest: Manifest | None) -> tuple[Offsets | None, Feedback]:
    """Where to go on after a checkpoint, or without one: behind what was about to be read."""
    after: tuple[Offsets | None, Feedback] = (None, {})
    if manifest is not None:
        after = manifest.offsets, manifest.feedback
    intent = read_intent(storage, 0 if manifest is None else manifest.epoch)
    if intent is None:
        return after
    kept = {
        uid: [f for f in files if f.epoch >= intent.epoch or f in intent.unread.get(uid, ())]
        for uid, files in after[1].items()
    }
    return intent.offsets, kept
