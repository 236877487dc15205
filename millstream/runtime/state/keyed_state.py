"""Keyed state as functions see it: five kinds of state over a `Table`, each in the scope of the current key.

What is read is the reader's own: mutable values are copied on their way out and in, so that state changes by `update`,
`add` and `put` and in no other way, wherever an epoch ends (rule 45).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from millstream.api.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
)
from millstream.checkpoint.statefile import table_name
from millstream.errors import InvalidArgument, NoCurrentKey, UnsupportedOperation
from millstream.runtime.state.codec import ValueCodec, codec_for, entry_codec
from millstream.runtime.state.store import StateStore
from millstream.runtime.state.storing import Storing
from millstream.runtime.state.table import (
    ATOMIC,
    DELETED,
    MISSING,
    ListChange,
    MapChange,
    Table,
    isolate,
)
from millstream.runtime.state.ttl import (
    TtlListState,
    TtlMapState,
    TtlTable,
    TtlValueState,
    list_element,
)
from millstream.runtime.wire.keys import canonical

__all__ = ["NO_KEY", "KeyContext", "KeyedStates", "WithoutState"]


class _NoKey:
    def __repr__(self) -> str:
        return "no key"


NO_KEY: Any = _NoKey()


class KeyContext:
    """The current key of one operator: as the user knows it, and in its canonical form."""

    __slots__ = ("canon", "key")

    def __init__(self) -> None:
        self.key: Any = None
        self.canon: Any = NO_KEY

    def leave(self) -> None:
        """There is no current key from here on."""
        self.key, self.canon = None, NO_KEY


class KeyedStates:
    """The keyed states of one operator; `keys` is None if it has no key."""

    def __init__(self, store: StateStore, uid: str, name: str, keys: KeyContext | None) -> None:
        self._store = store
        self._uid = uid
        self._name = name
        self._keys = keys
        self._states: dict[str, tuple[str, Any]] = {}

    def get(self, descriptor: StateDescriptor, kind: str) -> Any:
        """The state of a descriptor, the same object each time."""
        if self._keys is None:
            msg = f"'{self._name}' has no key, so it cannot have keyed state"
            raise UnsupportedOperation(
                msg,
                operator=self._name,
                state=getattr(descriptor, "name", None),
                hint="call key_by(...) first, or use operator state (CheckpointedFunction)",
            )
        if not isinstance(descriptor, StateDescriptor) or descriptor.kind != kind:
            msg = f"'{self._name}' asked for {kind} state with a descriptor of another kind"
            raise InvalidArgument(msg, operator=self._name, got=repr(descriptor))
        name = descriptor.get_name()
        if name in self._states:
            known, state = self._states[name]
            if known != kind:
                msg = f"the state '{name}' of '{self._name}' is both {known} and {kind} state"
                raise InvalidArgument(msg, hint="give the two states different names")
            return state
        if table_name(self._uid, name) in self._store.own:
            msg = f"'{self._name}' keeps a state of its own under the name '{name}'"
            raise InvalidArgument(msg, operator=self._name, hint="give your state another name")
        ttl = descriptor._ttl_config
        codec = _codec(descriptor)
        described = {**descriptor.describe(), "ttl": ttl is not None}
        self._store.register(self._uid, name, described)
        table = self._store.table(table_name(self._uid, name), kind, codec, ttl=ttl is not None)
        timed = None
        if ttl is not None:
            timed = TtlTable(ttl, table)
            self._store.expiring.append(timed)
        state = _make(kind, self._keys, table, descriptor, timed)
        self._states[name] = kind, state
        return state

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        """The canonical form of every key that has a value in the state."""
        self.get(descriptor, descriptor.kind)
        table = self._store.table(table_name(self._uid, descriptor.get_name()))
        return list(table.keys())


class WithoutState:
    """In the place of keyed states for the functions that add records to windows: a record may belong to several
    windows or to none, and be added in another order when windows merge (Flink refuses such functions as a whole)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get(self, descriptor: StateDescriptor, kind: str) -> Any:
        """Refused: raises `UnsupportedOperation`."""
        msg = f"the reduce or aggregate function of the windows '{self._name}' cannot have keyed state"
        raise UnsupportedOperation(
            msg,
            operator=self._name,
            state=getattr(descriptor, "name", None),
            hint="use state in a ProcessWindowFunction beside it, or in a process function behind it",
        )


def _codec(descriptor: StateDescriptor) -> ValueCodec:
    if isinstance(descriptor, MapStateDescriptor):
        return entry_codec(descriptor.key_type_info, descriptor.type_info)
    return codec_for(descriptor.type_info)


def _make(
    kind: str, keys: KeyContext, table: Table, descriptor: StateDescriptor, ttl: TtlTable | None
) -> Any:
    storing = Storing(table.name, codec_for(descriptor.type_info))
    if kind == "list":
        items = _ListState(keys, table, storing)
        return items if ttl is None else TtlListState(items, ttl)
    if isinstance(descriptor, MapStateDescriptor):
        names = Storing(table.name, codec_for(descriptor.key_type_info), "map key")
        entries = _MapState(keys, table, storing, names)
        return entries if ttl is None else TtlMapState(entries, ttl)
    plain = _ValueState(keys, table, storing)
    value: ValueState[Any] = plain if ttl is None else TtlValueState(plain, ttl)
    if isinstance(descriptor, ReducingStateDescriptor):
        return _ReducingState(value, descriptor)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return _AggregatingState(value, descriptor)
    return value


def _no_key(table: Table) -> NoReturn:
    operator, _, state = table.name.rpartition("/")
    msg = f"the keyed state '{state}' was used where there is no current key"
    raise NoCurrentKey(
        msg,
        uid=operator,
        hint="use keyed state only while a record of the keyed stream is processed: not in open(), "
        "not in close(), not on the broadcast side",
    )


class _Keyed:
    __slots__ = (
        "_changed",
        "_changes",
        "_high",
        "_keys",
        "_low",
        "_read",
        "_ready",
        "_table",
        "fit",
    )

    def __init__(self, keys: KeyContext, table: Table, storing: Storing) -> None:
        self._keys = keys
        self._table = table
        self._changes = table.changes
        self._changed = table.changes.get
        self._read = table.read
        self.fit = storing.fit
        self._ready = storing.ready
        self._low, self._high = storing.low, storing.high

    def clear(self) -> None:
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        self._changes[canon] = DELETED


class _ValueState(_Keyed, ValueState[Any]):
    __slots__ = ()

    def kept(self) -> Any:
        """The value as it is kept, or None."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        value = self._changed(canon, MISSING)
        if value is MISSING:
            value = self._read(canon, MISSING)
        return None if value is MISSING or value is DELETED else value

    def keep(self, kept: Any) -> None:
        """Keep what fits already and is nobody else's."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        self._changes[canon] = kept

    def value(self) -> Any:
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        value = self._changed(canon, MISSING)
        if value is MISSING:
            value = self._read(canon, MISSING)
        if value is MISSING or value is DELETED:
            return None
        return value if type(value) in ATOMIC else isolate(value)

    def update(self, value: Any) -> None:
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        kind = type(value)
        if value is None:
            self._changes[canon] = DELETED
        elif kind in self._ready or (kind is int and self._low <= value <= self._high):
            self._changes[canon] = value
        else:
            self._changes[canon] = self.fit(value)


class _ListState(_Keyed, ListState[Any]):
    __slots__ = ()

    def raw(self) -> list[Any]:
        """The elements as they are kept."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        change = self._changed(canon)
        if change is DELETED:
            return []
        if change is not None and change.replace:
            items: list[Any] = change.items
            return items
        base = self._read(canon, None) or []
        return base if change is None else base + change.items

    def get(self) -> list[Any]:
        return [isolate(element) for element in self.raw()]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        fit = self.fit
        self.keep_more([fit(list_element(value)) for value in values])

    def keep_more(self, items: list[Any]) -> None:
        """Add elements that fit already and are nobody else's."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        change = self._changed(canon)
        if change is None:
            self._changes[canon] = ListChange(items, replace=False)
        elif change is DELETED:
            self._changes[canon] = ListChange(items, replace=True)
        else:
            change.items.extend(items)

    def update(self, values: Iterable[Any]) -> None:
        fit = self.fit
        self.keep([fit(list_element(value)) for value in values])

    def keep(self, items: list[Any]) -> None:
        """Put elements that fit already and are nobody else's in the place of all."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        self._changes[canon] = ListChange(items, replace=True) if items else DELETED


class _MapState(_Keyed, MapState[Any, Any]):
    """An entry is kept as (map key, value) under the map key's canonical form."""

    __slots__ = ("_any_key", "_fit_key")

    def __init__(self, keys: KeyContext, table: Table, storing: Storing, names: Storing) -> None:
        super().__init__(keys, table, storing)
        self._fit_key = names.fit
        self._any_key = names.ready is ATOMIC

    def name(self, key: Any) -> Any:
        """What an entry is kept under."""
        return canonical(key if self._any_key else self._fit_key(key))

    def make(self, key: Any, value: Any) -> tuple[Any, tuple[Any, Any]]:
        """What an entry is kept under, and the entry."""
        fits = self._fit_key(key)
        return canonical(fits), (fits, self.fit(value))

    def entry(self, key: Any) -> Any:
        """(key, value) as it is kept, or MISSING."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        name = self.name(key)
        change = self._changed(canon)
        if change is not None:
            if change is DELETED:
                return MISSING
            entry = change.entries.get(name, MISSING)
            if entry is not MISSING:
                return MISSING if entry is DELETED else entry
            if change.cleared:
                return MISSING
        return self._table.read_entry(canon, name, MISSING)

    def entries(self) -> list[Any]:
        """All entries as they are kept."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        change = self._changed(canon)
        if change is None:
            return [entry for _, entry in self._table.read_entries(canon)]
        if change is DELETED:
            return []
        merged = {} if change.cleared else dict(self._table.read_entries(canon))
        merged.update(change.entries)
        return [entry for entry in merged.values() if entry is not DELETED]

    def put_entry(self, name: Any, entry: Any) -> None:
        """Keep an entry, or remove it if it is DELETED."""
        canon = self._keys.canon
        if canon is NO_KEY:
            _no_key(self._table)
        change = self._changed(canon)
        if change is None:
            change = self._changes[canon] = MapChange()
        elif change is DELETED:
            change = self._changes[canon] = MapChange(cleared=True)
        change.entries[name] = entry

    def get(self, key: Any) -> Any:
        entry = self.entry(key)
        return None if entry is MISSING else isolate(entry[1])

    def contains(self, key: Any) -> bool:
        return self.entry(key) is not MISSING

    def put(self, key: Any, value: Any) -> None:
        self.put_entry(*self.make(key, value))

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self.put_entry(self.name(key), DELETED)

    def items(self) -> list[tuple[Any, Any]]:
        return [(isolate(key), isolate(value)) for key, value in self.entries()]

    def keys(self) -> list[Any]:
        return [isolate(key) for key, _ in self.entries()]

    def values(self) -> list[Any]:
        return [isolate(value) for _, value in self.entries()]

    def is_empty(self) -> bool:
        return not self.entries()


class _ReducingState(ReducingState[Any]):
    __slots__ = ("_reduce", "_value")

    def __init__(self, value: ValueState[Any], descriptor: ReducingStateDescriptor) -> None:
        self._value = value
        self._reduce = descriptor.get_reduce_function().reduce

    def get(self) -> Any:
        return self._value.value()

    def add(self, value: Any) -> None:
        so_far = self._value.value()
        self._value.update(value if so_far is None else self._reduce(so_far, value))

    def clear(self) -> None:
        self._value.clear()


class _AggregatingState(AggregatingState[Any, Any]):
    __slots__ = ("_function", "_value")

    def __init__(self, value: ValueState[Any], descriptor: AggregatingStateDescriptor) -> None:
        self._value = value
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        accumulator = self._value.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        if value is None:
            # Rule 44.
            self._value.clear()
            return
        accumulator = self._value.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._value.update(self._function.add(value, accumulator))

    def clear(self) -> None:
        self._value.clear()
