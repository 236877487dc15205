"""The base of all declared types, and the types that have no parts.

The planner keeps one type per stream. For the data path a type gives two things: the source text
of a check that says "this value fits already", which the generated loop runs per record, and
`convert`, which makes a value fit or says why it cannot. Import from `millstream.common.typeinfo`.
Answers to Flink's `TypeInformation`, `BasicTypeInfo` and `SqlTimeTypeInfo`.
"""

from __future__ import annotations

import datetime
from enum import Enum
from typing import Any

from millstream.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from millstream.common.time import Instant
from millstream.common.typeinfo_convert import CONVERTERS, Converter

__all__ = [
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "InstantTypeInfo",
    "PickledBytesTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TypeInformation",
]


class TypeInformation:
    """What the records of a stream are.

    >>> BasicTypeInfo.INT_TYPE_INFO().convert(2**31)
    -2147483648
    >>> BasicTypeInfo.INT_TYPE_INFO().check_expression("v")
    'type(v) is int and -2147483648 <= v <= 2147483647'
    """

    def convert(self, value: Any) -> Any:
        """The value as this type has it; None stays None. Raises `TypeMismatchError`.

        >>> BasicTypeInfo.DOUBLE_TYPE_INFO().convert(1)
        1.0
        """
        return value

    def check_expression(self, var: str) -> str | None:
        """Python source that is true if the value in `var` needs no `convert`.

        "False" means always convert; None means that there is never anything to convert.

        >>> BasicTypeInfo.STRING_TYPE_INFO().check_expression("v[0]")
        'type(v[0]) is str'
        """
        return "False"

    @property
    def converter(self) -> Converter:
        """`convert`, as the function that is quickest to call."""
        return self.convert

    def need_conversion(self) -> bool:
        """Whether `to_internal_type` changes anything.

        >>> BasicTypeInfo.STRING_TYPE_INFO().need_conversion()
        False
        """
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """The value in the plain form that PyFlink hands to Java.

        >>> SqlTimeTypeInfo.DATE().to_internal_type(datetime.date(1970, 1, 3))
        2
        """
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """The value back from its plain form.

        >>> SqlTimeTypeInfo.DATE().from_internal_type(2)
        datetime.date(1970, 1, 3)
        """
        return obj

    def _parts(self) -> tuple[Any, ...]:
        """What makes two types of one class equal."""
        return ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypeInformation):
            return False
        return type(self) is type(other) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._parts()))

    def __repr__(self) -> str:
        return type(self).__name__


class BasicType(Enum):
    """The basic types, by the names Flink prints."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


# FLOAT is not here: whether a number fits 32 bits cannot be asked cheaply. Neither are BIG_DEC and
# INSTANT: a check may only name builtins.
_CHECKS = {
    BasicType.STRING: "type({v}) is str",
    BasicType.BYTE: "type({v}) is int and -128 <= {v} <= 127",
    BasicType.BOOLEAN: "type({v}) is bool",
    BasicType.SHORT: "type({v}) is int and -32768 <= {v} <= 32767",
    BasicType.INT: "type({v}) is int and -2147483648 <= {v} <= 2147483647",
    BasicType.LONG: f"type({{v}}) is int and {MIN_LONG_VALUE} <= {{v}} <= {MAX_LONG_VALUE}",
    BasicType.DOUBLE: "type({v}) is float",
    BasicType.CHAR: "type({v}) is str and len({v}) == 1",
    BasicType.BIG_INT: "type({v}) is int",
}


class BasicTypeInfo(TypeInformation):
    """A number, a text, a truth value or a point of time.

    >>> BasicTypeInfo(BasicType.SHORT)
    Short
    """

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    @property
    def basic_type(self) -> BasicType:
        """Which of the basic types this is."""
        return self._basic_type

    def convert(self, value: Any) -> Any:
        """The value as this type has it.

        >>> BasicTypeInfo.BYTE_TYPE_INFO().convert(128)
        -128
        """
        return CONVERTERS[self._basic_type.value](value)

    def check_expression(self, var: str) -> str | None:
        """See `TypeInformation.check_expression`.

        >>> BasicTypeInfo.FLOAT_TYPE_INFO().check_expression("v")
        'False'
        """
        return _CHECKS.get(self._basic_type, "False").format(v=var)

    @property
    def converter(self) -> Converter:
        """The conversion without a method call around it."""
        return CONVERTERS[self._basic_type.value]

    def _parts(self) -> tuple[Any, ...]:
        return (self._basic_type,)

    def __repr__(self) -> str:
        return self._basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """The type of texts."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """True or False."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 8 bits."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 16 bits."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 32 bits."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of 64 bits."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """A number rounded to 32 bits."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """A number of 64 bits: Python's float."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """A text of one character."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """A whole number of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """A `Decimal`."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> InstantTypeInfo:
        """An `Instant`."""
        return InstantTypeInfo()


class InstantTypeInfo(BasicTypeInfo):
    """An `Instant`; its plain form is microseconds since 1970.

    >>> InstantTypeInfo().to_internal_type(Instant.of_epoch_milli(7))
    7000
    """

    def __init__(self, basic_type: BasicType = BasicType.INSTANT) -> None:
        super().__init__(basic_type)

    def need_conversion(self) -> bool:
        """True: values are always converted."""
        return True

    def to_internal_type(self, obj: Any) -> Any:
        """Microseconds since 1970."""
        return None if obj is None else obj.to_epoch_milli() * 1000

    def from_internal_type(self, obj: Any) -> Any:
        """The `Instant` of microseconds since 1970."""
        return None if obj is None else Instant.of_epoch_milli(obj // 1000)


class PickledBytesTypeInfo(TypeInformation):
    """Any Python object, as it is: the type of every stream that declares none.

    >>> PickledBytesTypeInfo().check_expression("v") is None
    True
    """

    def check_expression(self, var: str) -> str | None:
        """None: there is never anything to convert."""
        return None

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class SqlTimeTypeInfo(TypeInformation):
    """A date, a time of day or a timestamp of the `datetime` module.

    >>> SqlTimeTypeInfo.DATE(), SqlTimeTypeInfo.TIME(), SqlTimeTypeInfo.TIMESTAMP()
    (DateTypeInfo, TimeTypeInfo, TimestampTypeInfo)
    """

    def convert(self, value: Any) -> Any:
        """The value, if it is of the right class.

        >>> SqlTimeTypeInfo.DATE().convert(datetime.datetime(2026, 1, 2, 3))
        datetime.date(2026, 1, 2)
        """
        return CONVERTERS[repr(self)](value)

    def need_conversion(self) -> bool:
        """True: values are always converted."""
        return True

    @staticmethod
    def DATE() -> DateTypeInfo:
        """A `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """A `datetime.time`."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """A `datetime.datetime`."""
        return TimestampTypeInfo()


class DateTypeInfo(SqlTimeTypeInfo):
    """A `datetime.date`; its plain form is days since 1970.

    >>> DateTypeInfo().to_internal_type(datetime.date(1970, 1, 2))
    1
    """

    EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()

    def to_internal_type(self, obj: Any) -> Any:
        """Days since 1970."""
        return None if obj is None else obj.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, obj: Any) -> Any:
        """The date of days since 1970."""
        return None if obj is None else datetime.date.fromordinal(obj + self.EPOCH_ORDINAL)


_MICROSECOND = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimeTypeInfo(SqlTimeTypeInfo):
    """A `datetime.time`; its plain form is microseconds of the day in UTC.

    A time without a zone is taken as local time, as PyFlink does.

    >>> noon = datetime.time(12, tzinfo=datetime.UTC)
    >>> TimeTypeInfo().to_internal_type(noon) // 3_600_000_000
    12
    """

    @staticmethod
    def _local_offset() -> datetime.timedelta:
        return _EPOCH.astimezone().utcoffset() or datetime.timedelta()

    def to_internal_type(self, obj: Any) -> Any:
        """Microseconds of the day."""
        if obj is None:
            return None
        offset = self._local_offset() if obj.tzinfo is None else obj.utcoffset()
        of_day = datetime.timedelta(
            hours=obj.hour, minutes=obj.minute, seconds=obj.second, microseconds=obj.microsecond
        )
        return (of_day - (offset or datetime.timedelta())) // _MICROSECOND

    def from_internal_type(self, obj: Any) -> Any:
        """The local time of microseconds of the day."""
        if obj is None:
            return None
        return (_EPOCH + obj * _MICROSECOND + self._local_offset()).time()


class TimestampTypeInfo(SqlTimeTypeInfo):
    """A `datetime.datetime`; its plain form is microseconds since 1970 in UTC.

    A timestamp without a zone is taken as local time, as PyFlink does.

    >>> TimestampTypeInfo().to_internal_type(
    ...     datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    ... )
    1000000
    """

    def to_internal_type(self, obj: Any) -> Any:
        """Microseconds since 1970."""
        return None if obj is None else (obj.astimezone(datetime.UTC) - _EPOCH) // _MICROSECOND

    def from_internal_type(self, obj: Any) -> Any:
        """The local timestamp, without a zone, of microseconds since 1970."""
        if obj is None:
            return None
        return (_EPOCH + obj * _MICROSECOND).astimezone().replace(tzinfo=None)
