"""The programs that a session is to run, in files: what it was given, so that a later session can start them again.

One file for each, `submitted/<id>.json`, and the packages they name, `packages/<name>.zip`, in any storage. A program
has a file from the moment it is taken until it has ended; what is found at a start was running when a session died.
"""

from __future__ import annotations

import msgspec

from millstream.redaction import get_logger
from millstream.session.programs import SubmittedProgram
from millstream.storage.storage import Storage

__all__ = ["Registry", "Submission"]

_log = get_logger("millstream.session")

_SUBMITTED = "submitted"
_PACKAGES = "packages"


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A program that a session was given. `program` is as it was packed; `checkpointed` says that its job has written a
    checkpoint of its own, which is where it goes on from, wherever it was told to begin."""

    id: str
    program: SubmittedProgram
    package: str
    submitted_at: float
    checkpointed: bool = False
    job: str | None = None
    """The id of its first job, which stays the same when it is started again."""


class Registry:
    """The files of programs that have not ended."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(self, submission: Submission, package: bytes) -> None:
        """Note a program; first its package, so that what is noted can run."""
        name = f"{_PACKAGES}/{submission.package}.zip"
        if not self._storage.exists(name):
            self._storage.write(name, package)
        self.update(submission)

    def update(self, submission: Submission) -> None:
        """Note what has become of a program."""
        self._storage.write(f"{_SUBMITTED}/{submission.id}.json", msgspec.json.encode(submission))

    def package(self, name: str) -> bytes:
        """The bytes of a package."""
        return self._storage.read(f"{_PACKAGES}/{name}.zip")

    def remove(self, id_: str) -> None:
        """A program has ended."""
        self._storage.delete(f"{_SUBMITTED}/{id_}.json")

    def remove_package(self, name: str) -> None:
        """Nobody runs it any more."""
        self._storage.delete(f"{_PACKAGES}/{name}.zip")

    def packages(self) -> list[str]:
        """The names of all packages."""
        return [name.removesuffix(".zip") for name in self._storage.list(_PACKAGES)]

    def all(self) -> list[Submission]:
        """All programs that have not ended, the oldest first."""
        found = []
        for name in self._storage.list(_SUBMITTED):
            try:
                data = self._storage.read(f"{_SUBMITTED}/{name}")
                found.append(msgspec.json.decode(data, type=Submission))
            except FileNotFoundError:
                continue
            except msgspec.DecodeError as error:
                _log.warning("a submitted program cannot be read: %s: %s", name, error)
        return sorted(found, key=lambda submission: submission.submitted_at)
