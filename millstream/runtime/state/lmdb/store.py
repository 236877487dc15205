"""The `lmdb` backend: the tables of a store in an environment that all processes of the machine share.

The environment says itself which state file it is at, and whoever brings it to the next one does so in one transaction
that looks at this first. **A task reads through a transaction that is opened when the store is and ends with the
epoch:** if a successor moves the environment on meanwhile, a task that was taken for dead still sees its own version,
and its changes are in its own memory and file.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from millstream.checkpoint.statefile import TableInfo
from millstream.runtime.state.backend import Backend, Parts
from millstream.runtime.state.codec import PICKLED, ValueCodec
from millstream.runtime.state.lmdb.environment import (
    Environment,
    LocalFolder,
    current_environment,
    new_environment,
    publish,
)
from millstream.runtime.state.lmdb.table import LmdbTable
from millstream.runtime.state.lmdb.write import Entry, TableWriter
from millstream.runtime.state.segments import store_folder
from millstream.runtime.state.table import Table

__all__ = ["LmdbBackend", "LmdbStore"]

# Below table 0, which no table has.
_MARKER = b"\0\0marker"
_CATALOG = b"\0\0tables"
_PAGE = 4096
_BLOCKS_TOGETHER = 8
# The marker of an environment that holds the tables of other operators.
_FOREIGN = "?"


class Catalog(msgspec.Struct):
    """What is in an environment: whose state, and in which tables."""

    operators: list[str]
    tables: dict[str, Entry] = {}


class LmdbBackend(Backend):
    """Tables in the generations of one folder."""

    shared = True
    lazy = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._env: Environment | None = None
        # Made by this process and not known to others yet.
        self._fresh = False
        self._operators: list[str] = []
        self._catalog = Catalog([])
        self._catalog_bytes = b""
        self._read: Any = None
        self._write: Any = None
        # Blocks of a file that were written into a fresh environment.
        self._blocks: int | None = None
        self._tables: list[LmdbTable] = []
        # Which version the tables' caches belong to.
        self._cached: str | None = None

    def table(
        self, name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> Table:
        """A table of this backend."""
        table = LmdbTable(name, kind, codec, ttl=ttl)
        if self._read is not None:
            self._bind(table)
        return table

    def _bind(self, table: LmdbTable) -> None:
        table.bind(self._read, self._catalog.tables.get(table.name))
        self._tables.append(table)

    @property
    def others_wait(self) -> bool:
        return not self._fresh

    # -- moving on --------------------------------------------------------------------------------------

    def begin(self, operators: Iterable[str]) -> None:
        self.finish()
        self._operators = sorted(operators)
        env = current_environment(self._folder, None if self._fresh else self._env)
        if env is None:
            self.renew()
            return
        self._env, self._fresh = env, False
        with env.env.begin() as txn:
            self.marker = self._look(txn)
        if self._catalog.operators != self._operators:
            self.marker = _FOREIGN

    def _look(self, txn: Any) -> str | None:
        data = txn.get(_CATALOG, b"")
        if data != self._catalog_bytes:
            self._catalog = (
                msgspec.json.decode(data, type=Catalog) if data else Catalog(self._operators)
            )
            self._catalog_bytes = data
        marker = txn.get(_MARKER)
        return None if marker is None else marker.decode()

    def renew(self) -> None:
        if self._fresh and self.marker is None and self._env is not None:
            return
        self._discard_fresh()
        self._env, self._fresh = new_environment(self._folder), True
        self.marker = None
        self._catalog, self._catalog_bytes = Catalog(self._operators), b""

    def _discard_fresh(self) -> None:
        if self._fresh and self._env is not None:
            shutil.rmtree(self._env.path, ignore_errors=True)
        self._env, self._fresh = None, False

    @contextmanager
    def _writing(self, expected: int) -> Iterator[Any]:
        assert self._env is not None
        self._write = self._env.write(expected)
        try:
            yield self._write
            self._write.commit()
        except BaseException:
            self._write.abort()
            # What was noted of its tables must be undone too.
            self._catalog_bytes = b"?"
            raise
        finally:
            self._write = None
            self._blocks = None

    def _set(self, name: str) -> None:
        txn = self._write
        data = msgspec.json.encode(self._catalog)
        if data != self._catalog_bytes:
            txn.put(_CATALOG, data)
            self._catalog_bytes = data
        txn.put(_MARKER, name.encode())
        self.marker = name

    def absorb(self, tables: Iterable[Table], name: str, place: Mapping[str, int]) -> None:
        mine = [table for table in tables if isinstance(table, LmdbTable)]
        count = sum(len(table.changes) for table in mine)
        with self._writing(count * _PAGE // 4) as txn:
            self.marker = self._look(txn)
            # If it is elsewhere, another process has read the file already, or all is to be read anew.
            if self.marker == self._cached and self._catalog.operators == self._operators:
                for table in mine:
                    if table.changes:
                        self.source(table, table.info)
                        table.absorb()
                self._set(name)
        for table in mine:
            table.remember()
            table.changes.clear()
        self._cached = name

    @contextmanager
    def applying(self, name: str, size: int, place: Mapping[str, int]) -> Iterator[bool]:
        try:
            with self._writing(2 * size) as txn:
                if self._look(txn) == self.marker:
                    self._blocks = 0 if self._fresh else None
                    yield True
                    self._set(name)
                else:
                    yield False
        except BaseException:
            self._discard_fresh()
            raise

    def source(self, table: Table, info: TableInfo) -> None:
        assert isinstance(table, LmdbTable)
        if self._blocks is not None:
            self._blocks += 1
            if self._blocks % _BLOCKS_TOGETHER == 0:
                # Nobody else knows of the environment yet, so it need not be one transaction, which would have to
                # keep a list of all the pages of a large file.
                assert self._env is not None
                self._write.commit()
                self._write = self._env.write(0)
        tables = self._catalog.tables
        entry = tables.get(table.name)
        if entry is None:
            number = 1 + max((table.id for table in tables.values()), default=0)
            entry = tables[table.name] = Entry(number)
        table.writer = TableWriter(self._write, entry.prefix, entry.schema(info), table.shape)

    # -- an epoch ---------------------------------------------------------------------------------------

    def ready(self, tables: Iterable[Table], targets: Container[str | None]) -> bool:
        assert self._env is not None
        self._read = self._env.env.begin()
        self.marker = self._look(self._read)
        if self.marker not in targets:
            self.finish()
            return False
        if self._fresh:
            publish(self._folder, self._env)
            self._fresh = False
        fits = self._cached in targets
        self._cached = self.marker
        for table in tables:
            assert isinstance(table, LmdbTable)
            if not fits:
                table.forget()
            self._bind(table)
        return True

    def infos(self, name: str) -> list[TableInfo]:
        entry = self._catalog.tables.get(name)
        return [] if entry is None else entry.infos

    def present(self) -> Iterable[TableInfo]:
        return [entry.infos[-1] for entry in self._catalog.tables.values()]

    def parts(self, table: Table) -> Parts:
        assert isinstance(table, LmdbTable)
        infos = self.infos(table.name)
        if table.unclaimed is None or len(infos) < 2:
            return super().parts(table)
        return [(info, table.full_of(number)) for number, info in enumerate(infos)]

    def finish(self) -> None:
        for table in self._tables:
            table.bind(None, None)
            table.writer = None
        self._tables.clear()
        if self._read is not None:
            # Held on, it would keep LMDB from using again what later versions have replaced.
            self._read.abort()
            self._read = None

    def close(self) -> None:
        self.finish()
        self._discard_fresh()


class LmdbStore(LmdbBackend):
    """The backend of a job's store, on the worker's own disk."""

    def __init__(self, local_dir: str | None, job_id: str, state_dir: str, owner: str) -> None:
        # Kept, because it holds the folder.
        self._job_folder = LocalFolder.of(local_dir, job_id, state_dir)
        super().__init__(self._job_folder.store(store_folder(owner)))
