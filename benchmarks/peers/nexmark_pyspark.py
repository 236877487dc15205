"""PySpark Structured Streaming: Nexmark's queries, batches of 200,000 events, RocksDB with changelog checkpoints.

Events are made in Python, block by block, in a `mapInArrow`. With `--sql` the rest is Spark's own operators and has no
Python; otherwise queries without state are Python functions in the same `mapInArrow`, and those with state are
`transformWithStateInPandas`. Results are hashed in the JVM.

Behind the last event the source goes on: one bid per task, long after all others, then moves the watermark so that all
windows close, as they do at the end of a bounded input elsewhere. Its own window stays open. No filter may look for it:
Spark would move the filter before the watermark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from nexmark_common import arguments, keep, report
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tws_keyed_count import session

from millstream.bench.nexmark.catalogue import CHANGES, QUERIES
from millstream.bench.nexmark.clock import MarkedBlocks, mark_end
from millstream.bench.nexmark.generator import BASE_TIME, BLOCK, Generator
from millstream.bench.nexmark.model import Auction, Bid, Person
from millstream.bench.nexmark.tally import Tally

BATCH = 200_000  # events
FAR = BASE_TIME + 10_000_000_000
NOBODY = -1
BID = "auction long, bidder long, price long, channel string, url string, ms long, extra string"
AUCTION = (
    "id long, item string, description string, initial_bid long, reserve long, ms long, "
    "expires long, seller long, category long, auction_extra string"
)
PERSON = (
    "id long, name string, email string, credit_card string, city string, state string, "
    "ms long, person_extra string"
)
ARROW = {"long": pa.int64(), "string": pa.string()}


class Workload(NamedTuple):
    numbers: DataFrame
    make: MarkedBlocks
    blocks: int

    def rows(self, schema: str, narrow: Callable[[Any], Any], far: Any = None) -> DataFrame:
        """What `narrow` makes of each event, if it makes anything; `far` is the row behind the end."""
        make, blocks = self.make, self.blocks
        columns = [column.split() for column in schema.split(", ")]
        arrow = pa.schema([(name, ARROW[kind]) for name, kind in columns])

        def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                found, ended = [], False
                for number in batch.column(0).to_pylist():
                    if number >= blocks:
                        ended = True
                        continue
                    for event in make(number):
                        row = narrow(event)
                        if row is not None:
                            found.append(row)
                make.rest()
                if ended and far is not None:
                    found.append(far)
                if found:
                    fields = zip(*found, strict=True)
                    kinds = zip(fields, arrow, strict=True)
                    yield pa.record_batch([pa.array(f, k.type) for f, k in kinds], schema=arrow)

        return self.numbers.mapInArrow(convert, schema)

    def timed(self, schema: str, narrow: Callable[[Any], Any], far: Any = None) -> DataFrame:
        """The same with the column `at` for event time; milliseconds are in `ms`."""
        rows = self.rows(schema, narrow, far).withColumn("at", F.timestamp_millis("ms"))
        return rows.withWatermark("at", "4 seconds")

    def bids(self, far: bool = False) -> DataFrame:
        row = (NOBODY, NOBODY, 0, "", "", FAR, "") if far else None
        make = self.timed if far else self.rows
        return make(BID, lambda event: event if isinstance(event, Bid) else None, row)

    def persons(self) -> DataFrame:
        return self.rows(PERSON, lambda event: event if isinstance(event, Person) else None)

    def auctions(self) -> DataFrame:
        return self.rows(AUCTION, lambda event: event if isinstance(event, Auction) else None)


# ---------------------------------------------------------------- Spark's own operators


def sql_q0(work: Workload) -> DataFrame:
    return work.bids()


def sql_q1(work: Workload) -> DataFrame:
    euros = F.floor(F.col("price") * 908 / 1000)
    return work.bids().select("auction", "bidder", euros.alias("price"), "ms", "extra")


def sql_q2(work: Workload) -> DataFrame:
    return work.bids().where("auction % 123 = 0").select("auction", "price")


def sql_q3(work: Workload) -> DataFrame:
    local = work.persons().where("state in ('OR', 'ID', 'CA')").drop("ms")
    items = work.auctions().where("category = 10").select("seller", F.col("id").alias("auction"))
    both = local.join(items, local["id"] == items["seller"])
    return both.select("name", "city", "state", "auction")


def sql_q5(work: Workload) -> DataFrame:
    window = F.window("at", "10 seconds", "2 seconds").alias("span")
    counts = work.bids(far=True).groupBy(window, "auction").agg(F.count("*").alias("n"))
    return most(counts)


def most(counts: DataFrame) -> DataFrame:
    found = F.collect_list(F.struct("auction", "n")).alias("found")
    best = counts.groupBy("span").agg(F.max("n").alias("most"), found)
    rows = best.select("span", "most", F.explode("found").alias("one")).where("one.n = most")
    end = F.unix_millis("span.end")
    return rows.select(end, "one.auction", "one.n")


def sql_q7(work: Workload) -> DataFrame:
    bids = work.bids(far=True)
    row = F.struct("auction", "price", "bidder", "ms", "extra")
    tied = bids.groupBy(F.window("at", "10 seconds").alias("span"), "price").agg(
        F.collect_list(row).alias("rows")
    )
    best = tied.groupBy("span").agg(F.max_by("rows", "price").alias("rows"))
    return best.select(F.explode("rows").alias("row")).select("row.*")


def people_and_sellers(work: Workload) -> DataFrame:
    def narrow(event: Any) -> Any:
        if isinstance(event, Person):
            return (event.id, event.name, event.time)
        return (event.seller, None, event.time) if isinstance(event, Auction) else None

    return work.timed("id long, name string, ms long", narrow, (NOBODY, None, FAR))


def sql_q8(work: Workload) -> DataFrame:
    window = F.window("at", "10 seconds").alias("span")
    grouped = people_and_sellers(work).groupBy("id", window)
    both = grouped.agg(F.max("name").alias("name"), F.count_if(F.col("name").isNull()).alias("n"))
    found = both.where("name is not null and n > 0")
    return found.select("id", "name", F.unix_millis("span.start"))


def sql_q11(work: Workload) -> DataFrame:
    session_of = F.session_window("at", "10 seconds").alias("span")
    counts = work.bids(far=True).groupBy("bidder", session_of).agg(F.count("*").alias("n"))
    ends = (F.unix_millis("span.start"), F.unix_millis("span.end"))
    return counts.select("bidder", "n", *ends)


def sql_q13(work: Workload) -> DataFrame:
    key = F.col("id").alias("key")
    text = F.concat(F.lit("side input "), F.col("id").cast("string")).alias("value")
    table = work.numbers.sparkSession.range(10_000).select(key, text)
    bids = work.bids().withColumn("key", F.col("auction") % 10_000)
    columns = ("auction", "bidder", "price", "ms", "value")
    return bids.join(F.broadcast(table), "key").select(*columns)


def sql_q14(work: Workload) -> DataFrame:
    euros = F.floor(F.col("price") * 908 / 1000)
    hour = F.floor(F.col("ms") / 3_600_000) % 24
    day = (
        F.when((hour >= 8) & (hour <= 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
    )
    letters = F.length("extra") - F.length(F.regexp_replace("extra", "c", ""))
    bids = work.bids().withColumn("euros", euros).where("euros > 1000000 and euros < 50000000")
    return bids.select("auction", "bidder", "euros", day, "ms", "extra", letters)


def sql_q20(work: Workload) -> DataFrame:
    items = work.auctions().where("category = 10").withColumnRenamed("ms", "auction_ms")
    bids = work.bids()
    return bids.join(items, bids["auction"] == items["id"])


# ---------------------------------------------------------------- Python, without state


def python_q0(work: Workload) -> DataFrame:
    return work.bids()


def python_q1(work: Workload) -> DataFrame:
    def euros(b: Any) -> Any:
        if isinstance(b, Bid):
            return (b.auction, b.bidder, b.price * 908 // 1000, b.time, b.extra)
        return None

    return work.rows("auction long, bidder long, price long, ms long, extra string", euros)


def python_q2(work: Workload) -> DataFrame:
    def some(bid: Any) -> Any:
        return (bid.auction, bid.price) if isinstance(bid, Bid) and bid.auction % 123 == 0 else None

    return work.rows("auction long, price long", some)


# ---------------------------------------------------------------- Python, with state


class Windows(StatefulProcessor):
    """The open windows (start, end, count) of a key, read and written once per batch, and one timer: for the first to
    close. A state or timer call costs tens of microseconds, so this is faster than a timer per window."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getValueState("open", "w array<array<long>>")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        times = np.sort(np.concatenate([part["ms"].to_numpy() for part in rows]))
        old = [tuple(window) for window in (self.open.get() or [[]])[0]]
        windows = self.merged(old, self.windows(times))
        self.open.update(([list(window) for window in windows],))
        first = windows[0][1]
        if not old or old[0][1] != first:
            if old:
                self.handle.deleteTimer(old[0][1])
            self.handle.registerTimer(first)
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo) -> Iterator[pd.DataFrame]:
        windows = [tuple(window) for window in (self.open.get() or [[]])[0]]
        watermark = timerValues.getCurrentWatermarkInMs()
        due = [window for window in windows if window[1] <= watermark]
        left = windows[len(due) :]
        if left:
            self.open.update(([list(window) for window in left],))
            self.handle.registerTimer(left[0][1])
        else:
            self.open.clear()
        if due:
            yield self.results(key[0], due)

    def windows(self, times: Any) -> list[tuple[int, int, int]]:
        raise NotImplementedError

    def merged(self, old: list[Any], new: list[Any]) -> list[Any]:
        raise NotImplementedError

    def results(self, key: int, due: list[Any]) -> pd.DataFrame:
        raise NotImplementedError

    def close(self) -> None:
        pass


class SlidingCounts(Windows):
    def windows(self, times: Any) -> list[tuple[int, int, int]]:
        counts: dict[int, int] = {}
        panes, sizes = np.unique(times // 2_000, return_counts=True)
        for pane, count in zip(panes.tolist(), sizes.tolist(), strict=True):
            for start in range(pane * 2_000 - 8_000, pane * 2_000 + 1, 2_000):
                counts[start] = counts.get(start, 0) + count
        return [(start, start + 10_000, count) for start, count in counts.items()]

    def merged(self, old: list[Any], new: list[Any]) -> list[Any]:
        counts: dict[int, int] = {}
        for start, _, count in [*old, *new]:
            counts[start] = counts.get(start, 0) + count
        return [(start, start + 10_000, counts[start]) for start in sorted(counts)]

    def results(self, key: int, due: list[Any]) -> pd.DataFrame:
        _, ends, counts = zip(*due, strict=True)
        # The end of a window is the first moment outside of it: results belong to the one before.
        times = pd.to_datetime([end - 1 for end in ends], unit="ms")
        return pd.DataFrame({"auction": [key] * len(due), "n": counts, "end": ends, "at": times})


class Sessions(Windows):
    def windows(self, times: Any) -> list[tuple[int, int, int]]:
        borders = np.flatnonzero(np.diff(times) > 10_000) + 1
        lows, highs = [0, *borders.tolist()], [*borders.tolist(), len(times)]
        pairs = zip(lows, highs, strict=True)
        return [(int(times[a]), int(times[b - 1]) + 10_000, b - a) for a, b in pairs]

    def merged(self, old: list[Any], new: list[Any]) -> list[Any]:
        result: list[Any] = []
        for start, end, count in sorted([*old, *new]):
            if result and start <= result[-1][1]:
                last = result[-1]
                result[-1] = (last[0], max(last[1], end), last[2] + count)
            else:
                result.append((start, end, count))
        return result

    def results(self, key: int, due: list[Any]) -> pd.DataFrame:
        starts, ends, counts = zip(*due, strict=True)
        keys = [key] * len(due)
        return pd.DataFrame({"bidder": keys, "n": counts, "start": starts, "end": ends})


class NewSellers(StatefulProcessor):
    """A person comes once: (name, window) of the person, the windows of auctions, and whether it was told."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.person = handle.getValueState("person", "name string, span long, told boolean")
        self.sold = handle.getValueState("sold", "spans array<long>")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        person, before = self.person.get(), self.sold.get()
        spans = set(before[0]) if before else set()
        for part in rows:
            for name, ms in zip(part["name"].tolist(), part["ms"].tolist(), strict=True):
                if name is None:
                    spans.add(ms // 10_000)
                else:
                    person = (name, ms // 10_000, False)
        if person is None:
            self.sold.update((sorted(spans),))
            return
        name, span, told = person
        if not told and span in spans:
            told = True
            row = {"id": [key[0]], "name": [name], "start": [span * 10_000]}
            yield pd.DataFrame(row)
        self.person.update((name, span, told))
        self.sold.update((sorted(spans & {span}),))

    def close(self) -> None:
        pass


class Changing(StatefulProcessor):
    """Rows of a key that remain, at most `keep` in order; what comes and what goes is told of."""

    columns: tuple[str, ...]
    keep: int

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.rows = handle.getValueState("rows", f"r array<struct<{STRUCT[type(self)]}>>")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        stored = self.rows.get()
        before = [tuple(row) for row in stored[0]] if stored else []
        after = before
        for part in rows:
            lists = [part[name].tolist() for name in self.columns]
            after = sorted([*after, *zip(*lists, strict=True)])[: self.keep]
        gone, come = list(before), []
        for row in after:
            if row in gone:
                gone.remove(row)
            else:
                come.append(row)
        if come:
            self.rows.update((after,))
            signs = [-1] * len(gone) + [1] * len(come)
            fields = zip(*gone, *come, strict=True)
            yield pd.DataFrame({"sign": signs, **dict(zip(self.columns, fields, strict=True))})

    def close(self) -> None:
        pass


class TopTen(Changing):
    columns = ("minus_price", "ms", "bidder", "auction", "channel", "url", "extra")
    keep = 10


STRUCT = {
    TopTen: "minus_price: long, ms: long, bidder: long, auction: long, "
    "channel: string, url: string, extra: string"
}


def state(
    rows: DataFrame, key: str, processor: StatefulProcessor, output: str, **more: Any
) -> DataFrame:
    more = {"timeMode": "EventTime", **more}
    return rows.groupBy(key).transformWithStateInPandas(
        processor, outputStructType=output, outputMode="Append", **more
    )


def python_q5(work: Workload) -> DataFrame:
    def narrow(event: Any) -> Any:
        return (event.auction, event.time) if isinstance(event, Bid) else None

    rows = work.timed("auction long, ms long", narrow, (NOBODY, FAR)).select("auction", "ms")
    output = "auction long, n long, end long, at timestamp"
    counts = state(rows, "auction", SlidingCounts(), output, eventTimeColumnName="at")
    return most(counts.withColumn("span", F.window("at", "2 seconds")))


def python_q8(work: Workload) -> DataFrame:
    rows = people_and_sellers(work).select("id", "name", "ms")
    output = "id long, name string, start long"
    return state(rows, "id", NewSellers(), output, timeMode="None")


def python_q11(work: Workload) -> DataFrame:
    def narrow(event: Any) -> Any:
        return (event.bidder, event.time) if isinstance(event, Bid) else None

    rows = work.timed("bidder long, ms long", narrow, (NOBODY, FAR)).select("bidder", "ms")
    output = "bidder long, n long, start long, end long"
    return state(rows, "bidder", Sessions(), output)


def python_q19(work: Workload) -> DataFrame:
    def narrow(b: Any) -> Any:
        if isinstance(b, Bid):
            return (-b.price, b.time, b.bidder, b.auction, b.channel, b.url, b.extra)
        return None

    columns = (
        "minus_price long, ms long, bidder long, auction long, "
        "channel string, url string, extra string"
    )
    rows = work.rows(columns, narrow)
    return state(rows, "auction", TopTen(), f"sign long, {columns}", timeMode="None")


SQL = {name.removeprefix("sql_"): found for name, found in globals().items() if name[:4] == "sql_"}
PYTHON = {
    name.removeprefix("python_"): found
    for name, found in globals().items()
    if name.startswith("python_q")
}


def main() -> None:
    opts = arguments(list(dict.fromkeys([*SQL, *PYTHON])))
    build = (SQL if opts.sql else PYTHON)[opts.query]
    batch = min(BATCH // BLOCK, max(opts.blocks // 2, 1))
    blocks = opts.blocks // batch * batch
    spark: SparkSession = session(
        {
            "spark.sql.shuffle.partitions": str(opts.parallelism),
            "spark.master": f"local[{opts.parallelism}]",
            "spark.sql.session.timeZone": "UTC",
        }
    )
    tally = Tally(opts.query)
    behind = 0

    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryDirectory() as checkpoint:

        def sink(frame: DataFrame, batch_id: int) -> None:
            nonlocal behind
            columns = frame.columns
            sign: Any = F.lit(1)
            if QUERIES[opts.query].results == CHANGES:
                sign, columns = F.col("sign"), columns[1:]
            text = F.concat_ws("|", *(F.col(f"`{name}`").cast("string") for name in columns))
            sums = (F.count("*"), F.sum(sign), F.sum(sign * F.crc32(text.cast("binary"))))
            results, count, total = frame.agg(*sums).collect()[0]
            tally.results += results
            tally.count += count or 0
            tally.sum += total or 0
            # Batches behind the last event count as long as they bring results.
            if results or batch_id * batch < blocks:
                mark_end(out)
            behind = batch_id - blocks // batch + 1

        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch)
        numbers = source.option("numPartitions", opts.parallelism).load().select("value")
        make = MarkedBlocks(Generator(opts.seed), out)
        frame = build(Workload(numbers, make, blocks))
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
        query = writer.outputMode("append").start()
        # In four batches all windows have closed, also those over windows.
        while query.isActive and behind < 4:
            query.awaitTermination(0.2)
        failure = query.exception()
        query.stop()
        spark.stop()
        if failure is not None:
            raise failure
        keep(tally, out)
        system = "spark-sql" if opts.sql else "pyspark"
        # Spark reads a source once for each side of a join.
        passes = 2 if opts.query in ("q3", "q20") else 1
        report(system, opts.query, blocks * BLOCK, out, passes)


if __name__ == "__main__":
    main()
