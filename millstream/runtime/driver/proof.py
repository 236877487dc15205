"""Shows, before a running job is stopped, that another program can go on from its checkpoint.

```
the running job ──▶ lends its latest checkpoint: nothing of it is removed meanwhile
the new program ──▶ opens all of its state and all of its functions in an epoch that reads nothing
sinks           ──▶ muted: no writer is made, nothing is committed
what is written ──▶ goes to a folder of its own, which is removed
```

No lease is taken, no source is asked for splits, and nothing in the job's folder is changed.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from millstream.checkpoint.manifest import Manifest, write_manifest
from millstream.checkpoint.restore import check_fits, restored_manifest
from millstream.errors import StateError
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.muted import muted, muted_sinks, without_states
from millstream.runtime.driver.rescale import wished
from millstream.runtime.task.spec import JobSpec
from millstream.runtime.wire.ranges import SubtaskRanges
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage, stable

__all__ = ["RunEmptyEpoch", "prove"]

_FOLDER = ".proofs"
# What a process that was killed has left is removed after so many seconds.
_LITTER = 24 * 3600

RunEmptyEpoch = Callable[[Job, JobSpec, int, Sequence[SubtaskRanges]], Iterable[object]]


def prove(job: Job, storage: Storage, manifest: Manifest, run: RunEmptyEpoch) -> None:
    """Raise what the job would fail with if it went on from a checkpoint of the folder `storage`. `run` runs the tasks
    of an epoch."""
    maximums = {uid: info.max_parallelism for uid, info in manifest.operators.items()}
    job = wished(storage, job.with_max_parallelism(maximums), by_name=True, forget=False)
    # A name of its own: what a backend keeps on a host is shared by the tasks of a job, and this is another one.
    layout = job.layout(uuid.uuid4().hex)
    where = f"checkpoint {manifest.epoch} of '{job.settings.name}'"
    check_fits(manifest, layout, where=where, allow_non_restored=job.settings.allow_non_restored)
    begin = restored_manifest(manifest, layout, epoch=manifest.epoch + 1, root=storage.root)
    begin = msgspec.structs.replace(begin, committables={}, feedback={}, extra={})
    begin = without_states(begin, muted_sinks(job))
    with _folder_for(job, storage) as folder:
        write_manifest(folder, begin)
        job = muted(job)
        spec = job.spec(
            folder.root,
            job_id=layout.job_id,
            durable=False,
            first_epoch=begin.epoch + 1,
            base_epoch=begin.epoch,
            restored=True,
        )
        reports = list(run(job, spec, begin.epoch + 1, _nothing(job)))
    if not reports:
        raise StateError(f"{where} was opened by nobody")


def _nothing(job: Job) -> list[SubtaskRanges]:
    """The reading of an epoch that reads nothing but reaches every source."""
    return [
        SubtaskRanges(source.vertex, subtask, (), False)
        for source in job.split_sources
        for subtask in range(source.parallelism)
    ]


@contextlib.contextmanager
def _folder_for(job: Job, storage: Storage) -> Iterator[Storage]:
    """A folder in the checkpoint directory, which all hosts of a cluster see."""
    assert job.settings.checkpoint_dir is not None
    base = f"{stable(job.settings.checkpoint_dir).rstrip('/')}/{_FOLDER}"
    proofs = open_storage(base)
    for name in proofs.list(""):
        begun = name.partition("-")[0]
        if begun.isdigit() and time.time() - int(begun) > _LITTER:
            proofs.delete_tree(name)
    own = f"{int(time.time())}-{uuid.uuid4().hex}"
    try:
        yield open_storage(f"{base}/{own}", durable=False, seal=storage.seal)
    finally:
        # What cannot be removed now is removed another time.
        with contextlib.suppress(OSError):
            proofs.delete_tree(own)
