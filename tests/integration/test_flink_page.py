"""Flink's own web page on our REST server, in a browser: every tab that it has, without an error of the page's.

The page is the judge of names and shapes: it was written for Flink's server and knows nothing of ours. It is fetched by
Maven, and is no part of this project. The job runs in this process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from millstream.rest.start import server_of_process
from tests.chromium import ARGUMENTS, chromium
from tests.rest import watched
from tests.waiting import until

JAR = "org.apache.flink:flink-runtime-web:2.2.0"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
# What Flink's server can do and ours does not: profiles of processes.
NOT_HERE = re.compile(r"/(taskmanagers/[^/]+|jobmanager)/profiler$")
# A fault of the page's own, whoever serves it: an editor that is laid out 50 ms after its tab was left.
LEFT = re.compile(r"Cannot read properties of null \(reading 'layout'\)")

# A folder for a picture of each tab, for whoever wants to look at them.
PICTURES = os.environ.get("MILLSTREAM_PICTURES")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar with the page."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Flink's web page is fetched by Maven, and there is no mvn")
    folder = tmp_path_factory.mktemp("flink-page")
    command = [maven, "-q", "-B", COPY, f"-Dartifact={JAR}", f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"Maven cannot fetch Flink's web page: {done.stdout[-500:]}")
    return next(folder.glob("*.jar"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    path = chromium()
    if path is None:
        pytest.skip("there is no Chromium, and none can be installed here")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Watch:
    """A page, and what went wrong on it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.wrong: list[tuple[str, str]] = []
        self.tab = ""
        self.answered: set[str] = set()
        page.on("pageerror", lambda error: self._note(f"error of the page: {error}"))
        page.on("requestfailed", lambda request: self._failed(request))
        page.on("response", self._answered)
        page.on("console", self._said)

    def _note(self, what: str) -> None:
        self.wrong.append((self.tab, what))

    def _failed(self, request: Any) -> None:
        # A page that is left gives up what it still waits for.
        if "ERR_ABORTED" not in (request.failure or ""):
            self._note(f"{request.url}: {request.failure}")

    def _answered(self, response: Any) -> None:
        self.answered.add(re.sub(r"\?.*", "", response.url).removeprefix(self.address))
        if response.status >= 400 and not NOT_HERE.search(response.url):
            self._note(f"{response.status} {response.url}")

    def _said(self, message: Any) -> None:
        # Angular catches what is raised, and says it here.
        known = "status of 404" in message.text or LEFT.search(message.text)
        if message.type == "error" and not known:
            self._note(f"said: {message.text}")

    def open(self, tab: str, text: str) -> None:
        """Go to a tab, and wait until it shows something; `text` is a pattern."""
        self.tab = tab
        self.page.goto(f"{self.address}/flink/#/{tab}")
        self.page.get_by_text(re.compile(text)).first.wait_for(timeout=30_000)
        self.page.wait_for_load_state("networkidle")
        assert not self.page.locator(".ant-notification-notice").count(), f"a notice on {tab}"
        if PICTURES:
            name = re.sub(r"[0-9a-f]{32}", "id", tab).replace("/", "-")
            self.page.screenshot(path=Path(PICTURES, f"{name}.png"), animations="disabled")


def test_flinks_page_shows_a_job_and_cancels_it(jar: Path, browser: Any, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir(mode=0o700)
    options = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(tmp_path / "c"),
        "millstream.rest.flink-page": str(jar),
        "web.refresh-interval": "2 s",
    }
    failed = str(tmp_path / "failed")
    with watched(options=options, rate=2000.0, fails_at=(1000,), once=failed) as (run, address):
        until(lambda: run.failures and run.metrics.checkpoint_log.completed > 5)
        server = server_of_process()
        assert server is not None
        shown = server.jobs.get(run.job.id)
        assert shown is not None
        window = shown.shape.vertices[1].id
        process = f"{os.uname().nodename}-{os.getpid()}"
        job = f"job/running/{run.job.id}"
        vertex = f"{job}/overview/{window}"
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        watch = Watch(page, address)
        for tab, text in {
            "overview": "orders by minute",
            "job/running": "orders by minute",
            f"{job}/overview": "Source: orders",
            f"{vertex}/detail": "by minute",
            f"{vertex}/subtasks": "Subtask Metrics",
            f"{vertex}/taskmanagers": "Bytes Received",
            f"{vertex}/watermarks": "Watermark",
            f"{vertex}/accumulators": "Accumulators",
            f"{vertex}/backpressure": "Back Pressure Status|Measurement",
            f"{vertex}/metrics": "Add Metric",
            f"{vertex}/flamegraph": "Flame Graph|disabled",
            f"{job}/timeline": "TimeLine",
            f"{job}/dataskew": "Data Skew",
            f"{job}/exceptions": "Root Exception",
            f"{job}/checkpoints": "Checkpoint Counts",
            f"{job}/configuration": "Execution Configuration|User Configuration",
            "task-manager": process,
            f"task-manager/{process}/metrics": "Free/All Slots",
            f"task-manager/{process}/logs": process,
            f"task-manager/{process}/stdout": process,
            f"task-manager/{process}/log-list": "Log Name",
            f"task-manager/{process}/thread-dump": process,
            f"task-manager/{process}/profiler": process,
            "job-manager/metrics": "JVM",
            "job-manager/config": "parallelism.default",
            "job-manager/logs": "Log",
            "job-manager/stdout": "Stdout",
            "job-manager/log": "millstream.log",
            "job-manager/log/millstream.log": "millstream.log",
            "job-manager/thread-dump": "Thread Dump",
            "job-manager/profiler": "Profiler",
            "submit": "Apache Flink Dashboard",
        }.items():
            watch.open(tab, text)
        watch.open(f"{job}/exceptions", "Exception History")
        page.get_by_text("Exception History").click()
        page.get_by_text("USER_FUNCTION_FAILED").first.wait_for()
        watch.open(f"{job}/checkpoints", "Checkpoint Counts")
        page.get_by_role("tab", name="History").click()
        page.get_by_text("COMPLETED").first.wait_for()
        page.locator("tr.ant-table-row button.ant-table-row-expand-icon:visible").first.click()
        page.locator("text=Checkpoint Detail >> visible=true").first.wait_for()
        page.get_by_role("tab", name="Summary").click()
        page.locator("text=End to End Duration >> visible=true").first.wait_for()
        page.get_by_role("tab", name="Configuration").last.click()
        page.locator("text=Exactly Once >> visible=true").first.wait_for()
        watch.open(f"{job}/overview", "Cancel Job")
        # Its graph has boxes and colours, which come from one request for each vertex.
        page.get_by_text(re.compile(r"Busy \(max\): \d+%")).first.wait_for()
        page.get_by_text("Cancel Job").first.click()
        page.get_by_role("button", name="Yes").click()
        assert run.wait(60)
        assert run.status.name == "CANCELED"
        watch.open("job/completed", "CANCELED")
        watch.open(f"job/completed/{run.job.id}/overview", "CANCELED")
        page.close()
        assert not watch.wrong
        assert f"/flink/jobs/{run.job.id}/yarn-cancel" in watch.answered
        assert f"/flink/jobs/{run.job.id}/vertices/{window}/subtasks/metrics" in watch.answered
