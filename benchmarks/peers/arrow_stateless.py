"""The hand-written PySpark loop: ``mapInArrow`` over generated strings, in two forms.

``arrow``: the result goes back to Spark as Arrow batches, which sums its CRC-32 in the JVM.
``fused``: generator, function and sink are one Python loop; nothing goes back but its tally.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from stateless_workload import OPERATIONS, StringTally, digest, halves, keep, make, swap

Batches = Iterator[pa.RecordBatch]


def outputs(operation: str, batch: pa.RecordBatch) -> list[str]:
    """A batch of event numbers through the generator and the function, in plain loops."""
    numbers = batch.column(0).to_pylist()
    if operation == "map":
        return [swap(make(n)) for n in numbers]
    if operation == "filter":
        return [text for n in numbers if keep(text := make(n))]
    return [half for n in numbers for half in halves(make(n))]


def arrow_loop(operation: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            yield pa.record_batch([pa.array(outputs(operation, batch), pa.string())], ["value"])

    return run


def fused_loop(operation: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        tally = StringTally()
        for batch in batches:
            tally.extend(outputs(operation, batch))
        tally.encode()
        columns = [pa.array([tally.emitted]), pa.array([tally.total])]
        yield pa.record_batch(columns, ["emitted", "total"])

    return run


def once(spark: SparkSession, form: str, operation: str, records: int) -> tuple[int, int]:
    numbers = spark.range(0, records, 1, 2)
    if form == "fused":
        sums = numbers.mapInArrow(fused_loop(operation), "emitted long, total long")
        row = sums.agg(F.sum("emitted"), F.sum("total")).collect()[0]
    else:
        texts = numbers.mapInArrow(arrow_loop(operation), "value string")
        row = texts.agg(F.count("value"), F.sum(F.crc32("value"))).collect()[0]
    return row[0], row[1]


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--operation", choices=OPERATIONS, default="map")
    args.add_argument("--form", choices=["arrow", "fused"], default="arrow")
    opts = args.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for name in ("workload.py", "stateless_workload.py"):
        spark.sparkContext.addPyFile(str(Path(__file__).with_name(name)))
    once(spark, opts.form, opts.operation, max(opts.records // 5, 1))
    started = time.monotonic()
    emitted, total = once(spark, opts.form, opts.operation, opts.records)
    seconds = time.monotonic() - started
    spark.stop()
    result = {
        "system": f"mapInArrow-{opts.form}",
        "records": opts.records,
        "seconds": round(seconds, 4),
        "hash": digest(emitted, total),
        "operation": opts.operation,
        "total_records": opts.records,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
