"""Columns of every type through functions over batches, forks, unions and windows: by columns and by rows the same."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millstream.api.source import SourceReader
from millstream.common import Row, WatermarkStrategy
from millstream.datastream import CoMapFunction, WindowFunction, count, max_of, min_of, sum_of
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import MillstreamError
from millstream.graph.operators import CollectOp
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.operators import column_exchange
from millstream.runtime.operators.column_exchange import KeyedColumnWriter
from tests.columns import ColumnSource
from tests.support import environment

NOW = datetime(2026, 11, 18, 12, 0, 0, 123456)
COLUMNS = {
    "int8": pa.array([1, -1, None, 3], pa.int8()),
    "uint64": pa.array([1, 2, 3, 2**63 - 1], pa.uint64()),
    "beyond": pa.array([1, 2, 3, 2**64 - 1], pa.uint64()),
    "float16": pa.array([1.5, 2.5, None, 0.0]).cast(pa.float16()),
    "float32": pa.array([0.1, None, float("nan"), -0.0], pa.float32()),
    "float64": pa.array([0.1, None, float("nan"), -0.0]),
    "bool": pa.array([True, None, False, True]),
    "string": pa.array(["a", "", None, "ß"]),
    "large string": pa.array(["a", "", None, "ß"], pa.large_string()),
    "string view": pa.array(["a", "", None, "ß"], pa.string_view()),
    "dictionary": pa.array(["a", "b", None, "a"]).dictionary_encode(),
    "dictionary of dates": pa.array([date(2026, 1, 1), None] * 2).dictionary_encode(),
    "dictionary of times": pa.array([time(1), None] * 2, pa.time32("s")).dictionary_encode(),
    "dictionary of moments": pa.array([0, None] * 2, pa.timestamp("ns")).dictionary_encode(),
    "binary": pa.array([b"a", b"", None, b"\x00"]),
    "fixed binary": pa.array([b"ab", b"cd", None, b"\x00\x00"], pa.binary(2)),
    "date32": pa.array([date(2026, 1, 1), None, date(1, 1, 1), date(9999, 12, 31)]),
    "date64": pa.array([date(2026, 1, 1), None, date(1970, 1, 1), None], pa.date64()),
    "moments": pa.array([NOW, None, NOW, datetime(1, 1, 1)], pa.timestamp("us")),
    "seconds": pa.array([0, None, -1, 5], pa.timestamp("s")),
    "nanoseconds": pa.array([0, None, 1000, 5000], pa.timestamp("ns")),
    "zone": pa.array([NOW.replace(tzinfo=UTC), None] * 2, pa.timestamp("us", "Europe/Berlin")),
    "offset": pa.array([NOW.replace(tzinfo=UTC), None] * 2, pa.timestamp("us", "+05:30")),
    "time": pa.array([time(1, 2, 3), None, time(0), time(23, 59)], pa.time64("us")),
    "duration": pa.array([timedelta(seconds=1), None, timedelta(0), timedelta(days=-1)]),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("2.25"), Decimal("0.00")]),
    "list": pa.array([[1, 2], [], None, [None]]),
    "struct": pa.array([{"x": 1}, None, {"x": None}, {"x": 4}]),
    "map": pa.array([[("a", 1)], [], None, [("b", 2)]], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(4),
    "sliced": pa.array([9, 1, 2, 3, 4, 9], pa.int64()).slice(1, 4),
    "sliced bits": pa.array([None, True, False, None, True, False]).slice(1, 4),
    "sliced text": pa.array(["x", "a", None, "b", "c"]).slice(1, 4),
}


def batch_of(column, name="c"):
    more = {"k": pa.array(["a", "b", "a", "b"]), "at": pa.array([1, 2, 3, 4])}
    return pa.RecordBatch.from_arrays([column, *more.values()], names=[name, *more])


def told(given):
    """What a function was given, to be compared."""
    if isinstance(given, pa.Table):
        return [(f.name, str(f.type)) for f in given.schema], repr(given.to_pylist())
    if isinstance(given, dict):
        return [(name, str(array.dtype), repr(array.tolist())) for name, array in given.items()]
    return [(name, str(given[name].dtype), repr(given[name].tolist())) for name in given.columns]


def run(batches, program, *, columns, parallelism=1):
    """What the streams of a program give, or the code of the error that it ends with."""
    outs: list[list] = []
    env = environment(parallelism, millstream__columns=columns)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    stream = env.from_source(ColumnSource(batches), strategy, "source")
    for made in program(stream):
        outs.append([])
        made._sink("out", CollectOp(outs[-1].extend))
    try:
        env.execute()
    except MillstreamError as error:
        return error.code
    return [sorted(map(repr, out)) for out in outs]


def failure(batches, program, *, columns, parallelism=1):
    """What the error says that a program ends with."""
    source = batches if isinstance(batches, ColumnSource) else ColumnSource(batches)
    env = environment(parallelism, millstream__columns=columns)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at")
    for made in program(env.from_source(source, strategy, "source")):
        made._sink("out", CollectOp([].extend))
    with pytest.raises(MillstreamError) as caught:
        env.execute()
    error = caught.value
    evidence = {k: v for k, v in error.evidence.items() if k not in ("line", "traceback")}
    return error.code, error.what, error.hint, evidence


def both_fail(batches, program, **options):
    by_columns = failure(batches, program, columns=True, **options)
    assert by_columns == failure(batches, program, columns=False, **options)
    return by_columns


def both(batches, program, **options):
    by_columns = run(batches, program, columns=True, **options)
    assert by_columns == run(batches, program, columns=False, **options)
    return by_columns


def windows_of(stream, key="k", *aggregates):
    windowed = stream.key_by(key).window(TumblingEventTimeWindows.of(2))
    return windowed.aggregate_of(*(aggregates or (count(),)))


@pytest.mark.parametrize("name", sorted(COLUMNS))
@pytest.mark.parametrize("batch_format", ["arrow", "numpy", "pandas"])
def test_a_function_gets_the_same(name, batch_format):
    batches = [batch_of(COLUMNS[name])]
    found = []
    for columns in (True, False):
        env = environment(1, millstream__columns=columns)
        stream = env.from_source(ColumnSource(batches), WatermarkStrategy.no_watermarks(), "source")
        out: list = []
        noted = stream.map_batches(noting, batch_format=batch_format)
        noted._sink("out", CollectOp(out.extend))
        NOTED.clear()
        try:
            env.execute()
        except MillstreamError as error:
            out = [error.code]
        given = list(NOTED)
        if name == "null" and batch_format == "arrow":
            # Its type is the one thing that shows where a column came from.
            given = []
        found.append((given, list(map(repr, out))))
    assert found[0] == found[1]


NOTED: list = []


def noting(given):
    NOTED.append(told(given))
    return given


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_keys_of_every_type(name):
    both([batch_of(COLUMNS[name])], lambda stream: [windows_of(stream, "c")], parallelism=2)


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_aggregates_of_every_type(name):
    batches = [batch_of(COLUMNS[name])]
    both(batches, lambda stream: [windows_of(stream, "k", min_of("c"), max_of("c"), count())])
    both(batches, lambda stream: [windows_of(stream, "k", sum_of("c"))])


@pytest.mark.parametrize("name", ["größe", "a b", "_values", "values", "count", "at ", "f0"])
def test_names_of_every_kind(name):
    batches = [batch_of(COLUMNS["sliced"], name)]
    both(batches, lambda stream: [windows_of(stream, "k", sum_of(name))])
    both(batches, lambda stream: [windows_of(stream, lambda row: row[name], count())])


def test_two_columns_of_one_name():
    column = pa.array([1, 2])
    twice = pa.RecordBatch.from_arrays([column, column, column], names=["c", "c", "at"])
    both([twice], lambda stream: [windows_of(stream, 0)])


def test_batches_without_rows():
    full = batch_of(COLUMNS["sliced"])
    found = both([full.slice(0, 0), full, full.slice(0, 0)], lambda stream: [windows_of(stream)])
    assert len(found[0]) == 4
    assert both([full.slice(0, 0)], lambda stream: [windows_of(stream)]) == [[]]


def test_columns_whose_types_change():
    """Ints in one batch, floats in the next, then texts that have no sum."""
    for name in ("float64", "string", "null", "int8"):
        batches = [batch_of(COLUMNS["sliced"]), batch_of(COLUMNS[name])]
        both(batches, lambda stream: [windows_of(stream, "k", sum_of("c"), count())])


def doubled(table):
    return table.set_column(0, "c", pc.multiply(table["c"], 2))


def positive(table):
    return pc.greater(table["c"], 2)


class Either(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return value


PROGRAMS = {
    "a fork to rows": lambda s: [windows_of(s), s.map(lambda row: row.c)],
    "a fork to columns": lambda s: [
        windows_of(s),
        windows_of(s.map_batches(doubled, batch_format="arrow"), "k", sum_of("c")),
    ],
    "a union with rows": lambda s: [windows_of(s.union(s.map(lambda row: row)), "k", sum_of("c"))],
    "a union of columns": lambda s: [
        windows_of(s.union(s.map_batches(doubled, batch_format="arrow")), "k", sum_of("c"))
    ],
    "a filter": lambda s: [windows_of(s.filter_batches(positive, batch_format="arrow"))],
    "a filter of all": lambda s: [
        windows_of(s.filter_batches(lambda t: pc.less(t["c"], -9), batch_format="arrow"))
    ],
    "connected streams": lambda s: [s.connect(windows_of(s)).map(Either())],
    "windows of windows": lambda s: [
        windows_of(s, "k", sum_of("c"))
        .key_by(0)
        .window(TumblingEventTimeWindows.of(4))
        .aggregate_of(sum_of(1), count())
    ],
    "all windows": lambda s: [
        s.window_all(TumblingEventTimeWindows.of(2)).aggregate_of(sum_of("c"))
    ],
    "a broadcast": lambda s: [s.broadcast().map(lambda row: row.c)],
    "a rebalance": lambda s: [windows_of(s.rebalance(), "k", sum_of("c"))],
    "a key that is made": lambda s: [windows_of(s, lambda row: (row.k, row.c % 2))],
    "a key that is not there": lambda s: [windows_of(s, "nobody")],
    "a field that is not there": lambda s: [windows_of(s, "k", sum_of("nobody"))],
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("parallelism", [1, 2])
def test_programs(name, parallelism):
    batches = [batch_of(COLUMNS["sliced"]), batch_of(pa.array([5, 6, 7, 8]))]
    both(batches, PROGRAMS[name], parallelism=parallelism)


def test_a_function_that_writes_into_its_array_again():
    """Arrow does not copy what it makes of NumPy's arrays."""
    batches = [batch_of(pa.array([n, n + 1, n + 2, n + 3])) for n in range(0, 40, 4)]

    def program(stream):
        made = stream.map_batches(Reusing(), batch_format="arrow", batch_size=4)
        return [windows_of(made, "k", sum_of("c"))]

    both(batches, program)


class Reusing:
    def __init__(self):
        self.array = None

    def __call__(self, table):
        given = table["c"].to_numpy()
        if self.array is None:
            self.array = given.copy()
        self.array[: len(given)] = given * 3
        return table.set_column(0, "c", pa.array(self.array[: len(given)]))


LONG = pa.RecordBatch.from_pydict(
    {"c": list(range(3000)), "k": ["a", "b"] * 1500, "at": [1] * 3000}
)


def same(table):
    return table


def fails_at(number):
    def checked(row):
        return row if row.c < number else 1 // 0

    return checked


def list_fails_at(number):
    return lambda rows: list(map(fails_at(number), rows))


def a_batch_of(function, size):
    return lambda s: s.map_batches(function, batch_format="arrow", batch_size=size)


FAILING = {
    "a map beside windows": (lambda s: [windows_of(s), s.map(fails_at(1300))], "record 1300"),
    "a key beside windows": (
        lambda s: [windows_of(s), s.key_by(lambda row: 1 // (row.c - 1300)).map(same)],
        "record 1300",
    ),
    "a map behind a batch": (
        lambda s: [a_batch_of(same, 700)(s).map(fails_at(1300))],
        "record 1399",
    ),
    "a map behind small batches": (
        lambda s: [a_batch_of(same, 3)(s).map(fails_at(1300))],
        "record 1301",
    ),
    "a map behind two batches": (
        lambda s: [a_batch_of(same, 500)(a_batch_of(same, 700)(s)).map(fails_at(1300))],
        "record 2099",
    ),
    "a fork behind a batch": (
        lambda s: (lambda m: [windows_of(m), m.map(fails_at(1300))])(a_batch_of(same, 700)(s)),
        "record 1399",
    ),
    "a batch of a list beside windows": (
        lambda s: [windows_of(s), s.map_batches(list_fails_at(1300), batch_size=700)],
        "records 700 to 1399",
    ),
    "a batch beside a batch": (
        lambda s: [
            a_batch_of(same, 300)(s),
            a_batch_of(lambda t: 1 // (t["c"][0].as_py() - 700), 700)(s),
        ],
        "records 0 to 699",
    ),
}


@pytest.mark.parametrize("name", sorted(FAILING))
def test_an_error_names_the_record_and_its_place(name):
    program, place = FAILING[name]
    *_, evidence = both_fail([LONG.slice(0, 10), LONG.slice(10)], program)
    assert place in evidence["position"]


# Not Python's: moments beyond its years, zones that it does not know, texts that are none.
BROKEN = {
    "far moments": pa.array([10**15], pa.timestamp("s")),
    "far dates": pa.array([10**8], pa.int32()).view(pa.date32()),
    "long durations": pa.array([2**62], pa.duration("s")),
    "no zone": pa.array([1], pa.timestamp("us", "Nowhere/Land")),
    "no text": pa.array([b"\xff"]).view(pa.string()),
    "half a character": pa.array(["ß".encode(), b"\xc3"]).slice(1).view(pa.string()),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
@pytest.mark.parametrize("key", ["k", "c"])
def test_values_that_python_has_not(name, key):
    """The source fails, also if nobody asks for the column."""
    batch = pa.RecordBatch.from_pydict({"c": BROKEN[name], "k": ["a"], "at": [1]})
    code, *_, evidence = both_fail([batch], lambda stream: [windows_of(stream, key)])
    assert code == "SOURCE_FAILED"
    assert "record 0 of these" in evidence["position"]


@pytest.mark.parametrize("name", ["decimal", "date32", "string"])
@pytest.mark.parametrize("aggregate", [sum_of("c"), min_of("c")])
@pytest.mark.parametrize("others", [pa.array([0.5] * 4), pa.array([5] * 4)])
def test_values_that_do_not_go_together(name, aggregate, others):
    """What a window has is of a type that is added record by record, what comes is columns of another."""
    batches = [batch_of(COLUMNS[name]), batch_of(others)]
    found = both(batches, lambda s: [windows_of(s, "k", aggregate)])
    if type(found) is str:
        assert found == "TYPE_MISMATCH"


class Summing(WindowFunction):
    def apply(self, key, window, inputs):
        (values,) = inputs
        if values[0] > 2:
            raise ValueError("too many")
        return [values]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_window_function_that_fails_when_a_late_record_comes(parallelism):
    batches = [
        LONG.slice(0, 2),
        LONG.slice(0, 2000).set_column(2, "at", pa.array([9] * 2000)),
        LONG,
    ]

    def program(stream):
        windowed = stream.key_by("k").window(TumblingEventTimeWindows.of(2)).allowed_lateness(100)
        return [windowed.aggregate_of(count(), window_function=Summing())]

    told = [
        failure(batches, program, columns=c, parallelism=parallelism)[:2] for c in (True, False)
    ]
    what = "the function of 'TumblingEventTimeWindows' raised ValueError: too many"
    assert told == [("USER_FUNCTION_FAILED", what)] * 2


# -- what a function sees and gives --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [700, 1024, 3000])
def test_a_table_is_in_one_piece(batch_size):
    """A function may take what is in the first chunk for everything."""

    def first_chunk(table):
        return [table["c"].chunk(0)[-1].as_py()] * len(table)

    def program(stream):
        made = stream.map_batches(first_chunk, batch_format="arrow", batch_size=batch_size)
        return [made]

    both([LONG.slice(0, 10), LONG.slice(10)], program)


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "", "value"])
def test_results_with_names_of_every_kind(name):
    def program(stream):
        made = stream.map_batches(lambda t: {name: t["c"].to_numpy()}, batch_format="arrow")
        return [made.map_batches(lambda columns: columns, batch_format="numpy")]

    assert len(both([batch_of(pa.array([1, 2, 3, 4]))], program)[0]) == 4


class Giving(ColumnSource):
    """Gives something else than batches."""

    def __init__(self, given):
        super().__init__([batch_of(COLUMNS["sliced"])])
        self.given = given

    def create_reader(self):
        reader = super().create_reader()
        reader.read_columns = lambda split, start, end: self.given
        return reader


@pytest.mark.parametrize(
    "given", [pa.table({"at": [1]}), None, {"at": 1}, [1]], ids=["table", "none", "dict", "list"]
)
def test_a_source_that_gives_no_batches(given):
    """None is not the end: what comes behind it would be lost."""
    code, what, *_ = failure(
        Giving([batch_of(COLUMNS["sliced"]), given]), lambda s: [windows_of(s)], columns=True
    )
    kind = type(given).__name__
    assert (code, what) == ("SOURCE_FAILED", f"the source's read_columns gave one {kind}")


def test_long_rows_do_not_wait_until_they_are_many(monkeypatch):
    monkeypatch.setattr(column_exchange, "_MOST_BYTES", 1 << 20)
    sent, send = [], KeyedColumnWriter.send_rows

    def noting_size(writer, gathered):
        sent.append(sum(held.data.nbytes for held in gathered if isinstance(held, ColumnBatch)))
        send(writer, gathered)

    monkeypatch.setattr(KeyedColumnWriter, "send_rows", noting_size)
    long = LONG.append_column("more", pa.array(["x" * 1000] * len(LONG)))
    found = both([long] * 4, lambda stream: [windows_of(stream, "k", sum_of("c"), count())])
    assert len(found[0]) == 2
    assert len(sent) > 5
    assert max(sent) < 3 << 20


# -- classes of the program's own ----------------------------------------------------------------------------------

SCHEMA = pa.schema([("c", pa.int64()), ("k", pa.string()), ("at", pa.int64())])


class OtherRows(ParquetColumnarRowInputFormat):
    def read_range(self, *where):
        for rows in super().read_range(*where):
            yield [Row(c=-row.c, k=row.k, at=row.at) for row in rows]


class OtherReader(SourceReader):
    def __init__(self, reader):
        self.reader = reader

    def read(self, split, start, end):
        return (Row(c=-row.c, k=row.k, at=row.at) for row in self.reader.read(split, start, end))


class OtherSource(FileSource):
    def create_reader(self):
        return OtherReader(super().create_reader())


class OtherSink(FileSink):
    def create_writer(self, context):
        writer = super().create_writer(context)
        write = writer.write
        writer.write = lambda row: write(Row(c=-row.c, k=row.k, at=row.at))
        return writer


@pytest.mark.parametrize("own", ["format", "source", "sink"])
@pytest.mark.parametrize("columns", [True, False])
def test_what_a_class_of_its_own_reads_or_writes(tmp_path, own, columns):
    """It knows nothing of columns: they must not go past it."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_batches([LONG.slice(0, 100)]), tmp_path / "in" / "1.parquet")
    rows = (OtherRows if own == "format" else ParquetColumnarRowInputFormat)(SCHEMA)
    source = FileSource.for_bulk_file_format(rows, tmp_path / "in").build()
    if own == "source":
        source.__class__ = OtherSource
    sink = FileSink.for_bulk_format(tmp_path / "out", ParquetBulkWriters.for_row_type(SCHEMA))
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    if own == "sink":
        sink.__class__ = OtherSink
    env = environment(1, millstream__columns=columns)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "source").sink_to(sink)
    env.execute()
    assert pq.read_table(tmp_path / "out")["c"].to_pylist() == [-n for n in range(100)]
