"""`Types`: the factory of all declared types, and the types under PyFlink's names.

Answers to Flink's `org.apache.flink.api.common.typeinfo.Types`. What a type does on the data path
is told in `millstream.common.typeinfo_basic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args, get_origin

from millstream.common.typeinfo_basic import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from millstream.common.typeinfo_composite import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]


class Types:
    """One function per type.

    >>> Types.TUPLE([Types.STRING(), Types.LIST(Types.INT())])
    TupleTypeInfo(String, ListTypeInfo<Integer>)
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """The type of texts.

        >>> Types.STRING().convert("a")
        'a'
        """
        return BasicTypeInfo.STRING_TYPE_INFO()

    @staticmethod
    def BYTE() -> TypeInformation:
        """A whole number of 8 bits; larger ones wrap.

        >>> Types.BYTE().convert(200)
        -56
        """
        return BasicTypeInfo.BYTE_TYPE_INFO()

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """True or False.

        >>> Types.BOOLEAN().convert(True)
        True
        """
        return BasicTypeInfo.BOOLEAN_TYPE_INFO()

    @staticmethod
    def SHORT() -> TypeInformation:
        """A whole number of 16 bits; larger ones wrap.

        >>> Types.SHORT().convert(32768)
        -32768
        """
        return BasicTypeInfo.SHORT_TYPE_INFO()

    @staticmethod
    def INT() -> TypeInformation:
        """A whole number of 32 bits; larger ones wrap.

        >>> Types.INT().convert(2**31)
        -2147483648
        """
        return BasicTypeInfo.INT_TYPE_INFO()

    @staticmethod
    def LONG() -> TypeInformation:
        """A whole number of 64 bits; larger ones wrap.

        >>> Types.LONG().convert(2**63)
        -9223372036854775808
        """
        return BasicTypeInfo.LONG_TYPE_INFO()

    @staticmethod
    def FLOAT() -> TypeInformation:
        """A number rounded to 32 bits.

        >>> Types.FLOAT().convert(0.1)
        0.10000000149011612
        """
        return BasicTypeInfo.FLOAT_TYPE_INFO()

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """A number of 64 bits: Python's float.

        >>> Types.DOUBLE().convert(1)
        1.0
        """
        return BasicTypeInfo.DOUBLE_TYPE_INFO()

    @staticmethod
    def CHAR() -> TypeInformation:
        """A text of one character.

        >>> Types.CHAR().convert("x")
        'x'
        """
        return BasicTypeInfo.CHAR_TYPE_INFO()

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """A whole number of any size.

        >>> Types.BIG_INT().convert(2**70)
        1180591620717411303424
        """
        return BasicTypeInfo.BIG_INT_TYPE_INFO()

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """A `Decimal`.

        >>> Types.BIG_DEC().convert(0.1)
        Decimal('0.1')
        """
        return BasicTypeInfo.BIG_DEC_TYPE_INFO()

    @staticmethod
    def INSTANT() -> TypeInformation:
        """An `Instant`.

        >>> Types.INSTANT()
        Instant
        """
        return BasicTypeInfo.INSTANT_TYPE_INFO()

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """A `datetime.date`.

        >>> Types.SQL_DATE()
        DateTypeInfo
        """
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """A `datetime.time`.

        >>> Types.SQL_TIME()
        TimeTypeInfo
        """
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """A `datetime.datetime`.

        >>> Types.SQL_TIMESTAMP()
        TimestampTypeInfo
        """
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any Python object, as it is.

        >>> Types.PICKLED_BYTE_ARRAY().convert({1, 2})
        {1, 2}
        """
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A `Row` with the names f0, f1 and so on.

        >>> Types.ROW([Types.STRING(), Types.INT()]).convert(("a", 1))
        Row(f0='a', f1=1)
        """
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """A `Row` with these names.

        >>> Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]).convert(("x", 1))
        Row(a='x', b=1)
        """
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """Tuples with a type for each field.

        >>> Types.TUPLE([Types.STRING(), Types.INT()]).convert(["a", 1])
        ('a', 1)
        """
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """An array of numbers without None; `bytes` for BYTE.

        >>> Types.PRIMITIVE_ARRAY(Types.BYTE()).convert([1, 255])
        b'\\x01\\xff'
        """
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """An array of numbers or texts, with None allowed.

        >>> Types.BASIC_ARRAY(Types.STRING())
        BasicArrayTypeInfo<String>
        """
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """An array of anything.

        >>> Types.OBJECT_ARRAY(Types.SQL_DATE())
        ObjectArrayTypeInfo<DateTypeInfo>
        """
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """Dicts with types of keys and values.

        >>> Types.MAP(Types.STRING(), Types.FLOAT()).convert({"a": 1})
        {'a': 1.0}
        """
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """Lists with a type of elements.

        >>> Types.LIST(Types.INT()).convert((1, 2))
        [1, 2]
        """
        return ListTypeInfo(element_type_info)

    @staticmethod
    def from_python(hint: Any) -> TypeInformation:
        """The type of a Python type hint; PICKLED_BYTE_ARRAY if there is no exact one.

        >>> Types.from_python(tuple[str, int])
        TupleTypeInfo(String, Long)
        >>> Types.from_python(list[int])
        PickledByteArrayTypeInfo
        """
        if hint is int:
            return Types.LONG()
        if hint is str:
            return Types.STRING()
        if hint is float:
            return Types.DOUBLE()
        if hint is bool:
            return Types.BOOLEAN()
        if hint is bytes:
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
        parts = get_args(hint)
        if get_origin(hint) is tuple and parts and Ellipsis not in parts:
            return Types.TUPLE([Types.from_python(part) for part in parts])
        return Types.PICKLED_BYTE_ARRAY()
