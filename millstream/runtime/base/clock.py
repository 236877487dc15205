"""Processing time, asked in one place, so that tests can stop the clock."""

from __future__ import annotations

import time

__all__ = ["MAX_TIME", "NO_TIME", "now"]

# A record without a timestamp, and a watermark before the first one (rules 3 and 9).
NO_TIME = -(1 << 63)
# The watermark after which nothing comes (rule 4).
MAX_TIME = (1 << 63) - 1


def now() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000
