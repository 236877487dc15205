"""Operator state: lists that belong to a subtask, not to a key, and the broadcast state pattern's maps.

It is small, so it is written whole in every epoch that changes it. When the parallelism changes (Flink's
`RoundRobinOperatorStateRepartitioner`): a list's elements are dealt out evenly and in order, a union list goes to
every subtask as a whole, broadcast state is copied.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from millstream.api.state import (
    BroadcastState,
    ListState,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from millstream.checkpoint.manifest import Parent
from millstream.checkpoint.statefile import table_name
from millstream.errors import (
    InvalidArgument,
    StateMismatch,
    TypeMismatchError,
    UnsupportedOperation,
)
from millstream.runtime.state.codec import (
    PICKLED,
    SchemaMismatch,
    ValueCodec,
    codec_for,
    entry_codec,
)
from millstream.runtime.state.journal import Journal
from millstream.runtime.state.storing import Storing, not_serializable
from millstream.runtime.state.table import ATOMIC, isolate
from millstream.runtime.state.ttl import list_element
from millstream.runtime.wire.codec import dumps
from millstream.runtime.wire.keys import canonical

__all__ = [
    "OperatorState",
    "OperatorStates",
    "ReadOnlyView",
    "element_reader",
    "parts_of",
    "redistribute",
]

LIST, UNION, BROADCAST = "list", "union", "broadcast"


class OperatorState:
    """All operator state of a subtask's vertex, by "operator uid/state name".

    What was found and nobody has asked for yet stays as files have it: the kind, and *parts*, each with the way its
    elements are written: the codec, the schema, the elements. There are several parts if the subtasks that they come
    from wrote differently. Elements that are not plain are pickles, so that nobody has to read them to hand them on.
    """

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._dirty = False

    @property
    def in_use(self) -> bool:
        """True if there is any operator state."""
        return bool(self._states) or bool(self._found)

    def get(
        self,
        name: str,
        kind: str,
        value: ValueCodec = PICKLED,
        key: ValueCodec = PICKLED,
    ) -> Any:
        """A state, the same object each time; its content is what was restored under its name. `key` is for the keys of
        a broadcast state."""
        known = self._states.get(name)
        if known is None:
            storing = Storing(name, value)
            if kind == BROADCAST:
                known = _BroadcastState(self, storing, Storing(name, key, "map key"))
                known.codec = entry_codec(key.type_info, value.type_info)
            else:
                known = _OperatorListState(self, storing)
                known.codec = value
            known.kind = kind
            self._states[name] = known
            content = self._found.pop(name, None)
            if content is not None:
                self._fill(name, known, content)
        if known.kind != kind:
            raise _mismatch(name, known.kind, kind)
        return known

    def known(self, name: str) -> Any:
        """A state that has been asked for; None if it has not."""
        return self._states.get(name)

    def _fill(self, name: str, state: _State, content: dict[str, Any]) -> None:
        if content["kind"] != state.kind:
            raise _mismatch(name, content["kind"], state.kind)
        values: list[Any] = []
        for codec, schema, elements in parts_of(content):
            try:
                read = element_reader(state.codec, codec, schema)
                values += [read(element) for element in elements]
            except (SchemaMismatch, TypeMismatchError) as error:
                raise _retyped(name, state, schema, error) from None
        state.fill(values)

    def changed(self) -> bool:
        """True if something was written since the last call; the next file must then hold all of it."""
        dirty, self._dirty = self._dirty, False
        return dirty

    def touch(self) -> None:
        """Operator state was written."""
        self._dirty = True

    def content(self) -> dict[str, dict[str, Any]]:
        """All operator state, as it goes into a file."""
        mine = {name: _written(name, state) for name, state in self._states.items()}
        return {**self._found, **mine}

    def restore(self, content: dict[str, dict[str, Any]]) -> None:
        """Put what a file holds in the place of what is here."""
        self.reset()
        for name, saved in content.items():
            state = self._states.get(name)
            if state is None:
                self._found[name] = saved
            else:
                self._fill(name, state, saved)

    def reset(self) -> None:
        """Empty all states; the objects that functions hold stay."""
        self._found.clear()
        self._dirty = False
        for state in self._states.values():
            state.fill(())


def _written(name: str, state: _State) -> dict[str, Any]:
    codec = state.codec
    encode, elements = codec.encode, []
    for element in state.content():
        plain = element if encode is None else encode(element)
        if not codec.plain:
            try:
                plain = dumps(plain)
            except Exception as error:
                raise not_serializable(name, element, error) from error
        elements.append(plain)
    return {"kind": state.kind, "parts": [[codec.name, codec.schema, elements]]}


def parts_of(content: dict[str, Any]) -> list[list[Any]]:
    """The parts of a state: (codec, schema, elements) each."""
    if "parts" in content:
        parts: list[list[Any]] = content["parts"]
        return parts
    # Version 0.1.0 wrote no types.
    return [["object", None, content["value"]]]


def element_reader(wanted: ValueCodec, codec: str, schema: Any) -> Callable[[Any], Any]:
    """What reads the elements of a part. Raises `SchemaMismatch`, and when it reads, `TypeMismatchError`."""
    if codec == "object":
        return wanted.fit or _same
    decode = wanted.decoder(codec, schema) or _same
    return decode if codec == "plain" else (lambda element: decode(pickle.loads(element)))


def _same(value: Any) -> Any:
    return value


class OperatorStates(OperatorStateStore):
    """The states of one operator, as a function sees them."""

    def __init__(
        self, states: OperatorState, uid: str, register: Any, journal: Journal | None = None
    ) -> None:
        self._states = states
        self._uid = uid
        self._register = register
        self._journal = journal

    def get_list_state(self, state_descriptor: StateDescriptor) -> ListState[Any]:
        """A list whose elements are dealt out among the subtasks when the parallelism changes."""
        state: ListState[Any] = self._get(state_descriptor, LIST)
        return state

    def get_union_list_state(self, state_descriptor: StateDescriptor) -> ListState[Any]:
        """A list that every subtask gets as a whole when the job is restored."""
        state: ListState[Any] = self._get(state_descriptor, UNION)
        return state

    def get_broadcast_state(self, state_descriptor: StateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same in every subtask."""
        state: BroadcastState[Any, Any] = self._get(state_descriptor, BROADCAST)
        return state

    def broadcast_state(self, state_descriptor: StateDescriptor) -> BroadcastState[Any, Any]:
        """A broadcast state that the stream was broadcast with, or that was asked for in `initialize_state`."""
        name = getattr(state_descriptor, "name", None)
        known = self._states.known(table_name(self._uid, str(name)))
        if isinstance(known, _BroadcastState):
            return known
        msg = f"the stream was not broadcast with the state '{name}'"
        raise InvalidArgument(
            msg,
            operator=self._uid,
            hint="pass the descriptor to broadcast(...) too, under the same name",
        )

    def _get(self, descriptor: StateDescriptor, kind: str) -> Any:
        described = {**descriptor.describe(), "kind": f"operator {kind}"}
        self._register(self._uid, descriptor.get_name(), described)
        name = table_name(self._uid, descriptor.get_name())
        key = getattr(descriptor, "key_type_info", None)
        state = self._states.get(name, kind, codec_for(descriptor.type_info), codec_for(key))
        state.journal = self._journal
        return state


class _State(ABC):
    kind = LIST
    codec = PICKLED
    # Of an operator with an error policy: what is told of every change.
    journal: Journal | None = None

    def __init__(self, owner: OperatorState, storing: Storing) -> None:
        self._owner = owner
        self._fit = storing.fit

    @abstractmethod
    def fill(self, value: Iterable[Any]) -> None:
        """Replace the state's values."""

    @abstractmethod
    def content(self) -> list[Any]:
        """The values of the state, as they are kept."""


class _OperatorListState(_State, ListState[Any]):
    def __init__(self, owner: OperatorState, storing: Storing) -> None:
        super().__init__(owner, storing)
        self._items: list[Any] = []

    def fill(self, value: Iterable[Any]) -> None:
        self._items = list(value)

    def content(self) -> list[Any]:
        return self._items

    def get(self) -> list[Any]:
        return [isolate(element) for element in self._items]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def _note(self) -> None:
        if self.journal is not None and self.journal.active:
            self.journal.note(partial(self.fill, list(self._items)))

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        fit = self._fit
        items = [fit(list_element(value)) for value in values]
        self._note()
        self._items.extend(items)
        self._owner.touch()

    def update(self, values: Iterable[Any]) -> None:
        fit = self._fit
        items = [fit(list_element(value)) for value in values]
        self._note()
        self._items = items
        self._owner.touch()

    def clear(self) -> None:
        self._note()
        self._items = []
        self._owner.touch()


class ReadOnlyView(ReadOnlyBroadcastState[Any, Any]):
    """Broadcast state as the other side sees it (rule 50)."""

    def __init__(self, state: BroadcastState[Any, Any]) -> None:
        self._state = state

    def get(self, key: Any) -> Any:
        return self._state.get(key)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._state.items()

    def keys(self) -> Iterable[Any]:
        return self._state.keys()

    def values(self) -> Iterable[Any]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def put(self, key: Any, value: Any) -> None:
        """Refused: the state is there to be read."""
        raise _read_only("put")

    def put_all(self, dict_value: Any) -> None:
        """Refused: the state is there to be read."""
        raise _read_only("put_all")

    def remove(self, key: Any) -> None:
        """Refused: the state is there to be read."""
        raise _read_only("remove")

    def clear(self) -> None:
        raise _read_only("clear")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _read_only("put")

    def __delitem__(self, key: Any) -> None:
        raise _read_only("remove")


def _read_only(call: str) -> UnsupportedOperation:
    msg = f"broadcast state is read-only here: {call}() was called outside of process_broadcast_element"
    return UnsupportedOperation(
        msg, hint="change broadcast state only in process_broadcast_element"
    )


class _BroadcastState(_State, BroadcastState[Any, Any]):
    kind = BROADCAST

    def __init__(self, owner: OperatorState, storing: Storing, names: Storing) -> None:
        super().__init__(owner, storing)
        self._fit_key = names.fit
        self._any_key = names.ready is ATOMIC
        self._entries: dict[Any, tuple[Any, Any]] = {}

    def _name(self, key: Any) -> Any:
        return canonical(key if self._any_key else self._fit_key(key))

    def fill(self, value: Iterable[Any]) -> None:
        self._entries = {canonical(key): (key, item) for key, item in value}

    def content(self) -> list[Any]:
        return list(self._entries.values())

    def get(self, key: Any) -> Any:
        entry = self._entries.get(self._name(key))
        return None if entry is None else isolate(entry[1])

    def contains(self, key: Any) -> bool:
        return self._name(key) in self._entries

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __iter__(self) -> Iterator[Any]:
        return iter([isolate(key) for key, _ in self._entries.values()])

    def items(self) -> list[tuple[Any, Any]]:
        return [(isolate(key), isolate(item)) for key, item in self._entries.values()]

    def keys(self) -> list[Any]:
        return list(self)

    def values(self) -> list[Any]:
        return [item for _, item in self.items()]

    def is_empty(self) -> bool:
        return not self._entries

    def _note(self, name: Any) -> None:
        if self.journal is not None and self.journal.active:
            self.journal.note(partial(self._put_back, name, self._entries.get(name)))

    def _put_back(self, name: Any, entry: tuple[Any, Any] | None) -> None:
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = entry

    def put(self, key: Any, value: Any) -> None:
        name, fits = self._fit_key(key), self._fit(value)
        self._owner.touch()
        self._note(canonical(name))
        self._entries[canonical(name)] = name, fits

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._owner.touch()
        self._note(self._name(key))
        self._entries.pop(self._name(key), None)

    def clear(self) -> None:
        self._owner.touch()
        for name in self._entries:
            self._note(name)
        self._entries.clear()

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)


def redistribute(
    restored: Sequence[tuple[Parent, dict[str, Any]]],
    subtask: int,
    parallelism: int,
    operators: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """What a subtask gets of the operator state of the subtasks of an earlier layout."""
    wanted = frozenset(operators)
    by_name: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for parent, states in restored:
        for name, state in states.items():
            if name.rpartition("/")[0] in wanted:
                by_name.setdefault(name, []).append((parent.subtask, parent.parallelism, state))
    result = {}
    for name, parts in by_name.items():
        parts.sort(key=lambda part: part[0])
        kind = parts[0][2]["kind"]
        if kind == BROADCAST:
            value = parts_of(parts[subtask % len(parts)][2])
        elif kind == UNION:
            value = [part for _, _, state in parts for part in parts_of(state)]
        elif parts[0][1] == parallelism:
            value = [part for at, _, s in parts if at == subtask for part in parts_of(s)]
        else:
            value = _share(
                [part for _, _, s in parts for part in parts_of(s)], subtask, parallelism
            )
        result[name] = {"kind": kind, "parts": value}
    return result


def _share(parts: list[list[Any]], subtask: int, parallelism: int) -> list[list[Any]]:
    """Of all elements equal shares, the first ones one longer.

    >>> [_share([["plain", "Char", list("abcde")]], subtask, 3)[0][2] for subtask in range(3)]
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    size, longer = divmod(sum(len(elements) for _, _, elements in parts), parallelism)
    start = subtask * size + min(subtask, longer)
    end = start + size + (subtask < longer)
    mine, at = [], 0
    for codec, schema, elements in parts:
        mine.append([codec, schema, elements[max(0, start - at) : max(0, end - at)]])
        at += len(elements)
    return mine


def _mismatch(name: str, found: str, wanted: str) -> StateMismatch:
    operator, _, state = name.rpartition("/")
    return StateMismatch(
        f"the operator state '{state}' is of another kind",
        operator=operator,
        state=state,
        found=f"operator {found} state",
        wanted=f"operator {wanted} state",
        hint="ask for it as it was written, or give the new one another name",
    )


def _retyped(name: str, state: _State, schema: Any, error: Exception) -> StateMismatch:
    operator, _, called = name.rpartition("/")
    cause = error.evidence.get("value") if isinstance(error, TypeMismatchError) else None
    return StateMismatch(
        f"the operator state '{called}' was written by another program and does not fit this one",
        operator=operator,
        state=called,
        found=f"operator {state.kind} state, {'pickled' if schema is None else schema}",
        wanted=f"operator {state.kind} state, {state.codec.schema or 'pickled'}",
        value=cause,
        hint="declare the state as it was, or give it another name and start with "
        "--allowNonRestoredState",
    )
