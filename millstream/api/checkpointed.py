"""`CheckpointedFunction`: functions that keep operator state, and what they are handed.

Operator state belongs to a subtask, not to a key, so any function may have it. Answers to Flink's
`streaming.api.checkpoint.CheckpointedFunction`; PyFlink has no such interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from millstream.api.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    OperatorStateStore,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)

__all__ = [
    "CheckpointedFunction",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeyedStateStore",
]


class KeyedStateStore(ABC):
    """Where keyed state comes from; the state is always that of the current key.

    >>> def counter(store: KeyedStateStore) -> ValueState[int]:
    ...     return store.get_state(ValueStateDescriptor("count"))
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """One value per key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list per key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """A map per key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A reduced value per key."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """An accumulator per key."""


class FunctionSnapshotContext(ABC):
    """What `snapshot_state` may ask.

    >>> class First(FunctionSnapshotContext):
    ...     def get_checkpoint_id(self):
    ...         return 1
    >>> First().get_checkpoint_id()
    1
    """

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The number of the checkpoint; later ones have higher numbers."""


class FunctionInitializationContext(ABC):
    """What `initialize_state` may ask.

    >>> class Fresh(FunctionInitializationContext):
    ...     def is_restored(self):
    ...         return False
    ...
    ...     def get_operator_state_store(self):
    ...         raise NotImplementedError
    ...
    ...     def get_keyed_state_store(self):
    ...         raise NotImplementedError
    >>> Fresh().is_restored()
    False
    """

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether there is state of an earlier run, even if it is empty for this subtask."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Where the state of this subtask comes from."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Where keyed state comes from; only a function on a keyed stream may ask."""


class CheckpointedFunction(ABC):
    """A mixin for a function that keeps operator state, to stand beside its own base class.

    An attribute of the function object is not durable: after a failure a new copy of the function
    starts with what the program gave it. What is in list state at a checkpoint comes back. So
    `snapshot_state` puts into list state what is to last, and `initialize_state` takes it out:

    >>> from millstream.api.functions import MapFunction
    >>> class Numbered(MapFunction, CheckpointedFunction):
    ...     def __init__(self):
    ...         self.seen = 0  # an attribute: quick, and lost with the process
    ...
    ...     def initialize_state(self, context):
    ...         store = context.get_operator_state_store()
    ...         self.kept = store.get_list_state(ListStateDescriptor("seen"))
    ...         self.seen = sum(self.kept.get())
    ...
    ...     def snapshot_state(self, context):
    ...         self.kept.update([self.seen])
    ...
    ...     def map(self, value):
    ...         self.seen += 1
    ...         return self.seen, value

    With a list in memory in place of the runtime's, one can see what a restart keeps:

    >>> class Memory(ListState[int]):
    ...     def __init__(self):
    ...         self.values = []
    ...
    ...     def get(self):
    ...         return list(self.values)
    ...
    ...     def add(self, value):
    ...         self.values.append(value)
    ...
    ...     def add_all(self, values):
    ...         self.values.extend(values)
    ...
    ...     def update(self, values):
    ...         self.values = list(values)
    ...
    ...     def clear(self):
    ...         self.values = []
    >>> from unittest.mock import Mock
    >>> context = Mock()
    >>> context.get_operator_state_store().get_list_state.return_value = Memory()
    >>> function = Numbered()
    >>> function.initialize_state(context)
    >>> function.map("a"), function.map("b")
    ((1, 'a'), (2, 'b'))
    >>> function.snapshot_state(context)
    >>> function.map("c")
    (3, 'c')
    >>> function = Numbered()  # a failure: the attribute is gone, the checkpoint is not
    >>> function.initialize_state(context)
    >>> function.map("c")
    (3, 'c')
    """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at every checkpoint: put into state what is to outlast a failure."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called on each subtask's copy before `open`: get the state, and take back what it has."""
