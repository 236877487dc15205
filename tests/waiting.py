"""Waiting for what a test needs. Other modules of the tests sleep only for the reasons listed in
`tests/unit/test_the_tests.py`: a time that is long enough on one machine is too short on another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

__all__ = ["eventually", "until"]


def until(
    condition: Callable[..., T], seconds: float = 60.0, saying: Callable[..., Any] | None = None
) -> T:
    """Wait until something is true, and return it; a failure, with what `saying` says, if it never was."""
    found = _last(condition, seconds)
    assert found, f"not within {seconds:g} s: {condition if saying is None else saying()}"
    return found


def eventually(condition: Callable[[], Any], seconds: float) -> bool:
    """Wait until something is true; False if it never was."""
    return bool(_last(condition, seconds))


def _last(condition: Callable[..., T], seconds: float) -> T:
    """The first true answer, or the one at the end of the time."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return answer
