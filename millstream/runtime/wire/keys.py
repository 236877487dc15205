"""Keys to key groups to subtasks (Flink's `KeyGroupRangeAssignment`).

A key is anything: a string, a tuple, a Row, a list. What makes two keys the same is their *canonical form*,
never Python's `hash`, which differs between processes, nor `==`, for which 1, 1.0 and True are one key.
Strings and ints, the common keys, are their own canonical form; every other key is its serialized bytes.
"""

from __future__ import annotations

import enum
import io
import operator
import pickle
import re
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from zlib import crc32

from millstream import v
from millstream.api.windows import CountWindow, GlobalWindow, TimeWindow
from millstream.common.types import Row, RowKind, make_row
from millstream.errors import KeySelectorError, told
from millstream.runtime.base.text import shorten
from millstream.runtime.wire.codec import plain_pickle
from millstream.runtime.wire.key_objects import KNOWN, canonical_name, make, value_of

__all__ = ["canonical", "check_key", "key_group", "original_key", "subtask_of", "subtask_range"]


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


def original_key(canon: Any, *, trusted: bool = True) -> Any:
    """The key that a canonical form stands for, of the type that the selector gave. A key with a namespace, such as a
    window, is a pair of both. Classes of the program are made only if `trusted`.

    >>> from datetime import date
    >>> (
    ...     original_key(canonical("a")),
    ...     original_key(canonical((1, "b"))),
    ...     original_key(canonical({date(2026, 1, 1)})),
    ... )
    ('a', (1, 'b'), {datetime.date(2026, 1, 1)})
    """
    kind = type(canon)
    if kind is bytes:
        # What came out of a file was checked there.
        return pickle.loads(canon) if trusted else _Values(io.BytesIO(canon)).load()
    return (original_key(canon[0], trusted=trusted), canon[1]) if kind is tuple else canon


def check_key(key: Any) -> None:
    """Raise if the canonical form of a key refers to anything but parts of keys."""
    if type(key) is tuple:
        key = key[0]
    if type(key) is bytes and _REFERS.search(key) is not None:
        _Checked(io.BytesIO(key)).load()


# Without one of the codes by which a pickle refers to anything, it holds plain values: the common tuple.
_REFERS = re.compile(rb"[ciPQ\x82-\x84\x93]")


class _Described:
    """Stands for an object in the bytes of a key: what it is, by name, and what it is made of."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: str, parts: Any) -> None:
        self.kind = kind
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _Part, (self.kind, self.parts)


@v.pinned
def _Part(kind: str, parts: Any) -> Any:
    """What a description stands for: reading the bytes of a key calls it, from the innermost part on. Its name and
    its module's first one are in every checkpoint."""
    return _value(kind, parts, pickle.loads, trusted=True)


def _value(kind: str, parts: Any, read: Callable[[bytes], Any], *, trusted: bool) -> Any:
    match kind:
        case "set":
            return set(map(read, parts))
        case "frozenset":
            return frozenset(map(read, parts))
        case "dict":
            return {read(key): read(value) for key, value in parts}
        case "name":
            return value_of(parts, trusted=trusted)
        case _:
            return make(parts, trusted=trusted)


class _RowPart:
    """Stands for a row in the bytes of a key."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return make_row, self.parts


class _KindPart:
    """Stands for the kind of a row in the bytes of a key."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return RowKind, (self.number,)


class _Checked(pickle.Unpickler):
    """Reads the bytes of a key and makes no object of them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == _PART:
            return self.part
        try:
            return _PARTS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} in a key") from None

    @classmethod
    def read(cls, data: bytes) -> Any:
        """What bytes within the key stand for."""
        return cls(io.BytesIO(data)).load()

    @classmethod
    def part(cls, kind: str, parts: Any) -> Any:
        """In place of `_Part`."""
        if kind in ("set", "frozenset"):
            for part in parts:
                cls.read(part)
        elif kind == "dict":
            for pair in parts:
                for part in pair:
                    cls.read(part)


class _Values(_Checked):
    """Reads the bytes of a key of values only: nothing of a program's."""

    @classmethod
    def part(cls, kind: str, parts: Any) -> Any:
        return _value(kind, parts, cls.read, trusted=False)


def _of_parts(_: Any, fields: Any, values: Any, kind: int = 0) -> Row:
    return make_row(fields, values, RowKind(kind))


_PART = _Part.__module__, _Part.__qualname__
# Stand-ins, because a pickle can set attributes of whatever it is given, and of a bound method none can be set.
_PARTS = {
    (complex.__module__, complex.__qualname__): MethodType(lambda _, *parts: complex(*parts), 0),
    (make_row.__module__, make_row.__qualname__): MethodType(_of_parts, 0),
    (RowKind.__module__, RowKind.__qualname__): MethodType(lambda _, kind: int(kind), 0),
}

_ATOMIC = frozenset({str, int, float, bool, bytes, bytearray, complex, type(None)})
_all_atomic = _ATOMIC.issuperset


def _canonical_bytes(key: Any) -> bytes:
    try:
        return plain_pickle(_normal(key))
    except Exception as error:
        msg = f"a key of type {type(key).__name__} cannot be serialized"
        raise KeySelectorError(
            msg,
            key=shorten(key),
            cause=told(error),
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
        values, kind = [_normal(value) for value in key], key.get_row_kind()
        if kind is RowKind.INSERT:
            return _RowPart(key._fields, values)
        return _RowPart(key._fields, values, _KindPart(kind.value))
    if kind is set or kind is frozenset:
        return _Described(kind.__name__, sorted(plain_pickle(_normal(element)) for element in key))
    if kind is dict:
        return _Described(
            "dict",
            sorted((plain_pickle(_normal(k)), plain_pickle(_normal(v))) for k, v in key.items()),
        )
    if isinstance(key, type | BuiltinFunctionType | FunctionType):
        return _noted(canonical_name(key), key)
    made = key.__reduce_ex__(4)
    if isinstance(made, str):
        # A function of Cython's says itself where it is from, its class does not.
        return _noted(f"{getattr(key, '__module__', None) or kind.__module__}.{made}", key)
    function, arguments, state, items, pairs = (*made, None, None, None)[:5]
    if isinstance(key, enum.Enum) and (function is getattr or function is operator.or_):
        # Before Python 3.11.4; since then, and before 3.11, by its value.
        function, arguments = kind, (key._value_,)
    if type(function) is FunctionType and function.__module__ == v.__name__:
        function, arguments = _as_ever(function.__qualname__, arguments)
    return _Described(
        "object",
        [
            _normal(function),
            _normal(arguments),
            _normal(state),
            None if items is None else _normal(list(items)),
            None if pairs is None else _normal(dict(pairs)),
        ],
    )


def _as_ever(word: str, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """What the bytes of a key have in the place of a word: that by which it was pickled before there were any."""
    if word == "row":
        fields, values, *kind = arguments
        return make_row, (fields, values, *map(RowKind, kind))
    return _MAKERS[word], arguments


_MAKERS: dict[str, Any] = {
    "time_window": TimeWindow,
    "count_window": CountWindow,
    "global_window": GlobalWindow.get,
}


def _noted(name: str, thing: Any) -> _Described:
    KNOWN[name] = thing
    return _Described("name", name)


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


v.settle()
