"""The limits of 64-bit numbers (PyFlink's `common.constants`) and of times, which are such numbers, in milliseconds.

This is the only module that spells them; whoever needs one takes it from here.

>>> NO_TIME < 0 < MAX_TIME == 2**63 - 1
True
"""

from __future__ import annotations

__all__ = ["MAX_LONG_VALUE", "MAX_TIME", "MIN_LONG_VALUE", "NO_TIME"]

MIN_LONG_VALUE = -(1 << 63)
MAX_LONG_VALUE = (1 << 63) - 1

NO_TIME = MIN_LONG_VALUE
"""What a record without a timestamp has in its place, and the watermark before the first one (rules 3 and 9)."""

MAX_TIME = MAX_LONG_VALUE
"""The end of time: the watermark after which nothing comes (rule 4), and the end of windows that have none."""
