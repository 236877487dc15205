"""Names that programs give: of jobs, operators and states. They go into plans, files and paths."""

from __future__ import annotations

from typing import Any

from millstream.errors import InvalidArgument

__all__ = ["checked_name"]


def checked_name(name: Any, what: str) -> str:
    """The name, if it is a text that can be written.

    >>> checked_name("count", "the name of a job")
    'count'
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"{what} must be a text", got=repr(name)[:200])
    try:
        name.encode()
    except UnicodeEncodeError as error:
        msg = f"{what} holds characters that cannot be written"
        raise InvalidArgument(msg, got=repr(name)[:200], cause=error.reason) from None
    return name
