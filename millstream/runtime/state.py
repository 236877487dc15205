"""Keyed state with a version per epoch (Flink's `HeapKeyedStateBackend`).

**An attempt of epoch n sees exactly the state of epoch n-1.** `base` is version n-1 and is never changed by a
task; the task's own writes go to `changes`, and at its end into a file with a name no other attempt can have.
Whoever opens epoch n+1 reads in the manifest whose file won. If it is the file of this process, its changes
are folded into `base`; if not, the winner's file is read. So a task that is retried, doubled by speculation, or
still running as a zombie cannot spoil anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from millstream.checkpoint.statefile import StateFile, decode_state, encode_state
from millstream.checkpoint.storage import Storage
from millstream.errors import StateError
from millstream.runtime.codec import dumps

__all__ = ["DELETED", "MISSING", "KeyedTable", "StateStore", "extend_chain"]

_MAX_CHAIN = 16
# File systems take 255 bytes a name.
_MAX_NAME = 120


class _Sentinel:
    """An object that is equal to nothing else and stays itself through pickling."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return self._name


MISSING = _Sentinel("MISSING")
DELETED = _Sentinel("DELETED")


class KeyedTable:
    """One state of one operator: canonical key to value. The two dictionaries stay the same objects for
    life, because generated code holds their bound methods."""

    __slots__ = ("base", "changes")

    def __init__(self) -> None:
        self.base: dict[Any, Any] = {}
        self.changes: dict[Any, Any] = {}

    def fold(self) -> None:
        """Make the changes part of the base."""
        self.apply(self.changes.items())
        self.changes.clear()

    def apply(self, items: Iterable[tuple[Any, Any]]) -> None:
        """Put entries into the base."""
        base = self.base
        for key, value in items:
            if value is DELETED:
                base.pop(key, None)
            else:
                base[key] = value

    def merged(self) -> list[tuple[Any, Any]]:
        """All entries as they will be once the changes are folded."""
        if not self.changes:
            return list(self.base.items())
        together = {**self.base, **self.changes}
        return [(key, value) for key, value in together.items() if value is not DELETED]


class StateStore:
    """The state of one vertex's subtask in this process.

    `base` is what the files of a chain up to `_applied` add up to. `_pending` is the file this process wrote
    last: its content is `base` with `changes` folded in.
    """

    __slots__ = ("_applied", "_chain", "_pending", "_storage", "loads", "owner", "tables")

    def __init__(self, storage: Storage, owner: str) -> None:
        self._storage = storage
        self.owner = owner
        self.tables: dict[str, KeyedTable] = {}
        self._applied: str | None = None
        self._pending: str | None = None
        self._chain: Sequence[StateFile] = ()
        self.loads = 0

    def table(self, name: str) -> KeyedTable:
        """The table of a state, the same object each time."""
        return self.tables.setdefault(name, KeyedTable())

    def open(self, chain: Sequence[StateFile]) -> None:
        """Bring `base` to what the chain says, reading only the files this process does not have."""
        names = [file.name for file in chain]
        if self._pending in names:
            for table in self.tables.values():
                table.fold()
            self._applied = self._pending
        for table in self.tables.values():
            table.changes.clear()
        self._pending = None
        if self._applied in names:
            missing = chain[names.index(self._applied) + 1 :]
        else:
            for table in self.tables.values():
                table.base.clear()
            self._applied = None
            missing = chain
            if missing and not missing[0].full:
                msg = f"the state of {self.owner} has changes but no full file to begin with"
                raise StateError(msg, file=missing[0].name)
        for file in missing:
            for name, items in decode_state(file.name, self._read(file.name)).items():
                self.table(name).apply(items)
            self._applied = file.name
        self.loads = len(missing)
        self._chain = chain

    def _read(self, name: str) -> bytes:
        try:
            return self._storage.read(name)
        except FileNotFoundError:
            msg = f"a state file of {self.owner} is missing"
            raise StateError(msg, file=name, folder=self._storage.root) from None

    def snapshot(self, epoch: int, attempt: str) -> StateFile | None:
        """Write this epoch's changes; None if there are none."""
        if not any(table.changes for table in self.tables.values()):
            return None
        full = not self._chain or len(self._chain) >= _MAX_CHAIN
        tables = {
            name: table.merged() if full else list(table.changes.items())
            for name, table in self.tables.items()
        }
        data = encode_state(tables, dumps)
        name = f"state/{_folder(self.owner)}/{epoch:012d}-{attempt}"
        self._storage.write(name, data)
        self._pending = name
        return StateFile(name, epoch, full, len(data))


def _folder(owner: str) -> str:
    """The owner as a path. A uid is any text: quoted it stays below `state/`, and a long one is cut."""
    uid, _, subtask = owner.rpartition("/")
    name = quote(uid, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _MAX_NAME:
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        name = f"{name[:_MAX_NAME]}-{digest}"
    return f"{name}/{subtask}"


def extend_chain(chain: Sequence[StateFile], file: StateFile | None) -> list[StateFile]:
    """The chain after an epoch whose winning file is `file`."""
    if file is None:
        return list(chain)
    return [file] if file.full else [*chain, file]
