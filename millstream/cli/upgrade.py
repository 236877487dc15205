"""`millstream run --upgrade`: a changed program takes over from the running one.

The new program is built, its Spark started, and all state of the running job opened with it, beside that job, which
notices nothing. Only if that went well is the old driver asked to hand over: it takes a savepoint, for the way back,
and ends with its checkpoints kept. The new program goes on from the last of them by the job's name, as after any death
of a driver; so whoever is killed from there on, nothing is lost.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.cli.terminal import echo, on_one_line
from millstream.errors import ConfigurationError, JobError, MillstreamError

if TYPE_CHECKING:
    from millstream.checkpoint.lease import LeaseRecord
    from millstream.runtime.driver.run import JobRun
    from millstream.storage.storage import Storage

__all__ = ["watching_over"]

_TIMEOUT = 600.0
_LOOK = 0.02


@contextlib.contextmanager
def watching_over(*, upgrade: bool) -> Iterator[None]:
    """While a program runs: its jobs say when another program has taken over from them; with `upgrade`, each takes over
    from the job of its name that runs."""
    from millstream.datastream import overrides

    runs: list[JobRun] = []

    def before_start(run: JobRun) -> None:
        runs.append(run)
        if upgrade:
            _take_over(run)

    try:
        with overrides.runs_shown_to(before_start):
            yield
    finally:
        # Not from the threads of the runs: the program may end before they have come to it.
        for run in runs:
            if run.done and run.handed_over:
                name = on_one_line(run.job.settings.name)
                echo(f"Another program has taken over the job '{name}'; this one ends.", err=True)


def _take_over(run: JobRun) -> None:
    """Return once the job may be started."""
    from millstream.checkpoint.lease import read_lease, standing
    from millstream.runtime.driver.job_folder import job_folder_name
    from millstream.storage.open import open_storage
    from millstream.storage.seal import Seal
    from millstream.storage.storage import stable

    settings = run.job.settings
    name = on_one_line(settings.name)
    if settings.checkpoint_dir is None:
        raise ConfigurationError(
            "--upgrade finds the running job in the checkpoint directory, and the program has none",
            hint="set execution.checkpointing.dir to that of the running job",
        )
    root = f"{stable(settings.checkpoint_dir).rstrip('/')}/{job_folder_name(settings.name)}"
    storage = open_storage(root, seal=Seal.of(settings.key_file))
    lease = read_lease(storage)
    if lease is None or standing(lease) == "dead":
        echo(f"No job '{name}' is running: this is an ordinary start.", err=True)
        return
    if run.leading is not None:
        run.leading.goes_on_from(lease.term)
    try:
        _prove(run, storage, lease)
        savepoint = _ask(storage, lease, settings.name, "hand-over", settings.savepoint_dir)
    except JobError as error:
        if not _has_ended(storage, lease):
            error.evidence.setdefault("upgrade", "not done; the running job goes on")
            raise
        echo(
            f"The running job has ended meanwhile, and this one goes on from its checkpoint: {error.what}",
            err=True,
        )
        return
    echo(f"Savepoint of the program before: {savepoint}", err=True)
    _say_how_long(run, storage)


def _prove(run: JobRun, storage: Storage, lease: LeaseRecord) -> None:
    from millstream.checkpoint.manifest import decode_manifest

    lent = _ask(storage, lease, run.job.settings.name, "lend", None)
    assert lent is not None
    try:
        manifest = decode_manifest(lent, storage.read(lent), storage.seal)
        run.prove(storage, manifest)
    except MillstreamError as error:
        error.evidence.setdefault("upgrade", "not done; the running job goes on")
        raise
    finally:
        storage.delete(lent)
    echo(
        f"All state of checkpoint {manifest.epoch} can be opened by this program; asking the running one to hand over.",
        err=True,
    )


def _ask(
    storage: Storage, lease: LeaseRecord, name: str, action: str, path: str | None
) -> str | None:
    from millstream.runtime.driver.requests import ask_driver

    return ask_driver(
        storage,
        lease,
        name,
        action,
        path=path,
        timeout=_TIMEOUT,
        say=lambda text: echo(text, err=True),
    )


def _has_ended(storage: Storage, lease: LeaseRecord) -> bool:
    """True if the driver that was asked will not come back. One that only seems dead keeps its lease for a while, and
    whoever starts waits for that."""
    from millstream.checkpoint.lease import LeaseWatch, read_lease, standing

    now = read_lease(storage)
    if now is None or now.owner != lease.owner:
        return now is None
    return standing(now) != "running" or LeaseWatch(storage, now).trouble() is not None


def _say_how_long(run: JobRun, storage: Storage) -> None:
    """Say, once it is known, for how long no epoch was completed."""
    from millstream.checkpoint.manifest import list_epochs, read_manifest

    epochs = list_epochs(storage)
    if not epochs:
        return
    since = read_manifest(storage, epochs[-1]).created_at

    def look() -> None:
        while not run.done:
            metrics = run.metrics
            if metrics is not None and metrics.checkpoints:
                seconds = time.time() - since
                # In one piece, and to what stands above a line of progress if there is one.
                sys.stderr.write(f"The upgrade is done: {seconds:.1f} s without an epoch.\n")
                return
            time.sleep(_LOOK)

    threading.Thread(target=look, name="millstream-upgrade", daemon=True).start()
