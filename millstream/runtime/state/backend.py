"""Where the tables of a store are kept, and which state file they are at.

A store asks its backend for the *marker*, the name of the file whose content the tables hold, and tells it which file
comes next. The tables of `hashmap` are objects of this process, so its marker is too. A backend that is `shared` keeps
both where other processes find them, and some of the work may have been done by another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager

from millstream.checkpoint.statefile import TableInfo
from millstream.runtime.state.codec import PICKLED, ValueCodec
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.table import Entries, Table

__all__ = ["Backend", "MakeTable", "backend_of"]

MakeTable = Callable[..., Table]
Parts = list[tuple[TableInfo, Iterator[tuple[str, Entries]]]]

# Stands for content that no file describes, because applying one has failed half-way.
_BROKEN = "?"


class Backend:
    """Tables as objects of this process."""

    shared = False
    """True if other processes bring the same tables to a version, so that this one may have read no file."""

    lazy = False
    """True if values are kept as the files have them and converted when they are read."""

    def __init__(self, make_table: MakeTable = make_hash_table) -> None:
        self._make_table = make_table
        # The file that the tables are at; None if there is nothing at all.
        self.marker: str | None = None
        self._infos: dict[str, list[TableInfo]] = {}

    def table(
        self, name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> Table:
        """A table of this backend."""
        return self._make_table(name, kind, codec, ttl=ttl)

    def make_table(self, info: TableInfo) -> Table:
        """A table that came with the files and that the program has not asked for yet."""
        table = self.table(info.name, info.kind, ttl=info.ttl)
        table.unclaimed = info
        return table

    @property
    def others_wait(self) -> bool:
        """True if other processes have to wait while this one applies a file."""
        return False

    def begin(self, operators: Iterable[str]) -> None:
        """Look where the tables are."""

    def absorb(self, tables: Iterable[Table], name: str, place: Mapping[str, int]) -> None:
        """The changes of the tables are those of one of the segments: make them part of what is read."""
        self.marker = _BROKEN
        for table in tables:
            table.absorb()
            if table.unclaimed is None:
                self._infos[table.name] = [table.info]
        self.marker = name

    def renew(self) -> None:
        """Begin with nothing."""
        self.marker = None
        self._infos.clear()

    @contextmanager
    def applying(self, name: str, size: int, place: Mapping[str, int]) -> Iterator[bool]:
        """Around putting a file into the tables; gives False if another process has done it."""
        self.marker = _BROKEN
        yield True
        self.marker = name

    def source(self, table: Table, info: TableInfo) -> None:
        """What is applied to the table next is written in this way."""
        known = self._infos.setdefault(table.name, [])
        if info not in known:
            known.append(info)

    def infos(self, name: str) -> list[TableInfo]:
        """How the values of a table were written in the files that it comes from."""
        return self._infos.get(name, [])

    def present(self) -> Iterable[TableInfo]:
        """The tables that are here without this process having read them from a file."""
        return ()

    def ready(self, tables: Iterable[Table], targets: Container[str | None]) -> bool:
        """The tables are at one of the files `targets` and can be read; False if another process has moved them
        on meanwhile."""
        return True

    def parts(self, table: Table) -> Parts:
        """All of a table with its changes, for a file; one part for each way its values are written."""
        return [(table.info, table.full())]

    def finish(self) -> None:
        """The epoch is over: nothing is read until the next begins."""

    def close(self) -> None:
        """Give back files and locks."""


def backend_of(make_table: MakeTable) -> Backend:
    """The backend that a function making tables belongs to; of a plain function, this process's memory."""
    owner = getattr(make_table, "__self__", None)
    return owner if isinstance(owner, Backend) else Backend(make_table)
