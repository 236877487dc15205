"""Stateless functions on 100-byte strings, the same for Millstream and the hand-written loop."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections import Counter
from typing import Any

from workload import Tally

POOL = [f"{n:020d}:{n % 7}".ljust(100, "x") for n in range(1_000)]
OPERATIONS = ("map", "filter", "flat_map")


def make(n: int) -> str:
    """The generator: event number to one of 1,000 strings of 100 bytes, as cheap as it gets."""
    return POOL[n % 1_000]


def swap(text: str) -> str:
    return text[50:] + text[:50]


def keep(text: str) -> bool:
    return text[19] < "5"


def halves(text: str) -> list[str]:
    return [text[:50], text[50:]]


def apply(operation: str, text: str) -> list[str]:
    """One record through one operation, for the expected output."""
    if operation == "map":
        return [swap(text)]
    if operation == "filter":
        return [text] if keep(text) else []
    return halves(text)


def digest(emitted: int, checksum: int) -> str:
    """Order-independent: how many records came out, and the sum of their CRC-32."""
    return hashlib.sha256(f"{emitted} {checksum}".encode()).hexdigest()[:16]


def checksum(counts: Counter[str]) -> int:
    return sum(zlib.crc32(text.encode()) * count for text, count in counts.items())


def expected_digest(operation: str, records: int) -> str:
    """The right hash, from how often each of the 1,000 strings occurs."""
    counts: Counter[str] = Counter()
    for index, text in enumerate(POOL[:records]):
        for result in apply(operation, text):
            counts[result] += (records - index + 999) // 1_000
    return digest(counts.total(), checksum(counts))


class StringTally(Tally):
    """Counts each string at C speed; the checksum is made of the counts when it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def _fold(self) -> None:
        # Strings here, pairs in the class above.
        pending: Any = self._pending
        self.counts.update(pending)
        self.emitted += len(self._pending)
        self.samples.append((time.monotonic(), len(self._pending)))
        self._pending.clear()

    def encode(self) -> bytes | None:
        if self._pending:
            self._fold()
        self.total = checksum(self.counts)
        return super().encode()

    def digest(self) -> str:
        return digest(self.emitted, self.total)
