"""Key groups that do not fit into memory: their records on disk, in parts by key; those of a single key by time."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from hashlib import blake2b
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import IO, Any

from millstream.runtime.wire.codec import dumps

__all__ = ["BY_TIME", "CHUNK", "PARTS", "UNPACKED", "Item", "Spilled", "in_order"]

# Into so many parts a key group is taken that does not fit into memory.
PARTS = 64
# What records take in memory, as a multiple of their bytes in a buffer: small tuples of short texts some 15, long texts
# little more than 1.
UNPACKED = 4
# Records of a single key that are handed over at a time, if there are too many for memory.
CHUNK = 1024
# Keys of which it is remembered which part they belong to.
_ROUTES = 100_000

# A record with its timestamp and the input it came through.
Item = tuple[int, int, Any]
BY_TIME = itemgetter(0, 1)


class Spilled:
    """Records on disk, in parts by their keys."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._files: list[IO[bytes] | None] = [None] * PARTS
        self.sizes = [0] * PARTS
        # Up to two keys of each part: whether there is more than one.
        self.keys: list[set[Any]] = [set() for _ in range(PARTS)]

    def write(self, items: Iterable[tuple[Any, Item]]) -> None:
        """Take records apart by key."""
        waiting: list[list[tuple[Any, Item]]] = [[] for _ in range(PARTS)]
        parts: dict[Any, int] = {}
        for key, item in items:
            part = parts.get(key, -1)
            if part < 0:
                if len(parts) >= _ROUTES:
                    parts.clear()
                part = parts[key] = self._part(key)
            keys = self.keys[part]
            if len(keys) < 2:
                keys.add(key)
            waiting[part].append((key, item))
            if len(waiting[part]) >= 256:
                self._put(part, waiting[part])
                waiting[part] = []
        for part, rest in enumerate(waiting):
            if rest:
                self._put(part, rest)

    def _part(self, key: Any) -> int:
        """Where a key goes: by another hash than that of key groups, for all are of one, and another at each depth, so
        that keys which were together are not again."""
        data = key if type(key) is bytes else repr(key).encode("utf-8", "surrogatepass")
        salt = self.depth.to_bytes(8, "little")
        return blake2b(data, digest_size=1, salt=salt).digest()[0] % PARTS

    def _put(self, part: int, block: list[tuple[Any, Item]]) -> None:
        file = self._files[part]
        if file is None:
            file = self._files[part] = tempfile.TemporaryFile(prefix="millstream-batch-")  # noqa: SIM115
        self.sizes[part] += _write_block(file, block)

    def blocks(self, part: int) -> Iterator[list[tuple[Any, Item]]]:
        """A part's records, some at a time."""
        file = self._files[part]
        if file is None:
            return
        yield from _blocks_of(file)
        file.close()
        self._files[part] = None

    def read(self, part: int) -> Iterator[tuple[Any, Item]]:
        """A part's records."""
        for block in self.blocks(part):
            yield from block

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files:
            if file is not None:
                file.close()


def in_order(items: Iterator[Item], memory: int) -> Iterator[Item]:
    """Items by time, with no more of them in memory at once than fit there: sorted in parts, which are merged."""
    with ExitStack() as stack:
        runs: list[Iterator[Item]] = []
        part: list[Item] = []
        size = 0
        while chunk := list(islice(items, CHUNK)):
            part.extend(chunk)
            size += len(dumps(chunk)) * UNPACKED
            if size > memory:
                part.sort(key=BY_TIME)
                file = stack.enter_context(tempfile.TemporaryFile(prefix="millstream-batch-"))
                for start in range(0, len(part), CHUNK):
                    _write_block(file, part[start : start + CHUNK])
                runs.append(chain.from_iterable(_blocks_of(file)))
                part, size = [], 0
        part.sort(key=BY_TIME)
        yield from merge(*runs, part, key=BY_TIME)


def _write_block(file: IO[bytes], block: list[Any]) -> int:
    data = dumps(block)
    file.write(len(data).to_bytes(8, "little"))
    file.write(data)
    return len(data)


def _blocks_of(file: IO[bytes]) -> Iterator[list[Any]]:
    file.seek(0)
    while size := file.read(8):
        yield pickle.loads(file.read(int.from_bytes(size, "little")))
