"""Each source and sink once on real Spark."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, Row, Types, WatermarkStrategy
from millstream.datastream import MapFunction, SourceFunction
from millstream.datastream.connectors.datagen import DataGeneratorSource, seeded
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    StreamFormat,
)
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.connectors.spark import SparkSink
from millstream.errors import (
    InvalidArgument,
    SourceNotFound,
    TypeMismatchError,
    UnsupportedOperation,
)
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
NONE = WatermarkStrategy.no_watermarks()


def take(stream: Any, count: int) -> list[Any]:
    return stream.execute_and_collect(limit=count)


def test_number_sequence(make_env: Any) -> None:
    stream = make_env().from_source(NumberSequenceSource(1, 1000), NONE, "numbers")
    assert sorted(stream.execute_and_collect()) == list(range(1, 1001))


def test_generator_is_a_function_of_the_event_number(make_env: Any) -> None:
    def event(n: int, rng: Any) -> tuple[int, float]:
        return n, rng.random()

    make = seeded(event, seed=7)
    for rate in (None, 5_000.0):
        source = DataGeneratorSource(make, 2_000, rate)
        got = sorted(make_env().from_source(source, NONE, "events").execute_and_collect())
        assert got == [make(n) for n in range(2_000)]


def test_an_empty_collection_ends(make_env: Any) -> None:
    assert list(make_env().from_collection([]).map(str).execute_and_collect()) == []
    options = {"millstream.epoch.records": "5"}
    assert list(make_env(options=options).from_collection([]).execute_and_collect()) == []


def test_static_files(make_env: Any, tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text("".join(f"file {i} line {n}\n" for n in range(50)))
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path)
    ).build()
    got = sorted(make_env().from_source(source, NONE, "files").execute_and_collect())
    assert got == sorted(f"file {i} line {n}" for i in range(5) for n in range(50))


def test_watched_folder(make_env: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first\n")
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
        .monitor_continuously(100)
        .build()
    )
    got = []
    with make_env().from_source(source, NONE, "folder").execute_and_collect() as results:
        got.append(next(results))
        (tmp_path / ".b").write_text("second\nthird\n")
        (tmp_path / ".b").rename(tmp_path / "b.txt")
        got += [next(results), next(results)]
    assert got == ["first", "second", "third"]


def test_a_missing_file_is_named(make_env: Any, tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), missing).build()
    with pytest.raises(SourceNotFound, match="nowhere"):
        list(make_env().from_source(source, NONE, "files").execute_and_collect())


def test_socket(make_env: Any) -> None:
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            for i in range(100):
                connection.sendall(f"line {i}\n".encode())

    thread = threading.Thread(target=serve)
    thread.start()
    lines = make_env().socket_text_stream("127.0.0.1", server.getsockname()[1])
    # The server closes, so the stream ends by itself.
    got = sorted(lines.map(str.upper).execute_and_collect())
    thread.join()
    server.close()
    assert got == sorted(f"LINE {i}" for i in range(100))


class Ticks(SourceFunction):
    def __init__(self) -> None:
        self.running = True

    def run(self, ctx: Any) -> None:
        n = 0
        while self.running and ctx.is_running():
            ctx.collect(n)
            n += 1
            time.sleep(0.001)

    def cancel(self) -> None:
        self.running = False


def test_source_function(make_env: Any) -> None:
    got = take(make_env(parallelism=1).add_source(Ticks(), "ticks").map(lambda n: n * 2), 200)
    assert got == [2 * n for n in range(200)]


def test_batch_frame_in_and_out(make_env: Any, spark: Any) -> None:
    frame = spark.createDataFrame([(f"k{n % 3}", n) for n in range(60)], "k string, n long")
    pairs = (
        make_env()
        .from_dataframe(frame)
        .map(lambda row: (row.k, row.n), Types.TUPLE([Types.STRING(), Types.LONG()]))
    )
    out = pairs.key_by(0).sum(1).to_dataframe()
    assert out.columns == ["f0", "f1"]
    best = {row.f0: row.m for row in out.groupBy("f0").agg({"f1": "max"}).toDF("f0", "m").collect()}
    assert best == {f"k{i}": sum(n for n in range(60) if n % 3 == i) for i in range(3)}


@pytest.mark.parametrize("schema", ["a int, A int", "a nosuch", "a varchar(2)", "a int,,"])
def test_a_schema_that_is_none_is_refused(make_env: Any, schema: str) -> None:
    with pytest.raises(InvalidArgument, match="schema") as caught:
        make_env().from_collection([(1, 2)]).to_dataframe(schema)
    assert caught.value.evidence["schema"] == schema


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "query", ["select 1 a where false", "select id a from range(5) where id > 9"]
)
def test_a_frame_without_rows_ends(make_env: Any, spark: Any, query: str, parallelism: int) -> None:
    """Also one that the optimizer knows to be empty, which has not a single partition."""
    rows = make_env(parallelism=parallelism).from_dataframe(spark.sql(query))
    assert list(rows.execute_and_collect()) == []
    rows = make_env(parallelism=parallelism).from_dataframe(spark.sql(query))
    assert list(rows.map(lambda row: (row.a, 1)).key_by(0).sum(1).execute_and_collect()) == []


def test_rows_of_a_frame_are_named_rows(make_env: Any, spark: Any) -> None:
    frame = spark.createDataFrame([("a", 1)], "word string, n int")
    assert list(make_env().from_dataframe(frame).execute_and_collect()) == [Row(word="a", n=1)]


def test_streaming_frame_with_spark_writer(make_env: Any, spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.txt").write_text("a\nb\na\n")
    frame = spark.readStream.text(str(folder))
    env = make_env()
    counts = env.from_dataframe(frame).map(lambda row: (row.value, 1)).key_by(0).sum(1)
    out = str(tmp_path / "out")
    counts.sink_to(
        SparkSink(lambda df, epoch: df.write.mode("append").json(out), "w string, n int")
    )
    client = env.execute_async()
    try:
        wait_for(lambda: _json(spark, out) == [("a", 1), ("a", 2), ("b", 1)], client)
        (folder / "2.txt").write_text("b\n")
        wait_for(lambda: _json(spark, out) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)], client)
    finally:
        client.cancel()


def _json(spark: Any, path: str) -> list[tuple[str, int]]:
    if not Path(path).exists():
        return []
    return sorted(
        (row.w, row.n) for row in spark.read.schema("w string, n int").json(path).collect()
    )


def wait_for(condition: Any, client: Any, seconds: float = 60) -> None:
    def met() -> bool:
        if client.get_job_status().result().is_terminal_state():
            client.get_job_execution_result().result()
        return bool(condition())

    until(met, seconds, lambda: f"the job is {client.get_job_status().result()}")


class Once(MapFunction):
    def map(self, value: Any) -> Any:
        return value


STATEFUL = {
    "sum": lambda s: s.key_by(0).sum(1),
    "process": lambda s: s.key_by(0).map(Once()),
    "window": lambda s: s.key_by(0).count_window(2).reduce(lambda a, b: a),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_unbounded_state_has_no_frame(make_env: Any, spark: Any, tmp_path: Path, name: str) -> None:
    frame = make_env().from_dataframe(spark.readStream.text(str(tmp_path)))
    with pytest.raises(UnsupportedOperation, match="SparkSink"):
        STATEFUL[name](frame.map(lambda row: (row.value, 1))).to_dataframe("k string, n int")


def test_nor_have_the_positions_of_an_unbounded_source(make_env: Any) -> None:
    stream = make_env().from_source(DataGeneratorSource(lambda n: (n % 3, 1)), NONE, "events")
    with pytest.raises(UnsupportedOperation, match="'Source: events' keeps some"):
        stream.to_dataframe("k int, n int")


def test_a_streaming_frame_without_state_goes_on_epoch_by_epoch(
    make_env: Any, spark: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    stream = make_env().from_dataframe(spark.readStream.text(str(folder)))
    out = (
        stream.map(Once())
        .map(lambda row: (row.value, len(row.value)))
        .to_dataframe("w string, n int")
    )
    query = out.writeStream.format("memory").queryName("words").start()
    try:
        for number, text in enumerate(["a\nbb\n", "ccc\n", "dddd\n"], 1):
            (folder / f"{number}.txt").write_text(text)
            query.processAllAvailable()
            assert spark.table("words").count() == number + 1
    finally:
        query.stop()
    assert sorted(tuple(row) for row in spark.table("words").collect()) == [
        ("a", 1),
        ("bb", 2),
        ("ccc", 3),
        ("dddd", 4),
    ]


def test_named_rows_go_by_name_and_nested_values_in_and_out(make_env: Any, spark: Any) -> None:
    rows = make_env().from_collection([Row(b="B", a="A"), {"b": "D", "a": "C"}])
    found = sorted(tuple(row) for row in rows.to_dataframe("a string, b string").collect())
    assert found == [("A", "B"), ("C", "D")]
    ddl = "m map<string,int>, s struct<x:int,y:array<struct<z:string>>>, t timestamp"
    frame = spark.sql(
        "select map('k', 1) m, named_struct('x', 1, 'y', array(named_struct('z', 'q'))) s,"
        " timestamp '2026-11-16 12:00:00Z' t"
    )
    stream = make_env().from_dataframe(frame)
    [row] = list(stream.execute_and_collect())
    assert row.m == {"k": 1}
    assert row.s == Row(x=1, y=[Row(z="q")])
    again = make_env().from_dataframe(frame).map(lambda r: r).to_dataframe(ddl)
    assert again.collect() == frame.collect()


def test_a_value_that_does_not_fit_a_frame_is_an_error_with_its_record(make_env: Any) -> None:
    out = make_env().from_collection([(1,), (1.5,)]).to_dataframe("n int")
    with pytest.raises(Exception, match="does not fit column 'n'") as caught:
        out.collect()
    assert "(1.5,)" in str(caught.value)
    env = make_env()
    env.from_collection([(1e300,)]).sink_to(SparkSink(lambda df, epoch: df.collect(), "n float"))
    with pytest.raises(TypeMismatchError, match="does not fit column 'n'") as refused:
        env.execute()
    assert refused.value.evidence["record"] == "(1e+300,)"
    assert refused.value.evidence["operator"] == "Sink: Writer"
    assert "Traceback" not in str(refused.value)


def test_a_schema_that_spark_does_not_know_is_named_with_what_spark_says(make_env: Any) -> None:
    env = make_env()
    env.from_collection([(1,)]).sink_to(SparkSink(lambda df, epoch: df.collect(), "n itn"))
    with pytest.raises(InvalidArgument, match="cannot make a frame") as refused:
        env.execute()
    assert refused.value.evidence["schema"] == "n itn"
    assert refused.value.evidence["cause"]


def test_a_job_of_one_epoch_goes_on_where_its_savepoint_was(make_env: Any, tmp_path: Path) -> None:
    def program(env: Any) -> Any:
        source = env.from_source(NumberSequenceSource(1, 100), NONE, "numbers").uid("numbers")
        return source.map(lambda n: (n % 2, 1)).uid("map").key_by(0).sum(1).uid("sum")

    env = make_env()
    env.enable_checkpointing(10)
    config = env.get_configuration()
    config.set_string("execution.checkpointing.dir", str(tmp_path))
    config.set_string(
        "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"
    )
    config.set_string("millstream.epoch.records", "10")

    def slow(value: Any) -> Any:
        time.sleep(0.02)
        return value

    stream = program(env).map(slow).uid("slow")
    stream.sink_to(SparkSink(lambda df, epoch: df.collect(), "k int, n int"))
    client = env.execute_async("counts")
    until(lambda: client.get_metrics() is not None and client.get_metrics().epoch >= 2)
    path = client.stop_with_savepoint(False, str(tmp_path / "savepoint")).result()
    env = make_env()
    env.get_configuration().set_string("execution.state-recovery.path", path)
    stream = program(env).map(slow).uid("slow")
    totals: dict[int, int] = {}
    for key, n in stream.execute_and_collect():
        totals[key] = max(n, totals.get(key, 0))
    # What was read before is not read again.
    assert all(n <= 50 for n in totals.values())
    assert max(totals.values(), default=50) == 50


def test_part_files_are_hidden_until_their_epoch_commits(make_env: Any, tmp_path: Path) -> None:
    def fail_late(n: int) -> int:
        if n == 95:
            raise ValueError(n)
        return n

    sink = (
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    env = make_env(parallelism=1, options={"millstream.epoch.records": "10"})
    env.from_collection(range(100)).map(fail_late).sink_to(sink)
    with pytest.raises(Exception, match="ValueError: 95"):
        env.execute()
    parts = [p for p in (tmp_path / "out").iterdir() if not p.name.startswith(".")]
    lines = sorted(int(line) for part in parts for line in part.read_text().splitlines())
    # Nine epochs of ten records are there; nothing of the tenth, although five of its records were fine.
    assert lines == list(range(90))
    assert len(parts) == 9
