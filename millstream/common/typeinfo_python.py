"""The types of a dataclass's fields, from Python's annotations, and what they need beyond the declared types.

A dataclass as the type of a state means: these fields, each of its annotation's type. Annotations that name something
that has no exact type here (a class of the user's, `Any`, a union) stand for any object, which is pickled.
"""

from __future__ import annotations

import dataclasses
import datetime
import sys
import types
import typing
import uuid
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum, Flag
from typing import Any

from millstream.common.time import Instant
from millstream.common.typeinfo_basic import (
    BasicType,
    BasicTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TypeInformation,
)
from millstream.common.typeinfo_composite import (
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    TupleTypeInfo,
)
from millstream.common.typeinfo_convert import CONVERTERS, Converter, misfit, nested_misfit
from millstream.common.types import Row
from millstream.errors import TypeMismatchError

__all__ = [
    "DataclassTypeInfo",
    "EnumTypeInfo",
    "PlainTypeInfo",
    "RecordTypeInfo",
    "SequenceTypeInfo",
    "SetTypeInfo",
    "dataclass_type",
    "type_of_hint",
]


class PlainTypeInfo(TypeInformation):
    """A value of one class of Python's library that has no type of Flink's: `timedelta`, `UUID`.

    >>> PlainTypeInfo("Duration").convert(datetime.timedelta(1))
    datetime.timedelta(days=1)
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any) -> Any:
        """The value, if it is of the right class."""
        return CONVERTERS[self.name](value)

    @property
    def converter(self) -> Converter:
        """The conversion without a method call around it."""
        return CONVERTERS[self.name]

    def _parts(self) -> tuple[Any, ...]:
        return (self.name,)

    def __repr__(self) -> str:
        return self.name


class _ManyTypeInfo(TypeInformation):
    """Any number of elements of one type, in another class than `list`."""

    def __init__(self, elem_type: TypeInformation, made: Any) -> None:
        self.elem_type = elem_type
        self.made = made

    def convert(self, value: Any) -> Any:
        """A new one of the same class, with its elements made to fit.

        >>> SetTypeInfo(BasicTypeInfo.LONG_TYPE_INFO(), set).convert({True})
        {1}
        """
        if value is None:
            return None
        if not isinstance(value, self.made):
            raise misfit(value, repr(self))
        convert = self.elem_type.converter
        try:
            made = self.made(convert(element) for element in value)
        except TypeMismatchError as error:
            raise nested_misfit(error, repr(self), "[]") from None
        except TypeError:
            raise misfit(value, repr(self), found="elements that cannot be in a set") from None
        if len(made) != len(value):
            raise misfit(value, repr(self), found="elements that become one")
        return made

    def _parts(self) -> tuple[Any, ...]:
        return self.elem_type, self.made

    def __repr__(self) -> str:
        return f"{self.made.__name__}<{self.elem_type!r}>"


class SetTypeInfo(_ManyTypeInfo):
    """A `set` or a `frozenset`.

    >>> SetTypeInfo(BasicTypeInfo.LONG_TYPE_INFO(), frozenset)
    frozenset<Long>
    """


class SequenceTypeInfo(_ManyTypeInfo):
    """A tuple of any length, all of one type: ``tuple[int, ...]``.

    >>> SequenceTypeInfo(BasicTypeInfo.DOUBLE_TYPE_INFO()).convert((1, 2))
    (1.0, 2.0)
    """

    def __init__(self, elem_type: TypeInformation) -> None:
        super().__init__(elem_type, tuple)


class EnumTypeInfo(TypeInformation):
    """A member of an enumeration.

    >>> EnumTypeInfo(Enum("Colour", "RED"))
    Enum Colour
    """

    def __init__(self, enum: type[Enum]) -> None:
        self.enum = enum
        self.name = enum.__qualname__
        self.members = [member.name for member in enum]

    def convert(self, value: Any) -> Any:
        """The member as it is."""
        if value is None or type(value) is self.enum or isinstance(value, self.enum):
            return value
        raise misfit(value, repr(self))

    def _parts(self) -> tuple[Any, ...]:
        return (self.enum,)

    def __repr__(self) -> str:
        return f"Enum {self.name}"


class RecordTypeInfo(TypeInformation):
    """The fields of a dataclass where the class itself is not known: dictionaries by field.

    >>> RecordTypeInfo("Visit", ["n"], [BasicTypeInfo.LONG_TYPE_INFO()]).convert({"n": True})
    {'n': 1}
    """

    def __init__(self, name: str, names: Sequence[str], kinds: Sequence[TypeInformation]) -> None:
        self.name = name
        self.names = list(names)
        self.kinds = list(kinds)

    def convert(self, value: Any) -> Any:
        """A new dictionary, from a dictionary, a Row with names, or an object with these attributes."""
        if value is None:
            return None
        if isinstance(value, Row):
            value = dict(zip(value._fields or (), value, strict=False)) or value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if not isinstance(value, dict):
            raise misfit(value, repr(self))
        return dict(zip(self.names, self.convert_fields(value), strict=True))

    def convert_fields(self, values: dict[str, Any]) -> list[Any]:
        """The fields in their order, each made to fit."""
        if values.keys() != set(self.names):
            names = ", ".join(map(str, values))
            raise misfit(values, repr(self), found=f"the fields {names}")
        made = []
        for name, kind in zip(self.names, self.kinds, strict=True):
            try:
                made.append(kind.converter(values[name]))
            except TypeMismatchError as error:
                raise nested_misfit(error, repr(self), name) from None
        return made

    def _parts(self) -> tuple[Any, ...]:
        return self.name, tuple(self.names), tuple(self.kinds)

    def __repr__(self) -> str:
        return f"dataclass {self.name}"


class DataclassTypeInfo(RecordTypeInfo):
    """Objects of a dataclass.

    >>> @dataclasses.dataclass
    ... class Visit:
    ...     n: int
    >>> dataclass_type(Visit).convert(Visit(True)).n
    1
    """

    def __init__(self, cls: type, names: Sequence[str], kinds: Sequence[TypeInformation]) -> None:
        super().__init__(cls.__qualname__, names, kinds)
        self.cls: Any = cls
        fields = dataclasses.fields(self.cls)
        params = getattr(cls, "__dataclass_params__", None)
        variables = any(
            getattr(field, "_field_type", None) is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]
            for field in getattr(cls, "__dataclass_fields__", {}).values()
        )
        # What __post_init__ keeps beside the fields is made again with the object.
        self._init = (
            [field.name for field in fields if field.init]
            if hasattr(cls, "__post_init__") and getattr(params, "init", False) and not variables
            else None
        )

    def convert(self, value: Any) -> Any:
        """A new object with the same fields, each made to fit."""
        if value is None:
            return None
        kind, cls = type(value), self.cls
        if kind is not cls and not (
            # A class of a script comes to another process as another object.
            kind.__qualname__ == cls.__qualname__
            and kind.__module__ == cls.__module__
            and dataclasses.is_dataclass(kind)
            and [field.name for field in dataclasses.fields(kind)] == self.names
        ):
            raise misfit(value, repr(self))
        try:
            fields = {name: getattr(value, name) for name in self.names}
        except AttributeError as error:
            raise misfit(value, repr(self), found=str(error)) from None
        return self.make(self.convert_fields(fields))

    def make(self, values: Sequence[Any]) -> Any:
        """The object with these fields, exactly."""
        if self._init is None:
            made = self.cls.__new__(self.cls)
        else:
            given = dict(zip(self.names, values, strict=True))
            made = self.cls(**{name: given[name] for name in self._init})
        for name, value in zip(self.names, values, strict=True):
            # Not setattr: a frozen dataclass would refuse.
            object.__setattr__(made, name, value)
        return made

    def _parts(self) -> tuple[Any, ...]:
        return (self.cls,)


_OBJECT = PickledBytesTypeInfo()

_LEAVES: dict[Any, TypeInformation] = {
    # Python's int has no width, so it does not wrap.
    int: BasicTypeInfo(BasicType.BIG_INT),
    float: BasicTypeInfo(BasicType.DOUBLE),
    str: BasicTypeInfo(BasicType.STRING),
    bool: BasicTypeInfo(BasicType.BOOLEAN),
    bytes: PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE)),
    Decimal: BasicTypeInfo(BasicType.BIG_DEC),
    Instant: BasicTypeInfo.INSTANT_TYPE_INFO(),
    datetime.date: SqlTimeTypeInfo.DATE(),
    datetime.time: SqlTimeTypeInfo.TIME(),
    datetime.datetime: SqlTimeTypeInfo.TIMESTAMP(),
    datetime.timedelta: PlainTypeInfo("Duration"),
    uuid.UUID: PlainTypeInfo("Uuid"),
}


def dataclass_type(cls: type, outer: tuple[type, ...] = ()) -> DataclassTypeInfo:
    """The type of a dataclass's objects.

    >>> @dataclasses.dataclass
    ... class Visit:
    ...     at: datetime.datetime
    ...     pages: list[str]
    >>> dataclass_type(Visit).kinds
    [TimestampTypeInfo, ListTypeInfo<String>]
    """
    fields = dataclasses.fields(cls)
    hints = [_resolved(cls, field.type) for field in fields]
    return DataclassTypeInfo(
        cls,
        [field.name for field in fields],
        [type_of_hint(hint, (*outer, cls)) for hint in hints],
    )


def _resolved(cls: type, hint: Any) -> Any:
    """The annotation, if it is a text that names something known in every process; else itself."""
    if not isinstance(hint, str):
        return hint
    # A script's own names are not there in a worker, so that they are not looked for anywhere.
    module = None if cls.__module__ == "__main__" else sys.modules.get(cls.__module__)
    names = {kind.__name__: kind for kind in _LEAVES} | {"datetime": datetime.datetime}
    names |= {**vars(typing), **({} if module is None else vars(module)), cls.__name__: cls}
    holder = types.SimpleNamespace(__annotations__={"it": hint})
    try:
        return typing.get_type_hints(holder, names, names)["it"]
    except Exception:
        return hint


def type_of_hint(hint: Any, outer: tuple[type, ...] = ()) -> TypeInformation:
    """The type of an annotation; that of any object if there is no exact one.

    >>> type_of_hint(dict[str, list[int]]), type_of_hint(int | None), type_of_hint(int | str)
    (MapTypeInfo<String, ListTypeInfo<BigInteger>>, BigInteger, PickledByteArrayTypeInfo)
    """
    if isinstance(hint, type) and hint in _LEAVES:
        return _LEAVES[hint]
    if isinstance(hint, typing.NewType):
        return type_of_hint(hint.__supertype__, outer)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_of_hint(parts[0], outer)
    if origin in (typing.Union, types.UnionType):
        others = [part for part in parts if part is not type(None)]
        # None passes everywhere.
        return type_of_hint(others[0], outer) if len(others) == 1 else _OBJECT
    if isinstance(hint, type) and origin is None:
        if dataclasses.is_dataclass(hint):
            # One that holds itself has no end.
            return _OBJECT if hint in outer else dataclass_type(hint, outer)
        if issubclass(hint, Enum) and not issubclass(hint, Flag):
            return EnumTypeInfo(hint)
        return _OBJECT
    inner = [_OBJECT if part is Ellipsis else type_of_hint(part, outer) for part in parts]
    if origin is list:
        return ListTypeInfo(inner[0])
    if origin is dict:
        return MapTypeInfo(*inner)
    if origin in (set, frozenset):
        return SetTypeInfo(inner[0], origin)
    if origin is tuple and Ellipsis in parts:
        return SequenceTypeInfo(inner[0])
    if origin is tuple and parts:
        return TupleTypeInfo(inner)
    return _OBJECT
