"""State: what a function may keep between records, and the descriptors that name it.

Everything here is a contract only; the runtime hands out the objects. Keyed state always speaks of
the current key, so it can be used only while a record of a keyed stream (or one of its timers) is
at hand. Within one operator the same name means the same state; two operators never share any.
Values that are "nothing" to Python (0, "", []) are values; only None means that there is none.
Answers to Flink's `api.common.state`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from millstream.api.functions import AggregateFunction, ReduceFunction
from millstream.api.state_ttl import StateTtlConfig
from millstream.common.names import checked_name
from millstream.common.typeinfo_basic import TypeInformation
from millstream.errors import InvalidArgument, UnsupportedOperation

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")

StateType: TypeAlias = TypeInformation | type | None
"""What a descriptor takes as a type; the class is one with ``@dataclass``, None means pickled."""


class State(ABC):
    """The root of all state."""

    @abstractmethod
    def clear(self) -> None:
        """Forget what is kept; keyed state forgets only what belongs to the current key."""


class ValueState(State, Generic[T]):
    """One value per key.

    >>> def count(state: ValueState[int]) -> int:
    ...     seen = (state.value() or 0) + 1
    ...     state.update(seen)
    ...     return seen
    >>> class Memory(ValueState[int]):
    ...     kept = None
    ...
    ...     def value(self):
    ...         return self.kept
    ...
    ...     def update(self, value):
    ...         self.kept = value
    ...
    ...     def clear(self):
    ...         self.kept = None
    >>> state = Memory()
    >>> count(state), count(state)
    (1, 2)
    """

    @abstractmethod
    def value(self) -> T | None:
        """The value, or None if there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace the value; None clears it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that values are added to, and that is read as a whole."""

    @abstractmethod
    def get(self) -> OUT:
        """What the values added so far come to."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add one value."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state of which two can be made one, as session windows need."""


class ReducingState(MergingState[T, T | None]):
    """Keeps what a `ReduceFunction` makes of all values; `get` gives None if there are none."""


class AggregatingState(MergingState[IN, OUT | None]):
    """Keeps the accumulator of an `AggregateFunction`.

    `get` gives its result, or None if nothing was added; ``add(None)`` clears.
    """


class ListState(MergingState[T, Iterable[T]]):
    """Any number of values in the order they were added; `get` is empty if there are none."""

    @abstractmethod
    def update(self, values: Iterable[T]) -> None:
        """Replace all values; none clears."""

    @abstractmethod
    def add_all(self, values: Iterable[T]) -> None:
        """Add all the given values."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _Entries(State, Generic[K, V]):
    """How every kind of map state is read."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value of the key, or None; ``state[key]`` does the same and never raises KeyError."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is an entry; also ``key in state``."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """The entries as pairs, in an order that nothing may rely on."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """The keys; also ``for key in state``."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """The values, without their keys."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no entry."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _MutableEntries(_Entries[K, V]):
    """How every kind of map state that may be changed is changed."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of the key; also ``state[key] = value``."""

    @abstractmethod
    def put_all(self, dict_value: Mapping[K, V]) -> None:
        """Set all the given entries; others stay."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove the entry, if there is one; also ``del state[key]``."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_MutableEntries[K, V]):
    """Keys with values; each entry is read and written by itself.

    >>> def visit(pages: MapState[str, int], page: str) -> None:
    ...     pages[page] = (pages.get(page) or 0) + 1
    >>> pages = {"home": 1}  # a dict stands in for the state
    >>> visit(pages, "home"), visit(pages, "help"), pages
    (None, None, {'home': 2, 'help': 1})
    """


class ReadOnlyBroadcastState(_Entries[K, V]):
    """Broadcast state as the other stream's records see it. No two subtasks need agree on it."""

    def clear(self) -> None:
        """Broadcast state cannot be cleared here."""
        msg = "broadcast state is read-only here"
        raise UnsupportedOperation(msg, hint="change it in process_broadcast_element")


class BroadcastState(_MutableEntries[K, V], ReadOnlyBroadcastState[K, V]):
    """Broadcast state as `process_broadcast_element` sees it, the one place that may change it."""

    @abstractmethod
    def clear(self) -> None:
        """Remove every entry."""


class OperatorStateStore(ABC):
    """Where state that belongs to a subtask, not to a key, comes from."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list whose elements are dealt out anew when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of which, after a restart, every subtask gets the elements of all subtasks."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that every subtask keeps whole."""


class StateDescriptor(ABC):
    """The name and type of a state. Equal only to itself; the runtime matches states by name.

    `type_info` is kept as given: for a list the type of an element, for a map that of a value.
    """

    _kind: ClassVar[str]

    def __init__(self, name: str, type_info: StateType = None) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(
                "a state needs a non-empty string as its name",
                got=repr(name)[:200],
                hint='pass the name first, as in ValueStateDescriptor("count", Types.LONG())',
            )
        self.name = checked_name(name, "the name of a state")
        self.type_info = _checked(name, type_info)
        self._ttl_config: StateTtlConfig | None = None

    @property
    def kind(self) -> str:
        """One of `value`, `list`, `map`, `reducing` and `aggregating`."""
        return self._kind

    def get_name(self) -> str:
        """The name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire; in lists and maps each element or entry by itself."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise _wrong(
                "enable_time_to_live needs a StateTtlConfig",
                self.name,
                ttl_config,
                'pass StateTtlConfig.new_builder("1 h").build(), with .build() at the end',
            )
        self._ttl_config = ttl_config

    def describe(self) -> dict[str, str | None]:
        """What the state is, the same text in every run, to compare with what was stored."""
        return {"kind": self.kind, "type": _text(self.type_info)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a `ValueState`.

    >>> from millstream.common.typeinfo import Types
    >>> ValueStateDescriptor("count", Types.LONG()).describe()
    {'kind': 'value', 'type': 'Long'}
    """

    _kind = "value"

    def __init__(self, name: str, value_type_info: StateType = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a `ListState`.

    >>> ListStateDescriptor("seen").describe()
    {'kind': 'list', 'type': None}
    """

    _kind = "list"

    def __init__(self, name: str, elem_type_info: StateType = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Describes a `MapState` or a `BroadcastState`.

    >>> from millstream.common.typeinfo import Types
    >>> MapStateDescriptor("pages", Types.STRING(), Types.LONG()).describe()
    {'kind': 'map', 'type': 'Long', 'key_type': 'String'}
    """

    _kind = "map"

    def __init__(
        self, name: str, key_type_info: StateType = None, value_type_info: StateType = None
    ) -> None:
        super().__init__(name, value_type_info)
        self.key_type_info = _checked(name, key_type_info)

    def describe(self) -> dict[str, str | None]:
        """What the state is, with the type of its keys."""
        return {**super().describe(), "key_type": _text(self.key_type_info)}


class ReducingStateDescriptor(StateDescriptor):
    """Describes a `ReducingState`.

    >>> total = ReducingStateDescriptor("total", lambda a, b: a + b)
    >>> total.get_reduce_function().reduce(1, 2)
    3
    """

    _kind = "reducing"

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        type_info: StateType = None,
    ) -> None:
        super().__init__(name, type_info)
        self._reduce_function = _as_reduce(name, reduce_function)

    def get_reduce_function(self) -> ReduceFunction:
        """The function; a plain callable comes back as a `ReduceFunction`."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an `AggregatingState`; the type is that of the accumulator.

    >>> AggregatingStateDescriptor("mean", agg_function=max)
    Traceback (most recent call last):
    millstream.errors.InvalidArgument: [INVALID_ARGUMENT] aggregating state needs an ...
    """

    _kind = "aggregating"

    def __init__(
        self, name: str, agg_function: AggregateFunction, state_type_info: StateType = None
    ) -> None:
        super().__init__(name, state_type_info)
        if not isinstance(agg_function, AggregateFunction):
            raise _wrong(
                "aggregating state needs an AggregateFunction",
                name,
                agg_function,
                "pass an object (not the class) whose class extends AggregateFunction",
            )
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction:
        """The function that adds values up."""
        return self._agg_function


class _Reduce(ReduceFunction):
    """A plain callable as a `ReduceFunction`."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._function(value1, value2)


def _as_reduce(name: str, function: Any) -> ReduceFunction:
    if isinstance(function, ReduceFunction):
        return function
    if callable(function) and not (
        isinstance(function, type) and issubclass(function, ReduceFunction)
    ):
        return _Reduce(function)
    raise _wrong(
        "reducing state needs a ReduceFunction or a callable of two values",
        name,
        function,
        "pass a function such as lambda a, b: a + b, or an object (not the class) of your own",
    )


def _checked(name: str, type_info: Any) -> StateType:
    if (
        type_info is None
        or isinstance(type_info, TypeInformation)
        or (isinstance(type_info, type) and dataclasses.is_dataclass(type_info))
    ):
        return type_info
    raise _wrong(
        "the type of a state must be a TypeInformation or a class with @dataclass",
        name,
        type_info,
        "pass a type such as Types.LONG(), or leave it out to keep any Python object",
    )


def _text(type_info: StateType) -> str | None:
    if not isinstance(type_info, type):
        return None if type_info is None else repr(type_info)
    # The annotations are not resolved: that would depend on what the process has imported.
    cls: Any = type_info
    fields = (f"{field.name}: {_annotation(field.type)}" for field in dataclasses.fields(cls))
    return f"dataclass {cls.__module__}.{cls.__qualname__}({', '.join(fields)})"


def _annotation(hint: Any) -> str:
    if isinstance(hint, str):
        return hint
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        prefix = "" if hint.__module__ == "builtins" else f"{hint.__module__}."
        return prefix + hint.__qualname__
    return repr(hint)


def _wrong(subject: str, name: str, got: Any, hint: str) -> InvalidArgument:
    return InvalidArgument(subject, state=name, got=repr(got)[:200], hint=hint)
