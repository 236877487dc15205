"""Windows of a former program, as windows with an end of their own.

Who changes a window's size, offset, gap or kind, and goes on from a savepoint, finds windows open that the new assigner
would not make. They end as they began. Operators that keep their own windows in a more compact form keep these as
`WindowOperator` keeps all: each under (key, (start, end)).
"""

from __future__ import annotations

from typing import Any

from millstream.common.constants import MAX_TIME
from millstream.runtime.state.table import DELETED, MISSING, Table, isolate

__all__ = ["KeptWindows"]

Pair = tuple[Any, tuple[int, int]]


class KeptWindows:
    """The accumulators of windows that a former program left open, found by their ends; the index of their table."""

    __slots__ = ("_by_end", "_table", "valid")

    def __init__(self, table: Table) -> None:
        self._table = table
        self._by_end: dict[int, dict[Pair, None]] = {}
        self.valid = False
        table.index = self

    # -- as the index of the table ----------------------------------------------------------------------------

    def applied(self, kind: str, entries: list[Any]) -> None:
        """Entries of a file were put into the table."""
        self.valid = False

    def clear(self) -> None:
        """The table is empty."""
        self.valid = False

    def put_back(self, key: Any, *, there: bool) -> None:
        """A record opens no window here and ends none: nothing to put back."""

    def _known(self) -> dict[int, dict[Pair, None]]:
        if not self.valid:
            self._by_end.clear()
            for pair in self._table.keys():  # noqa: SIM118 - a table is no dictionary
                self._by_end.setdefault(pair[1][1], {})[pair] = None
            self.valid = True
        return self._by_end

    # -- windows ----------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._known())

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        """A window is there."""
        pair = key, (start, end)
        self._known().setdefault(end, {})[pair] = None
        self._table.changes[pair] = value

    def get(self, key: Any, start: int, end: int) -> Any:
        """A window's accumulator, the caller's own; MISSING if there is none."""
        pair = key, (start, end)
        value = self._table.changes.get(pair, MISSING)
        if value is MISSING:
            value = self._table.read(pair, MISSING)
        return MISSING if value is MISSING or value is DELETED else isolate(value)

    def over(self, before: int, watermark: int) -> list[int]:
        """The ends of windows that have ended since the watermark was `before`, in order."""
        return sorted(end for end in self._known() if before < min(end - 1, MAX_TIME) <= watermark)

    def ending(self, end: int) -> list[tuple[Any, int]]:
        """The windows with this end, as key and start; the earliest starts first."""
        ending = ((key, start) for key, (start, _) in self._known().get(end, ()))
        return sorted(ending, key=lambda window: window[1])

    def expire(self, watermark: int, lateness: int) -> None:
        """Forget the windows that nothing can come to any more."""
        known, table = self._known(), self._table
        gone = [end for end in known if watermark == MAX_TIME or end - 1 + lateness <= watermark]
        for end in gone:
            for pair in known.pop(end):
                # What came and went within an epoch leaves no trace in the epoch's file.
                if table.read(pair, MISSING) is MISSING:
                    table.changes.pop(pair, None)
                else:
                    table.changes[pair] = DELETED
