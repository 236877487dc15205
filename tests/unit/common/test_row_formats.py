"""Rows as JSON and as CSV, there and back."""

import math
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest

from millstream.common import Row, Types
from millstream.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millstream.errors import InvalidArgument, NotSupportedYet, TypeMismatchError

FIELDS = {
    "name": Types.STRING(),
    "n": Types.LONG(),
    "good": Types.BOOLEAN(),
    "share": Types.DOUBLE(),
    "price": Types.BIG_DEC(),
    "day": Types.SQL_DATE(),
    "at": Types.SQL_TIME(),
    "seen": Types.SQL_TIMESTAMP(),
    "tags": Types.LIST(Types.STRING()),
}
FLAT = Types.ROW_NAMED(list(FIELDS), list(FIELDS.values()))
NESTED = Types.ROW_NAMED(
    ["inner", "counts", "raw"],
    [
        Types.ROW_NAMED(["x"], [Types.INT()]),
        Types.MAP(Types.STRING(), Types.INT()),
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
    ],
)
ROW = Row(
    name='a,"ü"\n', n=2**40, good=True, share=0.5, price=Decimal("1.5"), day=date(2024, 2, 29),
    at=time(7, 8, 9), seen=datetime(2024, 2, 29, 7, 8, 9, 5000), tags=["x", "y"],
)  # fmt: skip


def test_json_there_and_back() -> None:
    write = JsonRowSerializationSchema.builder().with_type_info(FLAT).build()
    read = pickle.loads(
        pickle.dumps(JsonRowDeserializationSchema.builder().type_info(FLAT).build())
    )
    assert read.deserialize(write.serialize(ROW)) == ROW
    assert read.get_produced_type() == FLAT


def test_json_nested() -> None:
    write = JsonRowSerializationSchema.builder().with_type_info(NESTED).build()
    row = Row(inner=Row(x=1), counts={"a": 1}, raw=b"\0\xff")
    text = write.serialize(row)
    assert text == b'{"inner":{"x":1},"counts":{"a":1},"raw":"AP8="}'
    assert JsonRowDeserializationSchema.builder().type_info(NESTED).build().deserialize(text) == row


def test_json_missing_and_broken() -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    builder = JsonRowDeserializationSchema.builder
    assert builder().type_info(kind).build().deserialize(b'{"b": 7}') == Row(a=None, b="7")
    strict = builder().type_info(kind).fail_on_missing_field().build()
    with pytest.raises(TypeMismatchError, match="'a' is missing"):
        strict.deserialize(b'{"b": "x"}')
    lenient = builder().type_info(kind).ignore_parse_errors().build()
    assert lenient.deserialize(b"{") is None
    assert lenient.deserialize(b'{"a": "x"}') is None
    with pytest.raises(TypeMismatchError):
        builder().type_info(kind).build().deserialize(b"[1]")


PAIR = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])


def json_of(kind, value):
    schema = JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["v"], [kind]))
    return schema.build().serialize(Row(value)).decode()


def json_read(kind, text):
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["v"], [kind]))
    return schema.build().deserialize(f'{{"v": {text}}}'.encode()).v


@pytest.mark.parametrize("record", [Row(b=1, a="x"), {"b": 1, "a": "x"}, Row("x", 1), ("x", 1)])
def test_fields_are_written_by_name_if_they_have_names(record) -> None:
    write = JsonRowSerializationSchema.builder().with_type_info(PAIR).build()
    assert write.serialize(record) == b'{"a":"x","b":1}'
    assert json_of(PAIR, record) == '{"v":{"a":"x","b":1}}'
    assert CsvRowSerializationSchema.Builder(PAIR).build().serialize(record) == b"x,1\n"


@pytest.mark.parametrize(
    "record", [Row("x"), Row(1, "x"), {"a": "x", "c": 1}, Row(a="x", c=1), "x", Row("\ud800", 1)]
)
def test_records_of_another_type_are_not_written(record) -> None:
    for write in (
        JsonRowSerializationSchema.builder().with_type_info(PAIR).build(),
        CsvRowSerializationSchema.Builder(PAIR).build(),
    ):
        with pytest.raises(TypeMismatchError):
            write.serialize(record)


def test_json_keeps_all_digits_of_decimal_numbers() -> None:
    number = Decimal("12345678901234567890.123456789")
    assert json_of(Types.BIG_DEC(), number) == f'{{"v":{number}}}'
    assert json_read(Types.BIG_DEC(), str(number)) == number
    assert json_read(Types.LIST(Types.BIG_DEC()), "[0.1, 7, null]") == [Decimal("0.1"), 7, None]
    both = Types.ROW_NAMED(["d", "f"], [Types.BIG_DEC(), Types.DOUBLE()])
    assert json_read(both, '{"d": 1.10, "f": 0.5}') == Row(d=Decimal("1.10"), f=0.5)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_numbers_that_json_has_not_are_refused(number) -> None:
    with pytest.raises(TypeMismatchError, match="JSON has no number"):
        json_of(Types.DOUBLE(), number)


def test_json_times_with_a_zone_are_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    for moment in (datetime(2024, 2, 29, 9, tzinfo=east), datetime(2024, 2, 29, 7, tzinfo=UTC)):
        assert json_of(Types.SQL_TIMESTAMP(), moment) == '{"v":"2024-02-29T07:00:00Z"}'
    seven = datetime(2024, 2, 29, 7)
    for text in ("2024-02-29T07:00:00Z", "2024-02-29T09:00:00+02:00", "2024-02-29T07:00:00"):
        assert json_read(Types.SQL_TIMESTAMP(), f'"{text}"') == seven
    with pytest.raises(TypeMismatchError, match="not in UTC"):
        json_read(Types.SQL_TIME(), '"09:00:00+02:00"')


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Types.LIST(Types.STRING()), '"abc"'),
        (Types.TUPLE([Types.INT(), Types.INT()]), "[1]"),
        (Types.INT(), "99999999999"),
        (Types.BYTE(), "300"),
        (Types.BIG_DEC(), '"one"'),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), '"AP8=!!"'),
        (Types.LIST(Types.INT()), "[" * 100_000),
    ],
)
def test_json_of_another_type_is_refused(kind, text) -> None:
    with pytest.raises(TypeMismatchError):
        json_read(kind, text)


def test_json_builders_check_what_they_are_given() -> None:
    with pytest.raises(InvalidArgument):
        JsonRowDeserializationSchema.builder().build()
    with pytest.raises(InvalidArgument):
        JsonRowSerializationSchema.builder().with_type_info(Types.STRING())
    with pytest.raises(NotSupportedYet):
        JsonRowDeserializationSchema.builder().json_schema("{}")


def test_csv_there_and_back() -> None:
    row = Row(**{**ROW.as_dict(), "name": 'a,"ü"'})
    line = CsvRowSerializationSchema.Builder(FLAT).build().serialize(row)
    assert line.endswith(b",x;y\n")
    assert CsvRowDeserializationSchema.Builder(FLAT).build().deserialize(line) == row


def test_csv_layout() -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()])
    write = CsvRowSerializationSchema.Builder(kind).set_field_delimiter("|").set_null_literal("-")
    line = (
        write.set_line_delimiter("").disable_quote_character().build().serialize(Row("x|y", None))
    )
    assert line == b"x\\|y|-"
    read = CsvRowDeserializationSchema.Builder(kind).set_field_delimiter("|").set_null_literal("-")
    read.set_allow_comments(True).set_ignore_parse_errors(True)
    schema = read.build()
    assert schema.deserialize(b"'x'|-") == Row(a="'x'", b=None)
    assert schema.deserialize(b"# x|1") is None
    assert schema.deserialize(b"x|one") is None
    assert schema.deserialize(b"x") is None
    with pytest.raises(TypeMismatchError, match="2 in the type"):
        CsvRowDeserializationSchema.Builder(kind).build().deserialize(b"x")
    with pytest.raises(InvalidArgument):
        CsvRowSerializationSchema.Builder(kind).set_field_delimiter("||")


def test_csv_of_another_type_is_refused_or_left_out() -> None:
    strict = CsvRowDeserializationSchema.Builder(PAIR).build()
    lenient = CsvRowDeserializationSchema.Builder(PAIR).set_ignore_parse_errors(True).build()
    for line in (b"\xff,1", b"x,99999999999"):
        with pytest.raises(TypeMismatchError, match="not CSV of the schema"):
            strict.deserialize(line)
        assert lenient.deserialize(line) is None


def test_csv_bytes_and_long_values() -> None:
    kind = Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
    row = Row(a="x" * 200_000, b=b"\0\xff")
    line = CsvRowSerializationSchema.Builder(kind).build().serialize(row)
    assert line.endswith(b",AP8=\n")
    assert CsvRowDeserializationSchema.Builder(kind).build().deserialize(line) == row


@pytest.mark.parametrize("inner", [PAIR, Types.MAP(Types.STRING(), Types.INT())])
def test_csv_has_no_rows_inside_rows(inner) -> None:
    kind = Types.ROW_NAMED(["v"], [inner])
    for builder in (CsvRowDeserializationSchema.Builder, CsvRowSerializationSchema.Builder):
        with pytest.raises(InvalidArgument, match="inside rows"):
            builder(kind)
