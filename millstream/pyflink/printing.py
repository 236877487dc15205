"""What `print()` writes for values of a declared type, when a PyFlink program runs.

In PyFlink a stream with a declared type holds Java's objects, and they are printed as Java does: `(a,1)` for a tuple,
`true`, `1.0E10`. A value without a declared type is printed by Python's `str`, a row of a declared type as Millstream
does.
"""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from functools import wraps
from typing import Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_basic import PickledBytesTypeInfo
from millstream.common.typeinfo_composite import RowTypeInfo
from millstream.common.types import Row
from millstream.datastream.data_stream import DataStream
from millstream.datastream.data_stream_sink import DataStreamSink

__all__ = ["JavaText", "print_like_java", "print_like_python"]

_PRINT = DataStream.print
_BOOLEANS = ("false", "true")


class JavaText:
    """A function from a value of a declared type to Java's text of it.

    >>> text = JavaText(Types.TUPLE([Types.STRING(), Types.BOOLEAN(), Types.LIST(Types.DOUBLE())]))
    >>> text(("a", True, [1.0, 1e10]))
    '(a,true,[1.0, 1.0E10])'
    """

    def __init__(self, declared: TypeInformation) -> None:
        self.declared = declared

    def __call__(self, value: Any) -> str:
        return _text(value, self.declared)


def _text(value: Any, declared: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _BOOLEANS[value]
    if isinstance(value, float):
        return java_float(value, single=declared == Types.FLOAT())
    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, Row):
        fields = zip(value, _field_types(declared, len(value)), strict=False)
        return f"{value.get_row_kind()}[{', '.join(_text(*field) for field in fields)}]"
    if isinstance(value, tuple):
        fields = zip(value, _field_types(declared, len(value)), strict=False)
        return f"({','.join(_text(*field) for field in fields)})"
    if isinstance(value, list):
        element = getattr(declared, "elem_type", None)
        return f"[{', '.join(_text(item, element) for item in value)}]"
    if isinstance(value, dict):
        kinds = getattr(declared, "key_type", None), getattr(declared, "value_type", None)
        pairs = (f"{_text(key, kinds[0])}={_text(item, kinds[1])}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return str(value)


def _field_types(declared: Any, number: int) -> list[Any]:
    types = getattr(declared, "get_field_types", lambda: None)()
    return [None] * number if types is None else list(types)


def _timestamp(value: datetime) -> str:
    """
    >>> _timestamp(datetime(2024, 2, 29, 7, 8, 9, 120000))
    '2024-02-29 07:08:09.12'
    """
    fraction = f"{value.microsecond:06}".rstrip("0") or "0"
    return f"{date.isoformat(value)} {value:%H:%M:%S}.{fraction}"


def java_float(value: float, single: bool = False) -> str:
    """A number as Java writes it; `single` is one of 32 bits, which needs fewer digits.

    >>> java_float(12345678.5), java_float(0.10000000149011612, single=True), java_float(1e-4)
    ('1.23456785E7', '0.1', '1.0E-4')
    """
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    digits = _shortest(value) if single else repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{float(digits):f}" if "e" in digits else digits
        return plain if "." in plain else plain + ".0"
    exponent = int(f"{float(digits):.17e}".partition("e")[2])
    # The digits that `repr` keeps, with the point after the first.
    kept = digits.partition("e")[0].replace(".", "").lstrip("-0").rstrip("0") or "0"
    mantissa = f"{'-' if value < 0 else ''}{kept[0]}.{kept[1:] or '0'}"
    return f"{mantissa}E{exponent}"


def _shortest(value: float) -> str:
    wanted = struct.pack("f", value)
    for precision in range(1, 10):
        text = f"{value:.{precision}g}"
        if struct.pack("f", float(text)) == wanted:
            return repr(float(text))
    return repr(value)


@wraps(_PRINT)
def _print(self: DataStream, sink_identifier: str | None = None) -> DataStreamSink:
    stream = self._values()
    declared = stream._transformation.output_type
    if isinstance(declared, RowTypeInfo) or declared == Types.STRING():
        return _PRINT(stream, sink_identifier)
    untyped = declared is None or isinstance(declared, PickledBytesTypeInfo)
    text = str if untyped or declared is None else JavaText(declared)
    return _PRINT(stream.map(text, output_type=Types.STRING()).name("Text"), sink_identifier)


def print_like_java() -> None:
    """From now on `DataStream.print` writes what PyFlink's does."""
    DataStream.print = _print  # type: ignore[method-assign]


def print_like_python() -> None:
    """Have `print` write records as Python does, again."""
    DataStream.print = _PRINT  # type: ignore[method-assign]
