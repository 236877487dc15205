"""Tables of the `hashmap` backend, by kind of state."""

from __future__ import annotations

from millstream.runtime.state.codec import PICKLED, ValueCodec
from millstream.runtime.state.panes import PaneTable
from millstream.runtime.state.table import (
    HashTable,
    Table,
)

__all__ = ["make_hash_table"]


def make_hash_table(
    name: str, kind: str, codec: ValueCodec = PICKLED, *, ttl: bool = False
) -> Table:
    """A table of the `hashmap` backend."""
    if kind == "pane":
        return PaneTable(name, kind, codec, ttl=ttl)
    return HashTable(name, kind, codec, ttl=ttl)
