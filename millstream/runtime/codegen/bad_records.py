"""Records that an operator could not process: which they are, how many, and what letters are made of them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from typing import Any

from millstream.api.error_policy import DeadLetter, ErrorPolicy
from millstream.errors import (
    InvalidArgument,
    JobError,
    KeySelectorError,
    MillstreamError,
    RecordNotSerializable,
    StateNotSerializable,
    TypeMismatchError,
    UserFunctionError,
    told,
)
from millstream.graph.operators import AsyncOp, BatchesOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.text import shorten
from millstream.runtime.wire.codec import dumps

__all__ = ["BadRecords", "Cursor", "Place", "check_share", "is_guarded"]


# Errors of ours that are about the record at hand.
_OF_THE_RECORD = (
    UserFunctionError,
    KeySelectorError,
    TypeMismatchError,
    RecordNotSerializable,
    StateNotSerializable,
    InvalidArgument,
)


# The share is that of so many records at least: of the first ten, one bad one says nothing.
_ENOUGH = 100


Place = tuple[str, int]
"""What a record was read from, and its number there."""


class Cursor:
    """Which record a chain is at, worked out only when somebody asks."""

    __slots__ = ("_first", "_pinned", "_probe", "_size", "_source")

    def __init__(self) -> None:
        self._source = ""
        self._first = 0
        self._size = 0
        self._probe: Iterator[Any] = iter(())
        self._pinned: Place | None = None

    def at(self, source: str, first: int, chunk: list[Any], probe: Iterator[Any]) -> None:
        """A chunk begins, whose first record has the place `first`."""
        self._source, self._first, self._size, self._probe = source, first, len(chunk), probe

    def at_columns(self, source: str, first: int, count: int) -> None:
        """So many records are processed as columns, from number `first` of a source; the last one is at hand."""
        self._source, self._first, self._size, self._probe = source, first, count, iter(())

    def at_row(self, behind: int) -> None:
        """Of records that are processed as columns the one is at hand behind which so many stand."""
        self._probe = repeat(None, behind)

    def follow(self, probe: Iterator[Any]) -> None:
        """Records that were columns are processed one by one, from the first on."""
        self._probe = probe

    def pin(self, place: Place | None) -> None:
        """What is processed from here on was read at another place; None is the end of that."""
        self._pinned = place

    def place(self) -> Place:
        """Where the record at hand was read."""
        if self._pinned is not None:
            return self._pinned
        return self._source, self._first + self._size - length_hint(self._probe) - 1

    @property
    def source(self) -> str:
        """What the record at hand was read from."""
        return self.place()[0]

    @property
    def position(self) -> int:
        """The number of the record at hand there."""
        return self.place()[1]


def is_guarded(node: StreamNode) -> bool:
    """True if the failure of the record at hand is not the job's. Operators whose records fail later see to it
    themselves."""
    policy, own = node.error_policy, isinstance(node.operator, AsyncOp | BatchesOp)
    return policy is not None and policy.kind != "fail" and not own


class BadRecords:
    """Counts one operator's bad records and makes letters of them."""

    __slots__ = ("_cursor", "_node", "bad", "seen")

    def __init__(self, node: StreamNode, cursor: Cursor) -> None:
        self._node = node
        self._cursor = cursor
        self.bad = 0
        self.seen = 0

    def take(self, error: Exception, record: Any) -> DeadLetter:
        """Count a bad record; the letter about it. Raises what is not the record's fault."""
        if isinstance(error, MillstreamError) and not isinstance(error, _OF_THE_RECORD):
            raise error
        self.bad += 1
        if self._node.error_policy.tag is None:
            # Nobody will read it.
            return _SKIPPED
        return DeadLetter(
            self._node.name,
            self._cursor.source,
            self._cursor.position,
            shorten(record),
            _pickled(record),
            told(error),
            "".join(traceback.format_exception(error)),
        )

    def report(self) -> tuple[int, int]:
        """Bad ones and all, since the last report."""
        counts, self.bad, self.seen = (self.bad, self.seen), 0, 0
        return counts


_SKIPPED = DeadLetter("", "", 0, "", b"", "", "")


def _pickled(record: Any) -> bytes:
    """The record, or nothing if it cannot be pickled: that it is bad may be why."""
    try:
        return dumps(record)
    except Exception:
        return b""


def check_share(name: str, policy: ErrorPolicy | None, bad: int, seen: int) -> None:
    """Fail if there are more bad records than the policy bears."""
    cap = None if policy is None else policy.max_share
    if cap is None or bad <= cap * max(seen, _ENOUGH):
        return
    raise JobError(
        f"'{name}' has too many bad records",
        operator=name,
        bad=bad,
        seen=seen,
        share=f"{bad / seen:.2%}, borne are {cap:.2%}",
        hint="look at what the source sends; raise max_share only if this is expected",
    )
