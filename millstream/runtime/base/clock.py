"""Processing time, asked in one place, so that tests can stop the clock."""

from __future__ import annotations

import time

__all__ = ["now"]


def now() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000
