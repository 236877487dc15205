"""What the peers of latency.py share: how many keys there are, and where delays are written down."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

KEYS = 1000


class Delays:
    """How late each record is, in milliseconds, with the moment that it was due."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._found = array("d")

    def add(self, due: float) -> None:
        self._found.extend((due, (time.time() - due) * 1000))

    def save(self) -> None:
        path = Path(self._folder) / str(time.time_ns())
        path.write_bytes(self._found.tobytes())
