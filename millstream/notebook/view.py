"""`LiveView`: a stream that runs, as a table and a chart that follow it (what `DataStream.show` gives back).

The driver's thread hands over records as they come, as it does for `collect`; the view keeps the last ones. A second
thread draws a few times a second, if there is something new. The cell that called `show` is long done, so that the
notebook goes on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from millstream.common.job_client import JobClient
from millstream.common.notebook import table
from millstream.errors import InvalidArgument, MillstreamError, shortly, told
from millstream.notebook.chart import Fields, chart
from millstream.notebook.fields import table_of
from millstream.notebook.screen import open_screen
from millstream.runtime.base.text import shorten
from millstream.runtime.driver.run import JobRun

__all__ = ["LiveView"]

# Of a value in the table.
MOST_LETTERS = 400


class Screen(Protocol):
    """Where a view is drawn."""

    button: Any

    def draw(self, content: str) -> None: ...
    def end(self) -> None: ...


class LiveView:
    """A running stream in a notebook; made by `stream.show()`.

    `stop()` cancels the job, `wait()` waits for its end, `frame()` has the records as a pandas frame, and `client`
    takes savepoints.
    """

    def __init__(
        self, rows: int, keep: int, every: float, x: Fields, y: str | None, by: str | None
    ) -> None:
        for name, number in (("rows", rows), ("keep", keep)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise InvalidArgument(f"{name} must be 1 or more", got=repr(number))
        if every <= 0:
            raise InvalidArgument("it can be drawn every 1 ms, or less often", every=f"{every} s")
        if y is None and (x is not None or by is not None):
            raise InvalidArgument("a chart needs a field to draw", hint="show(y=...)")
        self._rows, self._every = rows, every
        self._axes = (y, x, by)
        self._kept: deque[Any] = deque(maxlen=max(keep, rows))
        self._rates: deque[tuple[float, float]] = deque(maxlen=keep)
        self._lock = threading.Lock()
        self._drawing = threading.Lock()
        self._waiting = threading.Event()
        self._drawn = -1
        self._began = self._measured_at = 0.0
        self._measured = 0
        self.count = 0
        """How many records have come."""
        self._run: JobRun
        self._screen: Screen
        self.client: JobClient
        """The job, for `trigger_savepoint`, `stop_with_savepoint` and `get_job_status`."""

    def __repr__(self) -> str:
        name = self._run.job.settings.name
        return f"<LiveView of '{name}': {self._run.status.name}, {self.count:,} records>"

    # -- the job's side ---------------------------------------------------------------------------------

    def take(self, records: list[Any]) -> None:
        """Keep the last records; called by the driver."""
        with self._lock:
            self._kept.extend(records)
            self.count += len(records)

    def open(self, screen: Callable[[Callable[[], None]], Screen] = open_screen) -> None:
        """Find a place to draw, or say that there is none, before anything runs."""
        self._screen = screen(self._cancel)

    def begin(self, run: JobRun) -> None:
        """Start the run, and draw it from now on."""
        self._run = run
        self.client = JobClient(run.job.id, run.job.settings.name, run)
        run.start()
        self._began = self._measured_at = time.monotonic()
        self._rates.append((0.0, 0.0))
        threading.Thread(target=self._follow, name="millstream-show", daemon=True).start()

    # -- the user's side --------------------------------------------------------------------------------

    def records(self) -> list[Any]:
        """The last records: as many as `keep` said."""
        with self._lock:
            return list(self._kept)

    def frame(self) -> Any:
        """The last records as a pandas frame."""
        import pandas as pd

        names, rows = table_of(self.records())
        return pd.DataFrame(rows, columns=names)

    def stop(self) -> LiveView:
        """Cancel the job, wait until it has ended, and draw it once more."""
        self._cancel()
        return self.wait()

    def wait(self, seconds: float | None = None) -> LiveView:
        """Draw until the job has ended, or for so many seconds. Raises what the job failed with; Ctrl-C (the notebook's
        button to interrupt) leaves the job running."""
        until = None if seconds is None else time.monotonic() + seconds
        self._waiting.set()
        try:
            while not self._run.wait(self._pause(until)):
                self._draw()
                if until is not None and time.monotonic() >= until:
                    return self
        finally:
            self._waiting.clear()
        self._draw(again=True)
        if self._run.error is not None:
            error = self._run.error
            raise shortly(error) if isinstance(error, MillstreamError) else error
        return self

    def _pause(self, until: float | None) -> float:
        left = self._every if until is None else until - time.monotonic()
        return max(0.0, min(self._every, left))

    def _cancel(self) -> None:
        if not self._run.done:
            self._run.cancel()

    # -- drawing ----------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while not self._run.wait(self._every):
            # Whoever waits draws: what comes from the thread of a cell belongs to that cell, also in a saved notebook.
            if not self._waiting.is_set():
                self._draw()
        if not self._waiting.is_set():
            self._draw(again=True)

    def _draw(self, again: bool = False) -> None:
        with self._drawing:
            count = self.count
            self._measure(count)
            if count != self._drawn or again or self._run.done:
                self._drawn = count
                self._screen.draw(self.html())
            if self._run.done:
                self._screen.end()

    def _measure(self, count: int) -> None:
        """Add to the chart of records a second."""
        now = time.monotonic()
        passed = now - self._measured_at
        if passed >= self._every / 2:
            self._rates.append((now - self._began, (count - self._measured) / passed))
            self._measured_at, self._measured = now, count

    def html(self) -> str:
        """What is drawn: the job in a line, a chart, the last records."""
        records = self.records()
        names, shown = table_of(records[-self._rows :])
        name, status = self._run.job.settings.name, self._run.status.name
        caption = f"{name}: {status}, {self.count:,} records"
        if self._run.error is not None:
            caption += f", {str(self._run.error).splitlines()[0]}"
        elif not self._run.done and self._screen.button is None:
            caption += "; stop() ends it"
        cells = [list(map(_cell, row)) for row in shown]
        return f"<div>{self._picture(records)}\n{table(caption, names, cells)}</div>"

    def _picture(self, records: list[Any]) -> str:
        y, x, by = self._axes
        if y is None:
            rates = [{"second": at, "rate": rate} for at, rate in list(self._rates)]
            return chart(rates, "rate", "second", title="records a second").svg()
        try:
            return chart(records, y, x, by).svg()
        # Whatever a record is or does: the table is still worth drawing, and so is the next picture.
        except Exception as error:
            return table("no chart", (), [[_cell(told(error))]])


def _cell(value: Any) -> str:
    """A value as text that is never too long for a table, and that can be sent."""
    try:
        text = str(value)
    except Exception:
        text = shorten(value)
    if len(text) > MOST_LETTERS:
        text = f"{text[:MOST_LETTERS]}… ({len(text):,} characters)"
    return text.encode(errors="replace").decode()
