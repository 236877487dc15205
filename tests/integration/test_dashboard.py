"""The dashboard in a browser, on the server of a job that runs: what a person sees on every page, and can do there."""

from __future__ import annotations

import json
import re
import urllib.request
from importlib import import_module
from pathlib import Path

import pytest

from tests.chromium import ARGUMENTS, chromium
from tests.integration.dashboard import HOSTILE, Screen, running, watching
from tests.waiting import until

pytest.importorskip("playwright.sync_api")

PAGES = ["graph", "metrics", "checkpoints", "exceptions", "state", "log", "configuration"]


@pytest.fixture(scope="module")
def browser():
    executable = chromium()
    if executable is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()
    import_module("millstream.rest.start").stop_server()


@pytest.fixture(scope="module")
def job(browser, tmp_path_factory):
    """A job that nothing is done to."""
    with running(tmp_path_factory.mktemp("job")) as job:
        until(lambda: document(job)["checkpoints"]["counts"]["completed"] > 3)
        yield job


@pytest.fixture
def screen(browser):
    with watching(browser) as screen:
        yield screen
        assert screen.complaints == []
        assert all(host.startswith("127.0.0.1:") for host in screen.hosts - {""})


@pytest.fixture(scope="module")
def shared(browser, job):
    """A page that stays, for questions to its modules."""
    with watching(browser) as screen:
        screen.open(job.address)
        yield screen


def document(job):
    with urllib.request.urlopen(f"{job.address}/millstream/jobs/{job.jid}") as answer:
        return json.load(answer)


def number(text: str) -> float:
    return float(text.replace(",", "").split()[0])


def test_jobs_are_listed(screen: Screen, job):
    screen.open(job.address)
    row = screen.sees("tr", "readings by key")
    assert "running" in row
    assert job.jid[:8] in row
    screen.find("a", "readings by key").click()
    screen.sees("h1", "readings by key")
    assert screen.page.url == f"{job.link}/graph"


def test_the_headline_moves(screen: Screen, job):
    screen.open(job.link)
    screen.sees(".facts", "running")
    screen.sees(".facts", job.jid)
    before = number(screen.figure("Epoch"))
    until(lambda: number(screen.figure("Epoch")) > before, 30)
    until(lambda: number(screen.figure("Records/s")) > 0, 30)
    assert re.fullmatch(r"[\d.]+ (ms|s)|\d+ m \d\d s", screen.figure("Uptime"))
    assert screen.page.title() == "readings by key · running · Millstream"


def test_the_graph_has_a_box_for_each_vertex_and_rates_on_its_edges(screen: Screen, job):
    screen.open(f"{job.link}/graph")
    wanted = document(job)
    screen.sees(".vertex", "Source: readings")
    boxes = screen.page.locator(".vertex").all_text_contents()
    assert len(boxes) == len(wanted["vertices"]) == 6
    assert sum("2\N{MULTIPLICATION SIGN}" in box for box in boxes) == 4
    assert all(re.search(r"busy.*\d+ %.*pressure.*(ok|low|high) \d+ %", box) for box in boxes)
    assert screen.page.locator("path.edge").count() == len(wanted["edges"]) == 6
    labels = screen.page.locator(".edge-label").all_text_contents()
    assert sum("hash" in label for label in labels) == 2
    until(lambda: re.match(r"[1-9]\d*/s", screen.find(".edge-label", "hash").text_content() or ""))
    assert screen.page.locator(".page tbody tr").count() == 6


def test_a_vertex_is_opened_by_keyboard_and_closed_again(screen: Screen, job):
    screen.open(f"{job.link}/graph")
    screen.sees(".vertex", "sums")
    screen.find(".vertex", "sums").focus()
    screen.page.keyboard.press("Enter")
    screen.sees(".drawer h2", "sums")
    rows = screen.page.locator(".drawer [aria-label=Subtasks] tbody tr")
    assert rows.count() == 2
    screen.sees(".drawer .operator", "uid sums")
    assert re.search(r"dashboard\.py:\d+", screen.sees(".drawer .operator", "declared at"))
    until(lambda: screen.page.locator(".drawer canvas").count() == 2, 30, screen.text)
    screen.page.reload()
    screen.sees(".drawer h2", "sums")
    screen.page.keyboard.press("Escape")
    screen.misses(".drawer")
    assert screen.page.evaluate("document.activeElement.getAttribute('class')").startswith("vertex")


def test_subtasks_say_what_the_server_says(screen: Screen, job):
    vertex = next(v for v in document(job)["vertices"] if v["name"].startswith("Source: readings"))
    screen.open(f"{job.link}/graph/{vertex['id']}")
    screen.sees(".drawer h2", "Source: readings")
    shown = [
        number(row.split("\t")[6])
        for row in screen.page.locator(".drawer [aria-label=Subtasks] tbody tr").all_inner_texts()
    ]
    assert len(shown) == 2
    for subtask, count in zip(vertex["subtasks"], shown, strict=True):
        assert count >= subtask["records_in"] > 0


def test_checkpoints_are_counted_and_listed(screen: Screen, job):
    before = document(job)["checkpoints"]
    screen.open(f"{job.link}/checkpoints")
    screen.sees(".pairs", "every 200 ms")
    assert "exactly once" in screen.sees(".pairs", str(job.folder / "checkpoints"))
    assert number(screen.figure("Completed", ".page")) >= before["counts"]["completed"]
    row = screen.sees("tbody tr", "completed")
    assert re.search(r"\d+ (ms|s)\s", row)
    assert re.search(r"#[01]", row)
    assert screen.page.locator("canvas").count() == 1


def test_metrics_are_drawn_and_latency_is_told_by_sink(screen: Screen, job):
    screen.open(f"{job.link}/metrics")
    screen.sees(".chart", "Records a second")
    until(lambda: screen.page.locator(".plot canvas").count() >= 4, 30, screen.text)
    screen.sees("[aria-label='Lag by split'] tr", "0/2")
    screen.sees("[aria-label='Latency by sink'] tr", "left")
    assert re.search(r"\d+ m?s", screen.sees("[aria-label='Latency by sink'] tr", "right"))


def test_state_is_told_by_vertex(screen: Screen, job):
    screen.open(f"{job.link}/state")
    row = screen.sees("[aria-label='State by vertex'] tbody tr", "sums")
    assert re.search(r"[\d.]+ (B|KiB)", row)


def test_the_configuration_hides_secrets(screen: Screen, job):
    screen.open(f"{job.link}/configuration")
    screen.sees("tr", "execution.checkpointing.interval")
    assert "******" in screen.sees("tr", "fs.s3a.secret.key")
    assert "swordfish" not in screen.text()
    screen.sees(".pairs", "in-process")


def test_a_failure_is_shown_with_its_line_and_record(browser, tmp_path):
    with running(tmp_path) as job, watching(browser) as screen:
        screen.open(f"{job.link}/exceptions")
        screen.sees(".empty", "No failures")
        (tmp_path / "fail").touch()
        screen.sees(".badge", "1")
        said = screen.sees(".failure", "USER_FUNCTION_FAILED")
        assert f"ValueError: {HOSTILE}" in said
        assert re.search(r"dashboard\.py:\d+ in map: raise ValueError\(HOSTILE\)", said)
        assert re.search(r"Record\s+\('<key \d>', \d+, ", said)
        assert not screen.find(".failure pre").is_visible()
        screen.find(".failure summary").click()
        screen.sees(".failure pre", "declared at: ")
        until(lambda: number(screen.figure("Restarts")) == 1, 30)
        screen.sees(".facts", "running")
        screen.find("nav a", "Log").click()
        screen.sees(".log div", "the job failed and starts again")
        assert screen.complaints == []


def test_names_are_text_on_every_page(browser, tmp_path):
    with running(tmp_path, HOSTILE) as job, watching(browser) as screen:
        (tmp_path / "fail").touch()
        until(lambda: document(job)["exceptions"])
        screen.open(job.address)
        screen.sees("td, th", HOSTILE)
        screen.open(job.link)
        for page in PAGES:
            screen.turn_to(page)
            screen.sees("h1", HOSTILE)
            # The only image is the page's own.
            assert screen.page.locator("img").count() == 1
            assert screen.page.locator("main b", has_text="not bold").count() == 0
            assert screen.page.title().startswith(HOSTILE)
        vertex = next(v["id"] for v in document(job)["vertices"] if HOSTILE in v["name"])
        screen.open(f"{job.link}/graph/{vertex}")
        screen.sees(".drawer h2", HOSTILE)
        assert screen.page.locator("img").count() == 1
        assert screen.complaints == []


def test_a_savepoint_is_taken_and_its_path_told(browser, tmp_path):
    with running(tmp_path) as job, watching(browser) as screen:
        screen.open(job.link)
        screen.sees(".facts", "running")
        screen.choose("Savepoint")
        screen.choose("Take savepoint")
        screen.sees(".outcome", "Savepoint completed")
        path = screen.sees(".outcome code", "savepoint")
        assert Path(path.removeprefix("file:")).is_relative_to(tmp_path / "savepoints")
        assert Path(path.removeprefix("file:")).exists()
        screen.choose("Close")
        screen.find("nav a", "Checkpoints").click()
        screen.sees("tbody tr", "savepoint")
        assert document(job)["state"] == "RUNNING"
        assert screen.complaints == []


def test_what_is_wrong_with_a_savepoint_is_told(browser, tmp_path):
    with running(tmp_path) as job, watching(browser) as screen:
        screen.open(job.link)
        screen.sees(".facts", "running")
        screen.choose("Savepoint")
        screen.page.get_by_label("Folder").fill("/elsewhere")
        screen.choose("Take savepoint")
        assert "not below the job's folder" in screen.sees(".outcome .error", "folder")
        screen.page.keyboard.press("Escape")
        screen.misses("dialog[open]")


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_is_stopped_with_a_savepoint(browser, tmp_path, drain):
    with running(tmp_path) as job, watching(browser) as screen:
        screen.open(job.link)
        screen.sees(".facts", "running")
        screen.choose("Stop …")
        if drain:
            screen.page.get_by_label("Drain").check()
        screen.choose("Stop the job")
        screen.sees(".outcome", "The job has stopped")
        path = Path(screen.sees(".outcome code", "savepoint").removeprefix("file:"))
        assert path.exists()
        screen.choose("Close")
        screen.sees(".facts", "finished")
        assert screen.page.get_by_role("button", name="Cancel …").is_disabled()
        assert screen.complaints == []


def test_cancelling_asks_first(browser, tmp_path):
    with running(tmp_path) as job, watching(browser) as screen:
        screen.open(job.link)
        screen.sees(".facts", "running")
        screen.choose("Cancel …")
        screen.sees("dialog", "ends at once")
        screen.choose("Back")
        screen.misses("dialog[open]")
        assert document(job)["state"] == "RUNNING"
        screen.choose("Cancel …")
        screen.choose("Cancel the job")
        screen.sees(".facts", "canceled")
        screen.choose("Close")
        screen.find(".brand").click()
        screen.sees("section", "Ended")
        assert screen.complaints == []


def test_a_server_that_is_away_is_told_of_and_found_again(browser, job):
    with watching(browser) as screen:
        screen.open(f"{job.link}/graph")
        screen.sees(".vertex", "sums")
        screen.page.context.set_offline(True)
        screen.sees(".notice", "does not answer")
        assert screen.page.locator(".vertex").count() == 6
        before = number(screen.figure("Epoch"))
        screen.page.context.set_offline(False)
        screen.misses(".notice")
        until(lambda: number(screen.figure("Epoch")) > before, 30)


def test_a_page_that_nobody_sees_asks_nothing(browser, job):
    with watching(browser) as screen:
        asked: list[str] = []
        screen.page.on("request", lambda request: asked.append(request.url))
        screen.page.clock.install()
        screen.open(f"{job.link}/graph")
        screen.sees(".vertex", "sums")
        hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
        tell = "document.dispatchEvent(new Event('visibilitychange'));"
        screen.page.evaluate(hide % "true" + tell)
        # What was under way is answered; then a minute passes.
        screen.page.wait_for_load_state("networkidle")
        before = len(asked)
        screen.page.clock.run_for(60_000)
        assert len(asked) == before
        screen.page.evaluate(hide % "false" + tell)
        until(lambda: screen.page.evaluate("1") and len(asked) > before, 30)


def test_a_server_that_wants_a_token_is_given_one(browser, job):
    with watching(browser) as screen:

        def guarded(route):
            if route.request.headers.get("authorization") == "Bearer open sesame":
                route.continue_()
            else:
                route.fulfill(status=401, json={"errors": ["a token is needed"]})

        screen.page.route("**/millstream/**", guarded)
        screen.open(job.link)
        screen.sees(".token", "asks for a token")
        screen.page.get_by_label("Token").fill("open sesame")
        screen.choose("Go on")
        screen.sees("h1", "readings by key")
        screen.page.reload()
        assert "readings by key" in screen.sees("h1")


def test_a_job_that_is_not_there_is_said_not_to_be(browser, job):
    with watching(browser) as screen:
        screen.open(f"{job.address}/#/job/{'0' * 32}/graph")
        assert "All jobs" in screen.sees(".empty", "no such job")


def test_the_theme_stays(browser, job):
    with watching(browser, color_scheme="light") as screen:
        screen.open(job.link)
        screen.sees("h1", "readings by key")
        ground = "getComputedStyle(document.body).backgroundColor"
        light = screen.page.evaluate(ground)
        screen.page.get_by_label("Theme").select_option("dark")
        dark = screen.page.evaluate(ground)
        assert dark != light
        screen.page.reload()
        screen.sees("h1", "readings by key")
        assert screen.page.evaluate(ground) == dark


def test_nothing_is_cut_off_on_a_phone(browser, job):
    with watching(browser, viewport={"width": 360, "height": 740}) as screen:
        screen.open(job.link)
        for page in PAGES:
            screen.turn_to(page)
            assert screen.page.evaluate("document.documentElement.scrollWidth") == 360, page


def test_everything_is_reached_by_keyboard(screen: Screen, job):
    screen.open(f"{job.link}/graph")
    screen.sees(".vertex", "sums")
    reached = set()
    for _ in range(60):
        screen.page.keyboard.press("Tab")
        reached.add(
            screen.page.evaluate(
                "document.activeElement.getAttribute('aria-label')"
                " ?? document.activeElement.textContent"
            )
        )
    said = "\n".join(reached)
    for name in ("Savepoint", "Stop …", "Cancel …", "Checkpoints", "Vertices", "Larger", "sums,"):
        assert name in said


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("count(999999)", "999,999"),
        ("count(12345678)", "12.3 M"),
        ("count(null)", "\N{EN DASH}"),
        ("rate(0)", "0"),
        ("rate(0.01)", "<0.1"),
        ("rate(9.96)", "10"),
        ("rate(999999)", "1.00 M"),
        ("bytes(0)", "0 B"),
        ("bytes(1023.9)", "1.00 KiB"),
        ("bytes(5 * 2 ** 30)", "5.00 GiB"),
        ("share(0.999)", "100 %"),
        ("duration(999.6)", "1.0 s"),
        ("duration(59600)", "1 m 00 s"),
        ("duration(3600000)", "1 h 00 m"),
        ("duration(90000000)", "1 d 1 h"),
        ("duration(-5)", "\N{MINUS SIGN}5 ms"),
        ("ago(1000, 61000)", "1 m ago"),
        ("watermark(9223372036854775807, 0)", "end of input"),
        ("watermark(-9223372036854775808, 0)", "none"),
        ("watermark(null, 0)", "none"),
    ],
)
def test_numbers_are_written_as_people_read_them(shared, call, text):
    module = "import('/assets/format.js')"
    assert shared.page.evaluate(f"{module}.then(format => format.{call})") == text


@pytest.mark.parametrize(
    ("ui", "linked"),
    [("http://spark.example:4040", True), ("javascript:document.title='owned'", False)],
)
def test_sparks_page_is_linked_if_it_is_one(browser, job, ui, linked):
    with watching(browser) as screen:

        def changed(route):
            answer = route.fetch()
            route.fulfill(
                response=answer, json={**answer.json(), "engine": {"name": "S", "ui": ui}}
            )

        screen.page.route(f"**/millstream/jobs/{job.jid}", changed)
        screen.open(job.link)
        screen.sees(".facts", "Spark\N{RIGHT SINGLE QUOTATION MARK}s page" if linked else ui)
        links = screen.page.locator(".facts a").evaluate_all("all => all.map(a => a.href)")
        assert links == ([f"{ui}/"] if linked else [])


def test_the_stage_of_a_vertex_is_linked(browser, job):
    with watching(browser) as screen:

        def changed(route):
            answer = route.fetch()
            told = answer.json()
            told["engine"] = {"name": "Spark", "ui": "http://spark.example:4040"}
            for vertex in told["vertices"]:
                vertex["stage"] = 40 + vertex["level"]
            route.fulfill(response=answer, json=told)

        screen.page.route(f"**/millstream/jobs/{job.jid}", changed)
        screen.open(f"{job.link}/graph")
        screen.find(".vertex", "sums").click()
        screen.sees(".drawer .facts", "stage 41")
        link = screen.page.locator(".drawer .facts a").first.get_attribute("href")
        assert link == "http://spark.example:4040/stages/stage/?id=41&attempt=0"


@pytest.mark.spark
def test_a_job_on_spark_is_shown(spark, browser, tmp_path):
    options = {"execution__target": "spark", "parallelism__default": "1"}
    with running(tmp_path, "on spark", **options) as job, watching(browser) as screen:
        screen.open(f"{job.link}/graph")
        until(lambda: document(job)["checkpoints"]["counts"]["completed"] > 0, 90)
        screen.sees(".facts", "Spark 4")
        stages = {vertex["level"]: vertex["stage"] for vertex in document(job)["vertices"]}
        # Each level runs in a stage of its own, and Spark numbers those that run later higher.
        assert 0 <= stages[0] < stages[1] < stages[2]
        until(lambda: number(screen.figure("Records/s")) > 0, 60)
        screen.find(".vertex", "sums").click()
        screen.sees(".drawer [aria-label=Subtasks] tbody tr", re.compile(r" · \d+"))
        assert screen.complaints == []
