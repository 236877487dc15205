"""What triggers, assigners, evictors and window functions see of the operator they run in.

One object of each per operator, told before every call which window is at hand. State of triggers and per-window state
of functions is ordinary keyed state in the scope of (key, window); its names get a prefix, so that a trigger, a
function and the operator may use the same one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from millstream.api.evictor import Evictor
from millstream.api.functions import RuntimeContext
from millstream.api.metrics import MetricGroup
from millstream.api.state import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from millstream.api.trigger import Trigger
from millstream.api.window_assigner import WindowAssigner
from millstream.api.window_functions import (
    KeyedStateStore,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
)
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.time.timers import InternalTimers, checked_time

__all__ = [
    "AssignerContext",
    "EvictorContext",
    "FiringContext",
    "NamedStates",
    "NoWindowState",
    "TriggerContext",
]


class NamedStates(KeyedStateStore):
    """The states of a scope under names of their own."""

    def __init__(self, states: KeyedStates, prefix: str = "") -> None:
        self._states = states
        self._prefix = prefix
        self._known: dict[tuple[str, str], Any] = {}

    def of(self, descriptor: Any, kind: str | None = None) -> Any:
        """The state of a descriptor."""
        if not isinstance(descriptor, StateDescriptor):
            # It says what is wrong.
            return self._states.get(descriptor, kind or "keyed")
        known = (kind or descriptor.kind, descriptor.name)
        state = self._known.get(known)
        if state is None:
            renamed = descriptor
            if self._prefix:
                renamed = copy.copy(descriptor)
                renamed.name = self._prefix + descriptor.name
            state = self._known[known] = self._states.get(renamed, known[0])
        return state

    def get_state(self, state_descriptor: Any) -> Any:
        return self.of(state_descriptor, "value")

    def get_list_state(self, state_descriptor: Any) -> Any:
        return self.of(state_descriptor, "list")

    def get_map_state(self, state_descriptor: Any) -> Any:
        return self.of(state_descriptor, "map")

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        return self.of(state_descriptor, "reducing")

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        return self.of(state_descriptor, "aggregating")


class NoWindowState(NamedStates):
    """Per-window state of windows that merge: there is none, for two of it could not become one (rule 25)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def of(self, descriptor: Any, kind: str | None = None) -> Any:
        """Not allowed here."""
        msg = f"'{self._name}' has windows that merge, and such windows have no state of their own"
        raise UnsupportedOperation(
            msg,
            state=getattr(descriptor, "name", None),
            hint="use context.global_state(), which belongs to the key",
        )


class TriggerContext(Trigger.OnMergeContext):
    """For triggers; `namespace` is the window at hand, `merged` are those that have become part of it."""

    def __init__(
        self,
        timers: InternalTimers,
        scope: KeyContext,
        states: NamedStates,
        metrics: Callable[[], MetricGroup],
    ) -> None:
        self._timers = timers
        self._metrics = metrics
        self._scope = scope
        self._states = states
        self.namespace: Any = None
        self.merged: Sequence[Any] = ()

    def get_metric_group(self) -> MetricGroup:
        return self._metrics()

    def get_current_processing_time(self) -> int:
        return self._timers.now()

    def get_current_watermark(self) -> int:
        return self._timers.watermark

    def register_processing_time_timer(self, time: int) -> None:
        at = checked_time(time, "register_processing_time_timer")
        self._timers.register_processing(self.namespace, at)

    def register_event_time_timer(self, time: int) -> None:
        at = checked_time(time, "register_event_time_timer")
        self._timers.register_event(self.namespace, at)

    def delete_processing_time_timer(self, time: int) -> None:
        at = checked_time(time, "delete_processing_time_timer")
        self._timers.delete_processing(self.namespace, at)

    def delete_event_time_timer(self, time: int) -> None:
        at = checked_time(time, "delete_event_time_timer")
        self._timers.delete_event(self.namespace, at)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._states.of(state_descriptor)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        state = self._states.of(state_descriptor)
        scope = self._scope
        target = scope.canon
        sources = [(target[0], namespace) for namespace in self.merged]
        try:
            _merge(state, state_descriptor, scope, target, sources)
        finally:
            scope.canon = target


def _merge(
    state: Any,
    descriptor: StateDescriptor,
    scope: KeyContext,
    target: Any,
    sources: Sequence[Any],
) -> None:
    """Move a state of other windows into the same state of one."""
    if descriptor.kind == "list":
        for scope.canon in sources:
            items = list(state.get())
            state.clear()
            scope.canon = target
            state.add_all(items)
        return
    combine: Callable[[Any, Any], Any]
    if isinstance(descriptor, ReducingStateDescriptor):
        combine = descriptor.get_reduce_function().reduce
    elif isinstance(descriptor, AggregatingStateDescriptor):
        combine = descriptor.get_agg_function().merge
    else:
        msg = f"the {descriptor.kind} state '{descriptor.name}' of a trigger cannot be merged"
        raise InvalidArgument(
            msg, hint="use reducing, aggregating or list state in a trigger whose windows merge"
        )
    # Of an aggregating state it is the accumulators that are merged, not the results.
    value = state._value
    for scope.canon in sources:
        other = value.value()
        if other is None:
            continue
        value.clear()
        scope.canon = target
        so_far = value.value()
        value.update(other if so_far is None else combine(so_far, other))


class AssignerContext(WindowAssigner.WindowAssignerContext):
    """What an assigner may ask for."""

    def __init__(self, timers: InternalTimers, context: RuntimeContext) -> None:
        self._timers = timers
        self._context = context

    def get_current_processing_time(self) -> int:
        return self._timers.now()

    def get_runtime_context(self) -> RuntimeContext:
        return self._context


class EvictorContext(Evictor.EvictorContext):
    """What an evictor may ask for."""

    def __init__(self, timers: InternalTimers, metrics: Callable[[], MetricGroup]) -> None:
        self._timers = timers
        self._metrics = metrics

    def get_metric_group(self) -> MetricGroup:
        return self._metrics()

    def get_current_processing_time(self) -> int:
        return self._timers.now()

    def get_current_watermark(self) -> int:
        return self._timers.watermark


class FiringContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """For process window functions; `current` is the window at hand."""

    def __init__(
        self, timers: Any, window_states: KeyedStateStore, states: KeyedStateStore
    ) -> None:
        # Whatever has the operator's `watermark` and `now()`.
        self.timers = timers
        self._window_states = window_states
        self._states = states
        self.current: Any = None

    def window(self) -> Any:
        return self.current

    def current_watermark(self) -> int:
        watermark: int = self.timers.watermark
        return watermark

    def current_processing_time(self) -> int:
        now: int = self.timers.now()
        return now

    def window_state(self) -> KeyedStateStore:
        return self._window_states

    def global_state(self) -> KeyedStateStore:
        return self._states
