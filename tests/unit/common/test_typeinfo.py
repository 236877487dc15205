import array
import datetime
import math
import pickle
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

import numpy as np
import pytest

from millstream.common.time import Instant
from millstream.common.typeinfo import (
    BasicTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    Types,
)
from millstream.common.types import Row, RowKind
from millstream.errors import InvalidArgument, TypeMismatchError

EVERY_TYPE = [
    Types.STRING(),
    Types.BYTE(),
    Types.BOOLEAN(),
    Types.SHORT(),
    Types.INT(),
    Types.LONG(),
    Types.FLOAT(),
    Types.DOUBLE(),
    Types.CHAR(),
    Types.BIG_INT(),
    Types.BIG_DEC(),
    Types.INSTANT(),
    Types.SQL_DATE(),
    Types.SQL_TIME(),
    Types.SQL_TIMESTAMP(),
    Types.PICKLED_BYTE_ARRAY(),
    Types.ROW([Types.STRING(), Types.INT()]),
    Types.ROW_NAMED(["a"], [Types.ROW([Types.INT()])]),
    Types.TUPLE([Types.STRING(), Types.TUPLE([Types.INT()])]),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    Types.PRIMITIVE_ARRAY(Types.INT()),
    Types.BASIC_ARRAY(Types.STRING()),
    Types.OBJECT_ARRAY(Types.SQL_DATE()),
    Types.MAP(Types.STRING(), Types.INT()),
    Types.LIST(Types.INT()),
]

EVERY_VALUE = [
    "",
    "a",
    "abc",
    True,
    0,
    1,
    -129,
    128,
    2**15,
    2**31,
    -(2**31) - 1,
    2**63,
    2**70,
    1.0,
    0.1,
    math.inf,
    b"ab",
    (),
    ("a", 1),
    ("a", (1,)),
    ("a", (2**40,)),
    ["a", 1],
    [1, 2],
    {"a": 1},
    Row("a", 1),
    Row(a=1),
    Decimal("0.1"),
    Instant(1, 2),
    datetime.date(2026, 1, 2),
    datetime.time(1, 2),
    datetime.datetime(2026, 1, 2),
    np.int64(5),
    np.float32(0.5),
    object(),
]


@pytest.mark.parametrize("type_info", EVERY_TYPE, ids=repr)
def test_every_type_is_an_equal_hashable_picklable_value(type_info):
    again = pickle.loads(pickle.dumps(type_info))
    assert again == type_info
    assert hash(again) == hash(type_info)
    assert repr(again) == repr(type_info)
    assert [other for other in EVERY_TYPE if other == type_info] == [type_info]
    assert type_info != "a"


@pytest.mark.parametrize("type_info", EVERY_TYPE, ids=repr)
def test_none_passes_everywhere(type_info):
    assert type_info.convert(None) is None
    assert type_info.to_internal_type(None) is None
    assert type_info.from_internal_type(None) is None


@pytest.mark.parametrize("type_info", EVERY_TYPE, ids=repr)
def test_the_check_is_true_only_for_what_convert_leaves_alone(type_info):
    expression = type_info.check_expression("v")
    names = ("type", "len", "tuple", "str", "int", "float", "bool", "bytes", "list", "dict")
    builtins = {name: __builtins__[name] for name in names}  # type: ignore[index]
    for value in EVERY_VALUE:
        if expression is None:
            assert type_info.convert(value) is value
        elif eval(expression, {"__builtins__": builtins, "v": value}):
            converted = type_info.convert(value)
            assert converted == value
            assert type(converted) is type(value)


@pytest.mark.parametrize("type_info", EVERY_TYPE, ids=repr)
def test_what_was_converted_fits(type_info):
    expression = type_info.check_expression("v")
    for value in EVERY_VALUE:
        try:
            converted = type_info.convert(value)
        except TypeMismatchError:
            continue
        assert type_info.convert(converted) == converted
        if expression not in (None, "False"):
            assert eval(expression, {"v": converted}), converted


def test_check_expressions():
    assert Types.PICKLED_BYTE_ARRAY().check_expression("v") is None
    assert Types.INT().check_expression("v") == (
        "type(v) is int and -2147483648 <= v <= 2147483647"
    )
    nested = Types.TUPLE([Types.PICKLED_BYTE_ARRAY(), Types.TUPLE([Types.DOUBLE()])])
    assert nested.check_expression("x") == (
        "type(x) is tuple and len(x) == 2"
        " and type(x[1]) is tuple and len(x[1]) == 1 and type(x[1][0]) is float"
    )
    assert Types.TUPLE([Types.LIST(Types.INT())]).check_expression("v") == "False"
    for always in (Types.ROW([Types.INT()]), Types.FLOAT(), Types.MAP(Types.INT(), Types.INT())):
        assert always.check_expression("v") == "False"


@pytest.mark.parametrize(
    ("type_info", "bits"),
    [(Types.BYTE(), 8), (Types.SHORT(), 16), (Types.INT(), 32), (Types.LONG(), 64)],
    ids=repr,
)
def test_whole_numbers_wrap(type_info, bits):
    half = 2 ** (bits - 1)
    assert type_info.convert(half - 1) == half - 1
    assert type_info.convert(half) == -half
    assert type_info.convert(-half) == -half
    assert type_info.convert(-half - 1) == half - 1
    assert type_info.convert(2**bits) == 0
    assert type_info.convert(2 ** (bits + 1) + 7) == 7
    assert type_info.convert(-1) == -1


def test_numbers():
    assert Types.FLOAT().convert(0.1) == np.float32(0.1).item()
    assert Types.FLOAT().convert(1e300) == math.inf
    assert Types.FLOAT().convert(-1e300) == -math.inf
    assert math.isnan(Types.FLOAT().convert(math.nan))
    assert type(Types.FLOAT().convert(3)) is float
    assert type(Types.DOUBLE().convert(3)) is float
    assert Types.BIG_INT().convert(2**100) == 2**100
    assert Types.BIG_DEC().convert(3) == Decimal(3)
    assert Types.BIG_DEC().convert(0.1) == Decimal("0.1")


def test_bool_becomes_int():
    converted = Types.INT().convert(True)
    assert converted == 1
    assert type(converted) is int


@pytest.mark.parametrize(
    ("type_info", "value", "wanted"),
    [
        (Types.INT(), np.int64(2**31), -(2**31)),
        (Types.LONG(), np.uint64(2**63), -(2**63)),
        (Types.INT(), np.bool_(True), 1),
        (Types.DOUBLE(), np.float64(0.5), 0.5),
        (Types.DOUBLE(), np.int32(2), 2.0),
        (Types.FLOAT(), np.float32(0.5), 0.5),
        (Types.BOOLEAN(), np.bool_(True), True),
        (Types.STRING(), np.str_("a"), "a"),
        (Types.LIST(Types.INT()), np.array([1, 2]), [1, 2]),
        (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), array.array("d", [1.5]), [1.5]),
    ],
    ids=repr,
)
def test_numpy_and_array_values(type_info, value, wanted):
    converted = type_info.convert(value)
    assert converted == wanted
    assert type(converted) is type(wanted)


def test_subclasses_become_plain():
    # Not a StrEnum: the str() of this one is its name.
    class Colour(str, Enum):  # noqa: UP042
        RED = "red"

    class Pair(NamedTuple):
        a: str
        b: int

    assert Types.STRING().convert(Colour.RED) == "red"
    assert type(Types.STRING().convert(Colour.RED)) is str
    pair = Types.TUPLE([Types.STRING(), Types.INT()]).convert(Pair("x", 1))
    assert pair == ("x", 1)
    assert type(pair) is tuple


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.INT(), "1"),
        (Types.INT(), 1.0),
        (Types.INT(), np.float64(1.0)),
        (Types.INT(), np.array([1])),
        (Types.STRING(), 1),
        (Types.STRING(), b"a"),
        (Types.BOOLEAN(), 1),
        (Types.DOUBLE(), "1.0"),
        (Types.DOUBLE(), 10**400),
        (Types.FLOAT(), "1.0"),
        (Types.CHAR(), "ab"),
        (Types.CHAR(), 1),
        (Types.BIG_INT(), 1.5),
        (Types.BIG_DEC(), "1"),
        (Types.INSTANT(), 1),
        (Types.SQL_DATE(), "2026-01-01"),
        (Types.SQL_TIME(), datetime.date(2026, 1, 1)),
        (Types.SQL_TIMESTAMP(), datetime.date(2026, 1, 1)),
        (Types.ROW([Types.INT()]), 1),
        (Types.ROW([Types.INT()]), (1, 2)),
        (Types.TUPLE([Types.INT()]), ()),
        (Types.TUPLE([Types.STRING()]), "a"),
        (Types.LIST(Types.STRING()), "abc"),
        (Types.LIST(Types.INT()), {1}),
        (Types.MAP(Types.INT(), Types.INT()), [(1, 2)]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "abc"),
    ],
    ids=repr,
)
def test_misfits(type_info, value):
    with pytest.raises(TypeMismatchError) as caught:
        type_info.convert(value)
    assert caught.value.what == f"a value does not fit the declared type {type_info!r}"
    assert {"value", "wanted", "found"} <= set(caught.value.evidence)


def test_misfit_names_the_field():
    inner = Types.ROW_NAMED(["xs"], [Types.LIST(Types.INT())])
    outer = Types.TUPLE([Types.STRING(), Types.MAP(Types.STRING(), inner)])
    with pytest.raises(TypeMismatchError) as caught:
        outer.convert(("a", {"k": Row(xs=[1, 2, "three"])}))
    error = caught.value
    assert error.what == f"a value does not fit the declared type {outer!r}"
    assert error.evidence == {
        "value": "'three'",
        "wanted": "Integer",
        "found": "str",
        "field": "f1['k'].xs[2]",
    }
    assert error.__suppress_context__


def test_misfit_of_a_flat_tuple():
    with pytest.raises(TypeMismatchError) as caught:
        Types.TUPLE([Types.STRING(), Types.INT()]).convert(("a", "b"))
    assert caught.value.evidence["field"] == "f1"


def test_misfit_survives_a_broken_repr_and_a_huge_value():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    with pytest.raises(TypeMismatchError, match="whose repr raised RuntimeError"):
        Types.INT().convert(Broken())
    with pytest.raises(TypeMismatchError) as caught:
        Types.INT().convert("x" * 100_000)
    assert len(caught.value.evidence["value"]) <= 200


def test_row_gets_the_names_of_the_type():
    unnamed = Types.ROW([Types.STRING(), Types.INT()])
    named = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])
    for value in (("x", 1), ["x", 1], Row("x", 1)):
        assert unnamed.convert(value) == Row(f0="x", f1=1)
        assert named.convert(value) == Row(a="x", b=1)
    assert named.convert({"b": 1, "a": "x"}) == Row(a="x", b=1)
    assert named.convert(Row(b=1, a="x")) == Row(a="x", b=1)
    assert unnamed.convert(Row(a="x", b=1)) == Row(f0="x", f1=1)
    with pytest.raises(TypeMismatchError) as caught:
        named.convert(Row(a="x", c=1))
    assert caught.value.evidence["found"] == "Row with the fields a, c"


def test_row_keeps_its_kind():
    converted = Types.ROW([Types.INT()]).convert(Row.of_kind(RowKind.DELETE, 1))
    assert converted.get_row_kind() is RowKind.DELETE


def test_converted_containers_are_new():
    items = [1]
    assert Types.LIST(Types.INT()).convert(items) is not items
    row = Row(f0=1)
    converted = Types.ROW([Types.INT()]).convert(row)
    converted[0] = 2
    assert row[0] == 1


def test_tuple_from_list_and_row():
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    assert pair.convert(["a", 1]) == ("a", 1)
    assert pair.convert(Row("a", 1)) == ("a", 1)
    assert pair.convert(Row(x="a", y=None)) == ("a", None)


def test_bytes():
    type_info = Types.PRIMITIVE_ARRAY(Types.BYTE())
    for value in (b"\x01\xff", bytearray(b"\x01\xff"), [1, 255], [1, -1]):
        assert type_info.convert(value) == b"\x01\xff"
    assert Types.BASIC_ARRAY(Types.BYTE()).convert([1, 255]) == [1, -1]


def test_repr_and_equality_as_in_pyflink():
    assert repr(Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])) == (
        "RowTypeInfo(a: String, b: Integer)"
    )
    assert repr(Types.ROW([Types.STRING()])) == "RowTypeInfo(String)"
    assert repr(TupleTypeInfo([Types.STRING(), Types.INT()])) == "TupleTypeInfo(String, Integer)"
    assert str(Types.MAP(Types.BIG_INT(), Types.BIG_DEC())) == "MapTypeInfo<BigInteger, BigDecimal>"
    assert Types.ROW([Types.INT()]) == Types.ROW_NAMED(["a"], [Types.INT()])
    assert Types.ROW([Types.INT()]) != Types.TUPLE([Types.INT()])
    assert Types.LIST(Types.INT()) != Types.OBJECT_ARRAY(Types.INT())
    assert isinstance(Types.SQL_DATE(), SqlTimeTypeInfo)
    assert isinstance(Types.INT(), BasicTypeInfo)
    assert Types.PICKLED_BYTE_ARRAY() == PickledBytesTypeInfo()


def test_row_fields():
    assert RowTypeInfo([Types.STRING(), Types.INT()]).get_field_names() == ["f0", "f1"]
    named = RowTypeInfo([Types.STRING(), Types.INT()], ["a", "b"])
    assert named.get_field_names() == ["a", "b"]
    assert named.get_field_types() == [Types.STRING(), Types.INT()]
    assert (named.get_field_index("b"), named.get_field_index("c")) == (1, -1)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Types.ROW_NAMED(["a"], [Types.INT(), Types.INT()]),
        lambda: Types.ROW_NAMED(["a", "a"], [Types.INT(), Types.INT()]),
        lambda: Types.ROW([Types.INT]),
        lambda: Types.TUPLE([int]),
        lambda: Types.LIST(None),
        lambda: Types.MAP(Types.INT(), str),
        lambda: Types.PRIMITIVE_ARRAY(Types.STRING()),
        lambda: Types.BASIC_ARRAY(Types.SQL_DATE()),
    ],
)
def test_wrong_types_are_refused_when_they_are_built(build):
    with pytest.raises(InvalidArgument):
        build()


def test_internal_forms():
    row = Types.ROW([Types.INT(), Types.SQL_DATE()])
    assert row.need_conversion()
    day = datetime.date(1970, 1, 11)
    assert row.to_internal_type(Row.of_kind(RowKind.DELETE, 1, day)) == (3, 1, 10)
    assert row.to_internal_type((1, None)) == (0, 1, None)
    pair = Types.TUPLE([Types.SQL_DATE(), Types.INT()])
    assert pair.to_internal_type([day, 1]) == (10, 1)
    assert pair.from_internal_type((10, 1)) == (10, 1)
    assert pair.from_internal_type(Row(10, 1)) == (day, 1)
    assert not Types.STRING().need_conversion()
    assert Types.STRING().to_internal_type("a") == "a"


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.SQL_DATE(), datetime.date(1969, 12, 31)),
        (Types.SQL_TIME(), datetime.time(23, 59, 59, 999999)),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 7, 1, 12, 30, 0, 5)),
        (Types.SQL_TIMESTAMP(), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (Types.INSTANT(), Instant.of_epoch_milli(-1)),
    ],
    ids=repr,
)
def test_internal_forms_of_time_come_back(type_info, value):
    internal = type_info.to_internal_type(value)
    assert type(internal) is int
    assert type_info.from_internal_type(internal) == value


def test_internal_time_with_a_zone():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    noon = datetime.time(12, tzinfo=zone)
    assert Types.SQL_TIME().to_internal_type(noon) == 10 * 3_600_000_000
    stamp = datetime.datetime(1970, 1, 1, 2, tzinfo=zone)
    assert Types.SQL_TIMESTAMP().to_internal_type(stamp) == 0


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [
        (int, Types.LONG()),
        (str, Types.STRING()),
        (float, Types.DOUBLE()),
        (bool, Types.BOOLEAN()),
        (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE())),
        (tuple[str, int], Types.TUPLE([Types.STRING(), Types.LONG()])),
        (
            tuple[str, tuple[float], list],
            Types.TUPLE(
                [Types.STRING(), Types.TUPLE([Types.DOUBLE()]), Types.PICKLED_BYTE_ARRAY()]
            ),
        ),
        (tuple[int, ...], Types.PICKLED_BYTE_ARRAY()),
        (tuple, Types.PICKLED_BYTE_ARRAY()),
        (tuple[()], Types.PICKLED_BYTE_ARRAY()),
        (int | None, Types.PICKLED_BYTE_ARRAY()),
        (dict[str, int], Types.PICKLED_BYTE_ARRAY()),
        ("int", Types.PICKLED_BYTE_ARRAY()),
        (None, Types.PICKLED_BYTE_ARRAY()),
        (Row, Types.PICKLED_BYTE_ARRAY()),
    ],
    ids=repr,
)
def test_from_python(hint, wanted):
    assert Types.from_python(hint) == wanted
