"""Tumbling and sliding event-time windows with the default trigger, which is how most windows are used.

They mean what `WindowOperator` makes of them, at a fraction of the cost. All keys' windows end at the same times, so
there are no timers: the watermark is compared with the next end. Of a sliding window every record is added to one
*pane* only; a window's result is put together from its panes when it fires, so that the cost of a record does not grow
with the number of windows it is in.

```
size 4, slide 2                    pane   2   2   2   2
window ending at 6   ├───────┤            └─ suffixes ─┴─ back ─
window ending at 8       ├───────┤
```

Putting together: `_suffixes[p]` holds, for every key, everything from pane p up to the *pivot*, and `_back`
everything from the pivot on. A window is one of each. When the pivot is no longer inside of the window, the
suffixes are made anew. That is three steps for every key and pane, however many panes a window has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from millstream.api.window_bases import no_timestamp
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.graph.operators import WindowOp
from millstream.runtime.base.failpoints import reached
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.panes import Pane, Panes
from millstream.runtime.state.table import ATOMIC, DELETED, MISSING, isolate
from millstream.runtime.windows.change import Former, panes_name
from millstream.runtime.windows.grouping import last_end
from millstream.runtime.windows.kept import KeptWindows
from millstream.runtime.windows.simple import Apply, SimpleWindows

__all__ = ["AlignedWindows"]

# With more accumulators than this, suffixes take too much memory; panes are then put together window by window.
_MOST_SUFFIXES = 5_000_000


class AlignedWindows(SimpleWindows):
    """One subtask's windows. Generated code adds to panes that no window has read yet; `slow` does the rest."""

    def __init__(
        self,
        op: WindowOp,
        keys: KeyContext,
        panes: Panes,
        former: Former,
        kept: KeptWindows,
        emit: Callable[[Any, int], None],
        emit_late: Callable[[Any, int], None] | None,
        apply: Apply | None,
        enter: Callable[[Any], None],
    ) -> None:
        super().__init__(op, keys, former, kept, emit, emit_late, apply, enter)
        self._own = panes_name(op)
        assigner = op.assigner
        self.size: int = assigner.size
        self.slide: int = getattr(assigner, "slide", assigner.size)
        self.offset: int = assigner.offset
        # Windows begin and end at these places within a slide.
        self.cut = self.size % self.slide
        self._panes = panes
        self.changes = panes.changes
        # What is emitted is nobody else's if its pane goes with it.
        self._shared = self.size != self.slide or op.lateness > 0
        self.fired = NO_TIME
        self._version = -1
        self._pivot: int | None = None
        self._suffixes: dict[int, Pane] = {}
        self._back: Pane = {}
        self._merged_to = NO_TIME
        self._stale: set[Any] = set()
        self.watermark = NO_TIME

    @property
    def watermark(self) -> int:
        """How far event time has come."""
        return self._watermark

    @watermark.setter
    def watermark(self, watermark: int) -> None:
        self._watermark = watermark
        self.fired = last_end(watermark, self.size, self.slide, self.offset)

    # -- records --------------------------------------------------------------------------------------------

    def open_pane(self, pane: int) -> Pane:
        """This epoch's accumulators of a pane."""
        accumulators = self.changes.get(pane)
        if accumulators is None or accumulators is DELETED:
            accumulators = self.changes[pane] = {}
        return accumulators

    def before(self, pane: int, key: Any) -> Any:
        """A key's accumulator as the epoch found it, or a new one; the caller's own."""
        accumulator = self._panes.before(pane, key)
        return self.fresh() if accumulator is MISSING else isolate(accumulator)

    def pane_of(self, timestamp: int) -> int | None:
        """The pane of a timestamp; None if it is in no window, which is so between windows that do not touch."""
        into = (timestamp - self.offset) % self.slide
        if into < self.cut or not self.cut:
            return timestamp - into
        return None if self.size < self.slide else timestamp - into + self.cut

    def slow(self, value: Any, timestamp: int, key: Any) -> None:
        """A record that is in a window which has fired, or in none (rules 20 and 21)."""
        if timestamp == NO_TIME:
            raise no_timestamp(self._assigner)
        if not self.still_added(timestamp, key, lambda so_far: self.add(value, so_far)):
            self.late(value, timestamp)

    def still_added(self, timestamp: int, key: Any, add: Callable[[Any], Any]) -> bool:
        """Change the accumulator of a time that is in a window which has fired; those that have and are kept for late
        records fire again. False if none of its windows is there any more."""
        pane, watermark = self.pane_of(timestamp), self._watermark
        windows = list(self._windows_of(timestamp))
        live = [end for end in windows if end - 1 + self._lateness > watermark]
        if pane is None or not live or watermark == MAX_TIME:
            return False
        accumulators = self.open_pane(pane)
        so_far = accumulators.get(key, MISSING)
        if so_far is MISSING:
            so_far = self.before(pane, key)
        accumulators[key] = add(so_far)
        self._stale.add(key)
        for end in live:
            if end - 1 <= watermark:
                self._fire_key(end, key)
        return True

    def _windows_of(self, timestamp: int) -> Iterator[int]:
        """The ends of a record's windows, the last one first, as Flink gives them."""
        end = timestamp - (timestamp - self.offset) % self.slide + self.size
        while end > timestamp:
            yield end
            end -= self.slide

    # -- watermarks -----------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Fire every window that the watermark has passed, in order, and forget panes that nobody reads any more."""
        fired, before = self.fired, self._watermark
        self.watermark = watermark
        kept = self._kept
        if self.fired == fired and not self._lateness and not kept:
            return
        panes = self._panes.live()
        over = watermark == MAX_TIME
        ends = set(kept.over(before, watermark)) if kept else set()
        if panes:
            # Before the first watermark nothing has fired, however old it is.
            after = min(panes) if before == NO_TIME else before + 1
            ends |= self._ends(panes, after, self.fired if over else watermark + 1)
        for end in sorted(ends):
            self._fire(end)
        if kept:
            kept.expire(watermark, self._lateness)
        for pane in panes:
            if over or self._last_end(pane) - 1 + self._lateness <= watermark:
                self._panes.drop(pane)
                self._suffixes.pop(pane, None)

    def _ends(self, panes: set[int], after: int, until: int) -> set[int]:
        """Ends of windows with something in them, after one time and not after another."""
        ends: set[int] = set()
        for pane in panes:
            first = pane + 1 + (self.offset + self.size - pane - 1) % self.slide
            if first <= after:
                first += -(-(after + 1 - first) // self.slide) * self.slide
            ends.update(range(first, min(until, self._last_end(pane)) + 1, self.slide))
        return ends

    def _last_end(self, pane: int) -> int:
        return pane - (pane - self.offset) % self.slide + self.size

    def _fire(self, end: int) -> None:
        reached("timer firing")
        start = end - self.size
        own = (start - self.offset) % self.slide == 0
        if own and self.size == self.slide:
            self._emit_all(end, self._panes.items(start))
        elif own:
            self._emit_all(end, self._sliding(start, end))
        if self._kept:
            # Of a window that is one of this program's too, what was left is in the result already.
            self._fire_kept(end, apart_from=start if own else None)
        self._keys.leave()

    def _emit_all(self, end: int, items: Iterable[tuple[Any, Any]]) -> None:
        emit, at, shared, result = self._emit, min(end - 1, MAX_TIME), self._shared, self._result
        if self._apply is not None:
            # The function may use state, and so change what is gone through.
            for key, accumulator in list(items):
                if shared and type(accumulator) not in ATOMIC:
                    accumulator = isolate(accumulator)
                value = result(accumulator)
                self._call(end - self.size, end, key, value)
        elif shared:
            for _, accumulator in items:
                value = result(accumulator if type(accumulator) in ATOMIC else isolate(accumulator))
                emit(value, at)
        else:
            for _, accumulator in items:
                emit(result(accumulator), at)

    def _fire_key(self, end: int, key: Any) -> None:
        """A late record has come into a window that has fired: its key's result is emitted again."""
        accumulator = self._together(end - self.size, end, key, self._kept)
        if self._apply is not None:
            before = self._keys.key, self._keys.canon
            self._call(end - self.size, end, key, self._result(isolate(accumulator)))
            self._keys.key, self._keys.canon = before
        else:
            self._emit(self._result(isolate(accumulator)), min(end - 1, MAX_TIME))

    # -- windows of several panes ---------------------------------------------------------------------------

    def _together(self, start: int, end: int, key: Any, kept: KeptWindows | None = None) -> Any:
        """One key's accumulator over the panes of a window; MISSING if it has none."""
        result: Any = kept.get(key, start, end) if kept else MISSING
        for pane in sorted(p for p in self._panes.live() if start <= p < end):
            changed = self.changes.get(pane)
            accumulator = MISSING if changed is None else changed.get(key, MISSING)
            if accumulator is MISSING:
                accumulator = self._panes.before(pane, key)
            if accumulator is not MISSING:
                accumulator = isolate(accumulator)
                result = accumulator if result is MISSING else self._merge(result, accumulator)
        return result

    def _sliding(self, start: int, end: int) -> list[tuple[Any, Any]]:
        """Every key's accumulator over a window's panes."""
        merge = self._merge
        if self._version != self._panes.version:
            self._pivot = None
            self._version = self._panes.version
        if self._pivot is None or self._pivot <= start:
            self._turn(start, end)
        else:
            self._extend(self._back, self._merged_to, end)
        self._merged_to = end
        front = self._front(start)
        back, stale = self._back, self._stale
        items: list[tuple[Any, Any]] = []
        for key, first in front.items():
            second = back.get(key, MISSING)
            if second is MISSING:
                items.append((key, first))
            elif type(first) in ATOMIC and type(second) in ATOMIC:
                items.append((key, merge(first, second)))
            else:
                items.append((key, merge(isolate(first), isolate(second))))
        items.extend((key, second) for key, second in back.items() if key not in front)
        if stale:
            items = [item for item in items if item[0] not in stale]
            for key in stale:
                accumulator = self._together(start, end, key)
                if accumulator is not MISSING:
                    items.append((key, accumulator))
        return self._with_kept(start, end, items) if self._kept else items

    def _with_kept(
        self, start: int, end: int, items: list[tuple[Any, Any]]
    ) -> list[tuple[Any, Any]]:
        """What is in a window that a former program had too: what it has left, and what has come since."""
        merge = self._merge
        left = {
            key: self._kept.get(key, start, end)
            for key, begin in self._kept.ending(end)
            if begin == start
        }
        both = [
            (key, merge(left.pop(key), isolate(value)) if key in left else value)
            for key, value in items
        ]
        return [*both, *left.items()]

    # -- windows of a former program --------------------------------------------------------------------------

    def adopt(self, states: Mapping[str, Any]) -> None:
        """Go on with the windows that are open, whoever has kept them (`windows/change.py`)."""
        for window in self._open_windows(states, self._own):
            fits = window.end - window.start == self.size == self.slide
            if fits and (window.start - self.offset) % self.slide == 0:
                self.open_pane(window.start)[window.key] = window.value
            else:
                self._kept.put(window.key, window.start, window.end, window.value)

    def _front(self, start: int) -> Pane:
        """What comes from before the pivot."""
        inside = [pane for pane in self._suffixes if pane >= start]
        return self._suffixes[min(inside)] if inside else {}

    def _extend(self, target: Pane, start: int, end: int) -> None:
        """Merge the panes of a stretch of time behind what is there."""
        merge = self._merge
        for pane in sorted(p for p in self._panes.live() if start <= p < end):
            for key, accumulator in self._panes.items(pane):
                so_far = target.get(key, MISSING)
                if so_far is MISSING:
                    target[key] = accumulator
                elif type(so_far) in ATOMIC and type(accumulator) in ATOMIC:
                    target[key] = merge(so_far, accumulator)
                else:
                    target[key] = merge(isolate(so_far), isolate(accumulator))

    def _turn(self, start: int, end: int) -> None:
        """Begin anew: suffixes over the panes of this window, nothing behind them."""
        merge = self._merge
        self._stale.clear()
        self._suffixes.clear()
        self._back = {}
        self._pivot = end
        behind: Pane = {}
        kept = 0
        for pane in sorted((p for p in self._panes.live() if start <= p < end), reverse=True):
            together = dict(behind)
            for key, accumulator in self._panes.items(pane):
                later = together.get(key, MISSING)
                if later is MISSING:
                    together[key] = accumulator
                elif type(later) in ATOMIC and type(accumulator) in ATOMIC:
                    together[key] = merge(accumulator, later)
                else:
                    together[key] = merge(isolate(accumulator), isolate(later))
            behind = self._suffixes[pane] = together
            kept += len(together)
            if kept > _MOST_SUFFIXES:
                # Only this window's; the next one begins anew.
                self._suffixes = {pane: together}
                self._pivot = None
