"""`JobID`: the name under which a job is known to everybody.

Answers to Flink's `org.apache.flink.api.common.JobID`.
"""

from __future__ import annotations

import re
import secrets

from millstream.errors import InvalidArgument

__all__ = ["JobID"]


class JobID:
    """32 hex digits; random if none are given.

    >>> print(JobID("00112233445566778899AABBCCDDEEFF"))
    00112233445566778899aabbccddeeff
    >>> len(str(JobID())), JobID() == JobID()
    (32, False)
    """

    __slots__ = ("_digits",)

    def __init__(self, digits: str | None = None) -> None:
        if digits is None:
            digits = secrets.token_hex(16)
        elif not re.fullmatch(r"[0-9a-fA-F]{32}", digits):
            raise InvalidArgument("a job id is 32 hex digits", got=repr(digits)[:200])
        self._digits = digits.lower()

    def __str__(self) -> str:
        return self._digits

    def __repr__(self) -> str:
        return f"JobID({self._digits!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobID) and self._digits == other._digits

    def __hash__(self) -> int:
        return hash(self._digits)
