"""How much of the processor answers may take: whoever asks in a hurry waits, the job does not.

Requests a second would be the wrong measure: one of them may cost a hundred times what another does, and all clients on
a machine have one address. What is limited is the time of the server's own thread, with everything that it does for
its clients in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from millstream.rest.security import Refused

__all__ = ["BURST_SECONDS", "SHARE", "WAIT_SECONDS", "Budget"]

SHARE = 0.1
"""Of one core, in the long run."""

BURST_SECONDS = 2.0
"""Of the processor, which may be taken at once after a quiet time."""

WAIT_SECONDS = 10.0
"""Who has waited so long for its turn is told to come again later."""


class Budget:
    """Lets requests pass one after the other, each as soon as the time that was taken has been earned.

    >>> clock, used = iter([0.0, 10.0, 11.0]), iter([0.0, 2.5, 2.5])
    >>> budget = Budget(clock=lambda: next(clock), used=lambda: next(used))
    >>> budget.owed(), budget.owed(), round(budget.owed(), 2)
    (0.0, 0.5, 0.4)
    """

    def __init__(
        self,
        share: float = SHARE,
        burst: float = BURST_SECONDS,
        wait: float = WAIT_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.thread_time,
    ) -> None:
        self._share, self._burst, self._wait = share, burst, wait
        self._clock, self._used = clock, used
        self._turn = asyncio.Lock()
        self._left = burst
        self._last: tuple[float, float] | None = None

    def owed(self) -> float:
        """Seconds of the processor that have been taken and are not earned yet."""
        now, used = self._clock(), self._used()
        last_now, last_used = self._last or (now, used)
        self._last = now, used
        earned = self._share * (now - last_now)
        self._left = min(self._burst, self._left + earned) - (used - last_used)
        return max(0.0, -self._left)

    async def turn(self) -> None:
        """Wait for one's turn; `Refused` if it does not come in time."""
        try:
            async with asyncio.timeout(self._wait), self._turn:
                while (owed := self.owed()) > 0:
                    await asyncio.sleep(owed / self._share)
        except TimeoutError:
            why = "too many requests: this server leaves the processor to its jobs"
            raise Refused(429, why) from None
