"""The life of a process that runs tasks: a connection comes, its task runs, the daemon hears that it is done."""

from __future__ import annotations

import gc
import select
import socket
from collections.abc import Callable
from importlib import import_module

from pyspark.daemon import worker as run_task

__all__ = ["DONE", "FREE", "live", "prepare", "stay_while"]

DONE, FREE = b"D", b"F"
"""What a process says: its task is done; the job that it has worked for is over."""

_LOOK_EVERY_MS = 5_000
_NEEDED = ("pyspark.worker", "pyarrow", "millstream.spark.worker")

_wanted: Callable[[], bool] | None = None


def stay_while(wanted: Callable[[], bool]) -> None:
    """Have this process say, some time when it is idle, that nobody wants it any more."""
    global _wanted
    _wanted = wanted


def prepare() -> None:
    """Import what every task needs, which takes a second or two: in the daemon, so that what it forks has it. The
    threads that this starts (of pools of NumPy and PyArrow, all idle) are not in the forked process, where either
    library starts its own when it wants some."""
    for name in _NEEDED:
        import_module(name)
    # What is there now stays: looking through it in each process would copy its pages.
    gc.collect()
    gc.freeze()


def live(control: socket.socket) -> int:
    """Run what comes over the control socket until it ends; the exit code."""
    global _wanted
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while True:
        if not waiting.poll(_LOOK_EVERY_MS):
            if _wanted is not None and not _wanted():
                _wanted = None
                control.send(FREE)
            continue
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            return 0
        connection = socket.socket(fileno=descriptors[0])
        try:
            # PySpark's own: reads the task, runs it, sends what is left.
            code = run_task(connection, True)
        except ConnectionError:
            # Spark has given the task up and closed its end: there is nobody to tell.
            return 1
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
