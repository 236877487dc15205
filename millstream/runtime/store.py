"""The state of one vertex's subtask in this process: its tables, and the files they come from and go to.

`_applied` is the file whose content the tables hold; `_pending` is the file this process wrote last, whose content is
the tables with their changes folded in. Opening a version reads only the files that this process does not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from millstream.checkpoint.manifest import Parent, StoreState
from millstream.checkpoint.statefile import (
    Header,
    StateFile,
    StateReader,
    StateWriter,
    TableInfo,
    damaged,
)
from millstream.checkpoint.storage import Storage, open_storage
from millstream.errors import StateMismatch
from millstream.runtime.codec import dumps
from millstream.runtime.failpoints import reached
from millstream.runtime.keys import key_group, subtask_range
from millstream.runtime.operator_state import OperatorState, redistribute
from millstream.runtime.state import Convert, Table, make_hash_table
from millstream.runtime.state_codec import PICKLED, SchemaMismatch, ValueCodec

__all__ = ["StateStore", "extend_chain", "needs_folding", "store_folder"]

# File systems take 255 bytes a name.
_MAX_NAME = 120
# A chain is folded when it is this long, or when its changes have grown to so many times the full file.
_MAX_CHAIN = 24
_MAX_GROWTH = 4

MakeTable = Callable[..., Table]


class StateStore:
    """The tables and operator state of one vertex's subtask."""

    def __init__(
        self,
        storage: Storage,
        owner: str,
        *,
        operators: Sequence[str] = (),
        make_table: MakeTable = make_hash_table,
    ) -> None:
        self._storage = storage
        self.owner = owner
        self.operators = frozenset(operators)
        self._make_table = make_table
        self.tables: dict[str, Table] = {}
        self.operator_state = OperatorState()
        # What the program has asked for, by operator and state, in the words of its descriptors.
        self.registered: dict[str, dict[str, dict[str, Any]]] = {}
        # States with time-to-live, to be searched at the end of every epoch.
        self.expiring: list[Any] = []
        self._applied: str | None = None
        self._pending: str | None = None
        self._version: StoreState | None = None
        self.attempt = ""
        self.loads = 0

    # -- tables ---------------------------------------------------------------------------------------

    def table(
        self, name: str, kind: str = "value", codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> Table:
        """The table of a state, the same object each time."""
        known = self.tables.get(name)
        if known is None:
            table = self._make_table(name, kind, codec, ttl=ttl)
            self.tables[name] = table
            return table
        if known.found is not None:
            # It came with the files before the program asked for it.
            self._claim(known, kind, codec, ttl)
        return known

    def _claim(self, table: Table, kind: str, codec: ValueCodec, ttl: bool) -> None:
        found = table.found
        assert found is not None
        blocks = list(table.full())
        table.reset()
        table.kind, table.codec, table.ttl, table.found = kind, codec, ttl, None
        decode = self._decoder(table, found)
        for block_kind, entries in blocks:
            table.apply(block_kind, entries, decode)

    def _decoder(self, table: Table, found: TableInfo) -> Convert | None:
        if table.found is not None:
            return None
        try:
            return table.decoder(found)
        except SchemaMismatch:
            operator, _, state = table.name.rpartition("/")
            raise StateMismatch(
                f"the state '{state}' was written by another program and does not fit this one",
                operator=operator,
                state=state,
                found=describe(found),
                wanted=describe(table.info),
                hint="declare the state as it was, give it another name and start with "
                "--allowNonRestoredState, or change the savepoint with millstream.state",
            ) from None

    def register(self, uid: str, state: str, description: dict[str, Any]) -> None:
        """The program asks for a state."""
        self.registered.setdefault(uid, {})[state] = description

    # -- opening a version ------------------------------------------------------------------------------

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
        chain: Sequence[StateFile] = version.chain if version is not None else []
        names = [file.name for file in chain]
        # A folded file stands for those it covers.
        place = {file.covers: n for n, file in enumerate(chain) if file.covers}
        place |= {name: n for n, name in enumerate(names)}
        if self._pending in place:
            for table in self.tables.values():
                table.fold()
            self._applied = self._pending
        # If another attempt won, its changes are in its file, and ours are nothing.
        for table in self.tables.values():
            table.changes.clear()
        self._pending = None
        self.loads = 0
        missing = chain
        if self._applied in place:
            missing = chain[place[self._applied] + 1 :]
        elif self._applied is not None or chain or (version is not None and version.parents):
            self._forget()
            self._begin(version)
        for file in missing:
            self._apply_file(self._storage, file, self._keep_all)
            self._applied = file.name
            self.loads += 1
        if chain and self.operator_state.in_use and not self.is_current(version):
            self._reload_operator_state(chain)
        self._version = version

    def _reload_operator_state(self, chain: Sequence[StateFile]) -> None:
        """An attempt of this process that did not win may have changed it, so what is here counts for nothing."""
        for file in reversed(chain):
            for info, _, states in read_file(self._storage, file):
                if info is None:
                    self.operator_state.restore(states)
                    return
                # Operator state comes first in a file, or not at all.
                break

    def _forget(self) -> None:
        for table in list(self.tables.values()):
            table.reset()
            if table.found is not None:
                del self.tables[table.name]
        self.operator_state.reset()
        self._applied = None

    def _begin(self, version: StoreState | None) -> None:
        """What stands before the first file of the chain."""
        if version is None or (version.chain and version.chain[0].full):
            return
        if version.chain and not version.parents:
            raise damaged(
                version.chain[0].name, "it has changes only, and no full file stands before it"
            )
        lists: list[tuple[Parent, dict[str, Any]]] = []
        own = subtask_range(version.subtask, version.parallelism, version.max_parallelism)

        def mine(key: Any) -> bool:
            return key_group(key, version.max_parallelism) in own

        for parent in version.parents:
            storage = open_storage(parent.root) if parent.root else self._storage
            states: dict[str, Any] = {}
            theirs = subtask_range(parent.subtask, parent.parallelism, version.max_parallelism)
            overlap = theirs.start < own.stop and own.start < theirs.stop
            for file in parent.chain:
                self._apply_file(storage, file, mine if overlap else self._keep_none, states)
                self.loads += 1
            lists.append((parent, states))
        self.operator_state.restore(
            redistribute(lists, version.subtask, version.parallelism, self.operators)
        )

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
    ) -> None:
        everything = keep is self._keep_all
        for info, kind, entries in read_file(storage, file):
            if info is None:
                if states is None:
                    self.operator_state.restore(entries)
                else:
                    states.update(entries)
                continue
            if keep is self._keep_none or info.name.rpartition("/")[0] not in self.operators:
                continue
            table = self.tables.get(info.name)
            if table is None:
                table = self._make_table(info.name, info.kind, PICKLED, ttl=info.ttl)
                table.found = info
                self.tables[info.name] = table
            decode = self._decoder(table, info)
            if not everything:
                by_key = kind == "D"
                entries = [one for one in entries if keep(one if by_key else one[0])]
            table.apply(kind, entries, decode)

    # -- writing ----------------------------------------------------------------------------------------

    def snapshot(self, epoch: int, attempt: str) -> StateFile | None:
        """Write this epoch's changes; None if there are none."""
        self.attempt = attempt
        for one in self.expiring:
            one.sweep()
        version = self._version
        relayout = version is not None and bool(version.parents) and not version.chain
        operator_state = self.operator_state.changed()
        if not (relayout or operator_state or any(table.changes for table in self.tables.values())):
            return None
        full = relayout or version is None or not version.chain
        name = f"shared/{store_folder(self.owner)}/{epoch:012d}-{attempt}"
        tables = list(self.tables.values())
        header = Header(name, epoch, full, [table.info for table in tables])
        with self._storage.open_write(name) as stream:
            writer = StateWriter(stream, header, dumps)
            if operator_state or full:
                writer.operator_state(self.operator_state.content())
            for place, table in enumerate(tables):
                for kind, entries in table.full() if full else table.delta():
                    writer.entries(place, kind, entries)
                    reached("snapshot half written")
            writer.end()
        self._pending = name
        return StateFile(name, epoch, full, writer.size)


def read_file(storage: Storage, file: StateFile) -> Iterator[tuple[TableInfo | None, str, Any]]:
    """The blocks of a file with the table that each belongs to; None is operator state."""
    try:
        stream = storage.open_read(file.name)
    except FileNotFoundError:
        raise damaged(file.name, "it is missing") from None
    with stream:
        reader = StateReader(file.name, stream)
        for place, kind, entries in reader:
            yield None if place < 0 else reader.header.tables[place], kind, entries


def fold_chain(storage: Storage, owner: str, chain: Sequence[StateFile], attempt: str) -> StateFile:
    """Write one full file that stands for a whole chain."""
    last = chain[-1]
    store = StateStore(storage, owner)
    # Whatever the files hold: folding knows nothing of the program.
    store.operators = _Everything()
    for file in chain:
        store._apply_file(storage, file, StateStore._keep_all)
    name = f"shared/{store_folder(owner)}/{last.epoch:012d}-{attempt}"
    tables = list(store.tables.values())
    with storage.open_write(name) as stream:
        writer = StateWriter(
            stream, Header(name, last.epoch, True, [t.info for t in tables]), dumps
        )
        writer.operator_state(store.operator_state.content())
        for place, table in enumerate(tables):
            for kind, entries in table.full():
                writer.entries(place, kind, entries)
        writer.end()
    return StateFile(name, last.epoch, True, writer.size, last.name)


class _Everything(frozenset[str]):
    def __contains__(self, name: object) -> bool:
        return True


def needs_folding(chain: Sequence[StateFile]) -> bool:
    """True if reading the chain has become much more work than reading its content."""
    if len(chain) < 3:
        return False
    changes = sum(file.size for file in chain[1:])
    return len(chain) >= _MAX_CHAIN or changes > _MAX_GROWTH * max(chain[0].size, 1 << 16)


def extend_chain(chain: Sequence[StateFile], file: StateFile | None) -> list[StateFile]:
    """The chain after an epoch whose winning file is `file`."""
    if file is None:
        return list(chain)
    return [file] if file.full else [*chain, file]


def store_folder(owner: str) -> str:
    """The owner as a path. A uid is any text: quoted it stays below its folder, and a long one is cut."""
    uid, _, subtask = owner.rpartition("/")
    name = quote(uid, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _MAX_NAME:
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        name = f"{name[:_MAX_NAME]}-{digest}"
    return f"{name}/{subtask}"


def describe(info: TableInfo) -> str:
    """A table in words, for messages."""
    schema = "pickled" if info.schema is None else str(info.schema)
    return f"{info.kind} state, {schema}" + (", with time-to-live" if info.ttl else "")
