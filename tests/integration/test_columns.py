"""Frames and Parquet files through functions over batches and windows, on Spark: by columns and by rows the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import count, sum_of
from millstream.datastream.connectors import FileSink, FileSource
from millstream.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from millstream.datastream.window import TumblingEventTimeWindows

pytestmark = pytest.mark.spark

ROWS = 5_000
NAMES = ["k", "at", "n", "x"]
KIND = Types.ROW_NAMED(NAMES, [Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()])
WRITTEN = Types.ROW_NAMED(
    ["k", "total", "number", "x"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]
)
# Sums of these are exact in whatever order the subtasks' rows come.
DATA = pa.table(
    {
        "k": pa.array([None if n % 50 == 0 else f"k{n % 7}" for n in range(ROWS)]),
        "at": pa.array(range(ROWS), pa.int64()),
        "n": pa.array([n * n for n in range(ROWS)], pa.int64()),
        "x": pa.array([n / 4 for n in range(ROWS)]),
    }
)
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(ROWS).with_timestamp_column("at")


def doubled(table: Any) -> Any:
    return table.set_column(2, "n", pc.multiply(table["n"], 2))


def expected() -> list[tuple[Any, ...]]:
    found: dict[Any, list[Any]] = {}
    for row in DATA.to_pylist():
        sums = found.setdefault((row["k"], row["at"] // 1000), [0, 0, 0.0])
        sums[0] += 2 * row["n"]
        sums[1] += 1
        sums[2] += row["x"]
    return sorted(((k, *sums) for (k, _), sums in found.items()), key=repr)


def sums(stream: Any) -> Any:
    made = stream.map_batches(doubled, batch_format="arrow")
    windows = made.key_by("k").window(TumblingEventTimeWindows.of(1000))
    return windows.aggregate_of(sum_of("n"), count(), sum_of("x"))


@pytest.mark.parametrize("columns", ["true", "false"])
def test_a_frame(make_env: Any, spark: Any, columns: str) -> None:
    env = make_env(options={"millstream.columns": columns})
    frame = spark.createDataFrame(DATA.to_pandas(), "k string, at long, n long, x double")
    stream = env.from_dataframe(frame).assign_timestamps_and_watermarks(STRATEGY)
    out = sums(stream).to_dataframe("k string, total long, number long, x double")
    assert sorted(map(tuple, out.collect()), key=repr) == expected()


@pytest.mark.parametrize("columns", ["true", "false"])
def test_a_frame_to_a_frame(make_env: Any, spark: Any, columns: str) -> None:
    """Columns from end to end, of batches alone."""
    env = make_env(options={"millstream.columns": columns})
    frame = spark.createDataFrame(DATA.to_pandas(), "k string, at long, n long, x double")
    stream = env.from_dataframe(frame).map_batches(doubled, batch_format="arrow")
    out = stream.to_dataframe("k string, at long, n long, x double").collect()
    assert sorted(map(tuple, out), key=lambda row: row[1]) == [
        tuple(row.values()) for row in doubled(DATA).to_pylist()
    ]


@pytest.mark.parametrize("columns", ["true", "false"])
def test_files(make_env: Any, tmp_path: Path, columns: str) -> None:
    env = make_env(options={"millstream.columns": columns})
    for part in range(4):
        path = tmp_path / "in" / f"{part}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(DATA.slice(part * ROWS // 4, ROWS // 4), path, row_group_size=300)
    source = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(KIND), str(tmp_path / "in")
    )
    results = sums(env.from_source(source.build(), STRATEGY, "files"))
    writers = ParquetBulkWriters.for_row_type(WRITTEN)
    results.sink_to(FileSink.for_bulk_format(str(tmp_path / "out"), writers).build())
    env.execute()
    files = sorted((tmp_path / "out").rglob("part-*"))
    rows = [
        tuple(row.values()) for file in files for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert sorted(rows, key=repr) == expected()
