"""Keys to key groups to subtasks (Flink's `KeyGroupRangeAssignment`).

A key is anything: a string, a tuple, a Row, a list. What makes two keys the same is their *canonical form*,
never Python's `hash`, which differs between processes, nor `==`, for which 1, 1.0 and True are one key.
Strings and ints, the common keys, are their own canonical form; every other key is its serialized bytes.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from millstream.runtime.codec import plain

__all__ = ["canonical", "key_group", "subtask_of", "subtask_range"]


def canonical(key: Any) -> Any:
    """The hashable stand-in for a key.

    >>> canonical("a"), canonical(1)
    ('a', 1)
    >>> len({canonical(1), canonical(1.0), canonical(True), canonical([1]), canonical((1,))})
    5
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    return _canonical_bytes(key)


def _canonical_bytes(key: Any) -> bytes:
    try:
        return plain(key)
    except Exception:
        # A class of the user's script cannot be pickled by name in a worker; its definition, which would
        # then be part of the bytes, is not part of the key's identity.
        kind = type(key)
        made = key.__reduce_ex__(2)
        arguments = [one for one in made[1] if one is not kind]
        return plain((f"{kind.__module__}.{kind.__qualname__}", arguments, made[2:3]))


def key_group(canon: Any, max_parallelism: int) -> int:
    """The key group of a canonical key: murmur3's finalizer over a CRC of its bytes.

    The formula is part of every checkpoint: it can never change.

    >>> key_group("a", 128), key_group(1, 128), key_group(-1, 128)
    (55, 96, 102)
    """
    kind = type(canon)
    if kind is str:
        h = crc32(canon.encode("utf-8", "surrogatepass"))
    elif kind is int:
        h = crc32(canon.to_bytes(canon.bit_length() // 8 + 1, "little", signed=True), 0x6D696C6C)
    else:
        h = crc32(canon, 0x70796B6C)
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & 0xFFFFFFFF
    h ^= h >> 16
    return h % max_parallelism


def subtask_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group.

    >>> [subtask_of(group, 2, 128) for group in (0, 63, 64, 127)]
    [0, 0, 1, 1]
    """
    return group * parallelism // max_parallelism


def subtask_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups of a subtask.

    >>> subtask_range(1, 3, 128)
    range(43, 86)
    """
    start = -(-subtask * max_parallelism // parallelism)
    end = -(-(subtask + 1) * max_parallelism // parallelism)
    return range(start, end)
