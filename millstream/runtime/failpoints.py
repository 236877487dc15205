"""Named places at which a test may end the process (the kill points of `docs/reliability.md`).

`MILLSTREAM_FAILPOINT="before manifest:3"` kills this process with SIGKILL when it comes to that place for the third
time. Without the variable a place costs one comparison.
"""

from __future__ import annotations

import os
import signal

__all__ = ["reached"]

_wanted, _, _count = os.environ.get("MILLSTREAM_FAILPOINT", "").rpartition(":")
_left = int(_count) if _wanted else 0


def reached(place: str) -> None:
    """The process has come to a place."""
    global _left
    if place == _wanted:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
