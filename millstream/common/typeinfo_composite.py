"""The declared types that have parts: rows, tuples, arrays, lists and maps.

Import them from `millstream.common.typeinfo`. Answers to Flink's `RowTypeInfo`, `TupleTypeInfo`,
`ListTypeInfo`, `MapTypeInfo` and its three array types.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from millstream.common.typeinfo_basic import BasicType, BasicTypeInfo, TypeInformation
from millstream.common.typeinfo_convert import misfit, nested_misfit
from millstream.common.types import Row, RowKind, make_row
from millstream.errors import InvalidArgument, TypeMismatchError

__all__ = [
    "BasicArrayTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "TupleTypeInfo",
]


def _require_type(candidate: Any, role: str) -> None:
    if not isinstance(candidate, TypeInformation):
        raise InvalidArgument(
            f"{role} must be a type",
            got=repr(candidate)[:200],
            hint="pass a type such as Types.STRING(), with its parentheses",
        )


class _FieldsTypeInfo(TypeInformation):
    """What rows and tuples share: a fixed number of fields, each with a name and a type."""

    def __init__(
        self, field_types: Sequence[TypeInformation], names: Sequence[str] | None = None
    ) -> None:
        self._field_types = list(field_types)
        for position, field_type in enumerate(self._field_types):
            _require_type(field_type, f"the type of field {position}")
        if names is None:
            names = [f"f{position}" for position in range(len(self._field_types))]
        self._names = tuple(names)
        self._converters = [field_type.converter for field_type in self._field_types]

    def get_field_types(self) -> list[TypeInformation]:
        """The types of the fields, in order.

        >>> TupleTypeInfo([BasicTypeInfo.INT_TYPE_INFO()]).get_field_types()
        [Integer]
        """
        return self._field_types

    def _convert_fields(self, value: Any, fields: Sequence[Any]) -> list[Any]:
        converters = self._converters
        if len(fields) != len(converters):
            raise misfit(
                value, repr(self), found=f"{type(value).__name__} with {len(fields)} fields"
            )
        try:
            return [convert(field) for convert, field in zip(converters, fields, strict=True)]
        except TypeMismatchError as error:
            raise self._blame(fields, error) from None

    def _blame(self, fields: Sequence[Any], error: TypeMismatchError) -> TypeMismatchError:
        # Which field it was is only worth asking after a failure; to convert has no effects.
        for name, convert, field in zip(self._names, self._converters, fields, strict=True):
            try:
                convert(field)
            except TypeMismatchError as cause:
                return nested_misfit(cause, repr(self), name)
        return error

    def need_conversion(self) -> bool:
        """True: values are always converted."""
        return True

    def from_internal_type(self, obj: Any) -> Any:
        """The fields as a tuple; a tuple or a list is left as it is, as in PyFlink."""
        if obj is None or isinstance(obj, (tuple, list)):
            return obj
        return tuple(
            field_type.from_internal_type(field)
            for field_type, field in zip(self._field_types, obj, strict=True)
        )

    def _to_internal_fields(self, fields: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            field_type.to_internal_type(field)
            for field_type, field in zip(self._field_types, fields, strict=True)
        )

    def _parts(self) -> tuple[Any, ...]:
        return tuple(self._field_types)


class RowTypeInfo(_FieldsTypeInfo):
    """A `Row`. Without given names its fields are called f0, f1 and so on.

    As in Flink, names do not count when two types are compared.

    >>> person = RowTypeInfo(
    ...     [BasicTypeInfo.STRING_TYPE_INFO(), BasicTypeInfo.INT_TYPE_INFO()], ["name", "age"]
    ... )
    >>> person
    RowTypeInfo(name: String, age: Integer)
    >>> person.convert(("Alice", 11))
    Row(name='Alice', age=11)
    """

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        super().__init__(field_types, field_names)
        self._named = field_names is not None
        names = self._names
        if len(names) != len(self._field_types) or len(set(names)) != len(names):
            raise InvalidArgument(
                "a row type needs one name per field, and no name twice",
                names=", ".join(map(str, names)),
                fields=len(self._field_types),
            )

    def get_field_names(self) -> list[str]:
        """The names, given or made up.

        >>> RowTypeInfo([BasicTypeInfo.INT_TYPE_INFO()]).get_field_names()
        ['f0']
        """
        return list(self._names)

    def get_field_index(self, field_name: str) -> int:
        """The position of a field, or -1 if there is none of this name.

        >>> RowTypeInfo([BasicTypeInfo.INT_TYPE_INFO()], ["age"]).get_field_index("age")
        0
        """
        return self._names.index(field_name) if field_name in self._names else -1

    def convert(self, value: Any) -> Any:
        """A `Row` with this type's names, from a row, a tuple, a list or a dict.

        >>> RowTypeInfo([BasicTypeInfo.INT_TYPE_INFO()]).convert([True])
        Row(f0=1)
        """
        if value is None:
            return None
        names = self._names
        if isinstance(value, Row):
            fields = value._values
            if value._fields is not None and value._fields != names:
                fields = self._by_name(value, value._fields)
            return make_row(names, self._convert_fields(value, fields), value._row_kind)
        if isinstance(value, (tuple, list)):
            return make_row(names, self._convert_fields(value, value))
        if isinstance(value, dict):
            # One that is missing is None, as in PyFlink; one too many would be lost.
            if not value.keys() <= set(names):
                given = ", ".join(map(str, value))
                raise misfit(value, repr(self), found=f"dict with the fields {given}")
            return make_row(names, self._convert_fields(value, [value.get(name) for name in names]))
        raise misfit(value, repr(self))

    def _by_name(self, row: Row, row_names: tuple[str, ...]) -> list[Any]:
        if sorted(row_names) == sorted(self._names):
            return row.get_fields_by_names(self._names)
        if not self._named:
            # Nobody chose f0, f1, ..., so the positions are what was meant.
            return row._values
        raise misfit(row, repr(self), found=f"Row with the fields {', '.join(row_names)}")

    def to_internal_type(self, obj: Any) -> Any:
        """The number of the row's kind, then the fields.

        >>> RowTypeInfo([BasicTypeInfo.INT_TYPE_INFO()]).to_internal_type(Row(5))
        (0, 5)
        """
        if obj is None:
            return None
        kind = obj.get_row_kind() if isinstance(obj, Row) else RowKind.INSERT
        return (kind.value, *self._to_internal_fields(self.convert(obj)._values))

    def __repr__(self) -> str:
        types = [repr(field_type) for field_type in self._field_types]
        if self._named:
            types = [f"{name}: {text}" for name, text in zip(self._names, types, strict=True)]
        return f"RowTypeInfo({', '.join(types)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # The converters are closures and do not pickle.
        return RowTypeInfo, (self._field_types, self._names if self._named else None)


class TupleTypeInfo(_FieldsTypeInfo):
    """A tuple of a fixed length.

    >>> TupleTypeInfo([BasicTypeInfo.STRING_TYPE_INFO(), BasicTypeInfo.INT_TYPE_INFO()])
    TupleTypeInfo(String, Integer)
    """

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        super().__init__(field_types)

    def convert(self, value: Any) -> Any:
        """A tuple, from a tuple, a list or a row.

        >>> TupleTypeInfo([BasicTypeInfo.DOUBLE_TYPE_INFO()]).convert([1])
        (1.0,)
        """
        if value is None:
            return None
        if isinstance(value, (tuple, list)):
            return tuple(self._convert_fields(value, value))
        if isinstance(value, Row):
            return tuple(self._convert_fields(value, value._values))
        raise misfit(value, repr(self))

    def check_expression(self, var: str) -> str | None:
        """See `TypeInformation.check_expression`.

        >>> TupleTypeInfo([BasicTypeInfo.STRING_TYPE_INFO()]).check_expression("v")
        'type(v) is tuple and len(v) == 1 and type(v[0]) is str'
        """
        checks = [f"type({var}) is tuple", f"len({var}) == {len(self._field_types)}"]
        for position, field_type in enumerate(self._field_types):
            check = field_type.check_expression(f"{var}[{position}]")
            if check == "False":
                return "False"
            if check is not None:
                checks.append(check)
        return " and ".join(checks)

    def to_internal_type(self, obj: Any) -> Any:
        """The fields, each in its plain form."""
        return None if obj is None else self._to_internal_fields(self.convert(obj))

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(repr, self._field_types))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TupleTypeInfo, (self._field_types,)


class _ElementsTypeInfo(TypeInformation):
    """What arrays and lists share: any number of elements of one type, as a Python list."""

    # None: any type may be an element.
    _allowed: ClassVar[frozenset[BasicType] | None] = None

    def __init__(self, element_type: TypeInformation) -> None:
        _require_type(element_type, f"the element type of {type(self).__name__}")
        allowed = self._allowed
        if allowed is not None and not (
            isinstance(element_type, BasicTypeInfo) and element_type.basic_type in allowed
        ):
            raise InvalidArgument(
                f"{type(self).__name__} cannot have these elements",
                element_type=element_type,
                wanted=", ".join(sorted(basic_type.name for basic_type in allowed)),
                hint="use Types.OBJECT_ARRAY or Types.LIST for other elements",
            )
        self.elem_type = element_type

    def convert(self, value: Any) -> Any:
        """A new list, from a list, a tuple, an `array` or a numpy array.

        >>> ListTypeInfo(BasicTypeInfo.INT_TYPE_INFO()).convert((1, True))
        [1, 1]
        """
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            elements: Sequence[Any] = value
        elif isinstance(value, array.array) or getattr(value, "ndim", 0) > 0:
            elements = value.tolist()
        else:
            raise misfit(value, repr(self))
        convert = self.elem_type.converter
        try:
            return [convert(element) for element in elements]
        except TypeMismatchError as error:
            raise self._blame(elements, error) from None

    def _blame(self, elements: Sequence[Any], error: TypeMismatchError) -> TypeMismatchError:
        for position, element in enumerate(elements):
            try:
                self.elem_type.convert(element)
            except TypeMismatchError as cause:
                return nested_misfit(cause, repr(self), f"[{position}]")
        return error

    def _parts(self) -> tuple[Any, ...]:
        return (self.elem_type,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{self.elem_type!r}>"


_PRIMITIVE = frozenset(BasicType) - {
    BasicType.STRING,
    BasicType.BIG_INT,
    BasicType.BIG_DEC,
    BasicType.INSTANT,
}


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """An array of numbers: `bytes` if its elements are BYTE, else a list.

    >>> PrimitiveArrayTypeInfo(BasicTypeInfo.BYTE_TYPE_INFO()).convert(bytearray(b"ab"))
    b'ab'
    """

    _allowed = _PRIMITIVE

    def convert(self, value: Any) -> Any:
        """`bytes` or a new list.

        >>> PrimitiveArrayTypeInfo(BasicTypeInfo.INT_TYPE_INFO()).convert((1, 2))
        [1, 2]
        """
        if not self._is_bytes() or value is None:
            return super().convert(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        elements = super().convert(value)
        if None in elements:
            raise misfit(value, repr(self), found="None")
        return bytes(element & 0xFF for element in elements)

    def check_expression(self, var: str) -> str | None:
        """See `TypeInformation.check_expression`.

        >>> PrimitiveArrayTypeInfo(BasicTypeInfo.BYTE_TYPE_INFO()).check_expression("v")
        'type(v) is bytes'
        """
        return f"type({var}) is bytes" if self._is_bytes() else "False"

    def _is_bytes(self) -> bool:
        return self.elem_type == BasicTypeInfo(BasicType.BYTE)


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """An array of numbers or texts, any of which may be None.

    >>> BasicArrayTypeInfo(BasicTypeInfo.STRING_TYPE_INFO()).convert(("a", None))
    ['a', None]
    """

    _allowed = _PRIMITIVE | {BasicType.STRING}


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """An array of anything.

    >>> ObjectArrayTypeInfo(BasicTypeInfo.BIG_INT_TYPE_INFO())
    ObjectArrayTypeInfo<BigInteger>
    """


class ListTypeInfo(_ElementsTypeInfo):
    """Lists with a type of elements.

    >>> ListTypeInfo(BasicTypeInfo.STRING_TYPE_INFO())
    ListTypeInfo<String>
    """


class MapTypeInfo(TypeInformation):
    """Dicts with types of keys and values.

    >>> MapTypeInfo(BasicTypeInfo.STRING_TYPE_INFO(), BasicTypeInfo.INT_TYPE_INFO())
    MapTypeInfo<String, Integer>
    """

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        _require_type(key_type_info, "the key type of a map")
        _require_type(value_type_info, "the value type of a map")
        self.key_type = key_type_info
        self.value_type = value_type_info

    def convert(self, value: Any) -> Any:
        """A new dict, from any mapping.

        >>> map_type = MapTypeInfo(BasicTypeInfo.STRING_TYPE_INFO(), BasicTypeInfo.INT_TYPE_INFO())
        >>> map_type.convert({"a": True})
        {'a': 1}
        """
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise misfit(value, repr(self))
        to_key, to_value = self.key_type.converter, self.value_type.converter
        result = {}
        for key, item in value.items():
            try:
                result[to_key(key)] = to_value(item)
            except TypeMismatchError as error:
                raise nested_misfit(error, repr(self), f"[{key!r}]") from None
            except TypeError:
                raise misfit(value, repr(self), found="a key that cannot be hashed") from None
        if len(result) != len(value):
            raise misfit(value, repr(self), found="keys that become one")
        return result

    def _parts(self) -> tuple[Any, ...]:
        return (self.key_type, self.value_type)

    def __repr__(self) -> str:
        return f"MapTypeInfo<{self.key_type!r}, {self.value_type!r}>"
