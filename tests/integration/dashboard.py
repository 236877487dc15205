"""A job to look at, and a browser that looks at it, for tests of the dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator, Page

from millstream.api.functions import MapFunction, SinkFunction
from millstream.common import Configuration, WatermarkStrategy
from millstream.common.job_client import JobClient
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows
from tests.waiting import until

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>not bold</b>"
"""If any of this were taken for markup, there would be an image, and the page would be called otherwise."""


class Numbered(TimestampAssigner):
    """Record n happened n times ten milliseconds after the beginning."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1]) * 10


class Careful(MapFunction):
    """Fails once when a file is there, with a name for a message that is not to be trusted."""

    def __init__(self, marker: str) -> None:
        self._marker = Path(marker)

    def map(self, value: Any) -> Any:
        if self._marker.exists():
            self._marker.unlink()
            raise ValueError(HOSTILE)
        return value


class Nowhere(SinkFunction):
    """Takes everything."""

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        pass


@dataclass
class Watched:
    """A job that runs, and where it can be seen."""

    client: JobClient
    address: str
    folder: Path

    @property
    def jid(self) -> str:
        return str(self.client.get_job_id())

    @property
    def link(self) -> str:
        return f"{self.address}/#/job/{self.jid}"


def configuration(folder: Path, **more: str) -> Configuration:
    """Settings of a job with checkpoints, restarts and a server; more of them with `__` for a dot."""
    settings = {
        "execution.target": "in-process",
        "parallelism.default": "2",
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "5",
        "restart-strategy.fixed-delay.delay": "0 s",
        "millstream.rest.enabled": "true",
        "millstream.progress": "false",
        "rest.port": "0",
        # A secret that no page may show.
        "spark.hadoop.fs.s3a.secret.key": "swordfish",
    }
    return Configuration.from_dict(
        settings | {name.replace("__", "."): value for name, value in more.items()}
    )


def program(env: StreamExecutionEnvironment, folder: Path) -> None:
    """A diamond: readings are summed by window and looked at one by one, and both go to two sinks."""
    source = DataGeneratorSource(
        lambda n: (f"<key {n % 5}>", n, HOSTILE), rate_per_second=400, splits=2
    )
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Numbered())
    readings = env.from_source(source, times, "readings").uid("readings")
    sums = (
        readings.key_by(lambda one: one[0])
        .window(TumblingEventTimeWindows.of("1 s"))
        .reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
        .name("sums")
        .uid("sums")
    )
    looked = (
        readings.key_by(lambda one: one[0])
        .map(Careful(str(folder / "fail")))
        .name(HOSTILE)
        .uid("careful")
    )
    both = sums.union(looked).rebalance().map(lambda one: one[:2]).name("short").uid("short")
    for name in ("left", "right"):
        sink = both.rebalance().add_sink(Nowhere()).name(name).uid(name)
        sink.set_parallelism(1)


@contextmanager
def running(folder: Path, name: str = "readings by key", **options: str) -> Iterator[Watched]:
    """The job, while it runs; it is cancelled if it has not ended by then."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(folder, **options))
    program(env, folder)
    client = env.execute_async(name)
    # Found by its name: these modules are imported where there may be no server.
    server = import_module("millstream.rest.start").server_of_process()
    assert server is not None
    try:
        yield Watched(client, server.address, folder)
    finally:
        client.cancel().result()


@dataclass
class Screen:
    """A page in the browser, and everything that went wrong on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def open(self, address: str) -> None:
        """Go to an address, as if by hand."""
        self.page.goto("about:blank")
        self.page.goto(address)

    def turn_to(self, page: str) -> None:
        """Go to another page of the job by its link."""
        self.sees(".pages a", page.capitalize())
        self.find(".pages a", page.capitalize()).click()
        self.sees(".pages [aria-current]", page.capitalize())

    def find(self, selector: str, text: str = "") -> Locator:
        """The first element by a CSS selector that has a text."""
        return self.page.locator(selector).filter(has_text=text).first

    def sees(self, selector: str, text: str | re.Pattern[str] = "") -> str:
        """Wait until an element shows a text, or one that fits; all of its text."""

        def found() -> Any:
            # What is drawn has only the text that it is made of.
            texts = "found => found.map(one => one.innerText ?? one.textContent)"
            for shown in self.page.locator(selector).evaluate_all(texts):
                fits = text.search(shown) if isinstance(text, re.Pattern) else text in shown
                if fits:
                    return shown or " "
            return None

        said = until(found, 30, lambda: f"{selector} {text!r} on\n{self.text()}")
        assert said is not None
        return said

    def misses(self, selector: str) -> None:
        """Wait until there is no such element."""
        until(lambda: not self.page.locator(selector).count(), 30, self.text)

    def text(self) -> str:
        """Everything that can be read."""
        return self.page.locator("body").inner_text()

    def figure(self, label: str, among: str = ".headline") -> str:
        """A headline figure, without what stands beside it."""
        wanted = self.page.locator(f"{among} .figure").filter(
            has=self.page.locator("dt", has_text=re.compile(f"^{re.escape(label)}$"))
        )
        return wanted.locator(".value").inner_text()

    def choose(self, name: str) -> None:
        """Press the button of that name."""
        self.page.get_by_role("button", name=name, exact=True).click()


@contextmanager
def watching(browser: Browser, **options: Any) -> Iterator[Screen]:
    """A new window of the browser, with nothing remembered."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
    try:
        yield Screen(context.new_page())
    finally:
        context.close()
