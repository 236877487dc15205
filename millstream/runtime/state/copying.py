"""Copies of records, so that a record stays what it was when it was emitted (rule 64).

`own(value)` is the value itself if nobody can change it, else a copy that shares nothing changeable with it. What comes
often has a way of its own: rows, lists, dictionaries, sets, dataclasses and other plain objects are copied field by
field, at a third of what a pickle and back costs. Everything else goes through a pickle, as it would between tasks.
"""

from __future__ import annotations

import copyreg
import datetime
import decimal
import enum
import fractions
import pickle
import types
import uuid
from collections.abc import Callable
from typing import Any

from millstream.common.types import Row, make_row
from millstream.errors import RecordNotSerializable, told
from millstream.runtime.base.text import shorten
from millstream.runtime.state.table import ATOMIC
from millstream.runtime.wire.codec import dumps
from millstream.v import KEPT

__all__ = ["own"]

Copier = Callable[[Any], Any]

_all_atomic = ATOMIC.issuperset


def own(value: Any) -> Any:
    """The value itself if it cannot be changed, else a copy.

    >>> record = ["a", [1]]
    >>> copy = own(record)
    >>> record[1].append(2)
    >>> copy
    ['a', [1]]
    >>> pair = ("a", 1)
    >>> own(pair) is pair
    True
    """
    kind = type(value)
    if kind in ATOMIC:
        return value
    copier = _copiers.get(kind)
    if copier is None:
        copier = _copiers[kind] = _find(kind)
    try:
        return copier(value)
    except RecursionError:
        # It refers to itself, or is very deep.
        return _through_pickle(value)


def _part(value: Any) -> Any:
    """As `own`, for what is inside of a value."""
    kind = type(value)
    if kind in ATOMIC:
        return value
    copier = _copiers.get(kind)
    if copier is None:
        copier = _copiers[kind] = _find(kind)
    return copier(value)


def _itself(value: Any) -> Any:
    return value


def _tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if _all_atomic(map(type, value)):
        return value
    copy = tuple(map(_part, value))
    return value if all(map(_is, copy, value)) else copy


def _is(first: Any, second: Any) -> bool:
    return first is second


def _list(value: list[Any]) -> list[Any]:
    return value.copy() if _all_atomic(map(type, value)) else list(map(_part, value))


def _dict(value: dict[Any, Any]) -> dict[Any, Any]:
    if _all_atomic(map(type, value.values())) and _all_atomic(map(type, value)):
        return value.copy()
    return {_part(key): _part(item) for key, item in value.items()}


def _set(value: set[Any]) -> set[Any]:
    return value.copy() if _all_atomic(map(type, value)) else set(map(_part, value))


def _frozenset(value: frozenset[Any]) -> frozenset[Any]:
    return value if _all_atomic(map(type, value)) else frozenset(map(_part, value))


def _row(value: Row) -> Row:
    return make_row(value._fields, _list(value._values), value._row_kind)


def _through_pickle(value: Any) -> Any:
    try:
        return pickle.loads(dumps(value))
    except Exception as error:
        kind = type(value)
        raise RecordNotSerializable(
            "a record cannot be copied, and so cannot be kept as it was when it was emitted",
            type=f"{kind.__module__}.{kind.__qualname__}",
            value=shorten(value),
            cause=told(error),
            hint="emit plain values (tuples, strings, numbers, Rows, dataclasses); keep connections, locks and open "
            "files in the function and create them in open(); or hand records on within a chain as they are, by "
            "env.get_config().enable_object_reuse()",
        ) from error


# What cannot be changed, of exactly these types.
_FIXED: tuple[type, ...] = (
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    range,
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    type(Ellipsis),
    type(NotImplemented),
)

_copiers: dict[type, Copier] = {
    **dict.fromkeys(_FIXED, _itself),
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: _set,
    frozenset: _frozenset,
    bytearray: bytearray.copy,
    Row: _row,
}


def _find(kind: type) -> Copier:
    """How values of a class are copied."""
    if issubclass(kind, enum.Enum | type):
        return _itself
    if issubclass(kind, tuple) and _is_namedtuple(kind):
        return _copier_of_namedtuple(kind)
    if _is_plain(kind):
        return _copier_of_plain(kind)
    return _through_pickle


def _is_namedtuple(kind: Any) -> bool:
    """True for what `namedtuple` and `NamedTuple` make; a class derived from one may have more."""
    return (
        kind.__bases__ == (tuple,)
        and getattr(kind, "__slots__", None) == ()
        and hasattr(kind, "_fields")
        and not _special(kind, own_new=True)
    )


def _copier_of_namedtuple(kind: Any) -> Copier:
    make = tuple.__new__

    def copy(value: Any) -> Any:
        if _all_atomic(map(type, value)):
            return value
        return make(kind, map(_part, value))

    return copy


def _is_plain(kind: type) -> bool:
    """True if an object of the class is its `__dict__` and nothing else, and nobody has said how to copy it."""
    return (
        kind.__dictoffset__ != 0
        and all(base is object or "__slots__" not in base.__dict__ for base in kind.__mro__)
        and all(base is object or base.__flags__ & _HEAP_TYPE for base in kind.__mro__)
        and kind.__basicsize__ == _Ordinary.__basicsize__
        and not _special(kind)
    )


class _Ordinary:
    pass


# Py_TPFLAGS_HEAPTYPE: written in Python, not in C.
_HEAP_TYPE = 1 << 9
_WAYS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__")


def _special(kind: type, *, own_new: bool = False) -> bool:
    """True if a class says itself how its objects are pickled or copied."""
    new = any(hasattr(kind, name) for name in ("__getnewargs__", "__getnewargs_ex__"))
    return (
        # namedtuple has one of its own.
        (new and not own_new)
        or any(getattr(kind, name, None) is not getattr(object, name, None) for name in _WAYS)
        or (kind in copyreg.dispatch_table and kind not in KEPT)
    )


def _copier_of_plain(kind: type) -> Copier:
    make = object.__new__

    def copy(value: Any) -> Any:
        copied: Any = make(kind)
        # Not setattr: a frozen dataclass would refuse.
        copied.__dict__.update(_dict(value.__dict__))
        return copied

    return copy
