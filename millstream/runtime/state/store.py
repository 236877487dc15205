"""The state of one vertex's subtask: its tables, and the files they come from and go to.

The backend's marker is the file whose content the tables hold; `_pending` is the file this process wrote last, whose
content is the tables with their changes. Opening a version reads only the files that are not there yet.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from millstream.checkpoint.manifest import Parent, StoreState
from millstream.checkpoint.statefile import Header, Loads, StateFile, TableInfo, damaged
from millstream.errors import StateMismatch
from millstream.runtime.base.contracts import EndsEpoch
from millstream.runtime.base.failpoints import reached
from millstream.runtime.state.backend import Backend, MakeTable, backend_of
from millstream.runtime.state.codec import PICKLED, SchemaMismatch, ValueCodec
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.operator_state import OperatorState, redistribute
from millstream.runtime.state.segments import (
    describe_table,
    extend_segments,
    needs_compaction,
    open_segment,
    read_segment,
    store_folder,
    write_segment,
)
from millstream.runtime.state.table import Convert, Table
from millstream.runtime.state.trust import load_own
from millstream.runtime.wire.keys import key_group, subtask_range
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage

__all__ = [
    "StateStore",
    "compact",
    "extend_segments",
    "needs_compaction",
    "read_segment",
    "store_folder",
]

# Segments with more bytes than this are compacted on disk.
_COMPACT_IN_MEMORY = 64 << 20
# How often a version is reached for while other processes move the tables on; then they are made anew.
_TURNS = 3


class StateStore:
    """The tables and operator state of one vertex's subtask."""

    def __init__(
        self,
        storage: Storage,
        owner: str,
        *,
        operators: Sequence[str] = (),
        make_table: MakeTable = make_hash_table,
        loads: Loads = load_own,
    ) -> None:
        self._loads = loads
        self._storage = self.storage = storage
        self.owner = owner
        self.operators = frozenset(operators)
        self._backend = backend_of(make_table)
        self.tables: dict[str, Table] = {}
        self.operator_state = OperatorState()
        # What the program has asked for, by operator and state, in the words of its descriptors.
        self.registered: dict[str, dict[str, dict[str, Any]]] = {}
        # Tables that belong to operators themselves, so that no function may ask for them.
        self.own: set[str] = set()
        # By operator, of those with an error policy: what is told of every change of their tables.
        self.journals: dict[str, Any] = {}
        # States with time-to-live, to be searched at the end of every epoch.
        self.expiring: list[EndsEpoch] = []
        self._pending: str | None = None
        # The pending file was written anew because the program has changed a state's type.
        self._retyped = False
        self._version: StoreState | None = None
        # Whether opening has read the operator state, and at which file it was read last.
        self._restored = False
        self._operators_at = ""
        self.attempt = ""
        # Files read by the last `open`, and how often everything had to be read.
        self.loads = 0
        self.rebuilds = 0

    # -- tables ---------------------------------------------------------------------------------------

    def table(
        self, name: str, kind: str = "value", codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> Table:
        """The table of a state, the same object each time."""
        known = self.tables.get(name)
        if known is None:
            known = self.tables[name] = self._backend.table(name, kind, codec, ttl=ttl)
        elif known.unclaimed is not None:
            # It came with the files before the program asked for it.
            self._claim(known, kind, codec, ttl)
        journal = self.journals.get(name.rpartition("/")[0])
        if journal is not None:
            journal.watch(known)
        return known

    def _claim(self, table: Table, kind: str, codec: ValueCodec, ttl: bool) -> None:
        assert table.unclaimed is not None
        blocks: list[tuple[TableInfo, list[Any]]] = []
        if not self._backend.lazy:
            for key, part in self._of_name(table.name):
                assert part.unclaimed is not None
                blocks.append((part.unclaimed, list(part.full())))
                if part is not table:
                    del self.tables[key]
        table.reset()
        table.kind, table.codec, table.ttl, table.unclaimed = kind, codec, ttl, None
        for info in self._backend.infos(table.name):
            self._decoder(table, info)
        for info, entries_of in blocks:
            decode = self._decoder(table, info)
            for block_kind, entries in entries_of:
                table.apply(block_kind, entries, decode)

    def _of_name(self, name: str) -> list[tuple[str, Table]]:
        """A table that nobody has asked for. There are several of a name if its parts were written differently."""
        return [(key, table) for key, table in self.tables.items() if table.name == name]

    def table_of(self, info: TableInfo) -> Table:
        """Where to put the values of a table that nobody has asked for."""
        for _, table in self._of_name(info.name):
            if table.unclaimed in (None, info) or self._backend.lazy:
                return table
        table = self._backend.make_table(info)
        number = len(self._of_name(info.name))
        self.tables[f"{info.name}\0{number}" if number else info.name] = table
        return table

    def _decoder(self, table: Table, written: TableInfo) -> Convert | None:
        if table.unclaimed is not None:
            return None
        try:
            return table.decoder(written)
        except SchemaMismatch:
            operator, _, state = table.name.rpartition("/")
            raise StateMismatch(
                f"the state '{state}' was written by another program and does not fit this one",
                operator=operator,
                state=state,
                found=describe_table(written),
                wanted=describe_table(table.info),
                hint="declare the state as it was, give it another name and start with "
                "--allowNonRestoredState, or change the savepoint with millstream.state",
            ) from None

    def register(self, uid: str, state: str, description: dict[str, Any]) -> None:
        """The program asks for a state."""
        self.registered.setdefault(uid, {})[state] = description

    # -- opening a version ------------------------------------------------------------------------------

    @property
    def inherits(self) -> bool:
        """True if all that the store has is what its parents hold. It then writes a full file, if only to say that it
        has nothing: the files of another folder, or of an older checkpoint, may go."""
        version = self._version
        return version is not None and bool(version.parents) and not version.segments

    @property
    def in_use(self) -> bool:
        """True if there is anything to keep."""
        return bool(self.tables) or self.operator_state.in_use

    def is_current(self, version: StoreState | None) -> bool:
        """True if the attempt that won the last epoch was this process's, so that its objects are up to date."""
        return version is not None and self.attempt != "" and version.attempt == self.attempt

    def open(self, version: StoreState | None) -> None:
        """Bring the tables to a version; None is no state at all."""
        reached("state open")
        segments: Sequence[StateFile] = version.segments if version is not None else []
        # A compacted file stands for those it covers.
        place = {file.covers: n for n, file in enumerate(segments) if file.covers}
        place |= {file.name: n for n, file in enumerate(segments)}
        targets: set[str | None] = {name for name, n in place.items() if n == len(segments) - 1}
        if not segments:
            base = _base_name(version)
            place |= {} if base is None else {base: -1}
            targets = {base}
        self.loads = 0
        self._restored = False
        for turn in range(_TURNS + 1):
            if self._reach(version, segments, place, targets, anew=turn == _TURNS):
                break
        for info in self._backend.present():
            if info.name not in self.tables and info.name.rpartition("/")[0] in self.operators:
                self.table_of(info)
        if self._backend.lazy:
            for table in self.tables.values():
                for info in self._backend.infos(table.name):
                    self._decoder(table, info)
        if (
            not self._restored
            and not self.is_current(version)
            and (self.operator_state.in_use or self._backend.shared)
        ):
            self._reload_operator_state(version)
        self._operators_at = segments[-1].name if segments else ""
        if self._backend.shared and not self.is_current(version):
            for table in self.tables.values():
                if table.index is not None:
                    table.index.valid = False
        self._version = version

    def _reach(
        self,
        version: StoreState | None,
        segments: Sequence[StateFile],
        place: dict[str, int],
        targets: set[str | None],
        *,
        anew: bool,
    ) -> bool:
        backend = self._backend
        backend.begin(self.operators)
        # Values of a type that has changed are read again in their new form, where they are kept as they are written.
        if self._pending in place and not (self._retyped and backend.lazy):
            backend.absorb(self.tables.values(), self._pending, place)
        # If another attempt won, its changes are in its file, and ours are nothing.
        for table in self.tables.values():
            table.discard()
        self._pending = None
        missing = segments
        marker = backend.marker
        if marker in place and not anew:
            missing = segments[place[marker] + 1 :]
        elif marker is not None or place:
            self._forget()
            if place:
                self.rebuilds += 1
            self._begin(version)
        for file in missing:
            # If others wait, they must not wait for the storage: it may be far away, and this task given up already.
            with (
                open_segment(self._storage, file, copy=backend.others_wait) as stream,
                backend.applying(file.name, file.size, place) as wanted,
            ):
                if wanted:
                    self._apply_file(self._storage, file, self._keep_all, stream=stream)
                    self.loads += 1
        return backend.ready(self.tables.values(), targets)

    def _reload_operator_state(self, version: StoreState | None) -> None:
        """Read operator state alone. An attempt of this process that did not win may have changed it, and if another
        process has brought the tables here, this one has not seen it at all."""
        if version is None:
            self.operator_state.reset()
            return
        for file in reversed(version.segments):
            if file.name == self._operators_at and not self.operator_state.in_use:
                return
            states = self._operator_state_of(self._storage, file)
            if states is not None:
                self.operator_state.restore(states)
                return
        lists: list[tuple[Parent, dict[str, Any]]] = []
        for parent in version.parents:
            storage = self._storage_of(parent)
            together: dict[str, Any] = {}
            for file in parent.segments:
                together.update(self._operator_state_of(storage, file) or {})
            lists.append((parent, together))
        self._deal_out(version, lists)

    def _storage_of(self, parent: Parent) -> Storage:
        own = self._storage
        return open_storage(parent.root, seal=own.seal) if parent.root else own

    def _operator_state_of(self, storage: Storage, file: StateFile) -> dict[str, Any] | None:
        for info, _, states in read_segment(storage, file, loads=self._loads):
            # Operator state comes first in a file, or not at all.
            operator_state: dict[str, Any] | None = states if info is None else None
            return operator_state
        return None

    def _deal_out(
        self, version: StoreState, lists: Sequence[tuple[Parent, dict[str, Any]]]
    ) -> None:
        self.operator_state.restore(
            redistribute(lists, version.subtask, version.parallelism, self.operators)
        )
        self._restored = True

    def _forget(self) -> None:
        for key, table in list(self.tables.items()):
            table.reset()
            if table.unclaimed is not None:
                del self.tables[key]
        self.operator_state.reset()
        self._backend.renew()

    def _begin(self, version: StoreState | None) -> None:
        """What stands before the first segment."""
        if version is None or (version.segments and version.segments[0].full):
            return
        if version.segments and not version.parents:
            raise damaged(
                version.segments[0].name, "it has changes only, and no full file stands before it"
            )
        lists: list[tuple[Parent, dict[str, Any]]] = []
        own = subtask_range(version.subtask, version.parallelism, version.max_parallelism)

        def mine(key: Any) -> bool:
            return key_group(key, version.max_parallelism) in own

        name = _base_name(version) or ""
        size = sum(file.size for parent in version.parents for file in parent.segments)
        with self._backend.applying(name, size, {}):
            for parent in version.parents:
                storage = self._storage_of(parent)
                states: dict[str, Any] = {}
                theirs = subtask_range(parent.subtask, parent.parallelism, version.max_parallelism)
                overlap = theirs.start < own.stop and own.start < theirs.stop
                for file in parent.segments:
                    self._apply_file(storage, file, mine if overlap else self._keep_none, states)
                    self.loads += 1
                lists.append((parent, states))
        self._deal_out(version, lists)

    @staticmethod
    def _keep_all(key: Any) -> bool:
        return True

    @staticmethod
    def _keep_none(key: Any) -> bool:
        return False

    def _apply_file(
        self,
        storage: Storage,
        file: StateFile,
        keep: Callable[[Any], bool],
        states: dict[str, Any] | None = None,
        stream: BinaryIO | None = None,
    ) -> None:
        everything = keep is self._keep_all
        for info, kind, entries in read_segment(storage, file, stream, self._loads):
            if info is None:
                if states is None:
                    self.operator_state.restore(entries)
                    self._restored = True
                else:
                    states.update(entries)
                continue
            if keep is self._keep_none or info.name.rpartition("/")[0] not in self.operators:
                continue
            table = self.table_of(info)
            self._backend.source(table, info)
            decode = self._decoder(table, info)
            if not everything:
                by_key = kind == "D"
                entries = [entry for entry in entries if keep(entry if by_key else entry[0])]
            table.apply(kind, entries, decode)

    def close(self) -> None:
        """Let go of files; nothing may be read afterwards."""
        self._backend.close()

    # -- writing ----------------------------------------------------------------------------------------

    def snapshot(self, epoch: int, attempt: str) -> StateFile | None:
        """Write this epoch's changes; None if there are none. Nothing is read after it."""
        self.attempt = attempt
        for state in self.expiring:
            state.sweep()
        try:
            return self._snapshot(epoch, attempt)
        finally:
            self._backend.finish()

    def _snapshot(self, epoch: int, attempt: str) -> StateFile | None:
        version = self._version
        relayout = self.inherits
        operator_state = self.operator_state.changed()
        tables = list(self.tables.values())
        if not (relayout or operator_state or any(table.changes for table in tables)):
            return None
        # Segments have one type for each state: compaction knows nothing of the program and could not convert.
        self._retyped = any(
            table.unclaimed is None
            and any(info != table.info for info in self._backend.infos(table.name))
            for table in tables
        )
        full = relayout or self._retyped or version is None or not version.segments
        name = f"shared/{store_folder(self.owner)}/{epoch:012d}-{attempt}"
        if full:
            parts = [part for table in tables for part in self._backend.parts(table)]
        else:
            parts = [(table.info, table.delta()) for table in tables]
        states = self.operator_state.content() if operator_state or full else None
        parts = [(info, _noticed(blocks)) for info, blocks in parts]
        size = write_segment(self._storage, Header(name, epoch, full, []), states, parts)
        self._pending = name
        return StateFile(name, epoch, full, size)


def _base_name(version: StoreState | None) -> str | None:
    """Names what stands before the first segment: what the parents hold of the subtask's key groups."""
    if version is None or not version.parents:
        return None
    place = (version.subtask, version.parallelism, version.max_parallelism, version.parents)
    return f"parents:{hashlib.sha256(msgspec.json.encode(place)).hexdigest()}"


def _noticed(blocks: Iterator[Any]) -> Iterator[Any]:
    for block in blocks:
        yield block
        # It has been written.
        reached("snapshot half written")


def compact(storage: Storage, owner: str, segments: Sequence[StateFile], attempt: str) -> StateFile:
    """Write one full file that stands for all segments of a store."""
    if sum(file.size for file in segments) <= _COMPACT_IN_MEMORY:
        return _compact(storage, owner, segments, attempt, Backend())
    try:
        import lmdb  # noqa: F401
    except ImportError:
        return _compact(storage, owner, segments, attempt, Backend())
    from millstream.runtime.state.lmdb.store import LmdbBackend

    with tempfile.TemporaryDirectory(prefix="millstream-compact-") as folder:
        backend = LmdbBackend(Path(folder))
        try:
            return _compact(storage, owner, segments, attempt, backend)
        finally:
            backend.close()


def _compact(
    storage: Storage, owner: str, segments: Sequence[StateFile], attempt: str, backend: Backend
) -> StateFile:
    last = segments[-1]
    store = StateStore(storage, owner, make_table=backend.table)
    # Whatever the files hold: compaction knows nothing of the program.
    store.operators = _Everything()
    place = {file.name: n for n, file in enumerate(segments)}
    backend.begin(())
    for file in segments:
        with backend.applying(file.name, file.size, place):
            store._apply_file(storage, file, StateStore._keep_all)
    backend.ready(store.tables.values(), {last.name})
    name = f"shared/{store_folder(owner)}/{last.epoch:012d}-{attempt}"
    parts = [part for table in store.tables.values() for part in backend.parts(table)]
    states = store.operator_state.content()
    size = write_segment(storage, Header(name, last.epoch, True), states, parts)
    return StateFile(name, last.epoch, True, size, last.name)


class _Everything(frozenset[str]):
    def __contains__(self, name: object) -> bool:
        return True
