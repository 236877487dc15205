"""Which of several sessions takes jobs: an election, as that of a job's drivers, and the folder that they share.

Answers to what Flink's `DispatcherLeaderProcess` does. In the shared folder is what a session alone would keep in its
own: the programs that have not ended, and the history. Jobs take part in elections of their own, so that what a session
that was paused has left running keeps what another starts again from beginning before it is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.ha.election import Candidate, Term
from millstream.ha.services import HighAvailability, join
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage

__all__ = ["Leadership"]

# No job has a folder of this name.
_NAME = ".session"


class Leadership:
    """The part of one session in it."""

    def __init__(self, settings: HighAvailability, ending: threading.Event) -> None:
        self._election, _ = join(settings, _NAME)
        self._ending = ending
        self._leader: str | None = None
        self.storage: Storage = open_storage(f"{settings.folder}/{_NAME}")
        """What sessions leave each other."""

    def begin(self, standing_by: Callable[[str], None], check: Callable[[], None]) -> Term | None:
        """Stand by until this session leads; None once it is to end. `standing_by` hears of each new leader; `check`
        is called again and again, and raises if this session could not lead."""
        self._leader = None

        def waiting(leader: Candidate | None) -> None:
            check()
            if leader is not None and self._leader != str(leader):
                self._leader = str(leader)
                standing_by(self._leader)

        return self._election.lead(self._ending, waiting)

    def close(self) -> None:
        """Leave the election."""
        self._election.close()
