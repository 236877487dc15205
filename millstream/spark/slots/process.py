"""The life of a process that runs tasks: a connection comes, its task runs, the daemon hears that it is done."""

from __future__ import annotations

import gc
import select
import socket
from collections.abc import Callable
from importlib import import_module

from pyspark.daemon import worker as run_task

__all__ = ["DONE", "live", "stay_while"]

DONE = b"D"

_LOOK_EVERY_MS = 5_000
# Imported before the first task comes: they take a second, most of what a new process costs.
_NEEDED = ("pyspark.worker", "pyarrow", "millstream.spark.worker")

_wanted: Callable[[], bool] | None = None


def stay_while(wanted: Callable[[], bool]) -> None:
    """Have this process end, some time when it is idle, once nobody wants it any more."""
    global _wanted
    _wanted = wanted


def live(control: socket.socket, *, ahead: bool) -> int:
    """Run what comes over the control socket until it ends; the exit code. `ahead` of its first task there is time to
    import what it will need."""
    if ahead:
        for name in _NEEDED:
            import_module(name)
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while True:
        if not waiting.poll(_LOOK_EVERY_MS):
            if _wanted is not None and not _wanted():
                return 0
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            return 0
        connection = socket.socket(fileno=descriptors[0])
        # PySpark's own: reads the task, runs it, sends what is left.
        code = run_task(connection, True)
        if code:
            _drain(connection)
            return code
        connection.close()
        control.send(DONE)
        # As PySpark does after each task.
        gc.collect()


def _drain(connection: socket.socket) -> None:
    """Wait until Spark has read everything and closed: it would lose what is on its way."""
    try:
        while connection.recv(1024):
            pass
    except OSError:
        pass
