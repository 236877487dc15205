"""What a sink keeps of results, in every system that is measured: a hash that does not depend on their order.

A row is hashed as its fields with `|` between them (CRC-32), which SQL can do too. The hash of all is the sum of the
rows' hashes; a change that takes a row away takes its hash away. So two streams of changes have the same hash if the
same rows remain, whatever they went through.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from millstream.bench.nexmark.catalogue import CHANGES, QUERIES, ROWS, TOTAL

__all__ = ["Tally", "row_hash"]

_FORMATS = ["|".join(["%s"] * fields) for fields in range(32)]


def row_hash(row: tuple[Any, ...]) -> int:
    """The hash of one row.

    >>> row_hash((7, "a")) == crc32(b"7|a")
    True
    """
    return crc32((_FORMATS[len(row)] % row).encode())


class Tally:
    """Counts and hashes the results of a query; `results` is how many came, changes included.

    >>> tally = Tally("q19")
    >>> tally.extend([(1, "a"), (1, "b"), (-1, "a")])
    >>> other = Tally("q19")
    >>> other.add((1, "b"))
    >>> tally.digest() == other.digest()
    True
    """

    def __init__(self, query: str) -> None:
        self.query = query
        self.results = self.count = self.sum = 0
        kind = QUERIES[query].results
        self.add = {ROWS: self._row, CHANGES: self._change, TOTAL: self._total}[kind]

    def _row(self, row: tuple[Any, ...]) -> None:
        self.results += 1
        self.count += 1
        self.sum += crc32((_FORMATS[len(row)] % row).encode())

    def _change(self, change: tuple[Any, ...]) -> None:
        sign = change[0]
        self.results += 1
        self.count += sign
        self.sum += sign * row_hash(change[1:])

    def _total(self, row: tuple[Any, ...]) -> None:
        self.results += 1
        self.count += row[1]

    def extend(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add many rows at once."""
        for row in rows:
            self.add(row)

    def digest(self) -> str:
        """The number of rows, and the hash of all."""
        return f"{self.count}-{self.sum & 0xFFFFFFFFFFFFFFFF:016x}"

    def encode(self) -> bytes:
        """To be added up elsewhere, by `merge`."""
        return json.dumps([self.results, self.count, self.sum]).encode()

    def merge(self, parts: Sequence[bytes]) -> Tally:
        """Add what other tallies have encoded."""
        for part in parts:
            results, count, total = json.loads(part)
            self.results += results
            self.count += count
            self.sum += total
        return self
