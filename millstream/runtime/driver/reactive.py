"""Reactive mode: a job's parallelism follows the slots that there are (Flink's `scheduler-mode: reactive`).

A thread of the driver asks the engine how many tasks it can run at the same time. Once that has been another number
than the job's parallelism for a while, the job is rescaled to it from its checkpoint, as if somebody had asked for it.
An executor that is lost fails tasks, which the engine runs again elsewhere, and at worst an attempt of the job; the
parallelism follows when the number of slots has settled. While there is no slot at all the job waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from millstream.errors import ConfigurationError, MillstreamError
from millstream.redaction import get_logger
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.rescale import Rescales, check_rescales

__all__ = ["SlotWatch", "at_slots", "check_reactive", "follow_slots"]

_log = get_logger("millstream.job")

_LOOK = 0.5
_OPTION = "scheduler-mode: reactive"

Slots = Callable[[], int | None]


class SlotWatch:
    """Decides when the number of slots has settled; knows no clock but what it is told.

    >>> watch = SlotWatch(2, settle=10, pause=0)
    >>> (
    ...     watch.look(4, now=100),
    ...     watch.look(3, now=105),
    ...     watch.look(3, now=114),
    ...     watch.look(3, now=115),
    ... )
    (None, None, None, 3)
    """

    def __init__(self, parallelism: int, *, settle: float, pause: float) -> None:
        self._now_at = parallelism
        self._settle = settle
        self._pause = pause
        self._seen = parallelism
        self._since = 0.0
        self._changed = float("-inf")

    def look(self, slots: int, now: float) -> int | None:
        """There are so many slots now: the parallelism to change to, if it is time."""
        if slots != self._seen:
            self._seen, self._since = slots, now
        if slots < 1 or slots == self._now_at:
            return None
        settled = now - self._since >= self._settle
        return slots if settled and now - self._changed >= self._pause else None

    def changed(self, parallelism: int, now: float) -> None:
        """Somebody has tried to change to this parallelism, successfully or not."""
        self._now_at, self._changed = parallelism, now


def check_reactive(job: Job, slots: Slots) -> None:
    """Raise if a job cannot be run in reactive mode."""
    try:
        check_rescales(job)
    except MillstreamError as error:
        raise ConfigurationError(
            f"{_OPTION} is for jobs that have checkpoints: {error.what}",
            hint="leave scheduler-mode out, or set execution.checkpointing.interval for a streaming job",
        ) from error
    if slots() is None:
        raise ConfigurationError(
            f"{_OPTION} needs executors that come and go, and with a local master, or in one process, there are none",
            hint="run the job on a cluster (-Dspark.master=spark://...), or leave scheduler-mode out",
        )


def at_slots(job: Job, slots: Slots, cancelled: threading.Event) -> Job:
    """The job at the parallelism of the slots that there are, once there is one and their number has settled."""
    settle = job.settings.slots_settle_at_start
    seen, since, said = slots() or 0, time.monotonic(), False
    while seen < 1 or time.monotonic() - since < settle:
        if seen < 1 and not said:
            said = True
            _log.info("the job waits for an executor")
        if cancelled.wait(min(_LOOK, settle) or _LOOK):
            break
        now = slots() or 0
        if now != seen:
            seen, since = now, time.monotonic()
    _log.info("the job begins at %d, as many slots as there are", max(1, seen))
    return job.at_parallelism(max(1, seen), everything=True)


def follow_slots(rescales: Rescales, slots: Slots) -> None:
    """Rescale a job whenever its slots have settled, from a thread, until the job is over."""
    threading.Thread(
        target=_follow, args=(rescales, slots), name="millstream-reactive", daemon=True
    ).start()


def _follow(rescales: Rescales, slots: Slots) -> None:
    job = rescales.job
    settings = job.settings
    watch = SlotWatch(
        job.graph.parallelism, settle=settings.slots_settle, pause=settings.rescale_pause
    )
    while not rescales.closed.wait(_LOOK):
        try:
            there = slots() or 0
        except Exception as error:  # of any class a gateway has
            _log.debug("the engine does not say how many slots it has: %s", error)
            continue
        wanted = watch.look(there, time.monotonic())
        if wanted is None:
            continue
        _log.info("there are %d slots now, and the job is rescaled to them", wanted)
        try:
            rescales.ask(wanted, everything=True).result()
        except Exception as error:
            # It goes on as it was; the next look may find other slots.
            _log.warning("the job stays at %d: %s", rescales.job.graph.parallelism, error)
        watch.changed(wanted, time.monotonic())
