"""Parquet, Avro and CSV as files: what goes in comes out, wherever a file is cut, and what is damaged is named."""

import builtins
import datetime as dt
import io
import itertools
import json
import pickle
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.sink import WriterContext
from millstream.common import Instant, Row, Types
from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.rolling_policy import RollingPolicy
from millstream.connectors.file.sink import FileSink
from millstream.connectors.file.source import FileSource
from millstream.connectors.formats import parquet as parquet_format
from millstream.connectors.formats.avro import (
    AvroBulkWriters,
    AvroInputFormat,
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
    AvroSchema,
)
from millstream.connectors.formats.csv_files import CsvBulkWriters, CsvReaderFormat, CsvSchema
from millstream.connectors.formats.parquet import (
    AvroParquetReaders,
    AvroParquetWriters,
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from millstream.errors import (
    InvalidArgument,
    RuntimeUnusable,
    SourceError,
    TypeMismatchError,
    UnsupportedOperation,
)
from tests.support import collect, environment

KIND = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
ROWS = [Row(name=f"name {n}", n=n) for n in range(3000)]
TEXT = """{"type": "record", "name": "r", "fields": [
    {"name": "name", "type": "string"}, {"name": "n", "type": "long"}]}"""
SCHEMA = AvroSchema.parse_string(TEXT)
CSV = CsvSchema.builder().add_string_column("name").add_number_column("n").build()


def written(factory, records):
    stream = io.BytesIO()
    writer = pickle.loads(pickle.dumps(factory)).create(stream)
    for record in records:
        writer.add_element(record)
    writer.finish()
    return stream.getvalue()


def read(records, data, cuts=(), path="demo"):
    """All records of the ranges between the cuts, each read by itself."""
    places = [0, *sorted(cuts), len(data)]
    return [
        record
        for start, end in itertools.pairwise(places)
        for some in pickle.loads(pickle.dumps(records)).read_range(
            io.BytesIO(data), path, start, end, len(data)
        )
        for record in some
    ]


# -- Parquet -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(parquet_format, "_ROWS", 100)
    monkeypatch.setattr(parquet_format, "_GROUP", 4000)


def test_parquet_is_what_pyarrow_reads_and_comes_back_from_any_cut(small_groups):
    data = written(ParquetBulkWriters.for_row_type(KIND), ROWS)
    assert pq.ParquetFile(io.BytesIO(data)).num_row_groups > 5
    assert pq.read_table(io.BytesIO(data)).to_pylist() == [row.as_dict() for row in ROWS]
    records = ParquetColumnarRowInputFormat(KIND)
    for cuts in ([], [1], [len(data) // 2], range(0, len(data), 997), [4, 5, 6]):
        assert read(records, data, cuts) == ROWS


def test_a_long_row_group_is_not_read_at_once():
    class Watched(io.BytesIO):
        longest = 0

        def read(self, size=-1):
            data = super().read(size)
            self.longest = max(self.longest, len(data))
            return data

    stream, count = Watched(), 20_000
    table = pa.table({"s": ["x" * 800] * count})
    pq.write_table(table, stream, row_group_size=count, use_dictionary=False, compression=None)
    size = stream.tell()
    assert size > 16_000_000
    kind = Types.ROW_NAMED(["s"], [Types.STRING()])
    batches = ParquetColumnarRowInputFormat(kind).read_range(stream, "demo", 0, size, size)
    assert sum(map(len, batches)) == count
    assert stream.longest < 6_000_000


@pytest.mark.parametrize(("size", "most"), [(0, 65_536), (1_000, 2_000), (100_000, 50)])
def test_long_rows_are_not_read_as_columns_at_once(monkeypatch, size, most):
    """Of short ones many are, whatever the size of batches of records."""
    monkeypatch.setattr(parquet_format, "_COLUMN_BYTES", 1 << 20)
    rows = 70_000 if size == 0 else 30_000_000 // size
    data = [n.to_bytes(4) * (size // 4 + 1) for n in range(rows)]
    file = io.BytesIO()
    schema = pa.schema([("data", pa.binary())])
    pq.write_table(pa.table([data], schema), file, compression="none", use_dictionary=False)
    end = file.seek(0, 2)
    batches = ParquetColumnarRowInputFormat(schema, batch_size=50).read_columns(
        file, "demo", 0, end, end
    )
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == rows
    assert most // 4 < sizes[0] <= most


def test_every_type_of_a_row_has_a_column():
    inner = Types.ROW_NAMED(["x"], [Types.INT()])
    fields = {
        "s": (Types.STRING(), "é"),
        "b": (Types.BOOLEAN(), True),
        "i1": (Types.BYTE(), -1),
        "i2": (Types.SHORT(), 300),
        "i4": (Types.INT(), 70_000),
        "i8": (Types.LONG(), 1 << 40),
        "f4": (Types.FLOAT(), 0.5),
        "f8": (Types.DOUBLE(), 0.1),
        "big": (Types.BIG_INT(), Decimal(10**20)),
        "dec": (Types.BIG_DEC(), Decimal("1.500000000000000000")),
        "d": (Types.SQL_DATE(), dt.date(2026, 11, 17)),
        "t": (Types.SQL_TIME(), dt.time(4, 5, 6, 7)),
        "ts": (Types.SQL_TIMESTAMP(), dt.datetime(2026, 11, 17, 4, 5, 6, 7)),
        "at": (Types.INSTANT(), dt.datetime(2026, 11, 17, tzinfo=dt.UTC)),
        "raw": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\0\1"),
        "list": (Types.LIST(Types.INT()), [1, None]),
        "map": (Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}),
        "row": (inner, Row(x=1)),
    }
    kind = Types.ROW_NAMED(list(fields), [one for one, _ in fields.values()])
    full = Row(**{name: value for name, (_, value) in fields.items()})
    empty = Row(**dict.fromkeys(fields))
    data = written(ParquetBulkWriters.for_row_type(kind), [full, empty])
    assert read(ParquetColumnarRowInputFormat(kind), data) == [full, empty]


def test_an_instant_is_a_moment_in_utc():
    kind = Types.ROW_NAMED(["at"], [Types.INSTANT()])
    data = written(ParquetBulkWriters.for_row_type(kind), [Row(at=Instant.of_epoch_milli(1500))])
    [row] = read(ParquetColumnarRowInputFormat(kind), data)
    assert row.at == dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)


def test_a_record_that_does_not_fit_its_column_is_named():
    with pytest.raises(TypeMismatchError, match="column 'n'") as raised:
        written(ParquetBulkWriters.for_row_type(KIND), [Row(name="a", n=1), Row(name="b", n="2")])
    assert "Row(name='b', n='2')" in raised.value.evidence["record"]


def test_columns_are_found_by_name_and_made_to_fit():
    data = written(ParquetBulkWriters.for_row_type(KIND), ROWS[:2])
    kind = Types.ROW_NAMED(["n", "more"], [Types.DOUBLE(), Types.STRING()])
    assert read(ParquetColumnarRowInputFormat(kind), data) == [
        Row(n=0.0, more=None),
        Row(n=1.0, more=None),
    ]
    kind = Types.ROW_NAMED(["N"], [Types.LONG()])
    insensitive = ParquetColumnarRowInputFormat(kind, is_case_sensitive=False)
    assert read(insensitive, data) == [Row(N=0), Row(N=1)]
    with pytest.raises(SourceError, match="none of the columns"):
        read(ParquetColumnarRowInputFormat(kind), data)
    kind = Types.ROW_NAMED(["name"], [Types.LONG()])
    with pytest.raises(SourceError, match="'name' of the file is string") as raised:
        read(ParquetColumnarRowInputFormat(kind), data, path="in/a.parquet")
    assert raised.value.evidence["file"] == "in/a.parquet"


@pytest.mark.parametrize("number", [0.1, 1e300])
def test_a_float_is_not_rounded_when_it_is_read(number):
    stream = io.BytesIO()
    values = [0.5, None, float("nan"), float("inf")]
    pq.write_table(pa.table({"x": [*values, number]}), stream, row_group_size=4)
    fmt = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["x"], [Types.FLOAT()]))
    batches = fmt.read_range(stream, "in/a.parquet", 0, 1 << 20, 1 << 20)
    assert repr([row.x for row in next(batches)]) == repr(values)
    nothing = pa.table({"x": pa.array([None], pa.float64())})
    pq.write_table(nothing, file := io.BytesIO())
    assert list(fmt.read_range(file, "in/a.parquet", 0, 1 << 20, 1 << 20)) == [[Row(x=None)]]
    with pytest.raises(
        SourceError, match="'x' of the file is double, which cannot be read as float"
    ):
        next(batches)


@pytest.mark.parametrize("keep", [0, 3, 100, -1, -9])
def test_a_parquet_file_that_was_cut_off_is_named(keep):
    data = written(ParquetBulkWriters.for_row_type(KIND), ROWS)[:keep]
    with pytest.raises(SourceError, match="not a complete Parquet file") as raised:
        read(ParquetColumnarRowInputFormat(KIND), data, path="in/a.parquet")
    assert raised.value.evidence["file"] == "in/a.parquet"


def test_parquet_with_a_schema_of_avro():
    data = written(AvroParquetWriters.for_generic_record(SCHEMA), [{"name": "a", "n": 1}])
    assert read(AvroParquetReaders.for_generic_record(SCHEMA), data) == [{"name": "a", "n": 1}]
    schema = pq.read_schema(io.BytesIO(data))
    assert schema.field("n").type == pa.int64()
    assert not schema.field("n").nullable


def test_types_that_no_column_holds():
    with pytest.raises(InvalidArgument, match="no column can hold"):
        ParquetBulkWriters.for_row_type(Types.ROW_NAMED(["x"], [Types.PICKLED_BYTE_ARRAY()]))
    with pytest.raises(InvalidArgument, match="type of a row"):
        ParquetBulkWriters.for_row_type(Types.STRING())
    union = AvroSchema.parse_string(
        '{"type": "record", "name": "r", "fields": [{"name": "u", "type": ["int", "string"]}]}'
    )
    with pytest.raises(InvalidArgument, match="field 'u'"):
        AvroParquetWriters.for_generic_record(union)


# -- Avro --------------------------------------------------------------------------------------------------------

RECORDS = [{"name": f"name {n}", "n": n} for n in range(3000)]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_is_what_fastavro_reads(codec):
    data = written(AvroBulkWriters.for_generic_record(SCHEMA, codec=codec), RECORDS)
    assert list(fastavro.reader(io.BytesIO(data))) == RECORDS


AVRO = written(AvroBulkWriters.for_generic_record(SCHEMA), RECORDS)


@given(cuts=st.lists(st.integers(0, len(AVRO)), max_size=12))
def test_avro_comes_back_from_any_cut(cuts):
    assert read(AvroInputFormat("in", SCHEMA), AVRO, cuts) == RECORDS


def test_avro_cut_at_and_around_every_mark():
    mark = fastavro.block_reader(io.BytesIO(AVRO))._header["sync"]
    marks = [n for n in range(len(AVRO)) if AVRO.startswith(mark, n)]
    assert len(marks) == 4
    for around in (-1, 0, 1, 15, 16, 17):
        cuts = [min(len(AVRO), n + around) for n in marks]
        assert read(AvroInputFormat("in", SCHEMA), AVRO, cuts) == RECORDS


def test_a_schema_that_has_changed_is_resolved_by_avro_s_rules():
    newer = AvroSchema.parse_string("""{"type": "record", "name": "r", "fields": [
        {"name": "n", "type": "double"}, {"name": "more", "type": "int", "default": 7}]}""")
    assert read(AvroInputFormat("in", newer), AVRO)[:2] == [
        {"n": 0.0, "more": 7},
        {"n": 1.0, "more": 7},
    ]
    assert read(AvroInputFormat("in"), AVRO) == RECORDS


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ('{"name": "n", "type": "string"}', "field 'n' was written as long"),
        ('{"name": "more", "type": "int"}', "field 'more' is not in the file"),
        (
            '{"name": "name", "type": {"type": "record", "name": "x", "fields": []}}',
            "field 'name' was written as string and is to be read as record",
        ),
    ],
)
def test_a_schema_that_cannot_be_resolved_names_file_and_field(field, why):
    text = f'{{"type": "record", "name": "r", "fields": [{field}]}}'
    with pytest.raises(SourceError, match=why) as raised:
        read(AvroInputFormat("in", AvroSchema.parse_string(text)), AVRO, path="in/a.avro")
    assert raised.value.evidence["file"] == "in/a.avro"


@pytest.mark.parametrize(
    "damage", [lambda d: d[:3], lambda d: d[:200], lambda d: d[:-20], lambda d: b""]
)
def test_an_avro_file_that_was_cut_off_is_named(damage):
    with pytest.raises(SourceError, match="not a complete Avro file") as raised:
        read(AvroInputFormat("in", SCHEMA), damage(AVRO), path="in/a.avro")
    assert raised.value.evidence["file"] == "in/a.avro"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"name": "a", "n": "b"}, "n"),
        ({"name": "a"}, "n"),
        ({"name": "a", "n": 1, "x": 2}, "no field x"),
        (Row(name="a", n=1 << 70), "n"),
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_named(record, why):
    with pytest.raises(TypeMismatchError, match=why):
        written(AvroBulkWriters.for_generic_record(SCHEMA), [record])


def test_messages_of_avro():
    text = """{"type": "record", "name": "r", "fields": [
        {"name": "n", "type": "long"},
        {"name": "inner", "type": ["null", {"type": "record", "name": "i", "fields": [
            {"name": "tags", "type": {"type": "map", "values": "string"}}]}]}]}"""
    into = pickle.loads(pickle.dumps(AvroRowSerializationSchema(avro_schema_string=text)))
    back = pickle.loads(pickle.dumps(AvroRowDeserializationSchema(avro_schema_string=text)))
    for row in (Row(n=1, inner=None), Row(n=2, inner=Row(tags={"a": "b"}))):
        message = into.serialize(row)
        assert back.deserialize(message) == row
    assert into.serialize(Row(1, None)) == into.serialize(Row(n=1, inner=None))
    for broken in (b"", message[:-2], message + b"x", b"\xff" * 30):
        with pytest.raises(TypeMismatchError, match="not Avro of the schema"):
            back.deserialize(broken)
    with pytest.raises(InvalidArgument, match="class of Java"):
        AvroRowSerializationSchema("com.shop.Order")
    with pytest.raises(InvalidArgument, match="not a schema of Avro"):
        AvroSchema.parse_string('{"type": "recrod"}')


def schema_of(*fields):
    """A schema of fields, each a name and a type."""
    fields = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "r", "namespace": "shop", "fields": fields})


def record(name, *fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def there_and_back(schema, row):
    written = AvroRowSerializationSchema(avro_schema_string=schema).serialize(row)
    return AvroRowDeserializationSchema(avro_schema_string=schema).deserialize(written)


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (
            schema_of(
                ("x", record("place", ("s", "string"))), ("y", "place"), ("z", ["null", "place"])
            ),
            Row(x=Row(s="a"), y=Row(s="b"), z=Row(s="c")),
        ),
        (
            schema_of(("u", [record("p", ("s", "string")), record("q", ("n", "int"))])),
            Row(u=Row(n=1)),
        ),
        (
            schema_of(
                (
                    "u",
                    [
                        {"type": "array", "items": record("p", ("s", "string"))},
                        {"type": "map", "values": "int"},
                    ],
                )
            ),
            Row(u={"s": 1}),
        ),
        (schema_of(("v", "int"), ("next", ["null", "r"])), Row(v=1, next=Row(v=2, next=None))),
    ],
)
def test_records_of_avro_are_rows_wherever_they_stand(schema, row):
    assert there_and_back(schema, row) == row


def test_a_type_that_is_named_twice_has_two_columns():
    kind = schema_of(("x", record("place", ("s", "string"))), ("y", "place"))
    columns = AvroSchema.parse_string(kind).arrow_schema()
    assert (
        columns.field("x").type
        == columns.field("y").type
        == pa.struct([pa.field("s", pa.string(), False)])
    )
    with pytest.raises(InvalidArgument, match="recursive"):
        AvroSchema.parse_string(schema_of(("next", ["null", "r"]))).arrow_schema()


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (logical("long", "timestamp-millis"), dt.datetime(2026, 1, 1), "no time zone"),
        (logical("long", "timestamp-millis"), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC), "finer"),
        (
            logical("long", "local-timestamp-micros"),
            dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            "has one",
        ),
        (logical("int", "time-millis"), dt.time(1, 2, 3, 4), "finer"),
        (logical("int", "date"), dt.datetime(2026, 1, 1, 5), "time of day"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("1.234"), "2 of them behind"),
        (logical("bytes", "decimal", precision=4, scale=2), Decimal("123.4"), "4 digits"),
        (logical("string", "uuid"), "none", "is a UUID"),
        ("string", "\ud800", "surrogates"),
    ],
)
def test_values_that_avro_would_change_are_refused(kind, value, why):
    schema = schema_of(("v", ["null", {"type": "array", "items": kind}]))
    writer = AvroBulkWriters.for_generic_record(AvroSchema.parse_string(schema)).create(
        io.BytesIO()
    )
    writer.add_element({"v": None})
    for write in (
        writer.add_element,
        AvroRowSerializationSchema(avro_schema_string=schema).serialize,
    ):
        with pytest.raises(TypeMismatchError, match=why):
            write(Row(v=[value]))


def test_rows_without_names_are_written_as_avro_by_place():
    schema = AvroSchema.parse_string(schema_of(("a", "string"), ("b", "int")))
    stream = io.BytesIO()
    writer = AvroBulkWriters.for_generic_record(schema).create(stream)
    writer.add_element(Row("x", 1))
    writer.finish()
    assert list(fastavro.reader(io.BytesIO(stream.getvalue()))) == [{"a": "x", "b": 1}]


def test_a_missing_extra_is_named(monkeypatch):
    load = builtins.__import__

    def without(name, *more):
        if name.startswith("fastavro"):
            raise ImportError(name)
        return load(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(RuntimeUnusable, match=r"pip install 'millstream\[avro\]'"):
        AvroSchema.parse_string(TEXT)


# -- CSV ---------------------------------------------------------------------------------------------------------


def csv_rows(schema, data):
    found = CsvReaderFormat.for_schema(schema).read_all(io.BytesIO(data), "in/a.csv")
    return [row for some in found for row in some]


def test_csv_is_what_pyarrow_reads_and_comes_back():
    rows = [Row(name='a "quoted", b', n=1), Row(name="two\nlines", n=-2)]
    data = written(CsvBulkWriters.for_schema(CSV), rows)
    options = pa.csv.ParseOptions(newlines_in_values=True)
    names = pa.csv.ReadOptions(column_names=["name", "n"])
    table = pa.csv.read_csv(io.BytesIO(data), names, options)
    assert table.to_pylist() == [row.as_dict() for row in rows]
    assert csv_rows(CSV, data) == rows


def test_csv_with_all_its_settings():
    builder = CsvSchema.builder().add_string_column("name").add_number_column("x", Types.DOUBLE())
    builder = builder.add_array_column("tags", "|").add_boolean_column("ok").set_use_header()
    builder = builder.set_column_separator(";").set_null_value("-").set_allow_comments()
    schema = builder.set_line_separator("\r\n").build()
    rows = [
        Row(name="a;b", x=0.5, tags=["p", "q"], ok=True),
        Row(name=None, x=1.0, tags=[], ok=False),
    ]
    data = written(CsvBulkWriters.for_schema(schema), rows)
    assert data == b'name;x;tags;ok\r\n"a;b";0.5;p|q;true\r\n-;1.0;;false\r\n'
    assert csv_rows(schema, b"# comment\r\n" + data) == rows
    assert csv_rows(schema, b"ok;name;x;tags\ntrue;c;2;\n") == [
        Row(name="c", x=2.0, tags=[], ok=True)
    ]
    with pytest.raises(SourceError, match="the header has no tags"):
        csv_rows(schema, b"ok;name;x\n")


@pytest.mark.parametrize(
    ("data", "line"), [(b"a,1\nb,c\n", 2), (b"a\n", 1), (b'a,1\n"b,2\n', 2), (b"a,1\n\xff,2\n", 0)]
)
def test_a_line_that_is_no_csv_is_named(data, line):
    with pytest.raises(SourceError, match="not CSV") as raised:
        csv_rows(CSV, data)
    assert raised.value.evidence["file"] == "in/a.csv"
    assert raised.value.evidence["line"] >= line


def test_lines_that_are_no_csv_can_be_left_out(caplog):
    records = CsvReaderFormat.for_schema(CSV).with_ignore_parse_errors()
    found = list(records.read_all(io.BytesIO(b"a,1\nb,c\nd\ne,2\n"), "in/a.csv"))
    assert found == [[Row(name="a", n=1), Row(name="e", n=2)]]
    assert "in/a.csv: 2 lines" in caplog.text


def rows_of(data, schema, **settings):
    reader = CsvReaderFormat.for_schema(schema)
    reader = reader.with_ignore_parse_errors() if settings.get("lenient") else reader
    return [row for rows in reader.read_all(io.BytesIO(data), "demo.csv") for row in rows]


def test_a_line_that_is_no_text_is_named_or_left_out():
    schema = CsvSchema.builder().add_string_column("a").add_number_column("n").build()
    data = "ä,1\n".encode() + b"\xff,2\nz,3\n"
    with pytest.raises(SourceError, match="not UTF-8") as raised:
        rows_of(data, schema)
    assert raised.value.evidence["line"] == 2
    assert rows_of(data, schema, lenient=True) == [Row(a="ä", n=1), Row(a="z", n=3)]


def test_values_of_any_length_are_read():
    schema = CsvSchema.builder().add_string_column("a").build()
    assert rows_of(b"x" * 200_000 + b"\n", schema) == [Row(a="x" * 200_000)]


def test_a_line_inside_of_quotes_is_no_comment():
    builder = CsvSchema.builder().add_string_column("a").add_number_column("n")
    found = rows_of(b'# a comment\n"x\n#y",1\n#"\nz,2\n', builder.set_allow_comments().build())
    assert found == [Row(a="x\n#y", n=1), Row(a="z", n=2)]


def test_a_line_has_as_many_fields_as_the_header():
    builder = CsvSchema.builder().add_string_column("a").add_number_column("n")
    schema = builder.set_use_header().build()
    assert rows_of(b"n,more,a\n1,,x\n", schema) == [Row(a="x", n=1)]
    for line in (b"1\n", b"1,x,more\n"):
        with pytest.raises(SourceError, match="fields, and 2 in the header"):
            rows_of(b"n,a\n" + line, schema)


def test_records_that_do_not_fit_a_csv_schema():
    for record in (Row(name="a"), {"name": "a", "m": 1}, ("a", 1, 2)):
        with pytest.raises(TypeMismatchError, match="CSV schema"):
            written(CsvBulkWriters.for_schema(CSV), [record])


# -- through the sink and the source --------------------------------------------------------------------------------

FORMATS = {
    "parquet": (ParquetBulkWriters.for_row_type(KIND), ParquetColumnarRowInputFormat(KIND)),
    "avro": (AvroBulkWriters.for_generic_record(SCHEMA), AvroInputFormat("in", SCHEMA)),
    "csv": (CsvBulkWriters.for_schema(CSV), CsvReaderFormat.for_schema(CSV)),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("limit", [None, 20_000])
def test_files_of_a_sink_are_read_by_a_source(tmp_path, small_groups, name, limit):
    factory, records = FORMATS[name]
    builder = FileSink.for_bulk_format(tmp_path, factory)
    builder = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    if limit is not None:
        builder = builder.with_rolling_policy(RollingPolicy.default_rolling_policy(limit))
    sink = builder.build()
    writer = sink.create_writer(WriterContext(0, 1, 0, "a"))
    for row in ROWS:
        writer.write(row)
    sink.create_committer().commit(0, [writer.prepare_commit()])
    assert (len(list(tmp_path.iterdir())) > 1) is (limit is not None)
    source = FileSource.for_record_stream_format(records, tmp_path).set_block_size(3000).build()
    reader, splits = source.create_reader(), source.create_enumerator(2)
    found = []
    for split in splits.discover():
        found += reader.read(split, 0, splits.available(split, 0))
    found = [one.as_dict() if isinstance(one, Row) else one for one in found]
    assert sorted(found, key=lambda one: one["n"]) == RECORDS


@pytest.mark.parametrize("fmt", [ParquetColumnarRowInputFormat(KIND), AvroInputFormat("/in")])
def test_an_empty_file_is_not_a_complete_one(tmp_path, fmt):
    (tmp_path / "empty").touch()
    source = FileSource.for_bulk_file_format(fmt, tmp_path).build()
    splits = source.create_enumerator(1)
    [split] = splits.discover()
    with pytest.raises(SourceError, match="not a complete"):
        list(source.create_reader().read(split, 0, splits.available(split, 0)))


def test_an_input_format_of_avro_is_a_source_by_itself(tmp_path):
    (tmp_path / "a.avro").write_bytes(AVRO)
    env = environment(2, epoch=20_000)
    stream = env.create_input(AvroInputFormat(str(tmp_path), SCHEMA))
    assert sorted(collect(stream), key=lambda one: one["n"]) == RECORDS
    with pytest.raises(UnsupportedOperation, match="reads an AvroInputFormat"):
        env.create_input("in")


@pytest.mark.parametrize("name", FORMATS)
def test_an_attempt_that_fails_leaves_nothing(tmp_path, name):
    sink = FileSink.for_bulk_format(tmp_path, FORMATS[name][0]).build()
    writer = sink.create_writer(WriterContext(0, 1, 0, "a"))
    writer.write(ROWS[0])
    writer.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_format_that_is_none_is_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="not a BulkWriterFactory"):
        FileSink.for_bulk_format(tmp_path, print)
    with pytest.raises(InvalidArgument, match="must be a BulkFormat"):
        FileSource.for_bulk_file_format(CsvReaderFormat.for_schema(CSV), tmp_path)
