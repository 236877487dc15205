"""Rows as JSON and as CSV, there and back."""

import pickle
from datetime import date, datetime, time
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
