"""Values of declared types are printed as PyFlink prints them."""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from millstream.common import Row, Types
from millstream.pyflink.printing import JavaText, java_float


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Types.BOOLEAN(), True, "true"),
        (Types.LONG(), 2**40, "1099511627776"),
        (Types.BIG_DEC(), Decimal("12.50"), "12.50"),
        (Types.FLOAT(), Types.FLOAT().convert(0.1), "0.1"),
        (Types.DOUBLE(), 1e-4, "1.0E-4"),
        (Types.SQL_DATE(), date(2024, 2, 29), "2024-02-29"),
        (Types.SQL_TIME(), time(7, 8, 9), "07:08:09"),
        (Types.SQL_TIMESTAMP(), datetime(2024, 2, 29, 7, 8), "2024-02-29 07:08:00.0"),
        (Types.LIST(Types.BOOLEAN()), [True, False], "[true, false]"),
        (Types.MAP(Types.STRING(), Types.FLOAT()), {"a": 0.5, "b": None}, "{a=0.5, b=null}"),
        (
            Types.TUPLE([Types.STRING(), Types.ROW([Types.INT(), Types.BOOLEAN()])]),
            ("x", Row(1, True)),
            "(x,+I[1, true])",
        ),
    ],
    ids=str,
)
def test_java_text(kind: Any, value: Any, text: str) -> None:
    assert JavaText(kind)(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (-1.5e300, "-1.5E300"),
        (5e-324, "5.0E-324"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
    ids=str,
)
def test_java_float(number: float, text: str) -> None:
    assert java_float(number) == text
