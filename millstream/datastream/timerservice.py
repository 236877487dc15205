"""`TimerService` under PyFlink's module name."""

from __future__ import annotations

from millstream.common.functions import TimerService

__all__ = ["TimerService"]
