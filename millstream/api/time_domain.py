"""`TimeDomain`: which clock a timer follows."""

from __future__ import annotations

from enum import Enum

from millstream.v import keep, kept

__all__ = ["TimeDomain"]


class TimeDomain(Enum):
    """Event time or processing time.

    >>> TimeDomain.EVENT_TIME.name
    'EVENT_TIME'
    """

    EVENT_TIME = 0
    PROCESSING_TIME = 1


@kept
def _domain(value: int) -> TimeDomain:
    return TimeDomain(value)


keep(TimeDomain, lambda domain: (domain.value,), _domain)
