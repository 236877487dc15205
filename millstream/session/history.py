"""The jobs of a session that have ended, in files that stay when the session is gone (Flink's `HistoryServer`)."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from millstream.storage.storage import Storage

__all__ = ["JobHistory", "JobRecord"]

_HISTORY = "history"
_ARCHIVE = "archive"


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job: what it is called, how it stands or has ended, its last figures. Times are in seconds since 1970."""

    id: str
    name: str
    status: str
    program: str
    submission: str
    started_at: float
    ended_at: float | None = None
    error: str | None = None
    epoch: int = -1
    records: int = 0
    records_per_second: float = 0.0
    checkpoint: int = -1
    checkpoint_path: str | None = None
    restarts: int = 0
    log: str = ""


class JobHistory:
    """Writes a record for each job, and forgets the oldest of more than `kept`."""

    def __init__(self, storage: Storage, kept: int = 200) -> None:
        self._storage = storage
        self._kept = kept
        self._lock = threading.Lock()

    def add(self, record: JobRecord) -> list[JobRecord]:
        """Keep a record; those that are forgotten for it."""
        with self._lock:
            self._storage.write(_name(record), msgspec.json.encode(record))
            records = self.all()
            forgotten = records[: max(0, len(records) - self._kept)]
            for old in forgotten:
                self._storage.delete(_name(old))
                self._storage.delete(f"{_ARCHIVE}/{old.id}.json")
            return forgotten

    def all(self) -> list[JobRecord]:
        """All records, the oldest first."""
        found = []
        for name in self._storage.list(_HISTORY):
            try:
                data = self._storage.read(f"{_HISTORY}/{name}")
                found.append(msgspec.json.decode(data, type=JobRecord))
            except (FileNotFoundError, msgspec.DecodeError):
                # Forgotten meanwhile, or of another version.
                continue
        return sorted(found, key=lambda record: record.ended_at or record.started_at)

    def archive(self, id_: str, documents: dict[str, Any]) -> None:
        """Keep what REST answers for a job, by path, as Flink's archives do."""
        self._storage.write(f"{_ARCHIVE}/{id_}.json", msgspec.json.encode(documents))

    def document(self, id_: str, path: str) -> msgspec.Raw | None:
        """What REST answered for a job that has ended."""
        try:
            data = self._storage.read(f"{_ARCHIVE}/{id_}.json")
            return msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get(path)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


def _name(record: JobRecord) -> str:
    return f"{_HISTORY}/{record.id}.json"
