"""What a window operator keeps: which window is meant (its namespace) and what is in it (its contents).

Both are keyed state under (canonical key, namespace), so that they are written, restored and moved as all keyed state.
The contents are the hottest state of a window, so they are read and written in their table, as generated code does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.api.evictor import TimestampedValue
from millstream.api.functions import AggregateFunction, ReduceFunction
from millstream.api.state import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from millstream.api.window_assigners import GlobalWindows
from millstream.api.windows import CountWindow, GlobalWindow, TimeWindow, Window
from millstream.checkpoint.statefile import table_name
from millstream.errors import UserFunctionError
from millstream.graph.operators import WindowOp
from millstream.runtime.base.text import shorten
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.store import StateStore
from millstream.runtime.state.table import DELETED, MISSING, ListChange, Table, isolate
from millstream.runtime.windows.change import CONTENTS, RECORDS, TIMED_RECORDS
from millstream.runtime.wire.keys import canonical

__all__ = ["Contents", "Namespaces", "SingleValue", "TimedContents", "make_contents", "own_table"]


def own_table(
    states: KeyedStates, store: StateStore, uid: str, descriptor: StateDescriptor
) -> Table:
    """The table of a state that the operator itself has."""
    states.get(descriptor, descriptor.kind)
    return store.table(table_name(uid, descriptor.name))


class Namespaces:
    """Windows as the second half of a key, and back.

    A time window is its bounds, a count window its number, the global window 0. A window of the user's own class is its
    canonical form, which is the same in every run; the object itself is kept in state beside its contents.
    """

    def __init__(
        self,
        name: str,
        assigner: Any,
        keys: KeyContext,
        objects: Callable[[], SingleValue],
    ) -> None:
        self._name = name
        self._global = isinstance(assigner, GlobalWindows)
        self._keys = keys
        self._make_objects = objects
        self._objects_or_none: SingleValue | None = None

    @property
    def _objects(self) -> SingleValue:
        # Most jobs have no windows of their own, and so not this state.
        if self._objects_or_none is None:
            self._objects_or_none = self._make_objects()
        return self._objects_or_none

    def of(self, window: Any) -> Any:
        """The namespace of a window."""
        kind = type(window)
        if kind is TimeWindow:
            return window.start, window.end
        if kind is GlobalWindow and self._global:
            return 0
        if kind is CountWindow:
            return window.id
        if not isinstance(window, Window):
            msg = f"the window assigner of '{self._name}' gave something that is not a window"
            raise UserFunctionError(
                msg,
                got=f"{kind.__name__} {shorten(window)}",
                hint="assign_windows returns a list of objects whose class extends Window",
            )
        return canonical(window)

    def window(self, namespace: Any) -> Any:
        """The window of a namespace; None if it is of the user's own class and has been removed."""
        kind = type(namespace)
        if kind is tuple:
            return TimeWindow(namespace[0], namespace[1])
        if kind is bytes:
            window = self._objects.get((self._keys.canon, namespace))
            return None if window is None else isolate(window)
        return GlobalWindow.get() if self._global else CountWindow(namespace)

    def remember(self, namespace: Any, window: Any) -> None:
        """There is something in the window of the current key."""
        if type(namespace) is bytes:
            pair = self._keys.canon, namespace
            if self._objects.get(pair) is None:
                self._objects.put(pair, isolate(window))

    def forget(self, namespace: Any) -> None:
        """The window of the current key is gone."""
        if type(namespace) is bytes:
            self._objects.drop((self._keys.canon, namespace))


class SingleValue:
    """A table with a value per key, whose values nobody changes in place."""

    __slots__ = ("_changed", "_changes", "_read")

    def __init__(self, table: Table) -> None:
        self._changes = table.changes
        self._changed = table.changes.get
        self._read = table.read

    def get(self, key: Any) -> Any:
        """The value as it is kept, or None."""
        value = self._changed(key, MISSING)
        if value is MISSING:
            value = self._read(key, MISSING)
        return None if value is MISSING or value is DELETED else value

    def put(self, key: Any, value: Any) -> None:
        """Replace the value."""
        self._changes[key] = value

    def drop(self, key: Any) -> None:
        """Remove the value."""
        # A window that came and went within an epoch leaves no trace in the epoch's file.
        if self._read(key, MISSING) is MISSING:
            self._changes.pop(key, None)
        else:
            self._changes[key] = DELETED


class Contents(ABC):
    """What is in a window, under (canonical key, namespace)."""

    @abstractmethod
    def add(self, key: Any, value: Any, timestamp: int) -> None:
        """Add a record."""

    @abstractmethod
    def get(self, key: Any) -> list[Any] | None:
        """What the window function is given; None if nothing is in the window."""

    @abstractmethod
    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        """Move what is in other windows into this one."""

    @abstractmethod
    def clear(self, key: Any) -> None:
        """Remove all that is in a window."""

    @abstractmethod
    def restore(self, key: Any, value: Any) -> None:
        """Put what a window of a former program held into one that is empty."""


class ListContents(Contents):
    """The records themselves."""

    def __init__(self, table: Table) -> None:
        self._changes = table.changes
        self._changed = table.changes.get
        self._read = table.read

    def _append(self, key: Any, items: list[Any]) -> None:
        change = self._changed(key)
        if change is None:
            self._changes[key] = ListChange(items, replace=False)
        elif change is DELETED:
            self._changes[key] = ListChange(items, replace=True)
        else:
            change.items.extend(items)

    def raw(self, key: Any) -> list[Any]:
        """What is kept, to be read only."""
        change = self._changed(key)
        if change is DELETED:
            return []
        if change is not None and change.replace:
            items: list[Any] = change.items
            return items
        base: list[Any] = self._read(key, None) or []
        return base if change is None else base + change.items

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        self._append(key, [isolate(value)])

    def get(self, key: Any) -> list[Any] | None:
        return [isolate(record) for record in self.raw(key)] or None

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        for source in sources:
            items = list(self.raw(source))
            if items:
                self._append(target, items)
            self.clear(source)

    def clear(self, key: Any) -> None:
        if self._read(key, None) is None:
            self._changes.pop(key, None)
        else:
            self._changes[key] = DELETED

    def restore(self, key: Any, value: Any) -> None:
        self._changes[key] = ListChange(value, replace=True)


class TimedContents(ListContents):
    """The records with their timestamps, for an evictor. What it removes leaves the state (rule 34)."""

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        self._append(key, [(isolate(value), timestamp)])

    def get(self, key: Any) -> list[Any] | None:
        """A list of `TimestampedValue`."""
        return [TimestampedValue(isolate(value), at) for value, at in self.raw(key)] or None

    def keep(self, key: Any, given: list[Any], kept: Iterable[Any]) -> None:
        """Keep only these of the records that `get` gave; what a function has done to them is not kept."""
        places = {id(stamped): place for place, stamped in enumerate(given)}
        raw = self.raw(key)
        items = [
            raw[places[id(stamped)]]
            if id(stamped) in places
            else (isolate(stamped.value), stamped.timestamp)
            for stamped in kept
        ]
        if items:
            self._changes[key] = ListChange(items, replace=True)
        else:
            self.clear(key)


class ReduceContents(Contents):
    """What a reduce function makes of the records."""

    def __init__(self, table: Table, function: ReduceFunction | Callable[[Any, Any], Any]) -> None:
        self._values = SingleValue(table)
        self._reduce = function.reduce if isinstance(function, ReduceFunction) else function

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        values = self._values
        so_far = values.get(key)
        if so_far is not None:
            value = self._reduce(isolate(so_far), value)
        if value is None:
            values.drop(key)
        else:
            values.put(key, isolate(value))

    def get(self, key: Any) -> list[Any] | None:
        value = self._values.get(key)
        return None if value is None else [isolate(value)]

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        for source in sources:
            value = self._values.get(source)
            if value is not None:
                self.add(target, isolate(value), 0)
            self.clear(source)

    def clear(self, key: Any) -> None:
        self._values.drop(key)

    def restore(self, key: Any, value: Any) -> None:
        self._values.put(key, value)


class AggregateContents(Contents):
    """The accumulator of an aggregate function."""

    def __init__(self, table: Table, function: AggregateFunction, name: str) -> None:
        self._values = SingleValue(table)
        self._function = function
        self._name = name
        self._add = function.add
        self._create = function.create_accumulator

    def add(self, key: Any, value: Any, timestamp: int) -> None:
        so_far = self._values.get(key)
        accumulator = self._add(value, self._create() if so_far is None else isolate(so_far))
        self._put(key, accumulator, "add")

    def _put(self, key: Any, accumulator: Any, call: str) -> None:
        if accumulator is None:
            msg = f"{call} of the aggregate function of '{self._name}' returned None"
            raise UserFunctionError(msg, hint=f"{call} must return the accumulator")
        self._values.put(key, isolate(accumulator))

    def get(self, key: Any) -> list[Any] | None:
        accumulator = self._values.get(key)
        return None if accumulator is None else [self._function.get_result(isolate(accumulator))]

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        values = self._values
        for source in sources:
            accumulator = values.get(source)
            if accumulator is not None:
                so_far = values.get(target)
                if so_far is not None:
                    accumulator = self._function.merge(isolate(so_far), isolate(accumulator))
                self._put(target, accumulator, "merge")
            values.drop(source)

    def clear(self, key: Any) -> None:
        self._values.drop(key)

    def restore(self, key: Any, value: Any) -> None:
        self._values.put(key, value)


def make_contents(op: WindowOp, name: str, table: Callable[[Any], Any]) -> Contents:
    """How the contents of the operator's windows are kept."""
    if op.evictor is not None:
        return TimedContents(table(ListStateDescriptor(TIMED_RECORDS)))
    if op.kind == "reduce":
        return ReduceContents(table(ValueStateDescriptor(CONTENTS)), op.incremental)
    if op.kind == "aggregate":
        descriptor = ValueStateDescriptor(CONTENTS, op.accumulator_type)
        return AggregateContents(table(descriptor), op.incremental, name)
    return ListContents(table(ListStateDescriptor(RECORDS)))
