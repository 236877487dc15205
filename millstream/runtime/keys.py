"""Keys to key groups to subtasks (Flink's `KeyGroupRangeAssignment`).

A key is anything: a string, a tuple, a Row, a list. What makes two keys the same is their *canonical form*,
never Python's `hash`, which differs between processes, nor `==`, for which 1, 1.0 and True are one key.
Strings and ints, the common keys, are their own canonical form; every other key is its serialized bytes.
"""

from __future__ import annotations

import pickle
from types import BuiltinFunctionType, FunctionType
from typing import Any
from zlib import crc32

from millstream.common.types import Row, make_row
from millstream.errors import KeySelectorError
from millstream.runtime.codec import plain
from millstream.runtime.text import shorten

__all__ = ["canonical", "key_group", "original_key", "subtask_of", "subtask_range"]


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


def original_key(canon: Any) -> Any:
    """The key that a canonical form stands for. Of a set, a dictionary or an object it is a description of it, equal
    for equal keys. A key with a namespace, such as a window, is a pair of both.

    >>> (
    ...     original_key(canonical("a")),
    ...     original_key(canonical((1, "b"))),
    ...     original_key(canonical(2.5)),
    ... )
    ('a', (1, 'b'), 2.5)
    """
    if type(canon) is tuple:
        return original_key(canon[0]), canon[1]
    return pickle.loads(canon) if type(canon) is bytes else canon


class _Part:
    """Stands for an object in the bytes of a key: what it is, by name, and what it is made of."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, parts: Any) -> None:
        self.kind = kind
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _Part, (self.kind, self.parts)


_ATOMIC = frozenset({str, int, float, bool, bytes, bytearray, complex, type(None)})
_all_atomic = _ATOMIC.issuperset


def _canonical_bytes(key: Any) -> bytes:
    try:
        return plain(_normal(key))
    except Exception as error:
        msg = f"a key of type {type(key).__name__} cannot be serialized"
        raise KeySelectorError(
            msg,
            key=shorten(key),
            cause=f"{type(error).__name__}: {error}",
            hint="use plain values as keys: text, numbers, tuples, Rows, dataclasses",
        ) from error


def _normal(key: Any) -> Any:
    """The key in a form whose pickle depends on nothing but its value.

    Sets and dictionaries are sorted, for their order is an accident of the process. Objects are
    named by their class and described by what they are made of, because a class of the user's
    script cannot be pickled by name in a worker, and its definition is no part of the key.
    """
    kind = type(key)
    if kind in _ATOMIC:
        return key
    if kind is tuple or kind is list:
        return key if _all_atomic(map(type, key)) else kind(map(_normal, key))
    if kind is Row:
        return make_row(key._fields, [_normal(one) for one in key], key.get_row_kind())
    if kind is set or kind is frozenset:
        return _Part(kind.__name__, sorted(plain(_normal(one)) for one in key))
    if kind is dict:
        return _Part("dict", sorted((plain(_normal(k)), plain(_normal(v))) for k, v in key.items()))
    if isinstance(key, type | BuiltinFunctionType | FunctionType):
        # A class of a function loses the first part of its qualified name on the way to a worker.
        return _Part("name", f"{key.__module__}.{key.__qualname__.rpartition('<locals>.')[2]}")
    made = key.__reduce_ex__(4)
    if isinstance(made, str):
        return _Part("name", f"{kind.__module__}.{made}")
    function, arguments, state, items, pairs = (*made, None, None, None)[:5]
    return _Part(
        "object",
        [
            _normal(function),
            _normal(arguments),
            _normal(state),
            None if items is None else _normal(list(items)),
            None if pairs is None else _normal(dict(pairs)),
        ],
    )


def key_group(canon: Any, max_parallelism: int) -> int:
    """The key group of a canonical key: murmur3's finalizer over a CRC of its bytes.

    The formula is part of every checkpoint: it can never change.

    >>> key_group("a", 128), key_group(1, 128), key_group(-1, 128)
    (55, 96, 102)
    """
    kind = type(canon)
    if kind is tuple:
        # (key, namespace): a part of a key's state, such as a window, belongs where the key is.
        return key_group(canon[0], max_parallelism)
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
