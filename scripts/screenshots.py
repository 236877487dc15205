"""Runs a job and photographs the dashboard that shows it. Usage: python scripts/screenshots.py [--spark] [--seconds 75]

The job is that of screenshots_job.py, the pictures go to docs/images/dashboard-*.png.
"""

from __future__ import annotations

import argparse
import runpy
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from millstream.rest.start import RestServer, server_of_process  # noqa: E402
from tests.chromium import ARGUMENTS, chromium  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LARGEST = 200_000
SIZES = {"wide": (1280, 800), "tall": (1280, 1080), "phone": (390, 844)}


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
    with tempfile.TemporaryDirectory(prefix="mill-") as name, sync_playwright() as playwright:
        # A program of its own, at a place that says nothing of this machine: its lines are in the pictures.
        copy = shutil.copy(ROOT / "scripts" / "screenshots_job.py", Path(name) / "orders.py")
        job = runpy.run_path(str(copy), run_name="__main__")
        sys.argv[:] = [str(copy)]
        client = job["start"](Path(name), spark=asked.spark, rate=asked.rate)
        try:
            jid = str(client.get_job_id())
            time.sleep(asked.seconds / 2)
            fail_once(Path(name) / "fail", jid)
            time.sleep(asked.seconds / 2)
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
            photograph(browser, server().address, jid)
            browser.close()
        finally:
            client.cancel().result()
    return 0


def fail_once(marker: Path, jid: str) -> None:
    """Have the job fail, and go on as soon as it has."""
    marker.touch()
    while not (shown := server().jobs.get(jid)) or not shown.failures:
        time.sleep(0.1)
    marker.unlink()


def server() -> RestServer:
    """The server of this process."""
    found = server_of_process()
    if found is None:
        raise SystemExit("there is no REST server in this process")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
