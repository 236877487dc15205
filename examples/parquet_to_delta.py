"""Parquet files in, a Delta table out: orders become daily totals, each of them in the table once."""

import sys
import tempfile
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.delta import DeltaSink
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.formats.parquet import ParquetColumnarRowInputFormat

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
(folder / "orders").mkdir(parents=True, exist_ok=True)
days = [date(2026, 11, 16), date(2026, 11, 17), date(2026, 11, 17)]
orders = pa.table({"day": days, "grain": ["oats", "rye", "oats"], "kilos": [2.5, 1.0, 4.0]})
pq.write_table(orders, folder / "orders" / "first.parquet")

order = Types.ROW_NAMED(
    ["day", "grain", "kilos"], [Types.SQL_DATE(), Types.STRING(), Types.DOUBLE()]
)
total = Types.ROW_NAMED(["day", "kilos_so_far"], [Types.SQL_DATE(), Types.DOUBLE()])
source = FileSource.for_bulk_file_format(
    ParquetColumnarRowInputFormat(order), str(folder / "orders")
).build()
sink = (
    DeltaSink.builder()
    .set_table(str(folder / "totals"))
    .set_row_type(total)
    .create_if_missing(partition_by=["day"])
    .build()
)

env = StreamExecutionEnvironment.get_execution_environment()
stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
totals = stream.map(lambda row: (row.day, row.kilos)).key_by(lambda pair: pair[0]).sum(1)
totals.map(lambda pair: Row(day=pair[0], kilos_so_far=pair[1])).sink_to(sink).uid("totals")
env.execute("daily totals")

rows = DeltaTable(str(folder / "totals")).to_pyarrow_table().to_pylist()
for row in sorted(rows, key=lambda row: (row["day"], row["kilos_so_far"])):
    print(row["day"], row["kilos_so_far"])
