"""State of windows that all keys share, kept by *pane*: a stretch of time with one accumulator per key.

When a window ends, all of its keys do: with a dictionary per pane there is no timer per key to look for, and a record
finds its accumulator with the pane's dictionary in hand. In files a pane's entries are ordinary keyed state under
(key, pane), so they are saved, read and moved to other subtasks like all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from millstream.runtime.state.codec import PICKLED, ValueCodec
from millstream.runtime.state.table import (
    DELETED,
    MISSING,
    Convert,
    Entries,
    Table,
    blocks_of,
)

__all__ = ["PaneTable", "Panes", "PanesOnDisk"]

Pane = dict[Any, Any]


class Panes(Protocol):
    """What a window operator needs."""

    version: int
    """Grows when the content has changed by other means than these methods."""

    changes: dict[int, Any]
    """This epoch's accumulators by pane and key; of a pane that has been dropped, DELETED."""

    def before(self, pane: int, key: Any) -> Any:
        """An accumulator as the epoch found it, not to be changed; MISSING if there is none."""

    def items(self, pane: int) -> Iterable[tuple[Any, Any]]:
        """All keys and accumulators of a pane."""

    def drop(self, pane: int) -> None:
        """Remove a pane."""

    def live(self) -> set[int]:
        """The panes that are there."""


class PaneTable(Table):
    """Panes as Python objects."""

    def __init__(
        self, name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
    ) -> None:
        super().__init__(name, kind, codec, ttl=ttl)
        self.base: dict[int, Pane] = {}
        self.version = 0
        self.read = self._read

    # -- Panes ----------------------------------------------------------------------------------------------

    def before(self, pane: int, key: Any) -> Any:
        base = self.base.get(pane)
        return MISSING if base is None else base.get(key, MISSING)

    def items(self, pane: int) -> Iterable[tuple[Any, Any]]:
        base, changed = self.base.get(pane), self.changes.get(pane)
        if changed is DELETED:
            return ()
        if not base:
            return () if changed is None else changed.items()
        return base.items() if not changed else {**base, **changed}.items()

    def drop(self, pane: int) -> None:
        if pane in self.base:
            self.changes[pane] = DELETED
        else:
            self.changes.pop(pane, None)

    def live(self) -> set[int]:
        gone = {pane for pane, changed in self.changes.items() if changed is DELETED}
        return (self.base.keys() | self.changes.keys()) - gone

    # -- Table ----------------------------------------------------------------------------------------------

    def _read(self, key: Any, default: Any) -> Any:
        value = self.before(key[1], key[0])
        return default if value is MISSING else value

    def read_entry(self, key: Any, entry: Any, default: Any) -> Any:
        raise AssertionError("a pane has no entries")

    def read_entries(self, key: Any) -> Iterable[tuple[Any, Any]]:
        raise AssertionError("a pane has no entries")

    def keys(self) -> Iterator[Any]:
        for pane in self.live():
            for key, _ in self.items(pane):
                yield key, pane

    def absorb(self) -> None:
        for pane, changed in self.changes.items():
            if changed is DELETED:
                self.base.pop(pane, None)
            elif pane in self.base:
                self.base[pane].update(changed)
            else:
                self.base[pane] = changed
        self.changes.clear()

    def discard(self) -> None:
        if self.changes:
            self.version += 1
        super().discard()

    def reset(self) -> None:
        self.version += 1
        self.base.clear()
        self.changes.clear()

    def apply(self, kind: str, entries: Entries, decode: Convert | None) -> None:
        self.version += 1
        base = self.base
        if kind == "D":
            for key, pane in entries:
                values = base.get(pane)
                if values is not None:
                    values.pop(key, None)
                    if not values:
                        del base[pane]
            return
        for (key, pane), value in entries:
            values = base.get(pane)
            if values is None:
                values = base[pane] = {}
            values[key] = value if decode is None else decode(value)

    def delta(self) -> Iterator[tuple[str, Entries]]:
        encode = self.encode
        dropped = [pane for pane, changed in self.changes.items() if changed is DELETED]
        yield from blocks_of("D", ((key, pane) for pane in dropped for key in self.base[pane]))
        for pane, changed in self.changes.items():
            if changed is not DELETED:
                yield from blocks_of("P", _entries(pane, changed.items(), encode))

    def full(self) -> Iterator[tuple[str, Entries]]:
        encode = self.encode
        for pane in sorted(self.live()):
            yield from blocks_of("P", _entries(pane, self.items(pane), encode))


def _entries(
    pane: int, items: Iterable[tuple[Any, Any]], encode: Convert | None
) -> Iterator[tuple[Any, Any]]:
    if encode is None:
        return (((key, pane), value) for key, value in items)
    return (((key, pane), encode(value)) for key, value in items)


class PanesOnDisk:
    """Panes in a table that is not in memory. Changes are kept by pane until the epoch's end; which keys a pane has is
    looked up in a list of all, made again when another process has run an epoch."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.changes: dict[int, Any] = {}
        self.version = 0
        self._keys: dict[int, dict[Any, None]] = {}
        table.index = self

    # -- as the index of the table ----------------------------------------------------------------------------

    valid = False

    def applied(self, kind: str, entries: Entries) -> None:
        """Not told by tables on disk."""
        self.valid = False

    def clear(self) -> None:
        """The table is empty."""
        self.changes.clear()
        self.valid = False

    def put_back(self, key: Any, *, there: bool) -> None:
        """What records have done is not in the table before the epoch ends: nothing to put back."""

    def sweep(self) -> None:
        """The epoch ends: the changes go into the table."""
        changes = self._table.changes
        for pane, changed in self.changes.items():
            if changed is DELETED:
                changes.update(((key, pane), DELETED) for key in self._keys.get(pane, ()))
                self._keys.pop(pane, None)
            else:
                changes.update(((key, pane), value) for key, value in changed.items())
                self._keys.setdefault(pane, {}).update(dict.fromkeys(changed))
        self.changes.clear()

    def _known(self) -> dict[int, dict[Any, None]]:
        if not self.valid:
            self.version += 1
            self._keys.clear()
            for key, pane in self._table.keys():  # noqa: SIM118 - a table is no dictionary
                self._keys.setdefault(pane, {})[key] = None
            self.valid = True
        return self._keys

    # -- Panes ----------------------------------------------------------------------------------------------

    def before(self, pane: int, key: Any) -> Any:
        return self._table.read((key, pane), MISSING)

    def items(self, pane: int) -> Iterator[tuple[Any, Any]]:
        changed = self.changes.get(pane)
        if changed is DELETED:
            return
        known = self._known().get(pane, {})
        for key in known:
            value = MISSING if changed is None else changed.get(key, MISSING)
            yield key, self.before(pane, key) if value is MISSING else value
        for key, value in () if changed is None else changed.items():
            if key not in known:
                yield key, value

    def drop(self, pane: int) -> None:
        if pane in self._known():
            self.changes[pane] = DELETED
        else:
            self.changes.pop(pane, None)

    def live(self) -> set[int]:
        gone = {pane for pane, changed in self.changes.items() if changed is DELETED}
        return (self._known().keys() | self.changes.keys()) - gone
