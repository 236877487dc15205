"""`TimeDomain` under PyFlink's module name."""

from __future__ import annotations

from millstream.api.time_domain import TimeDomain

__all__ = ["TimeDomain"]
