"""How a single value is made to fit a declared basic type.

Typed output of every operator passes here when the generated check says that it does not fit yet.
The rules are those of Flink's Python coders: whole numbers wrap to their width, FLOAT is rounded to
32 bits, None passes. Answers to PyFlink's `coder_impl`.
"""

from __future__ import annotations

import datetime
import math
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from millstream.common.time import Instant
from millstream.errors import TypeMismatchError

__all__ = ["CONVERTERS", "Converter", "misfit", "nested_misfit", "plain", "shorten"]

Converter: TypeAlias = Callable[[Any], Any]

_FLOAT32 = struct.Struct("f")


def shorten(value: Any, limit: int = 200) -> str:
    """The value's repr, cut so that it fits into an error.

    >>> shorten("abc" * 99, 12)
    "'abcabcab..."
    """
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def misfit(value: Any, wanted: str, *, found: str | None = None) -> TypeMismatchError:
    """The error for a value that cannot be made to fit.

    >>> print(misfit("x", "Integer"))
    [TYPE_MISMATCH] a value does not fit the declared type Integer
      value: 'x'
      wanted: Integer
      found: str
    """
    return TypeMismatchError(
        f"a value does not fit the declared type {wanted}",
        value=shorten(value),
        wanted=wanted,
        found=found or type(value).__name__,
    )


def nested_misfit(inner: TypeMismatchError, declared: str, field: str) -> TypeMismatchError:
    """The error of a part, told as an error of the whole: which field of `declared` it was.

    >>> nested_misfit(misfit("x", "Integer"), "TupleTypeInfo(Integer)", "f0").evidence["field"]
    'f0'
    """
    evidence = dict(inner.evidence)
    rest = evidence.pop("field", "")
    dot = "." if rest and not rest.startswith("[") else ""
    return TypeMismatchError(
        f"a value does not fit the declared type {declared}", **evidence, field=field + dot + rest
    )


def plain(value: Any) -> Any:
    """The Python value of a numpy scalar; anything else as it is.

    >>> plain(7)
    7
    """
    # Only scalars have ndim 0; numpy itself must not be imported for this.
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _whole_number(bits: int, name: str) -> Converter:
    half = 1 << (bits - 1)
    low, high, mask = -half, half - 1, (1 << bits) - 1

    def convert(value: Any) -> Any:
        if type(value) is not int:
            if value is None:
                return None
            number = plain(value)
            if not isinstance(number, int):
                raise misfit(value, name)
            value = int(number)
        if low <= value <= high:
            return value
        return ((value + half) & mask) - half

    return convert


def _to_double(value: Any) -> Any:
    if type(value) is float or value is None:
        return value
    number = plain(value)
    if isinstance(number, (float, int)):
        try:
            return float(number)
        except OverflowError:
            pass
    raise misfit(value, "Double")


def _to_float(value: Any) -> Any:
    if value is None:
        return None
    number = plain(value)
    if not isinstance(number, (float, int)):
        raise misfit(value, "Float")
    try:
        return _FLOAT32.unpack(_FLOAT32.pack(number))[0]
    except OverflowError:
        # As a cast in Java does: what is too large for 32 bits becomes infinite.
        return math.inf if number > 0 else -math.inf


def _to_string(value: Any) -> Any:
    if type(value) is str or value is None:
        return value
    if isinstance(value, str):
        # Not str(value): an Enum that is also a str would give its name.
        return str.__str__(value)
    raise misfit(value, "String")


def _to_char(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, str) and len(value) == 1:
        return str.__str__(value)
    length = f"str of length {len(value)}" if isinstance(value, str) else None
    raise misfit(value, "Char", found=length)


def _to_boolean(value: Any) -> Any:
    if type(value) is bool or value is None:
        return value
    number = plain(value)
    if isinstance(number, bool):
        return number
    raise misfit(value, "Boolean")


def _to_big_int(value: Any) -> Any:
    if type(value) is int or value is None:
        return value
    number = plain(value)
    if isinstance(number, int):
        return int(number)
    raise misfit(value, "BigInteger")


def _to_big_dec(value: Any) -> Any:
    if value is None or type(value) is Decimal:
        return value
    if isinstance(value, Decimal):
        return Decimal(value)
    number = plain(value)
    if isinstance(number, int):
        return Decimal(number)
    if isinstance(number, float):
        # Through repr, so that 0.1 is 0.1 and not the 55 digits of its binary form.
        return Decimal(repr(float(number)))
    raise misfit(value, "BigDecimal")


def _to_instant(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Instant):
        # A copy, because it can be changed.
        return Instant(value.seconds, value.nanos)
    raise misfit(value, "Instant")


def _to_date(value: Any) -> Any:
    if value is None or type(value) is datetime.date:
        return value
    if isinstance(value, datetime.date):
        return _made(datetime.date, value, "DateTypeInfo", value.year, value.month, value.day)
    raise misfit(value, "DateTypeInfo")


def _to_time(value: Any) -> Any:
    if value is None or (type(value) is datetime.time and value.tzinfo is None):
        return value
    if isinstance(value, datetime.time):
        of_day = (value.hour, value.minute, value.second, value.microsecond)
        zone = _zone(value, "TimeTypeInfo")
        return _made(datetime.time, value, "TimeTypeInfo", *of_day, zone, fold=value.fold)
    raise misfit(value, "TimeTypeInfo")


def _to_timestamp(value: Any) -> Any:
    if value is None or (type(value) is datetime.datetime and value.tzinfo is None):
        return value
    if isinstance(value, datetime.datetime):
        name = "TimestampTypeInfo"
        if getattr(value, "nanosecond", 0):
            raise misfit(value, name, found="parts of a microsecond")
        date = (value.year, value.month, value.day)
        of_day = (value.hour, value.minute, value.second, value.microsecond)
        zone = _zone(value, name)
        return _made(datetime.datetime, value, name, *date, *of_day, zone, fold=value.fold)
    raise misfit(value, "TimestampTypeInfo")


def _made(cls: Any, value: Any, name: str, *parts: Any, **more: Any) -> Any:
    """The plain value of a subclass's, which may be no value at all, as pandas' NaT."""
    try:
        return cls(*parts, **more)
    except (TypeError, ValueError):
        raise misfit(value, name) from None


def _zone(value: Any, name: str) -> datetime.tzinfo | None:
    """A zone that can be written down: by its offset or by its name. Others become the offset that they have then."""
    zone: datetime.tzinfo | None = value.tzinfo
    if zone is None or type(zone) is datetime.timezone:
        return zone
    if type(zone) is zoneinfo.ZoneInfo and zone.key is not None:
        return zone
    offset = value.utcoffset()
    if offset is None:
        raise misfit(value, name, found=f"a zone of {type(zone).__name__} without an offset")
    return datetime.timezone(offset)


def _to_duration(value: Any) -> Any:
    if value is None or type(value) is datetime.timedelta:
        return value
    if isinstance(value, datetime.timedelta) and not getattr(value, "nanoseconds", 0):
        parts = (value.days, value.seconds, value.microseconds)
        return _made(datetime.timedelta, value, "Duration", *parts)
    raise misfit(value, "Duration")


def _to_uuid(value: Any) -> Any:
    if value is None or type(value) is uuid.UUID:
        return value
    if isinstance(value, uuid.UUID):
        return uuid.UUID(int=value.int)
    raise misfit(value, "Uuid")


CONVERTERS: dict[str, Converter] = {
    "String": _to_string,
    "Byte": _whole_number(8, "Byte"),
    "Boolean": _to_boolean,
    "Short": _whole_number(16, "Short"),
    "Integer": _whole_number(32, "Integer"),
    "Long": _whole_number(64, "Long"),
    "Float": _to_float,
    "Double": _to_double,
    "Char": _to_char,
    "BigInteger": _to_big_int,
    "BigDecimal": _to_big_dec,
    "Instant": _to_instant,
    "DateTypeInfo": _to_date,
    "TimeTypeInfo": _to_time,
    "TimestampTypeInfo": _to_timestamp,
    "Duration": _to_duration,
    "Uuid": _to_uuid,
}
"""Each basic type's name, as its repr gives it, to the function that makes a value fit."""
