"""Operator state: lists that belong to a subtask, not to a key, and the broadcast state pattern's maps.

It is small, so it is written whole in every epoch that changes it. When the parallelism changes (Flink's
`RoundRobinOperatorStateRepartitioner`): a list's elements are dealt out evenly and in order, a union list goes to
every subtask as a whole, broadcast state is copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from millstream.checkpoint.manifest import Parent
from millstream.checkpoint.statefile import table_name
from millstream.common.state import (
    BroadcastState,
    ListState,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from millstream.errors import StateMismatch, UnsupportedOperation
from millstream.runtime.keys import canonical
from millstream.runtime.state import isolate

__all__ = ["OperatorState", "OperatorStates", "ReadOnlyView", "redistribute"]

LIST, UNION, BROADCAST = "list", "union", "broadcast"


class OperatorState:
    """All operator state of a subtask's vertex, by "operator uid/state name"."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._found: dict[str, dict[str, Any]] = {}
        self._dirty = False

    @property
    def in_use(self) -> bool:
        """True if there is any."""
        return bool(self._states) or bool(self._found)

    def get(self, name: str, kind: str) -> Any:
        """A state, the same object each time; its content is what was restored under its name."""
        known = self._states.get(name)
        if known is None:
            known = _BroadcastState(self) if kind == BROADCAST else _ListState(self)
            known.kind = kind
            self._states[name] = known
            found = self._found.pop(name, None)
            if found is not None:
                self._fill(name, known, found)
        if known.kind != kind:
            raise _mismatch(name, known.kind, kind)
        return known

    def _fill(self, name: str, state: _State, found: dict[str, Any]) -> None:
        if found["kind"] != state.kind:
            raise _mismatch(name, found["kind"], state.kind)
        state.fill(found["value"])

    def changed(self) -> bool:
        """True if something was written since the last call; the next file must then hold all of it."""
        dirty, self._dirty = self._dirty, False
        return dirty

    def touch(self) -> None:
        """Something was written."""
        self._dirty = True

    def content(self) -> dict[str, dict[str, Any]]:
        """Everything, as it goes into a file."""
        mine = {
            name: {"kind": state.kind, "value": state.content()}
            for name, state in self._states.items()
        }
        return {**self._found, **mine}

    def restore(self, content: dict[str, dict[str, Any]]) -> None:
        """Put what a file holds in the place of what is here."""
        self.reset()
        for name, found in content.items():
            state = self._states.get(name)
            if state is None:
                self._found[name] = found
            else:
                self._fill(name, state, found)

    def reset(self) -> None:
        """Empty all states; the objects that functions hold stay."""
        self._found.clear()
        self._dirty = False
        for state in self._states.values():
            state.fill(())


class OperatorStates(OperatorStateStore):
    """The states of one operator, as a function sees them."""

    def __init__(self, states: OperatorState, uid: str, register: Any) -> None:
        self._states = states
        self._uid = uid
        self._register = register

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

    def _get(self, descriptor: StateDescriptor, kind: str) -> Any:
        described = {**descriptor.describe(), "kind": f"operator {kind}"}
        self._register(self._uid, descriptor.get_name(), described)
        return self._states.get(table_name(self._uid, descriptor.get_name()), kind)


class _State(ABC):
    kind = LIST

    def __init__(self, owner: OperatorState) -> None:
        self._owner = owner

    @abstractmethod
    def fill(self, value: Iterable[Any]) -> None:
        """Put this in the place of what is here."""

    @abstractmethod
    def content(self) -> list[Any]:
        """What goes into a file."""


class _ListState(_State, ListState[Any]):
    def __init__(self, owner: OperatorState) -> None:
        super().__init__(owner)
        self._items: list[Any] = []

    def fill(self, value: Iterable[Any]) -> None:
        self._items = list(value)

    def content(self) -> list[Any]:
        return self._items

    def get(self) -> list[Any]:
        return [isolate(one) for one in self._items]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def add(self, value: Any) -> None:
        self._items.append(isolate(value))
        self._owner.touch()

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def update(self, values: Iterable[Any]) -> None:
        self._items = [isolate(one) for one in values]
        self._owner.touch()

    def clear(self) -> None:
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
        """Refused."""
        raise _read_only("put")

    def put_all(self, dict_value: Any) -> None:
        """Refused."""
        raise _read_only("put_all")

    def remove(self, key: Any) -> None:
        """Refused."""
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

    def __init__(self, owner: OperatorState) -> None:
        super().__init__(owner)
        self._entries: dict[Any, tuple[Any, Any]] = {}

    def fill(self, value: Iterable[Any]) -> None:
        self._entries = {canonical(key): (key, one) for key, one in value}

    def content(self) -> list[Any]:
        return list(self._entries.values())

    def get(self, key: Any) -> Any:
        found = self._entries.get(canonical(key))
        return None if found is None else isolate(found[1])

    def contains(self, key: Any) -> bool:
        return canonical(key) in self._entries

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __iter__(self) -> Iterator[Any]:
        return iter([key for key, _ in self._entries.values()])

    def items(self) -> list[tuple[Any, Any]]:
        return [(key, isolate(one)) for key, one in self._entries.values()]

    def keys(self) -> list[Any]:
        return list(self)

    def values(self) -> list[Any]:
        return [one for _, one in self.items()]

    def is_empty(self) -> bool:
        return not self._entries

    def put(self, key: Any, value: Any) -> None:
        self._owner.touch()
        self._entries[canonical(key)] = isolate(key), isolate(value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._owner.touch()
        self._entries.pop(canonical(key), None)

    def clear(self) -> None:
        self._owner.touch()
        self._entries.clear()

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)


def redistribute(
    found: Sequence[tuple[Parent, dict[str, Any]]],
    subtask: int,
    parallelism: int,
    operators: Iterable[str],
) -> dict[str, dict[str, Any]]:
    """What a subtask gets of the operator state of the subtasks of an earlier layout."""
    wanted = frozenset(operators)
    by_name: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for parent, states in found:
        for name, state in states.items():
            if name.rpartition("/")[0] in wanted:
                by_name.setdefault(name, []).append((parent.subtask, parent.parallelism, state))
    result = {}
    for name, parts in by_name.items():
        parts.sort(key=lambda part: part[0])
        kind = parts[0][2]["kind"]
        if kind == BROADCAST:
            value = parts[subtask % len(parts)][2]["value"]
        else:
            together = [one for _, _, state in parts for one in state["value"]]
            if kind == UNION:
                value = together
            elif parts[0][1] == parallelism:
                value = [o for place, _, s in parts if place == subtask for o in s["value"]]
            else:
                value = _share(together, subtask, parallelism)
        result[name] = {"kind": kind, "value": value}
    return result


def _share(items: list[Any], subtask: int, parallelism: int) -> list[Any]:
    """Equal parts, the first ones one longer.

    >>> [_share(list("abcde"), subtask, 3) for subtask in range(3)]
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    size, longer = divmod(len(items), parallelism)
    start = subtask * size + min(subtask, longer)
    return items[start : start + size + (subtask < longer)]


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
