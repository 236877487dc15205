"""The job whose pictures `screenshots.py` takes: keyed, windowed and skewed. It drops what is late, skips what is
broken and fails once, so that there is something to see on every page of the dashboard."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Configuration, Encoder, TimestampAssigner, WatermarkStrategy
from millstream.common.job_client import JobClient
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows

# Some customers buy far more than others, so that one subtask has more to do than the rest.
CUSTOMERS = ["granary"] * 5 + ["mill", "baker", "brewer", "farm", "inn", "smith"]


def order(n: int) -> tuple[str, str, int, int]:
    """Customer, goods, amount, time: one in a thousand comes a minute late, one in five thousand has no amount."""
    late = 60_000 if n % 1000 == 999 else 0
    amount = -1 if n % 5000 == 2500 else n * 7919 % 97
    goods = ("oats", "rye", "barley", "wheat")[n // 3 % 4]
    return CUSTOMERS[n % len(CUSTOMERS)], goods, amount, int(time.time() * 1000) - late


class Check(MapFunction):
    """Counts what it sees; a missing amount is a bad record."""

    def open(self, runtime_context: Any) -> None:
        group = runtime_context.get_metrics_group().add_group("shop", "north")
        self.seen = group.counter("orders")
        self.amounts = group.distribution("amount")

    def map(self, value: Any) -> Any:
        if value[2] < 0:
            raise ValueError("an order without an amount")
        self.seen.inc()
        self.amounts.update(value[2])
        return value


class OrderTime(TimestampAssigner):
    """The time of an order is its own."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[3])


class Stock(KeyedProcessFunction):
    """How much of each kind is left; says so when it runs low. Sealing the order is what takes time."""

    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        hashlib.sha256(repr(value).encode() * 300).hexdigest()
        left = (self.left.value() or 500_000) - value[2]
        self.left.update(left if left > 0 else None)
        if left < 100:
            yield value[1], left


def failing_by(marker: Path) -> Callable[[Any], Any]:
    """A function that fails as long as a file is there."""

    def priced(total: Any) -> Any:
        if marker.exists():
            return 100 / (total[1] - total[1])
        return total[0], total[1] * 3

    return priced


def program(env: StreamExecutionEnvironment, folder: Path, rate: float) -> None:
    """Orders are checked; totals by customer and the stock by goods become bills and warnings."""
    times = WatermarkStrategy.for_bounded_out_of_orderness("1 s").with_timestamp_assigner(
        OrderTime()
    )
    source = DataGeneratorSource(order, rate_per_second=rate, splits=4)
    orders = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")
        .uid("orders")
        .map(Check())
        .name("check")
        .uid("check")
        .on_error(ErrorPolicy.skip())
        .assign_timestamps_and_watermarks(times)
        .name("order time")
    )
    totals = (
        orders.key_by(lambda one: one[0])
        .window(TumblingEventTimeWindows.of("5 s"))
        .reduce(lambda a, b: (a[0], a[1], a[2] + b[2], b[3]))
        .name("total by customer")
        .uid("totals")
        .map(lambda one: (one[0], one[2]))
        .name("customer and amount")
        .map(failing_by(folder / "fail"))
        .name("price")
        .uid("price")
    )
    stock = orders.key_by(lambda one: one[1]).process(Stock()).name("stock by goods").uid("stock")
    lines = (
        totals.union(stock)
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: b)
        .name("latest")
        .uid("latest")
    )
    for name in ("bills", "warnings"):
        sink = FileSink.for_row_format(str(folder / name), Encoder.simple_string_encoder()).build()
        written = lines.map(str).name("line").set_parallelism(1)
        written.sink_to(sink).name(name).uid(name).set_parallelism(1)


def environment(folder: Path, *, spark: bool) -> StreamExecutionEnvironment:
    """An environment with checkpoints, restarts and the server."""
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "execution.target": "spark" if spark else "in-process",
                "parallelism.default": "2" if spark else "4",
                "execution.checkpointing.interval": "2 s",
                "execution.checkpointing.dir": str(folder / "checkpoints"),
                "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "20",
                "restart-strategy.fixed-delay.delay": "1 s",
                "millstream.rest.enabled": "true",
                "millstream.progress": "false",
                "rest.port": "0",
                "spark.ui.enabled": "true",
            }
        )
    )


def start(folder: Path, *, spark: bool, rate: float) -> JobClient:
    """Start the job, with everything that it writes in a folder."""
    env = environment(folder, spark=spark)
    program(env, folder, rate)
    return env.execute_async("orders of the mill")
