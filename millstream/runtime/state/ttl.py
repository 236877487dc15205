"""State with time-to-live (Flink's `TtlStateFactory`): values, list elements and map entries with the time they were
last touched beside them, on processing time (rule 48).

What has expired is hidden when it is read, removed when it is met, and looked for a few keys at a time at the end of
every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millstream.api.state import ListState, MapState, StateTtlConfig, ValueState
from millstream.errors import InvalidArgument
from millstream.runtime.base import clock
from millstream.runtime.state.table import DELETED, MISSING, ListChange, MapChange, Table, isolate

__all__ = ["TtlListState", "TtlMapState", "TtlTable", "TtlValueState", "list_element", "now"]

# Keys are looked at this many times the configured number per epoch, which stands for Flink's "per access".
_PER_EPOCH = 100


def now() -> int:
    """Processing time in milliseconds."""
    return clock.now()


class TtlTable:
    """The rules of one state, and the search for what has expired in its table."""

    def __init__(self, config: StateTtlConfig, table: Table) -> None:
        update, visible = config.get_update_type(), config.get_state_visibility()
        self.ttl = config.ttl_ms
        self.enabled = config.is_enabled()
        self.on_read = update is StateTtlConfig.UpdateType.OnReadAndWrite
        self.hide = visible is StateTtlConfig.StateVisibility.NeverReturnExpired
        self._budget = config.cleanup_size * _PER_EPOCH
        self._table = table
        self._search: Iterator[Any] | None = None

    def expired(self, pair: Any) -> bool:
        """True if a value's time is over."""
        return self.enabled and pair[1] + self.ttl <= now()

    def sweep(self) -> None:
        """Look at some keys and remove what has expired, as part of the epoch."""
        if not self.enabled or not self._budget:
            return
        if self._search is None:
            self._search = self._table.walk()
        for _ in range(self._budget):
            key = next(self._search, MISSING)
            if key is MISSING:
                self._search = None
                return
            self._clean(key)

    def _clean(self, key: Any) -> None:
        table = self._table
        change = table.changes.get(key)
        if change is DELETED:
            return
        match table.shape:
            case "value":
                pair = table.read(key, None) if change is None else change
                if pair is not None and self.expired(pair):
                    table.changes[key] = DELETED
            case "list":
                if change is None:
                    items = table.read(key, None) or []
                    left = [item for item in items if not self.expired(item)]
                    if len(left) < len(items):
                        table.changes[key] = ListChange(left, replace=True) if left else DELETED
            case _:
                if change is None:
                    gone = [m for m, e in table.read_entries(key) if self.expired(e)]
                    if gone:
                        change = table.changes[key] = MapChange()
                        change.entries.update((m, DELETED) for m in gone)


class TtlValueState(ValueState[Any]):
    """A value with its time; also under reducing and aggregating state."""

    __slots__ = ("_rules", "_state")

    def __init__(self, state: Any, rules: TtlTable) -> None:
        self._state = state
        self._rules = rules

    def value(self) -> Any:
        pair = self._state.kept()
        if pair is None:
            return None
        if self._rules.expired(pair):
            self._state.clear()
            return None if self._rules.hide else isolate(pair[0])
        if self._rules.on_read:
            self._state.keep((pair[0], now()))
        return isolate(pair[0])

    def update(self, value: Any) -> None:
        if value is None:
            self._state.clear()
        else:
            self._state.keep((self._state.fit(value), now()))

    def clear(self) -> None:
        self._state.clear()


class TtlListState(ListState[Any]):
    """Each element with a time of its own."""

    __slots__ = ("_rules", "_state")

    def __init__(self, state: Any, rules: TtlTable) -> None:
        self._state = state
        self._rules = rules

    def get(self) -> list[Any]:
        pairs = self._state.raw()
        left = [pair for pair in pairs if not self._rules.expired(pair)]
        if self._rules.on_read and left:
            at = now()
            self._state.keep([(value, at) for value, _ in left])
        elif len(left) < len(pairs):
            self._state.keep(left)
        return [isolate(value) for value, _ in (left if self._rules.hide else pairs)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        self._state.keep_more(self._timed(values))

    def update(self, values: Iterable[Any]) -> None:
        self._state.keep(self._timed(values))

    def _timed(self, values: Iterable[Any]) -> list[Any]:
        at, fit = now(), self._state.fit
        return [(fit(list_element(value)), at) for value in values]

    def clear(self) -> None:
        self._state.clear()


def list_element(value: Any) -> Any:
    """An element that a list state may hold."""
    if value is None:
        msg = "a list state cannot hold None"
        raise InvalidArgument(
            msg, hint="leave the element out, or use a value that stands for nothing"
        )
    return value


class TtlMapState(MapState[Any, Any]):
    """Each entry with a time of its own: ((map key, value), time)."""

    __slots__ = ("_rules", "_state")

    def __init__(self, state: Any, rules: TtlTable) -> None:
        self._state = state
        self._rules = rules

    def _find(self, key: Any) -> Any:
        pair = self._state.entry(key)
        if pair is MISSING:
            return MISSING
        if self._rules.expired(pair):
            self._state.remove(key)
            return MISSING if self._rules.hide else pair
        if self._rules.on_read:
            self._state.put_entry(self._state.name(key), (pair[0], now()))
        return pair

    def get(self, key: Any) -> Any:
        pair = self._find(key)
        return None if pair is MISSING else isolate(pair[0][1])

    def contains(self, key: Any) -> bool:
        return self._find(key) is not MISSING

    def put(self, key: Any, value: Any) -> None:
        name, entry = self._state.make(key, value)
        self._state.put_entry(name, (entry, now()))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._state.remove(key)

    def items(self) -> list[tuple[Any, Any]]:
        result = []
        for entry, at in self._state.entries():
            if self._rules.expired((entry, at)):
                self._state.remove(entry[0])
                if self._rules.hide:
                    continue
            elif self._rules.on_read:
                self._state.put_entry(self._state.name(entry[0]), (entry, now()))
            result.append((isolate(entry[0]), isolate(entry[1])))
        return result

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self.items()

    def clear(self) -> None:
        self._state.clear()
