"""PySpark Structured Streaming: its Kafka connector and ``transformWithState``, in pandas or in rows; at least once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka_workload import arguments, finished, to_line, to_pair
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tws_keyed_count import PAIR, RunningSum, session


class RunningSumOfRows(StatefulProcessor):
    """The same with rows."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        stored = self.total.get()
        total = stored[0] if stored else 0
        for row in rows:
            total += row.total
            yield Row(key=key[0], total=total)
        self.total.update((total,))

    def close(self) -> None:
        pass


def map_pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The map function, on Arrow batches (its fastest form)."""
    for batch in batches:
        keys, ones = zip(*map(to_pair, batch.column(0).to_pylist()), strict=True)
        yield pa.record_batch([pa.array(keys), pa.array(ones, pa.int64())], ["key", "total"])


def map_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The second map function."""
    for batch in batches:
        pairs = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield pa.record_batch([pa.array(list(map(to_line, pairs)), pa.binary())], ["value"])


def main() -> None:
    args = arguments()
    args.add_argument("--form", choices=["rows", "pandas"], default="rows")
    args.add_argument("--batch", type=int, default=200_000)
    args.add_argument("--jars", type=Path, required=True, help="a folder of the connector's jars")
    opts = args.parse_args()
    jars = ",".join(map(str, sorted(opts.jars.glob("*.jar"))))
    spark = session({"spark.jars": jars})
    for name in ("kafka_workload.py", "tws_keyed_count.py"):
        spark.sparkContext.addPyFile(str(Path(__file__).with_name(name)))
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", opts.servers)
    source = source.option("subscribe", opts.source).option("startingOffsets", "earliest")
    source = source.option("maxOffsetsPerTrigger", min(opts.batch, opts.records // 2))
    pairs = source.load().select("value").mapInArrow(map_pairs, PAIR).groupBy("key")
    how: dict[str, Any] = {"outputStructType": PAIR, "outputMode": "Append", "timeMode": "None"}
    if opts.form == "pandas":
        sums = pairs.transformWithStateInPandas(RunningSum(), **how)
    else:
        sums = pairs.transformWithState(RunningSumOfRows(), **how)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = sums.mapInArrow(map_lines, "value binary").writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", opts.servers).option("topic", opts.target)
        writer = writer.option("checkpointLocation", checkpoint).outputMode("append")
        writer.trigger(availableNow=True).start().awaitTermination()
        spark.stop()
    finished("pyspark")


if __name__ == "__main__":
    main()
