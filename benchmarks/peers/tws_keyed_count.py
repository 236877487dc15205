"""PySpark Structured Streaming: ``transformWithStateInPandas`` with the RocksDB state store."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from workload import Tally, report, to_pair

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PAIR = "key string, total long"


class RunningSum(StatefulProcessor):
    """One state read and one write per key and batch; one output row per input row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        stored = self.total.get()
        total = stored[0] if stored else 0
        for part in rows:
            sums = np.cumsum(part["total"].to_numpy()) + total
            total = int(sums[-1])
            yield pd.DataFrame({"key": [key[0]] * len(sums), "total": sums})
        self.total.update((total,))

    def close(self) -> None:
        pass


def map_pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same Python map function, record by record, on Arrow batches (its fastest form)."""
    for batch in batches:
        keys, ones = zip(*map(to_pair, batch.column(0).to_pylist()), strict=True)
        yield pa.record_batch([pa.array(keys), pa.array(ones, pa.int64())], ["key", "total"])


def session(more: dict[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("keyed count")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": PROVIDER,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        **(more or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("workload.py")))
    return spark


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--batch", type=int, default=200_000)
    args.add_argument("--source-only", action="store_true")
    opts = args.parse_args()
    batch = min(opts.batch, opts.records // 2)
    records = opts.records // batch * batch
    spark = session()
    tally = Tally()

    def sink(frame: DataFrame, batch_id: int) -> None:
        """Runs in the JVM: last sum, row count and sum of sums per key."""
        if tally.emitted >= records:
            return
        rows = frame.groupBy("key").agg(F.max("total"), F.count("total"), F.sum("total")).collect()
        for key, last, count, total in rows:
            tally.last[key] = max(last, tally.last.get(key, 0))
            tally.emitted += count
            tally.total += total
        tally.samples.append((time.monotonic(), sum(row[2] for row in rows)))

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch)
    numbers = source.option("numPartitions", 2).load().select("value")
    pairs = numbers.mapInArrow(map_pairs, PAIR)
    if not opts.source_only:
        pairs = pairs.groupBy("key").transformWithStateInPandas(
            RunningSum(), outputStructType=PAIR, outputMode="Append", timeMode="None"
        )
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = pairs.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        tally.starts.append(time.monotonic())
        query = writer.outputMode("append").start()
        while query.isActive and tally.emitted < records:
            query.awaitTermination(0.2)
        query.stop()
        spark.stop()
    report("tws", records, tally, share=(0.5, 0.5))  # its JVM warms up slowly


if __name__ == "__main__":
    main()
