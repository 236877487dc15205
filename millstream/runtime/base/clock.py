"""Processing time, asked in one place, so that tests can stop the clock, and a replay can set it back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["now", "standing_at"]

_stands: int | None = None


def now() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000 if _stands is None else _stands


@contextmanager
def standing_at(milliseconds: int) -> Iterator[None]:
    """In this process the clock stands, for everybody that asks it meanwhile.

    >>> with standing_at(1000):
    ...     now()
    1000
    """
    global _stands
    before, _stands = _stands, milliseconds
    try:
        yield
    finally:
        _stands = before
