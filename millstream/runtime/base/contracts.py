"""What the parts of a task ask of each other: small protocols, for the type checker alone.

Whoever has the methods meets the contract; nobody inherits from these, so that nothing is paid for them per record.

| contract | asked by | met by, for example |
|---|---|---|
| `TableIndex` | a table of state | the calendar of timers, sessions by their ends |
| `EndsEpoch` | a state store, before it is written | state with a time to live |
| `ReadsTime`, `FollowsTime` | an operator's unit | the timer service of a function; a window operator |
| `HoldsTime` | the time of a chain | an operator that gathers records |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = [
    "EndsEpoch",
    "FollowsTime",
    "HoldsTime",
    "ReadsTime",
    "TableIndex",
]


class TableIndex(Protocol):
    """Finds a table's entries otherwise than by their keys, by time for instance. It is told of all that changes but
    what its owner does itself; what it is not told of makes it invalid."""

    valid: bool
    """False if the table may have changed unseen: the index has to look at all of it before it is used again."""

    def applied(self, kind: str, entries: list[Any]) -> None:
        """The entries of a block of a file were put into the table; `kind` is that of the block
        (`millstream.checkpoint.statefile`)."""

    def clear(self) -> None:
        """The table is empty."""

    def put_back(self, key: Any, *, there: bool) -> None:
        """What a bad record has done to an entry has been undone, after which it is there, or is not."""


class EndsEpoch(Protocol):
    """What has changes to make before an epoch's state is written."""

    def sweep(self) -> None:
        """Make the changes: the epoch ends."""


class ReadsTime(Protocol):
    """A reader of time: its operator sets its watermark."""

    watermark: int


class FollowsTime(ReadsTime, Protocol):
    """Does something when the watermark moves on."""

    def advance(self, watermark: int) -> None:
        """Set `watermark`, and do what is due at it."""


class HoldsTime(Protocol):
    """Keeps watermarks back while records that came before them wait in it."""

    forward: Callable[[int], None]
    """What a watermark that goes on goes through; set once the chain is built."""

    def after(self, step: Callable[[int], None], value: int) -> None:
        """Take a step once all has gone on that waits now."""

    def release(self, watermark: int) -> None:
        """Let go of all that waits, records and watermarks."""
