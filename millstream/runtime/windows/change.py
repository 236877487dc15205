"""Open windows of a program that has changed: whoever kept them, in whatever form, whoever keeps them now can go on.

There are three ways to run a window, and each keeps its windows in the form that serves it best: the general operator
under (key, (start, end)), tumbling and sliding windows by pane, sessions in a list per key. A manifest says of every
window operator what its windows were. If that is not what they are, then before the first record all open windows are
taken out of the state, each as a key, its bounds and what is in it, and given to the operator, which keeps them in its
own form. **Windows end as they began**: with their bounds and contents; new records go to the windows of the new
assigner, which may be among the old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from millstream.api.window_assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.checkpoint.statefile import table_name
from millstream.common.constants import MAX_TIME
from millstream.errors import StateMismatch
from millstream.graph.operators import WindowJoinOp, WindowOp
from millstream.runtime.state.codec import PICKLED, codec_for
from millstream.runtime.state.panes import PaneTable
from millstream.runtime.state.store import StateStore
from millstream.runtime.state.table import DELETED, MISSING, Table, isolate
from millstream.runtime.windows.calls import Incremental

__all__ = [
    "CONTENTS",
    "EVENT_TIME",
    "KEPT",
    "MERGING",
    "RECORDS",
    "SESSIONS",
    "TIMED_RECORDS",
    "WINDOW_SET",
    "Former",
    "OpenWindow",
    "describe_windows",
    "is_window_state",
    "panes_name",
    "shown",
]

CONTENTS = "window-contents"
"""One value per window, under (key, (start, end))."""
RECORDS = "window-records"
"""The records of a window, under the same."""
TIMED_RECORDS = "window-timed-records"
"""The records of a window with their timestamps, for evictors."""
SESSIONS = "window-sessions"
WINDOW_SET = "window-set"
_PANES = "window-panes"
MERGING = ("merging windows", "sessions")
"""The layouts of windows that merge."""
KEPT = 0
"""Behind the bounds of a window that does not merge, among those that do."""
EVENT_TIME = "EventTimeTrigger()"
"""The trigger that fires at a window's end."""
_TIMERS = ("#event-timers", "#processing-timers")


def panes_name(op: WindowOp) -> str:
    """The state of windows by pane. Panes mean nothing without the windows they are parts of, so these are in the name,
    and with the lateness it is known which of a pane's windows are still there."""
    assigner = op.assigner
    slide = getattr(assigner, "slide", assigner.size)
    lateness = 0 if slide == assigner.size else op.lateness
    return f"{_PANES} {assigner.size} {slide} {assigner.offset} {lateness}"


def is_window_state(name: str) -> bool:
    """True if a state is one that window operators make of each other's.

    >>> [is_window_state(name) for name in ("window-set", "window-panes 5 5 0 0", "window:mine")]
    [True, True, False]
    """
    return name.startswith("window-") or name in _TIMERS


def describe_windows(op: WindowOp, layout: str) -> dict[str, Any]:
    """What a manifest says of an operator's windows."""
    return {
        "layout": layout,
        "contents": _contents_of(op),
        "assigner": shown(op.assigner),
        "trigger": shown(op.trigger),
        "lateness": op.lateness,
    }


def shown(part: Any) -> str:
    """An assigner or a trigger as a manifest names it.

    >>> shown(object())
    'object'
    """
    # Where an object is in memory says nothing about it.
    text = repr(part)
    return type(part).__qualname__ if " object at 0x" in text else text


def _contents_of(op: WindowOp) -> str:
    if isinstance(op, WindowJoinOp):
        return "join"
    return "timed records" if op.evictor is not None else {"list": "records"}.get(op.kind, op.kind)


class OpenWindow(NamedTuple):
    """A window that was open when the savepoint was taken."""

    key: Any
    """The key in its canonical form."""
    start: int
    end: int
    value: Any
    """The window's accumulator or list of records, nobody else's."""
    merges: bool
    """A session, which later records may still join."""


class Former:
    """The windows that an operator of a changed program finds."""

    def __init__(self, store: StateStore, uid: str, name: str, op: WindowOp, layout: str) -> None:
        described = {"kind": "value", "type": None, "ttl": False}
        described.update(store.registered.get(uid, {}).get(CONTENTS, {}))
        store.register(uid, CONTENTS, {**described, "windows": describe_windows(op, layout)})
        self._store = store
        self._uid = uid
        self._name = name
        self._op = op
        self._prefix = f"{uid}/"
        self._merging = layout in MERGING
        self.others: list[tuple[Any, Any]] = []
        """Of windows that are no stretches of time: where they are, and what is in them if that has been converted."""

    def changed(self, states: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the windows were, if that is not what they are; None if nothing has changed. `states` are those that the
        manifest says the operator has."""
        before = (states.get(CONTENTS) or {}).get("windows")
        now = self._store.registered[self._uid][CONTENTS]["windows"]
        if before == now or not any(is_window_state(name) for name in states):
            return None
        return before or dict(now)

    def take(self, before: Mapping[str, Any], watermark: int, mine: str = "") -> list[OpenWindow]:
        """All open windows, which are then no longer in the state; but the panes of the name `mine` stay."""
        windows = [
            *self._general(before, CONTENTS, "value"),
            *self._general(before, RECORDS, "list"),
            *self._general(before, TIMED_RECORDS, "list"),
            *self._sessions(before),
        ]
        for name in self._present():
            if name == mine and self._filled(name):
                self._check(before["contents"])
            elif name.startswith(_PANES) and self._filled(name):
                self._check(before["contents"])
                windows += self._panes(name, watermark)
        self._forget_set()
        together: dict[Any, OpenWindow] = {}
        for window in windows:
            # Among windows that merge, a session and another window of the same bounds are two.
            at = window.key, window.start, window.end, window.merges and self._merging
            known = together.get(at)
            together[at] = window if known is None else self._joined(known, window)
        return list(together.values())

    def _joined(self, window: OpenWindow, other: OpenWindow) -> OpenWindow:
        if _contents_of(self._op) in ("reduce", "aggregate"):
            return window._replace(
                value=Incremental(self._op.incremental).merge(window.value, other.value)
            )
        return window._replace(value=window.value + other.value)

    def drop_timers(self) -> None:
        """Remove the timers of a former program, for an operator that needs none."""
        for name in _TIMERS:
            self._wipe(name)

    def refuse(self, found: str, wanted: str) -> NoReturn:
        """What is there cannot become what is wanted."""
        raise StateMismatch(
            f"open windows of '{self._name}' hold what the program cannot go on with",
            operator=f"{self._name} (uid {self._uid})",
            found=found,
            wanted=wanted,
            hint="change the window when no window is open (stop with --drain fires them all), or give the operator "
            "another uid and start with --allowNonRestoredState (-n)",
        )

    # -- the tables -------------------------------------------------------------------------------------------

    def _present(self) -> list[str]:
        """The states that there are."""
        start = len(self._prefix)
        names = {table.name for table in self._store.tables.values()}
        return sorted(name[start:] for name in names if name.startswith(self._prefix))

    def _table(self, name: str, kind: str = "value", typed: bool = False) -> Table | None:
        full = table_name(self._uid, name)
        if full not in self._store.tables:
            return None
        codec = codec_for(self._op.accumulator_type) if typed else PICKLED
        table = self._store.tables[full]
        if table.unclaimed is None or table.unclaimed.kind == kind:
            return self._store.table(full, kind, codec)
        return table

    def _filled(self, name: str) -> bool:
        table = self._store.tables.get(table_name(self._uid, name))
        return table is not None and next(iter(table.keys()), MISSING) is not MISSING

    def _wipe(self, name: str) -> None:
        table = self._table(name)
        if table is not None:
            for key in list(table.keys()):
                table.changes[key] = DELETED
            if table.index is not None:
                table.index.valid = False

    # -- the three ways ---------------------------------------------------------------------------------------

    def _general(self, before: Mapping[str, Any], name: str, kind: str) -> Iterator[OpenWindow]:
        wanted = _contents_of(self._op)
        if not self._filled(name):
            return
        if name == CONTENTS and wanted not in ("reduce", "aggregate"):
            self._check(before.get("contents", "aggregate"))
        table = self._table(name, kind, typed=name == CONTENTS)
        assert table is not None
        live = dict(self._live())
        for pair in list(table.keys()):
            key, namespace = pair
            if type(namespace) is not tuple:
                self._other(before, name, table, pair)
                continue
            window = live.get(pair)
            start, end = (namespace if window is None else window)[:2]
            value = self._converted(before, name, isolate(table.read(pair, MISSING)))
            table.changes[pair] = DELETED
            yield OpenWindow(key, start, end, value, window is not None)
        if table.index is not None:
            table.index.valid = False

    def _other(self, before: Mapping[str, Any], name: str, table: Table, pair: Any) -> None:
        """A window that is no stretch of time stays where it is, unless what is in it has to be converted."""
        if isinstance(self._op.assigner, _OF_TIME) or self._merging != (
            before["layout"] in MERGING
        ):
            self.refuse("windows that are no stretches of time", repr(self._op.assigner))
        if before["contents"] != _contents_of(self._op):
            value = self._converted(before, name, isolate(table.read(pair, MISSING)))
            table.changes[pair] = DELETED
            self.others.append((pair, value))

    def _forget_set(self) -> None:
        """Which windows of a key there are, but of those that are no stretches of time."""
        table = self._table(WINDOW_SET)
        for key in () if table is None else list(table.keys()):
            assert table is not None
            others = [entry for entry in table.read(key, ()) if type(entry[0]) is not tuple]
            table.changes[key] = tuple(others) if others else DELETED

    def _live(self) -> Iterator[tuple[Any, Any]]:
        """Of windows that merge: where the contents are, and the window."""
        table = self._table(WINDOW_SET)
        for key in () if table is None else table.keys():
            assert table is not None
            for namespace, state in table.read(key, ()):
                yield (key, state), namespace

    def _sessions(self, before: Mapping[str, Any]) -> Iterator[OpenWindow]:
        table = self._table(SESSIONS)
        for key in () if table is None else list(table.keys()):
            assert table is not None
            self._check(before["contents"])
            for start, end, value in table.read(key, ()):
                yield OpenWindow(key, start, end, isolate(value), True)
            table.changes[key] = DELETED

    def _panes(self, name: str, watermark: int) -> Iterator[OpenWindow]:
        table = self._table(name, "pane", typed=True)
        assert table is not None
        by_key: dict[Any, dict[int, Any]] = {}
        for key, pane in list(table.keys()):
            by_key.setdefault(key, {})[pane] = table.read((key, pane), MISSING)
            if not isinstance(table, PaneTable):
                table.changes[key, pane] = DELETED
        if isinstance(table, PaneTable):
            for pane in table.live():
                table.drop(pane)
        numbers = name.removeprefix(_PANES).split()
        size, slide, offset, lateness = (int(number) for number in numbers)
        merge = Incremental(self._op.incremental).merge
        for key, panes in by_key.items():
            ends = {end for pane in panes for end in _ends(pane, size, slide, offset)}
            for end in sorted(ends):
                if watermark == MAX_TIME or (slide != size and end - 1 + lateness <= watermark):
                    continue
                value: Any = MISSING
                for pane in sorted(pane for pane in panes if end - size <= pane < end):
                    part = isolate(panes[pane])
                    value = part if value is MISSING else merge(value, part)
                yield OpenWindow(key, end - size, end, value, False)

    # -- contents ---------------------------------------------------------------------------------------------

    def _converted(self, before: Mapping[str, Any], name: str, value: Any) -> Any:
        """What is in a window, as the operator keeps it."""
        wanted = _contents_of(self._op)
        if name == CONTENTS:
            self._check(before.get("contents", wanted))
            return value
        if wanted == before.get("contents", wanted):
            return value
        if "join" in (wanted, before.get("contents")) or wanted == "timed records":
            self._check(before.get("contents", "records"))
        records = [record for record, _ in value] if name == TIMED_RECORDS else value
        if wanted == "records":
            return records
        function = Incremental(self._op.incremental)
        result = function.first(records[0])
        for record in records[1:]:
            result = function.add(record, result)
        return result

    def _check(self, found: str) -> None:
        wanted = _contents_of(self._op)
        if found != wanted:
            self.refuse(_NAMED[found], _NAMED[wanted])


_NAMED = {
    "reduce": "what a reduce function has made of the records",
    "aggregate": "the accumulators of an aggregate function",
    "records": "the records of each window",
    "timed records": "the records of each window with their timestamps, for an evictor",
    "join": "the records of two streams",
}


_OF_TIME = (
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
)


def _ends(pane: int, size: int, slide: int, offset: int) -> range:
    """The ends of the windows that a pane is part of."""
    first = pane + 1 + (offset + size - pane - 1) % slide
    last = pane - (pane - offset) % slide + size
    return range(first, last + 1, slide)
