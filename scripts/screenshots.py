"""Runs a job and photographs the dashboard that shows it. Usage: python scripts/screenshots.py [--spark] [--seconds 75]

The job is keyed, windowed and skewed, drops what is late, skips what is broken and fails once, so that there is
something to see on every page. The pictures go to docs/images/dashboard-*.png.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from millstream.api.error_policy import ErrorPolicy  # noqa: E402
from millstream.common import (  # noqa: E402
    Configuration,
    Encoder,
    TimestampAssigner,
    WatermarkStrategy,
)
from millstream.connectors.datagen import DataGeneratorSource  # noqa: E402
from millstream.datastream import (  # noqa: E402
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.file_system import FileSink  # noqa: E402
from millstream.datastream.state import ValueStateDescriptor  # noqa: E402
from millstream.datastream.window import TumblingEventTimeWindows  # noqa: E402
from tests.chromium import ARGUMENTS, chromium  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LARGEST = 200_000
SIZES = {"wide": (1280, 800), "tall": (1280, 1080), "phone": (390, 844)}

# Some customers buy far more than others, so that one subtask has more to do than the rest.
CUSTOMERS = ["granary", "granary", "granary", "mill", "baker", "brewer", "farm", "inn", "smith"]


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
    """How much of each kind is left; says so when it runs low."""

    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        left = (self.left.value() or 500_000) - value[2]
        self.left.update(left if left > 0 else None)
        if left < 100:
            yield value[1], left


def fails_once(marker: Path, after: float) -> Callable[[Any], Any]:
    """A function that fails on one record, once, so many seconds from now."""
    at = time.time() + after

    def priced(total: Any) -> Any:
        if time.time() > at and not marker.exists():
            marker.touch()
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
        .map(fails_once(folder / "failed", 20))
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
                "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "1 s",
                "millstream.rest.enabled": "true",
                "millstream.progress": "false",
                "rest.port": "0",
            }
        )
    )


def photograph(browser: Browser, address: str, jid: str) -> None:
    """A picture of each page, in the light and some in the dark, and of one on a phone."""
    job = f"#/job/{jid}"
    pictures = [
        ("jobs", "#/", "light", "wide", ".panel table"),
        ("graph", f"{job}/graph", "light", "wide", ".vertex"),
        ("graph-dark", f"{job}/graph", "dark", "wide", ".vertex"),
        ("vertex", f"{job}/graph", "light", "tall", ".vertex"),
        ("metrics", f"{job}/metrics", "light", "tall", ".plot canvas"),
        ("checkpoints", f"{job}/checkpoints", "light", "wide", ".plot canvas"),
        ("exceptions", f"{job}/exceptions", "light", "wide", ".failure"),
        ("phone", f"{job}/graph", "light", "phone", ".vertex"),
    ]
    for name, where, theme, size, there in pictures:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
        )
        page = context.new_page()
        page.goto(f"{address}/{where}")
        page.wait_for_selector(there)
        if name == "vertex":
            page.get_by_role("button", name="total by customer").first.click()
            page.wait_for_selector(".drawer .plot canvas")
        page.wait_for_timeout(700)  # until bars have moved to where they belong
        save(page, IMAGES / f"dashboard-{name}.png")
        context.close()


def save(page: Page, path: Path) -> None:
    """A picture, which may not be too large for a page of documentation."""
    picture = page.screenshot(animations="disabled")
    if len(picture) > LARGEST:
        raise SystemExit(f"{path.name} has {len(picture)} bytes, more than {LARGEST}")
    path.write_bytes(picture)
    print(f"{path.relative_to(ROOT)}  {len(picture)} bytes")


def main(arguments: list[str]) -> int:
    """Run the job, take the pictures, cancel it."""
    parser = argparse.ArgumentParser(description="photographs the dashboard")
    parser.add_argument("--spark", action="store_true", help="run the job on a local Spark")
    parser.add_argument("--seconds", type=float, default=75, help="how long the job runs before")
    parser.add_argument("--rate", type=float, default=20_000, help="orders a second")
    asked = parser.parse_args(arguments)
    executable = chromium()
    if executable is None:
        print("there is no Chromium: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        env = environment(Path(name), spark=asked.spark)
        program(env, Path(name), asked.rate)
        client = env.execute_async("orders of the mill")
        try:
            time.sleep(asked.seconds)
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
            photograph(browser, address_of(), str(client.get_job_id()))
            browser.close()
        finally:
            client.cancel().result()
    return 0


def address_of() -> str:
    """Where the server of this process listens."""
    from millstream.rest.start import server_of_process

    server = server_of_process()
    if server is None:
        raise SystemExit("there is no REST server in this process")
    return server.address


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
