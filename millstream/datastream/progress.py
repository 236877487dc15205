"""A line on the terminal while a job runs: epoch, records, records a second, and what keeps it back."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.common.constants import MAX_TIME
from millstream.common.job_status import JobStatus
from millstream.errors import MillstreamError
from millstream.redaction import shown
from millstream.runtime.driver.job import JobSettings
from millstream.runtime.driver.metrics import JobMetrics
from millstream.runtime.driver.run import JobRun

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["describe", "is_shown", "lasting", "progress_of", "say", "steady_console"]

# From this share of the time on waiting for others is worth a word, as in Flink's REST.
_BACK_PRESSURED = 0.1


def describe(run: JobRun) -> str:
    """What a job is doing, in one line."""
    return " ".join(shown(_describe(run)).split())


def _describe(run: JobRun) -> str:
    metrics = run.metrics
    name = run.job.settings.name
    if run.leading is not None and run.leading.standing_by is not None:
        return run.leading.standing_by
    if run.status is JobStatus.RESTARTING:
        return _restarting(run)
    if metrics is None or metrics.epoch < 0:
        return f"{name}: starting"
    text = (
        f"{name}: epoch {metrics.epoch}, {metrics.records:,} records, "
        f"{metrics.records_per_second:,.0f}/s"
    )
    if run.done:
        # Where a job stands that is over is no news, and its page may be gone with the process.
        left = sum(metrics.waiting.values())
        return f"{text}, {left:,} windows or timers of processing time not due" if left else text
    news = [_lag(metrics), _watermark(metrics), _bottleneck(metrics), run.web_address]
    return ", ".join(filter(None, [text, *news]))


def _lag(metrics: JobMetrics) -> str | None:
    if not metrics.backlog:
        return None
    # Copies, which another thread does not lengthen.
    lags = [split for splits in list(metrics.lag.values()) for split in list(splits.items())]
    behind = {split: lag for split, lag in lags if lag}
    worst = max(behind, key=lambda split: behind[split], default="")
    of = f" in {len(behind)} splits, most {behind[worst]:,} in {worst}" if len(behind) > 1 else ""
    return f"lag {metrics.backlog:,}{of}"


def _watermark(metrics: JobMetrics) -> str | None:
    lowest = min(list(metrics.watermarks.values()), default=MAX_TIME)
    if lowest >= MAX_TIME:
        return None
    return f"watermark {lasting(time.time() - lowest / 1000)} behind"


def _bottleneck(metrics: JobMetrics) -> str | None:
    """The vertex that others wait for: that with the busiest subtask."""
    if not metrics.backlog:
        # What was waited for lately is done with.
        return None
    rates = {
        vertex.name: [subtask.per_second for subtask in vertex.subtasks]
        for vertex in metrics.vertices.values()
    }
    waiting = max(rate["back_pressured"] for of in rates.values() for rate in of)
    if waiting < _BACK_PRESSURED:
        return None
    busy, name = max((max(rate["busy"] for rate in of), name) for name, of in rates.items())
    return f"back pressure {waiting:.0%}, held up by {name} ({busy:.0%} busy)"


def lasting(seconds: float) -> str:
    """A length of time for people.

    >>> lasting(0.25), lasting(3.21), lasting(200), lasting(9000), lasting(1e6)
    ('0.2 s', '3.2 s', '3 min', '2.5 h', '12 d')
    """
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    if abs(seconds) < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if abs(seconds) < 2 * 86400 else f"{seconds / 86400:.0f} d"


def _restarting(run: JobRun) -> str:
    """A job that has failed and tries again says so, and why: it may do so for long."""
    times = 0 if run.metrics is None else run.metrics.restarts
    left = run.restart_at - time.monotonic()
    when = f"in {left:.0f} s" if left > 0 else "now"
    failure = run.failure
    why = failure.what if isinstance(failure, MillstreamError) else str(failure)
    code = failure.code if isinstance(failure, MillstreamError) else type(failure).__name__
    return f"{run.job.settings.name}: restarting {when} (attempt {times + 1}) after [{code}] {why}"


def is_shown(settings: JobSettings) -> bool:
    """Whether progress is shown: by default, if there is a terminal."""
    return settings.progress == "true" or (settings.progress == "auto" and sys.stderr.isatty())


def say(settings: JobSettings, text: str) -> None:
    """A line about a job on standard error, whether that is a terminal or a log."""
    if settings.progress != "false" and sys.stderr is not None:
        sys.stderr.write(shown(f"{settings.name}: {text}") + "\n")
        sys.stderr.flush()


def steady_console(*, stderr: bool = False) -> Console:
    """A terminal whose cursor stays as it is: after a kill nobody could bring it back."""
    from rich.console import Console

    console = Console(stderr=stderr)
    console.show_cursor = lambda show=True: False  # type: ignore[method-assign]
    return console


@contextmanager
def progress_of(run: JobRun) -> Iterator[None]:
    """Show progress on standard error while the block runs; nothing if that is not a terminal."""
    if not is_shown(run.job.settings):
        yield
        return
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    console = steady_console(stderr=True)
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
