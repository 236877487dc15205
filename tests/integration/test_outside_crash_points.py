"""Drivers on Spark that die between a checkpoint and its commit, with S3, Delta and Iceberg behind the sink."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.common import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, FileSource
from millstream.datastream.formats.parquet import (
    ParquetBulkWriters,
    ParquetColumnarRowInputFormat,
)
from millstream.errors import MillstreamError
from tests.crashes import COUNT, EACH_ONCE, Numbers, Outlet, Seen, dying_at, environment, latest
from tests.s3 import S3, S3Files, _one_s3, s3
from tests.tables import DeltaRows, IcebergRows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::UserWarning:pyiceberg.*"),
]

__all__ = ["_one_s3", "s3"]


class S3ByUrl(S3Files):
    """The workers of a session that runs already know of the server what the URL says."""

    def url(self) -> str:
        return self.server.url(f"{self.bucket}/out")


@pytest.fixture(params=["s3", "delta", "iceberg"])
def outlet(request: Any, tmp_path: Path) -> Outlet:
    if request.param == "s3":
        return S3ByUrl(tmp_path, request.getfixturevalue("s3"))
    return (DeltaRows if request.param == "delta" else IcebergRows)(tmp_path)


def test_started_again_by_name_and_by_path_on_spark(
    spark: Any, tmp_path: Path, outlet: Outlet
) -> None:
    """Workers are processes of their own here: what they need of a storage or a catalogue they open themselves."""

    def run(name: str, parallelism: int, **options: Any) -> None:
        env = environment(tmp_path, target="spark", parallelism=parallelism, **options)
        numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
        each = numbers.uid("numbers").key_by(lambda n: n % 7).process(Seen()).uid("each")
        each.sink_to(outlet.sink()).uid("sink")
        env.execute(name)

    with dying_at("after manifest", 1), pytest.raises(MillstreamError):
        run("job", 2)
    assert outlet.read() == Counter()
    with dying_at("after manifest", 2), pytest.raises(MillstreamError):
        run("job", 2)
    assert 0 < outlet.read().total() < COUNT
    outlet.take()
    run("second", 3, execution_state__recovery_path=latest(tmp_path))
    assert outlet.read() == EACH_ONCE


def test_parquet_from_s3_to_s3_on_spark(spark: Any, tmp_path: Path, s3: S3) -> None:
    bucket, rows = s3.bucket(), [{"n": n, "s": f"text {n}"} for n in range(2000)]
    table = pa.Table.from_pylist(rows)
    for number in range(3):
        data = io.BytesIO()
        pq.write_table(table, data, row_group_size=300)
        s3.client().put_object(Bucket=bucket, Key=f"in/{number}.parquet", Body=data.getvalue())
    kind = Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()])
    records = ParquetColumnarRowInputFormat(kind)
    source = FileSource.for_bulk_file_format(records, s3.url(f"{bucket}/in")).set_block_size(5000)
    env = environment(tmp_path, target="spark", millstream_epoch_records=20_000)
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "in")
    writers = ParquetBulkWriters.for_row_type(kind)
    sink = FileSink.for_bulk_format(s3.url(f"{bucket}/out"), writers)
    stream.sink_to(sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build())
    env.execute("copy")
    files = [data for key, data in s3.files(bucket).items() if key.startswith("out/")]
    copied = pa.concat_tables(pq.read_table(io.BytesIO(data)) for data in files).to_pylist()
    assert sorted(copied, key=lambda row: row["n"]) == [row for row in rows for _ in range(3)]
    assert s3.uploads(bucket) == []
