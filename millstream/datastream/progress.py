"""A line on the terminal while a job runs: epoch, records, records a second, lag."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.common.job_status import JobStatus
from millstream.errors import MillstreamError
from millstream.redaction import shown
from millstream.runtime.driver.run import JobRun

__all__ = ["describe", "progress_of"]


def describe(run: JobRun) -> str:
    """What a job is doing, in one line."""
    return " ".join(shown(_describe(run)).split())


def _describe(run: JobRun) -> str:
    metrics = run.metrics
    name = run.job.settings.name
    if run.status is JobStatus.RESTARTING:
        return _restarting(run)
    if metrics is None or metrics.epoch < 0:
        return f"{name}: starting"
    text = (
        f"{name}: epoch {metrics.epoch}, {metrics.records:,} records, "
        f"{metrics.records_per_second:,.0f}/s"
    )
    if not metrics.backlog:
        return text
    behind = {split: lag for lags in metrics.lag.values() for split, lag in lags.items() if lag}
    worst = max(behind, key=lambda split: behind[split], default="")
    of = f" in {len(behind)} splits, most {behind[worst]:,} in {worst}" if len(behind) > 1 else ""
    return f"{text}, lag {metrics.backlog:,}{of}"


def _restarting(run: JobRun) -> str:
    """A job that has failed and tries again says so, and why: it may do so for long."""
    times = 0 if run.metrics is None else run.metrics.restarts
    left = run.restart_at - time.monotonic()
    when = f"in {left:.0f} s" if left > 0 else "now"
    failure = run.failure
    why = failure.what if isinstance(failure, MillstreamError) else str(failure)
    code = failure.code if isinstance(failure, MillstreamError) else type(failure).__name__
    return f"{run.job.settings.name}: restarting {when} (attempt {times + 1}) after [{code}] {why}"


@contextmanager
def progress_of(run: JobRun) -> Iterator[None]:
    """Show progress on standard error while the block runs; nothing if that is not a terminal."""
    setting = run.job.settings.progress
    if setting == "false" or (setting == "auto" and not sys.stderr.isatty()):
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = Console(stderr=True)
    stop = threading.Event()
    spinner = Spinner("dots", Text(describe(run)))
    # Results printed to the same terminal go above the line; those in a pipe stay there.
    shared = sys.stdout.isatty()
    with Live(spinner, console=console, transient=True, redirect_stdout=shared):

        def update() -> None:
            while not stop.wait(0.2):
                spinner.update(text=Text(describe(run)))

        thread = threading.Thread(target=update, name="millstream-progress", daemon=True)
        thread.start()
        started = time.monotonic()
        try:
            yield
        finally:
            stop.set()
            thread.join()
    console.print(Text(f"{describe(run)}, {time.monotonic() - started:.1f} s"), highlight=False)
