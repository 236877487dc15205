"""PySpark Structured Streaming: ``transformWithStateInPandas`` with event-time timers, RocksDB.

With ``--sql`` the windows are Spark's own (``window``, ``session_window``), without any Python.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tws_keyed_count import session
from window_workload import (
    ACTIVE,
    BASE,
    BURST,
    CASES,
    PER_MS,
    Case,
    WindowTally,
    event_function,
    expected,
    report_windows,
)
from workload import KEYS

RESULT = "key string, end long, count long"
STATE = "starts array<long>, ends array<long>, counts array<long>"
# Behind the last record the source goes on. One event per task, long after all others, then moves
# the watermark so that all windows close, as they do at the end of a bounded input elsewhere.
LAST_KEY = "the end"
FAR = BASE + 10_000_000_000

Window = tuple[int, int, int]  # start, end, count


class OpenWindows(StatefulProcessor):
    """The windows of a key, read and written once per batch, and one timer: for the first to close.

    A state or timer call costs tens of microseconds, so this is faster than a timer per window.
    """

    def __init__(self, case: Case) -> None:
        self.size, self.slide = case.size, case.slide

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getValueState("open", STATE)

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        times = np.sort(np.concatenate([part["ms"].to_numpy() for part in rows]))
        stored = self.open.get()
        old = list(zip(*stored, strict=True)) if stored else []
        new = self.sliding(times) if self.slide else self.sessions(times)
        windows = self.merged(old, new)
        self.store(windows)
        first = windows[0][1]
        if not old or old[0][1] != first:
            if old:
                self.handle.deleteTimer(old[0][1])
            self.handle.registerTimer(first)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[pd.DataFrame]:
        stored = self.open.get()
        windows = list(zip(*stored, strict=True)) if stored else []
        watermark = timerValues.getCurrentWatermarkInMs()
        due = [window for window in windows if window[1] <= watermark]
        left = windows[len(due) :]
        if left:
            self.store(left)
            self.handle.registerTimer(left[0][1])
        else:
            self.open.clear()
        if due:
            _, ends, counts = zip(*due, strict=True)
            yield pd.DataFrame({"key": [key[0]] * len(due), "end": ends, "count": counts})

    def store(self, windows: list[Window]) -> None:
        starts, ends, counts = zip(*windows, strict=True)
        self.open.update((list(starts), list(ends), list(counts)))

    def sliding(self, times: Any) -> list[Window]:
        """Count per pane, then panes per window."""
        counts: dict[int, int] = {}
        panes, sizes = np.unique(times // self.slide, return_counts=True)
        for pane, count in zip(panes.tolist(), sizes.tolist(), strict=True):
            last = pane * self.slide
            for start in range(last - self.size + self.slide, last + 1, self.slide):
                counts[start] = counts.get(start, 0) + count
        return [(start, start + self.size, count) for start, count in counts.items()]

    def sessions(self, times: Any) -> list[Window]:
        """Runs of events that are at most the gap apart."""
        borders = np.flatnonzero(np.diff(times) > self.size) + 1
        lows, highs = [0, *borders.tolist()], [*borders.tolist(), len(times)]
        pairs = zip(lows, highs, strict=True)
        return [(int(times[a]), int(times[b - 1]) + self.size, b - a) for a, b in pairs]

    def merged(self, old: list[Window], new: list[Window]) -> list[Window]:
        """In the order of their ends; sessions that overlap or touch become one."""
        result: list[Window] = []
        for window in sorted([*old, *new]):
            last = result[-1] if result else None
            if last and (window[0] <= last[1] if not self.slide else window[0] == last[0]):
                result[-1] = (last[0], max(last[1], window[1]), last[2] + window[2])
            else:
                result.append(window)
        return result

    def close(self) -> None:
        pass


def events_in_python(numbers: DataFrame, case: str, records: int) -> DataFrame:
    """The same Python map function, record by record, on Arrow batches (its fastest form)."""

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        to_event = event_function(case)
        for batch in batches:
            values = batch.column(0).to_pylist()
            events = [to_event(n) for n in values if n < records]
            if len(events) < len(values):
                events.append((LAST_KEY, FAR))
            if events:
                keys, times = zip(*events, strict=True)
                columns = [pa.array(keys), pa.array(times, pa.int64())]
                yield pa.record_batch(columns, ["key", "ms"])

    events = numbers.mapInArrow(convert, "key string, ms long")
    return events.withColumn("at", F.timestamp_millis("ms"))


def events_in_sql(numbers: DataFrame, case: str, records: int) -> DataFrame:
    n = F.col("value")
    if case == "session":
        key: Column = n % ACTIVE * 10 + F.floor(n / BURST) % 10
    else:
        key = n % KEYS
    real = n < records
    at = F.when(real, F.floor(n / PER_MS) + BASE).otherwise(FAR)
    return numbers.select(
        F.when(real, key.cast("string")).otherwise(LAST_KEY).alias("key"),
        F.timestamp_millis(at).alias("at"),
    )


def spark_windows(events: DataFrame, case: Case) -> DataFrame:
    if case.slide:
        size, slide = f"{case.size} milliseconds", f"{case.slide} milliseconds"
        window = F.window("at", size, slide)
    else:
        window = F.session_window("at", f"{case.size} milliseconds")
    counted = events.groupBy("key", window.alias("span")).agg(F.count("*").alias("count"))
    return counted.select("key", F.unix_millis("span.end").alias("end"), "count")


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--records", type=int, required=True)
    args.add_argument("--case", choices=list(CASES), required=True)
    args.add_argument("--batch", type=int, default=200_000)
    args.add_argument("--sql", action="store_true", help="Spark's own windows, no Python")
    opts = args.parse_args()
    case = CASES[opts.case]
    batch = min(opts.batch, opts.records // 2)
    records = opts.records // batch * batch
    wanted, _, _ = expected(opts.case, records)
    spark = session()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    tally = WindowTally()
    done = False

    def sink(frame: DataFrame, batch_id: int) -> None:
        """Runs in the JVM: number of results, their counts and weight."""
        nonlocal done
        if done:
            return
        weight = (F.col("key").cast("long") + 1) * (F.col("end") % 10_007) * F.col("count")
        sums = (F.count("*"), F.sum("count"), F.sum(weight))
        results, counts, weights = frame.where(F.col("key") != LAST_KEY).agg(*sums).collect()[0]
        tally.results += results
        tally.counts += counts or 0
        tally.weight += weights or 0
        # A batch closes the windows that ended before it. Only batches with records are timed.
        if batch_id * batch < records:
            tally.samples.append((time.monotonic(), batch))
            tally.emitted += batch
        # Two batches on, all windows must have closed; more results than wanted are an error too.
        done = tally.results >= wanted or batch_id * batch >= records + 5 * batch

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch)
    numbers = source.option("numPartitions", 2).load().select("value")
    if opts.sql:
        events = events_in_sql(numbers, opts.case, records).withWatermark("at", "0 seconds")
        counts = spark_windows(events, case)
    else:
        events = events_in_python(numbers, opts.case, records).withWatermark("at", "0 seconds")
        # Timestamps take pandas far longer than numbers; the watermark is known without them.
        grouped = events.select("key", "ms").groupBy("key")
        counts = grouped.transformWithStateInPandas(
            OpenWindows(case), outputStructType=RESULT, outputMode="Append", timeMode="EventTime"
        )
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = counts.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        tally.starts.append(time.monotonic())
        query = writer.outputMode("append").start()
        while query.isActive and not done:
            query.awaitTermination(0.2)
        query.stop()
        spark.stop()
    # Its JVM warms up slowly.
    report_windows("spark-sql" if opts.sql else "pyspark", opts.case, records, tally, (0.5, 0.5))


if __name__ == "__main__":
    main()
