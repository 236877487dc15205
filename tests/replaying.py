"""What tests of replays share: jobs that are recorded while they run, and replays that are held against the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from millstream.checkpoint.manifest import read_manifest
from millstream.datastream import overrides
from millstream.runtime.driver.epochs import EpochDriver
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.job_folder import JobFolder, job_folder_name
from millstream.runtime.driver.muted import muted_sinks
from millstream.runtime.driver.plan_file import read_plan, replayable
from millstream.runtime.driver.replay import Replay, replay_epoch
from millstream.runtime.operators.watching import Watcher
from millstream.runtime.state.changes import changes
from millstream.runtime.wire.codec import decode
from millstream.runtime.wire.rows import client_node
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage

KEEP_ALL = {"execution__checkpointing__num_retained": 1000}
"""So that every epoch can be replayed."""


class Recorded:
    """By epoch and sink, what jobs have delivered: their records as text."""

    def __init__(self) -> None:
        self.outputs: dict[int, dict[str, Counter[str]]] = {}

    def take(self, driver: EpochDriver, epoch: int) -> None:
        """An epoch is complete and is about to be delivered."""
        # A restart delivers what the attempt before it has left, mostly nothing.
        if driver._ran != epoch or epoch in self.outputs:
            return
        sinks = self.outputs[epoch] = {}
        for row in driver._rows:
            node = client_node(row.edge)
            assert node is not None
            uid = driver._job.graph.nodes[node].uid
            sinks.setdefault(uid, Counter()).update(map(repr, decode(row.payload).records))


@contextmanager
def recording() -> Iterator[Recorded]:
    """Record every job that runs meanwhile; checkpoints stay where they are when it ends."""
    recorded = Recorded()
    deliver = EpochDriver._deliver

    def noting(driver: EpochDriver, command: Any) -> None:
        recorded.take(driver, command.manifest.epoch)
        deliver(driver, command)

    with (
        patch.object(EpochDriver, "_deliver", noting),
        patch.object(JobFolder, "_remove_all", lambda self, epochs: None),
    ):
        yield recorded


def job_of(program: Callable[[], Any]) -> Job:
    """The job that a program would run."""
    jobs: list[Job] = []
    overrides.set_job_only(jobs.append)
    try:
        program()
    except overrides.PlanReady:
        pass
    finally:
        overrides.set_job_only(None)
    return jobs[0]


def folder_of(directory: Any, name: str = "job") -> Storage:
    """The folder of a job."""
    return open_storage(f"{directory}/{job_folder_name(name)}")


def replayed(job: Job, storage: Storage, epoch: int) -> Replay:
    """An epoch again, with all that reached sinks kept."""
    return replay_epoch(job, storage, epoch, Watcher(muted_sinks(job), None, repr))


def check_epochs(
    storage: Storage, jobs: Sequence[Job], recorded: Recorded, most: int | None = None
) -> int:
    """Replay the epochs of a folder, `most` of them at most; each does what the first run did. Their number."""
    epochs = replayable(storage)
    if most is not None and len(epochs) > most:
        # Spread over all of them, the first and the last included.
        epochs = [epochs[n * (len(epochs) - 1) // (most - 1)] for n in range(most)]
    for epoch in epochs:
        check_epoch(storage, jobs, recorded, epoch)
    return len(epochs)


def check_epoch(storage: Storage, jobs: Sequence[Job], recorded: Recorded, epoch: int) -> Replay:
    """Replay one epoch with the job that has run it, and hold it against the first run."""
    plan = read_plan(storage, epoch - 1) or read_plan(storage, None)
    assert plan is not None
    laid_out = [
        job
        for job in jobs
        if {n.uid: n.parallelism for n in job.graph.nodes.values()} == plan.operators
    ]
    before = {name: storage.size(name) for name in everything(storage)}
    replay = replayed(laid_out[0], storage, epoch)
    assert {name: storage.size(name) for name in everything(storage)} == before
    assert replay.error is None, f"epoch {epoch}: {replay.error}"
    if epoch not in recorded.outputs:
        # It failed in the first run, and a job of another layout went on in its place.
        assert not replay.completed
        return replay
    sinks = muted_sinks(replay.job)
    taken = {
        uid: Counter(seen.records) for uid, seen in replay.watcher.taken.items() if uid in sinks
    }
    assert {uid: came for uid, came in taken.items() if came} == recorded.outputs[epoch]
    assert replay.completed
    assert not replay.differences
    assert not replay.counts
    base = None if plan.base is None else read_manifest(storage, plan.base)
    done = changes(storage, base, read_manifest(storage, epoch), without=sinks)
    assert sorted(map(repr, replay.changes)) == sorted(map(repr, done))
    return replay


def everything(storage: Storage, folder: str = "") -> Iterator[str]:
    """The names of all files."""
    for name in storage.list(folder):
        path = f"{folder}/{name}" if folder else name
        if storage.exists(path):
            yield path
        else:
            yield from everything(storage, path)
