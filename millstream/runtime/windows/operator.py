"""Any window: every assigner, trigger, evictor and function (Flink's `WindowOperator` and `EvictingWindowOperator`).

A record is added to the contents of each of its windows, the trigger is asked, and what it says is done. Each window
has a *cleanup timer* in the time of its assigner; when it fires, everything about the window is forgotten. The frequent
cases, event-time windows with the default trigger, have faster ways of their own; this one defines what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from millstream.api.evictor import TimestampedValue
from millstream.api.functions import Function, RuntimeContext
from millstream.api.state import ValueStateDescriptor
from millstream.api.trigger import Trigger, TriggerResult
from millstream.api.window_assigner import MergingWindowAssigner
from millstream.api.window_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    GlobalWindows,
)
from millstream.api.window_functions import ProcessAllWindowFunction, ProcessWindowFunction
from millstream.api.windows import TimeWindow
from millstream.common.constants import MAX_TIME
from millstream.errors import UserFunctionError
from millstream.graph.operators import WindowOp
from millstream.runtime.base.text import shorten
from millstream.runtime.state.keyed_state import NO_KEY, KeyContext, KeyedStates
from millstream.runtime.state.store import StateStore
from millstream.runtime.time.timers import InternalTimers
from millstream.runtime.windows.calls import caller, combined_by, functions_in
from millstream.runtime.windows.change import (
    EVENT_TIME,
    KEPT,
    MERGING,
    WINDOW_SET,
    Former,
    OpenWindow,
    shown,
)
from millstream.runtime.windows.contents import (
    Namespaces,
    SingleValue,
    TimedContents,
    make_contents,
    own_table,
)
from millstream.runtime.windows.contexts import (
    AssignerContext,
    EvictorContext,
    FiringContext,
    NamedStates,
    NoWindowState,
    TriggerContext,
)
from millstream.runtime.windows.merging import MergingWindows
from millstream.runtime.wire.keys import original_key

__all__ = ["WindowOperator"]

_CONTINUE = TriggerResult.CONTINUE
_TIMELESS = (GlobalWindows, CountTumblingWindowAssigner, CountSlidingWindowAssigner)


class WindowOperator:
    """One subtask's window operator. `keys` says whose record or timer is at hand; timers come by namespace."""

    def __init__(
        self,
        op: WindowOp,
        name: str,
        uid: str,
        keys: KeyContext,
        store: StateStore,
        timers: InternalTimers,
        states: KeyedStates,
        context: RuntimeContext,
        emit: Callable[[Any, int], None],
        emit_late: Callable[[Any, int], None] | None,
    ) -> None:
        self._op = op
        self._name = name
        self._keys = keys
        self._timers = timers
        self._emit = emit
        self._emit_late = emit_late
        self.dropped_late = 0

        # The scope of the window at hand: its trigger's state and its function's.
        self._scope = scope = KeyContext()
        scoped = KeyedStates(store, uid, name, scope)

        def single(state: str, of: KeyedStates) -> SingleValue:
            return SingleValue(own_table(of, store, uid, ValueStateDescriptor(state)))

        self._namespaces = Namespaces(
            name, op.assigner, keys, lambda: single("window-objects", scoped)
        )
        self._namespace_of = self._namespaces.of
        self._contents = make_contents(op, name, lambda d: own_table(scoped, store, uid, d))
        self._add = self._contents.add

        self._assign = op.assigner.assign_windows
        self._assigner_context = AssignerContext(timers, context)
        self._event_time = bool(op.assigner.is_event_time())
        # Lateness has no meaning in processing time (rule 35).
        self._lateness = op.lateness if self._event_time else 0
        if self._event_time:
            self._register_cleanup = timers.register_event
            self._delete_cleanup = timers.delete_event
        else:
            self._register_cleanup = timers.register_processing
            self._delete_cleanup = timers.delete_processing

        self._merging: MergingWindows | None = None
        if isinstance(op.assigner, MergingWindowAssigner):
            kept = single(WINDOW_SET, states)
            self._merging = MergingWindows(op.assigner, self._namespaces, kept)
        layout = "windows" if self._merging is None else MERGING[0]
        self._former = Former(store, uid, name, op, layout)

        self._trigger: Trigger[Any, Any] = op.trigger
        self._on_element = op.trigger.on_element
        self._trigger_context = TriggerContext(
            timers, scope, NamedStates(scoped, "trigger:"), context.get_metrics_group
        )
        self._evictor_context = EvictorContext(timers, context.get_metrics_group)

        window_states = (
            NamedStates(scoped, "window:") if self._merging is None else NoWindowState(name)
        )
        self._context = FiringContext(timers, window_states, NamedStates(states))
        self._apply = caller(op, self._context, keys)
        self._combine = combined_by(op.incremental) if op.kind == "list" else None
        self._clear_function: Callable[[Any], None] | None = None
        if isinstance(op.function, ProcessWindowFunction | ProcessAllWindowFunction):
            self._clear_function = op.function.clear

        self.process: Callable[[Any, int], None] = (
            self._process if self._merging is None else self._process_merging
        )
        """Takes a record and its timestamp, once the key context is set."""

    @property
    def functions(self) -> list[Function]:
        """All function objects that are to be opened and closed, in the order of their use."""
        op = self._op
        functions: dict[int, Function] = {}
        for part in (op.assigner, op.trigger, op.evictor, op.incremental, op.function):
            for function in functions_in(part):
                functions[id(function)] = function
        return list(functions.values())

    # -- records ----------------------------------------------------------------------------------------

    def _process(self, value: Any, timestamp: int) -> None:
        windows = self._assign(value, timestamp, self._assigner_context)
        if type(windows) is not list:
            windows = self._checked_windows(windows)
        if self._event_time and self._timers.watermark == MAX_TIME:
            # Time is over, and with it every window, also one whose end lies beyond.
            windows = []
        canon, scope = self._keys.canon, self._scope
        scope.key = self._keys.key
        skipped = True
        for window in windows:
            namespace = self._namespace_of(window)
            cleanup = window.max_timestamp() + self._lateness
            if self._event_time and cleanup <= self._timers.watermark:
                continue
            skipped = False
            if type(namespace) is bytes:
                self._namespaces.remember(namespace, window)
            scope.canon = pair = canon, namespace
            self._add(pair, value, timestamp)
            self._ask(value, timestamp, window, namespace, pair, cleanup)
        scope.canon = NO_KEY
        if skipped:
            self._late(value, timestamp)

    def _process_merging(self, value: Any, timestamp: int) -> None:
        """Merge first, then add the record (rule 24)."""
        windows = self._assign(value, timestamp, self._assigner_context)
        if type(windows) is not list:
            windows = self._checked_windows(windows)
        if self._event_time and self._timers.watermark == MAX_TIME:
            # Time is over, and with it every window, also one whose end lies beyond.
            windows = []
        canon, scope, live = self._keys.canon, self._scope, self._merging
        assert live is not None
        scope.key = self._keys.key
        skipped = True
        live.load(canon)
        for added in windows:
            window, namespace = live.add(added, self._on_merge)
            cleanup = window.max_timestamp() + self._lateness
            if self._event_time and cleanup <= self._timers.watermark:
                live.retire(namespace)
                live.save()
                continue
            live.save()
            skipped = False
            if type(namespace) is bytes:
                self._namespaces.remember(namespace, window)
            scope.canon = canon, namespace
            pair = canon, live.state_of(namespace)
            self._add(pair, value, timestamp)
            self._ask(value, timestamp, window, namespace, pair, cleanup)
        scope.canon = NO_KEY
        if skipped:
            self._late(value, timestamp)

    def _ask(
        self, value: Any, timestamp: int, window: Any, namespace: Any, pair: Any, cleanup: int
    ) -> None:
        """Ask the trigger about a record that was added to a window whose contents are under `pair`."""
        context = self._trigger_context
        context.namespace = namespace
        try:
            result = self._on_element(value, timestamp, window, context)
            if result is not _CONTINUE:
                self._obey(result, window, pair)
        finally:
            # Also for a record whose failure is passed over: the window is there now and has to go one day.
            if cleanup < MAX_TIME:
                self._register_cleanup(namespace, cleanup)

    def _late(self, value: Any, timestamp: int) -> None:
        """None of the record's windows is there any more. That alone does not make it late (rule 20)."""
        watermark = self._timers.watermark
        if self._event_time and min(timestamp + self._lateness, MAX_TIME) <= watermark:
            if self._emit_late is None:
                self.dropped_late += 1
            else:
                self._emit_late(value, timestamp)

    def _checked_windows(self, windows: Any) -> list[Any]:
        if isinstance(windows, tuple | set | frozenset):
            return list(windows)
        msg = f"the window assigner of '{self._name}' did not return a list of windows"
        raise UserFunctionError(
            msg,
            got=f"{type(windows).__name__} {shorten(windows)}",
            hint="assign_windows returns a list; an empty one leaves the record out",
        )

    # -- timers -----------------------------------------------------------------------------------------

    def on_event_time(self, timestamp: int, namespace: Any) -> None:
        """The watermark has reached a timer of a window."""
        self._on_time(timestamp, namespace, self._trigger.on_event_time, own=self._event_time)

    def on_processing_time(self, timestamp: int, namespace: Any) -> None:
        """The clock has reached a timer of a window."""
        self._on_time(
            timestamp, namespace, self._trigger.on_processing_time, own=not self._event_time
        )

    def _on_time(
        self, timestamp: int, namespace: Any, ask: Callable[..., Any], *, own: bool
    ) -> None:
        canon, scope, live = self._keys.canon, self._scope, self._merging
        state_namespace = namespace
        if live is not None:
            live.load(canon)
            if type(namespace) is not tuple or len(namespace) == 2:
                state_namespace = live.state_of(namespace)
        window = self._namespaces.window(namespace)
        if window is None or state_namespace is None:
            # A timer that a trigger has left behind: the window has become part of another one.
            return
        pair = canon, state_namespace
        scope.key, scope.canon = self._keys.key, (canon, namespace)
        self._trigger_context.namespace = namespace
        result = ask(timestamp, window, self._trigger_context)
        if result is not _CONTINUE:
            self._obey(result, window, pair)
        if own and timestamp == self._cleanup_time(window):
            self._remove(window, namespace, pair)
        scope.canon = NO_KEY

    def _cleanup_time(self, window: Any) -> int:
        """When a window may be forgotten; there is no timer for the end of time (rule 21)."""
        last: int = window.max_timestamp()
        return min(last + self._lateness, MAX_TIME)

    def _remove(self, window: Any, namespace: Any, pair: Any) -> None:
        """Forget everything about a window (rule 32)."""
        self._contents.clear(pair)
        self._trigger.clear(window, self._trigger_context)
        if self._clear_function is not None:
            self._context.current = window
            self._clear_function(self._context)
        self._namespaces.forget(namespace)
        if self._merging is not None:
            self._merging.retire(namespace)
            self._merging.save()

    # -- results ----------------------------------------------------------------------------------------

    def _obey(self, result: Any, window: Any, pair: Any) -> None:
        """Do what a trigger says (rule 27)."""
        if type(result) is not TriggerResult:
            msg = f"the trigger of '{self._name}' did not return a TriggerResult"
            raise UserFunctionError(
                msg,
                trigger=repr(self._trigger),
                got=f"{type(result).__name__} {shorten(result)}",
                hint="return TriggerResult.CONTINUE, FIRE, FIRE_AND_PURGE or PURGE",
            )
        if result.is_fire():
            inputs = self._contents.get(pair)
            if inputs is not None:
                if self._op.evictor is None:
                    self._call(window, inputs)
                else:
                    self._fire_evicting(window, pair, inputs)
        if result.is_purge():
            self._contents.clear(pair)

    def _call(self, window: Any, inputs: list[Any]) -> None:
        """Every result carries the last timestamp of its window (rule 22)."""
        emit, at = self._emit, window.max_timestamp()
        if self._combine is not None:
            inputs = self._combine(inputs)
            if not inputs:
                return
        self._context.current = window
        results = self._apply(window, inputs)
        if results is not None:
            for result in results:
                emit(result, at)

    def _fire_evicting(self, window: Any, pair: Any, elements: list[Any]) -> None:
        """The evictor sees the records before and after the function, and what it drops is gone (rule 34)."""
        evictor, contents = self._op.evictor, self._contents
        assert isinstance(contents, TimedContents)
        kept = self._evict(evictor.evict_before, elements, window)
        self._call(window, [stamped.value for stamped in kept])
        kept = self._evict(evictor.evict_after, kept, window)
        if len(kept) != len(elements):
            contents.keep(pair, elements, kept)

    def _evict(
        self, evict: Callable[..., Any], elements: list[Any], window: Any
    ) -> list[TimestampedValue]:
        # One that changes the list in place, as in Java, need not return it.
        mine = list(elements)
        kept = evict(mine, len(mine), window, self._evictor_context)
        kept = mine if kept is None else kept
        if isinstance(kept, Iterable):
            kept = list(kept)
            if all(isinstance(stamped, TimestampedValue) for stamped in kept):
                return kept
        msg = f"the evictor of '{self._name}' did not return a list of the elements to keep"
        raise UserFunctionError(
            msg,
            got=f"{type(kept).__name__} {shorten(kept)}",
            hint="return those of the TimestampedValue objects it was given that are to stay",
        )

    # -- windows of a former program ----------------------------------------------------------------------

    def adopt(self, states: Mapping[str, Any]) -> None:
        """Go on with the windows that are open, whoever has kept them (`windows/change.py`)."""
        before = self._former.changed(states)
        if before is None:
            return
        merged, merging = before["layout"] in MERGING, self._merging is not None
        windows = self._former.take(before, self._timers.watermark)
        if windows and isinstance(self._op.assigner, _TIMELESS):
            self._former.refuse("windows that are stretches of time", repr(self._op.assigner))
        if merged != merging:
            # Those that do not merge have other namespaces in the two cases.
            length = 3 if merged else 2
            self._timers.forget(
                lambda namespace: type(namespace) is tuple and len(namespace) == length
            )
        by_end = EVENT_TIME in (before["trigger"], shown(self._trigger))
        for window in windows:
            self._adopt(window, fires=by_end)
        for pair, value in self._former.others:
            self._contents.restore(pair, value)
        self._keys.leave()
        self._scope.canon = NO_KEY

    def _adopt(self, former: OpenWindow, *, fires: bool) -> None:
        keys, scope, timers = self._keys, self._scope, self._timers
        window = TimeWindow(former.start, former.end)
        namespace: Any = former.start, former.end
        if self._merging is not None and not former.merges:
            # A session may come to have the same bounds, and is another window.
            namespace = *namespace, KEPT
        keys.canon, keys.key = former.key, original_key(former.key)
        pair = former.key, namespace
        scope.key, scope.canon = keys.key, pair
        self._trigger_context.namespace = namespace
        last, cleanup = window.max_timestamp(), self._cleanup_time(window)
        if self._event_time and cleanup <= timers.watermark:
            # It has been kept for late records that are no longer allowed.
            self._remove(window, namespace, pair)
            return
        self._contents.restore(pair, former.value)
        if self._merging is not None and former.merges:
            self._merging.restore(former.key, namespace)
        if self._event_time and fires and last > timers.watermark:
            timers.register_event(namespace, last)
        if cleanup < MAX_TIME:
            self._register_cleanup(namespace, cleanup)

    # -- merging ----------------------------------------------------------------------------------------

    def _on_merge(
        self,
        window: Any,
        namespace: Any,
        parts: Sequence[tuple[Any, Any]],
        target: Any,
        sources: Sequence[Any],
    ) -> None:
        """Windows have become one: the trigger, then their timers and trigger states, then their contents."""
        canon, scope, context = self._keys.canon, self._scope, self._trigger_context
        self._check_merged(window)
        if type(namespace) is bytes:
            self._namespaces.remember(namespace, window)
        scope.canon = canon, namespace
        context.namespace = namespace
        context.merged = [namespace for namespace, _ in parts]
        try:
            self._trigger.on_merge(window, context)
        finally:
            context.merged = ()
        for old_namespace, old in parts:
            scope.canon = canon, old_namespace
            context.namespace = old_namespace
            self._trigger.clear(old, context)
            cleanup = self._cleanup_time(old)
            if cleanup < MAX_TIME:
                self._delete_cleanup(old_namespace, cleanup)
            self._namespaces.forget(old_namespace)
        self._contents.merge((canon, target), [(canon, source) for source in sources])

    def _check_merged(self, window: Any) -> None:
        """A window whose time is over would never be cleaned up (rule 25)."""
        now = self._timers.watermark if self._event_time else self._timers.now()
        if window.max_timestamp() + self._lateness > now:
            return
        time = {"watermark": now} if self._event_time else {"processing_time": now}
        raise UserFunctionError(
            f"the window assigner of '{self._name}' merged windows into one that is over already",
            window=repr(window),
            **time,
            allowed_lateness=self._lateness or None,
            hint="merge_windows must give a window that ends no earlier than those it is made of",
        )
