"""`TimerService` under PyFlink's module name."""

from __future__ import annotations

from millstream.api.functions import TimerService

__all__ = ["TimerService"]
