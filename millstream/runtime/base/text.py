"""Values as short text, for error messages and logs."""

from __future__ import annotations

from typing import Any

__all__ = ["many", "shorten"]


def shorten(value: Any, limit: int = 120) -> str:
    """A `repr` that is never long and never fails; control characters are escaped by `repr`.

    >>> shorten("x" * 500, 20)
    "'xxxxxxxx…' (502 characters)"
    """
    try:
        text = repr(value)
    except Exception as error:
        return f"<{type(value).__qualname__} whose repr failed: {type(error).__name__}>"
    if len(text) <= limit:
        return text
    head = text[: max(1, limit - 11)]
    return f"{head}…{text[-1]} ({len(text)} characters)"


def many(count: int, what: str) -> str:
    """So many of something.

    >>> many(1, "record"), many(2, "record")
    ('1 record', '2 records')
    """
    return f"{count} {what}" + ("" if count == 1 else "s")
