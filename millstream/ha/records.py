"""What the drivers of a job leave each other in the folder of their high availability.

```
<storage dir>/<cluster id>/<name>/
  leader/       the election, if it is by files
  run.json      that a run of the job is under way, and who has begun it last
  result.json   how the last run has ended
```

Answers to Flink's `JobResultStore`. A result is *dirty* until what the job has left behind is cleaned up: whoever is
elected then finishes that and does not run the job. A driver that has found a clean result when it was started takes
it for that of an earlier run.
"""

from __future__ import annotations

import uuid
from typing import TypeVar

import msgspec

from millstream.storage.storage import Storage

__all__ = ["JobRecords", "JobResult", "RunRecord", "new_id"]

R = TypeVar("R", bound=msgspec.Struct)
"""A kind of record."""

_RUN = "run.json"
_RESULT = "result.json"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is under way: where its checkpoints are, and who leads it since when. `epoch` is the last checkpoint
    that there was at that time."""

    id: str
    job_name: str
    job_id: str
    folder: str
    term: int
    leader: str
    epoch: int | None = None
    at: float = 0.0


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run has ended: FINISHED, CANCELED or FAILED, with the error as text that `millstream.errors.decode`
    reads. `handed_over`: another program goes on from its checkpoints, which stay, in another run than `run`."""

    id: str
    status: str
    term: int
    leader: str
    job_id: str = ""
    error: str = ""
    handed_over: bool = False
    run: str = ""
    dirty: bool = True
    at: float = 0.0


class JobRecords:
    """Reads and writes them. Only a leader may write, after a check of its term."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @property
    def root(self) -> str:
        """Where they are."""
        return self._storage.root

    def run(self) -> RunRecord | None:
        """The run that is under way, if any driver has begun one."""
        return self._read(_RUN, RunRecord)

    def result(self) -> JobResult | None:
        """How the last run has ended; None if none has since there is high availability."""
        return self._read(_RESULT, JobResult)

    def begin(self, run: RunRecord) -> None:
        """A run is under way, under a new leader."""
        self._write(_RUN, run)

    def forget_run(self) -> None:
        """No run is under way."""
        self._storage.delete(_RUN)

    def end(self, result: JobResult) -> None:
        """A run has ended."""
        self._write(_RESULT, result)

    def clean(self, result: JobResult) -> None:
        """What a run has left behind is cleaned up."""
        self._write(_RESULT, msgspec.structs.replace(result, dirty=False))
        self.forget_run()

    def _read(self, name: str, kind: type[R]) -> R | None:
        try:
            return msgspec.json.decode(self._storage.read(name), type=kind)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _write(self, name: str, record: msgspec.Struct) -> None:
        self._storage.write(name, msgspec.json.encode(record))


def new_id() -> str:
    """What tells a run or a result from all others."""
    return uuid.uuid4().hex
