"""`kill -USR1 <pid of the program>` prints what its jobs are doing on standard error.

Only if nobody else has that signal: it is the program's to give away, and a later handler of its own takes its place.
The handler stays when the jobs have ended; the signal that would end a program then does nothing.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import weakref
from importlib import import_module
from pathlib import Path
from typing import Any

from millstream.runtime.driver.run import JobRun

__all__ = ["show_on_signal"]

_runs: weakref.WeakSet[JobRun] = weakref.WeakSet()


def show_on_signal(run: JobRun) -> None:
    """Have a job be among those that are shown. Of a program's threads only the main one may ask for signals."""
    if not hasattr(signal, "SIGUSR1") or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGUSR1) is not _handle:
        if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL or _is_caught():
            return
        signal.signal(signal.SIGUSR1, _handle)
    _runs.add(run)


def _is_caught() -> bool:
    """True if code that is not Python's, as that of `faulthandler`, waits for the signal; unknown but on Linux."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


def _handle(number: int, frame: Any) -> None:
    # The main thread may be in the middle of writing to the same terminal.
    threading.Thread(target=_show, name="millstream-figures", daemon=True).start()


def _show() -> None:
    table = import_module("millstream.reporters.table")
    for run in [run for run in list(_runs) if not run.done]:
        sys.stderr.write(table.as_text(table.document_of(run)) + "\n")
    sys.stderr.flush()
