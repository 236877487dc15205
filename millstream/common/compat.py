"""A marker for calls that are there only so that Flink's programs run.

What such a call sets is kept and can be read back, but nothing depends on it. `docs/api_status.md` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["no_effect", "why_no_effect"]

Marked = TypeVar("Marked", bound=Callable[..., Any])


def no_effect(why: str) -> Callable[[Marked], Marked]:
    """Mark a function, method or class that is accepted and has no effect; `why` ends the sentence.

    >>> @no_effect("an epoch's border is aligned by construction")
    ... def enable_unaligned_checkpoints():
    ...     pass
    >>> why_no_effect(enable_unaligned_checkpoints)
    "an epoch's border is aligned by construction"
    """

    def mark(marked: Marked) -> Marked:
        marked.__no_effect__ = why  # type: ignore[attr-defined]
        return marked

    return mark


def why_no_effect(marked: Any) -> str | None:
    """What `no_effect` said, or None."""
    reason: str | None = getattr(marked, "__no_effect__", None)
    return reason
