"""What the parts of a task ask of each other: small protocols, for the type checker alone.

Whoever has the methods meets the contract; nobody inherits from these, so that nothing is paid for them per record.

| contract | asked by | met by, for example |
|---|---|---|
| `TableIndex` | a table of state | the calendar of timers, sessions by their ends |
| `SinkHook` | a task, at both ends of an epoch | a sink's writer, what is fed back |
| `EpochHook` | a task, at the beginning of an epoch | the choice of targets of `rebalance` |
| `EndsEpoch` | a state store, before it is written | state with a time to live |
| `ReadsTime`, `FollowsTime` | the time of a chain | the timer service of a function; a window operator |
| `CountsLate` | a task, for its report | a window operator, an interval join |
| `AdoptsWindows` | a task that goes on from a savepoint | a window operator |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from millstream.api.sink import WriterContext

__all__ = [
    "AdoptsWindows",
    "CountsLate",
    "EndsEpoch",
    "EpochHook",
    "FollowsTime",
    "ReadsTime",
    "SinkHook",
    "TableIndex",
]


class TableIndex(Protocol):
    """Finds a table's entries otherwise than by their keys, by time for instance. It is told of all that changes but
    what its owner does itself; what it is not told of makes it invalid."""

    valid: bool
    """False if the table may have changed unseen: the index has to look at all of it before it is used again."""

    def applied(self, kind: str, entries: list[Any]) -> None:
        """Entries of a block of a file, of such a kind (`millstream.checkpoint.statefile`), were put into the table."""

    def clear(self) -> None:
        """The table is empty."""

    def put_back(self, key: Any, *, there: bool) -> None:
        """What a bad record has done to an entry has been undone, after which it is there, or is not."""


class SinkHook(Protocol):
    """What writes the output of an operator in one epoch after the other."""

    def begin(self, context: WriterContext) -> None:
        """An attempt of an epoch begins."""

    def prepare_commit(self) -> bytes | None:
        """The epoch ends: what the driver has to commit, or None."""

    def abort(self) -> None:
        """The attempt has failed, wherever it was. Does not raise: what failed first is what the user should hear."""


class EpochHook(Protocol):
    """What begins anew with each epoch, so that a retry does the same."""

    def begin(self, epoch: int) -> None:
        """An epoch begins."""


class EndsEpoch(Protocol):
    """What has changes to make before an epoch's state is written."""

    def sweep(self) -> None:
        """The epoch ends."""


class ReadsTime(Protocol):
    """Has the watermark of its operator set."""

    watermark: int


class FollowsTime(ReadsTime, Protocol):
    """Does something when the watermark moves on."""

    def advance(self, watermark: int) -> None:
        """The watermark has moved on; sets `watermark`."""


class CountsLate(Protocol):
    """Counts the records that it drops because they are late."""

    dropped_late: int
    """Set to 0 by whoever has reported them."""


class AdoptsWindows(Protocol):
    """Keeps windows that a former program may have kept otherwise."""

    def adopt(self, states: Mapping[str, Any]) -> None:
        """Go on with the windows that are open, of which the manifest says how they were kept."""
