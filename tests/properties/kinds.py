"""Keys and values of every kind, each a way to write a text or a number and to read it again.

A program that writes its keys in some way and reads them wherever it is given a key does what the same program does
with plain text, or something on the way has changed the key. The same goes for the values of states.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from millstream.common.typeinfo import Types
from millstream.common.types import Row


class Colour(enum.Enum):
    """A key of the user's."""

    RED = "a"
    GREEN = "b"
    BLUE = "c"
    YELLOW = "z"


class Level(enum.IntEnum):
    """A number that is not quite an int."""

    ZERO = 0
    ONE = 1
    TWO = 2


class Place(NamedTuple):
    """A tuple with names."""

    name: str
    number: int


@dataclasses.dataclass(frozen=True)
class Account:
    """A key, and a value."""

    name: str
    since: dt.date = dt.date(2026, 1, 1)


@dataclasses.dataclass
class Tally:
    """A value with another inside."""

    n: int
    at: dt.datetime
    owner: Account


class Spelling:
    """One kind: how it is written, how it is read; reading checks the type."""

    def __init__(self, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        self._write = write
        self._read = read

    def write(self, plain: Any) -> Any:
        """The value of this kind."""
        return self._write(plain)

    def read(self, value: Any) -> Any:
        """What it stands for. Fails if it is not what `write` makes, type and value."""
        plain = self._read(value)
        wanted = self._write(plain)
        assert type(value) is type(wanted), (type(value), value)
        assert value == wanted, (value, wanted)
        return plain


def _code(text: str) -> int:
    return int.from_bytes(text.encode(), "big")


def _text(code: int) -> str:
    return int(code).to_bytes((int(code).bit_length() + 7) // 8, "big").decode()


_DAY = dt.date(2020, 1, 1)
_MOMENT = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

KEYS: dict[str, Spelling] = {
    "text": Spelling(lambda k: k, lambda k: k),
    "int": Spelling(_code, _text),
    "float": Spelling(lambda k: _code(k) + 0.5, lambda v: _text(int(v - 0.5))),
    "bytes": Spelling(str.encode, bytes.decode),
    "tuple": Spelling(lambda k: (k, 1, None), lambda v: v[0]),
    "list": Spelling(lambda k: [k, [k]], lambda v: v[0]),
    "row": Spelling(lambda k: Row(name=k, n=1), lambda v: v.name),
    "date": Spelling(
        lambda k: _DAY + dt.timedelta(days=_code(k)), lambda v: _text((v - _DAY).days)
    ),
    "moment": Spelling(
        lambda k: _MOMENT + dt.timedelta(seconds=_code(k)),
        lambda v: _text(int((v - _MOMENT).total_seconds())),
    ),
    "decimal": Spelling(lambda k: decimal.Decimal(_code(k)), lambda v: _text(int(v))),
    "enum": Spelling(Colour, lambda v: v.value),
    "dataclass": Spelling(Account, lambda v: v.name),
    "named tuple": Spelling(lambda k: Place(k, 1), lambda v: v.name),
    "uuid": Spelling(lambda k: uuid.UUID(int=_code(k)), lambda v: _text(v.int)),
    "numpy": Spelling(lambda k: np.int64(_code(k)), lambda v: _text(int(v))),
    "set": Spelling(lambda k: {k, "other"}, lambda v: next(iter(v - {"other"}))),
    "frozen set": Spelling(lambda k: frozenset({k}), lambda v: next(iter(v))),
    "dictionary": Spelling(lambda k: {"x": 1, k: [k]}, lambda v: next(iter(v.keys() - {"x"}))),
    "nested": Spelling(lambda k: (Account(k), [Colour.RED, {k: _DAY}]), lambda v: v[0].name),
}


class Kept:
    """One kind of value that a state may hold: its declared type, what is put, and what it then is."""

    def __init__(
        self, type_info: Any, put: Callable[[int], Any], got: Callable[[int], Any]
    ) -> None:
        self.type_info = type_info
        self.put = put
        self._got = got

    def read(self, value: Any) -> int:
        """The number that was put. Fails if the state holds another value, or one of another type."""
        for n in range(64):
            wanted = self._got(n)
            if type(value) is type(wanted) and value == wanted:
                return n
        raise AssertionError((type(value), value))


def _tally(n: int) -> Tally:
    return Tally(n, _MOMENT + dt.timedelta(seconds=n), Account(str(n)))


VALUES: dict[str, Kept] = {
    "object": Kept(None, _tally, _tally),
    "long": Kept(Types.LONG(), int, int),
    "numpy as long": Kept(Types.LONG(), np.int64, int),
    "enum as int": Kept(Types.INT(), lambda n: Level(n) if n < 3 else n, int),
    "float": Kept(Types.FLOAT(), lambda n: n + 0.1, lambda n: float(np.float32(n + 0.1))),
    "text": Kept(Types.STRING(), str, str),
    "decimal": Kept(Types.BIG_DEC(), decimal.Decimal, decimal.Decimal),
    "row": Kept(
        Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()]),
        lambda n: Row(s=str(n), n=n),
        lambda n: Row(n=n, s=str(n)),
    ),
    "dictionary as row": Kept(
        Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()]),
        lambda n: {"s": str(n), "n": n},
        lambda n: Row(n=n, s=str(n)),
    ),
    "tuple": Kept(
        Types.TUPLE([Types.LONG(), Types.STRING()]), lambda n: (n, "x"), lambda n: (n, "x")
    ),
    "dataclass": Kept(Tally, _tally, _tally),
    "map": Kept(Types.MAP(Types.STRING(), Types.LONG()), lambda n: {"n": n}, lambda n: {"n": n}),
}
