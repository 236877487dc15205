"""What a bad record has done is undone: the journal of an operator with an error policy.

```
journal_3.begin()
try:
    ...                        the operator's own work
except Exception as error:
    journal_3.undo()           state, timers and results are as they were before the record
else:
    journal_3.end()            results that were held back go on
```

The dictionaries of changes of such an operator's tables note what they held before each write, and whatever they hand
out that can be changed in place. Operators without a policy have plain dictionaries and pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.runtime.state.copying import own
from millstream.runtime.state.table import (
    ATOMIC,
    DELETED,
    MISSING,
    ListChange,
    MapChange,
    Table,
    isolate,
)

__all__ = ["Journal", "NotedDict"]

Send = Callable[[Any, int], None]


class Journal:
    """What has been changed since a record came."""

    __slots__ = ("_held", "_log", "active")

    def __init__(self) -> None:
        self.active = False
        self._log: list[Callable[[], None]] = []
        self._held: list[tuple[Send, Any, int]] = []

    def begin(self) -> None:
        """A record comes."""
        self.active = True

    def end(self) -> None:
        """The record has been processed: what it has changed stays, what it has given goes on."""
        self.active = False
        self._log.clear()
        if self._held:
            held, self._held = self._held, []
            for send, value, timestamp in held:
                send(value, timestamp)

    def undo(self) -> None:
        """The record could not be processed: everything is as it was before it came."""
        self.active = False
        for step in reversed(self._log):
            step()
        self._log.clear()
        self._held.clear()

    def note(self, step: Callable[[], None]) -> None:
        """What undoes a change that is about to be made."""
        if self.active:
            self._log.append(step)

    def watch(self, table: Table) -> None:
        """Note all changes of a table. Called before anybody holds on to the dictionary of its changes."""
        if type(table.changes) is dict:
            table.changes = NotedDict(self, table.changes, table)

    def holding(self, send: Send) -> Send:
        """A way out that holds back what a record gives until it has been processed."""

        def hold(value: Any, timestamp: int) -> None:
            if self.active:
                self._held.append((send, own(value), timestamp))
            else:
                send(value, timestamp)

        return hold


class NotedDict(dict[Any, Any]):
    """A dictionary that tells a journal what it held."""

    __slots__ = ("_in_place", "_journal", "_table")

    def __init__(
        self,
        journal: Journal,
        content: dict[Any, Any],
        table: Table | None = None,
        *,
        in_place: bool = True,
    ) -> None:
        super().__init__(content)
        self._journal = journal
        self._table = table
        # True if whoever gets a value may change it in place.
        self._in_place = in_place

    def _note(self, key: Any) -> None:
        before = dict.get(self, key, MISSING)
        self._journal.note(lambda: self._put_back(key, before))

    def _put_back(self, key: Any, before: Any) -> None:
        if before is MISSING:
            dict.pop(self, key, None)
        else:
            dict.__setitem__(self, key, before)
        table = self._table
        if table is not None and table.index is not None:
            there = before is not DELETED
            if before is MISSING:
                there = table.read(key, MISSING) is not MISSING
            table.index.put_back(key, there=there)

    def _handed_out(self, key: Any, value: Any) -> Any:
        """Note what a value was that may be changed in place."""
        kind, journal = type(value), self._journal
        if kind is NotedDict or value is DELETED:
            return value
        if kind is ListChange:
            length = len(value.items)
            journal.note(lambda: value.items.__delitem__(slice(length, None)))
        elif kind is MapChange:
            if type(value.entries) is dict:
                value.entries = NotedDict(journal, value.entries, in_place=False)
        elif kind is dict:
            value = NotedDict(journal, value)
            dict.__setitem__(self, key, value)
        else:
            before = isolate(value)
            if before is not value:
                journal.note(lambda: dict.__setitem__(self, key, before))
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = dict.get(self, key, MISSING)
        if value is MISSING:
            return default
        if self._in_place and self._journal.active and type(value) not in ATOMIC:
            return self._handed_out(key, value)
        return value

    def __getitem__(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if self._in_place and self._journal.active and type(value) not in ATOMIC:
            return self._handed_out(key, value)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._journal.active:
            self._note(key)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if self._journal.active:
            self._note(key)
        dict.__delitem__(self, key)

    def pop(self, key: Any, *default: Any) -> Any:
        if self._journal.active:
            self._note(key)
        return dict.pop(self, key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *more: Any, **named: Any) -> None:
        if not self._journal.active:
            dict.update(self, *more, **named)
            return
        for key, value in dict(*more, **named).items():
            self[key] = value

    def clear(self) -> None:
        if self._journal.active:
            keys: Iterable[Any] = list(self)
            for key in keys:
                self._note(key)
        dict.clear(self)
