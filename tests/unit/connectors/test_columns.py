"""Records as columns and back: by name, without loss, or not at all."""

import datetime as dt
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import Row
from millstream.connectors.columns import as_columns, as_records
from millstream.errors import TypeMismatchError

AB = pa.schema([("a", pa.string()), ("b", pa.string())])
Pair = namedtuple("Pair", "b a")


@dataclass
class Both:
    b: str
    a: str


@pytest.mark.parametrize(
    "record",
    [
        Row(b="B", a="A"),
        Row(a="A", b="B"),
        {"b": "B", "a": "A"},
        Pair(b="B", a="A"),
        Both(b="B", a="A"),
        ("A", "B"),
        ["A", "B"],
        Row("A", "B"),
    ],
)
def test_fields_go_by_name_if_they_have_names(record):
    assert as_columns([record], AB).to_pylist() == [{"a": "A", "b": "B"}]
    nested = pa.schema([("s", pa.struct(list(AB)))])
    assert as_columns([(record,)], nested).to_pylist() == [{"s": {"a": "A", "b": "B"}}]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Row(a="A"), "no 'b'"),
        (Row(a="A", b="B", c="C"), "no column 'c'"),
        (Row(a="A", x="B"), "no 'b', there is no column 'x'"),
        ({"a": "A"}, "no 'b'"),
        ({"a": "A", "b": "B", 1: "C"}, "no column 1"),
        (("A",), "1 fields, and there are 2"),
        (("A", "B", "C"), "3 fields, and there are 2"),
        (Row("A"), "1 fields"),
        ("AB", "str has no fields"),
        (None, "NoneType has no fields"),
    ],
)
def test_names_that_are_missing_or_unknown(record, text):
    with pytest.raises(TypeMismatchError, match=text) as caught:
        as_columns([Row(a="A", b="B"), record], AB)
    assert caught.value.evidence["record"] == repr(record)
    if record is not None:
        with pytest.raises(TypeMismatchError, match=text):
            as_columns([(record,)], pa.schema([("s", pa.struct(list(AB)))]))


def test_a_plain_value_is_a_record_of_one_column():
    schema = pa.schema([("n", pa.int64())])
    assert as_columns([1, (2,), Row(n=3), None], schema).column(0).to_pylist() == [1, 2, 3, None]


UTC = pa.timestamp("us", tz="UTC")
NTZ = pa.timestamp("us")
NOON = dt.datetime(2026, 11, 16, 12, 30)
CET = dt.timezone(dt.timedelta(hours=1))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int32(), np.int64(5), 5),
        (pa.int8(), -128, -128),
        (pa.float64(), 3, 3.0),
        (pa.float64(), np.float32(1.5), 1.5),
        (pa.float32(), 1.1, 1.100000023841858),
        (pa.float32(), float("inf"), float("inf")),
        (pa.float32(), 1 << 25, 33554432.0),
        (pa.bool_(), np.bool_(True), True),
        (pa.binary(), bytearray(b"x"), b"x"),
        (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
        (pa.decimal128(10, 2), 7, Decimal("7.00")),
        (UTC, NOON.replace(tzinfo=CET), NOON.replace(hour=11, tzinfo=dt.UTC)),
        (NTZ, NOON, NOON),
        (pa.timestamp("ms"), NOON.replace(microsecond=5000), NOON.replace(microsecond=5000)),
        (pa.time64("us"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
        (pa.duration("s"), dt.timedelta(hours=5), dt.timedelta(hours=5)),
        (pa.binary(1), bytearray(b"x"), b"x"),
        (pa.date32(), NOON.date(), NOON.date()),
        (pa.list_(pa.int32()), (1, None), [1, None]),
        (pa.map_(pa.string(), pa.int32()), {"a": 1}, [("a", 1)]),
    ],
)
def test_values_that_fit(kind, value, expected):
    schema = pa.schema([("v", kind)])
    [found] = as_columns([(value,)], schema).column(0).to_pylist()
    assert found == expected
    assert as_columns([(None,)], schema).column(0).to_pylist() == [None]


MISFITS = [
    (pa.int32(), 1.5),
    (pa.int32(), 2.0),
    (pa.int32(), True),
    (pa.int32(), "1"),
    (pa.int32(), 1 << 31),
    (pa.int8(), -129),
    (pa.int64(), 1 << 63),
    (pa.int64(), Decimal(1)),
    (pa.float32(), 1e300),
    (pa.float32(), (1 << 24) + 1),
    (pa.float64(), (1 << 53) + 1),
    (pa.float64(), 10**400),
    (pa.float64(), "1.0"),
    (pa.float64(), True),
    (pa.float64(), Decimal("1.5")),
    (pa.bool_(), 1),
    (pa.bool_(), "true"),
    (pa.string(), 1),
    (pa.string(), b"x"),
    (pa.binary(), "x"),
    (pa.decimal128(10, 2), Decimal("1.005")),
    (pa.decimal128(4, 2), Decimal("123.45")),
    (pa.decimal128(10, 2), 1.5),
    (UTC, NOON),
    (UTC, "2026-11-16"),
    (UTC, 5),
    (NTZ, NOON.replace(tzinfo=CET)),
    (NTZ, NOON.date()),
    (pa.timestamp("ms"), NOON.replace(microsecond=1)),
    (pa.timestamp("s", tz="UTC"), NOON.replace(microsecond=1000, tzinfo=dt.UTC)),
    (pa.time32("ms"), dt.time(1, 2, 3, 4)),
    (pa.time64("us"), dt.time(1, 2, 3, tzinfo=dt.UTC)),
    (pa.time64("us"), "01:02"),
    (pa.duration("ms"), dt.timedelta(microseconds=5)),
    (pa.binary(1), "x"),
    (pa.date32(), NOON),
    (pa.date32(), 3),
    (pa.list_(pa.int32()), "12"),
    (pa.list_(pa.int32()), [1, 2.5]),
    (pa.list_(pa.int8()), [1, 300]),
    (pa.list_(pa.int32()), {1: 2}),
    (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    (pa.map_(pa.string(), pa.int32()), {"a": 1.5}),
    (pa.map_(pa.string(), pa.int32()), {None: 1}),
    (pa.struct([("a", pa.int8())]), {"a": 300}),
    (pa.struct([("a", pa.int8())]), {"b": 1}),
    (pa.struct([("a", pa.int8())]), 5),
]


@pytest.mark.parametrize(("kind", "value"), MISFITS)
def test_values_that_do_not_fit_are_refused_with_their_record(kind, value):
    schema = pa.schema([("n", pa.int64()), ("v", kind)])
    with pytest.raises(TypeMismatchError, match="column 'v'") as caught:
        as_columns([(1, None), (2, value)], schema)
    assert caught.value.evidence["column"] == "v"
    assert caught.value.evidence["record"].startswith("(2, ")
    # Inside of others too.
    with pytest.raises(TypeMismatchError, match="element 0"):
        as_columns([([value],)], pa.schema([("v", pa.list_(kind))]))


def test_a_column_without_nulls():
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(TypeMismatchError, match="takes no nulls"):
        as_columns([(1,), (None,)], schema)


# -- and back ----------------------------------------------------------------------------------------------------


def scalars():
    return st.sampled_from(
        [
            (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
            (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
            (pa.float64(), st.floats(allow_nan=False)),
            (pa.float32(), st.floats(width=32, allow_nan=False)),
            (pa.string(), st.text(max_size=5)),
            (pa.binary(), st.binary(max_size=5)),
            (pa.bool_(), st.booleans()),
            (pa.date32(), st.dates()),
            (NTZ, st.datetimes()),
            (UTC, st.datetimes(timezones=st.just(dt.UTC))),
            (pa.decimal128(20, 4), st.decimals(-(10**10), 10**10, places=4)),
        ]
    )


def nested(inner):
    """A type and its values, each made of others."""

    def lists(one):
        return pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3)

    def maps(one):
        return pa.map_(pa.string(), one[0]), st.dictionaries(
            st.text(max_size=3), st.none() | one[1], max_size=3
        )

    def structs(both):
        kind = pa.struct([("x", both[0][0]), ("y", both[1][0])])
        return kind, st.builds(
            lambda x, y: Row(x=x, y=y), st.none() | both[0][1], st.none() | both[1][1]
        )

    return inner.map(lists) | inner.map(maps) | st.tuples(inner, inner).map(structs)


@given(st.data())
def test_what_goes_in_comes_out(data):
    columns = data.draw(
        st.lists(st.recursive(scalars(), nested, max_leaves=4), min_size=1, max_size=3)
    )
    names = [f"c{place}" for place in range(len(columns))]
    schema = pa.schema(list(zip(names, (kind for kind, _ in columns), strict=True)))
    values = st.tuples(*(st.none() | of for _, of in columns))
    rows = [
        Row(**dict(zip(names, row, strict=True))) for row in data.draw(st.lists(values, max_size=4))
    ]
    assert as_records(as_columns(rows, schema), len(names)) == rows
