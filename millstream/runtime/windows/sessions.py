"""Event-time sessions with the default trigger.

They mean what `WindowOperator` makes of them. A key's sessions are one value of its state: a list of
`[start, end, accumulator]` in the order of time, mostly of one. No timer is moved when a session grows: the calendar
has an entry for each session at its first end, and whoever finds the session grown since enters it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any

from millstream.api.session_windows import EventTimeSessionWindows
from millstream.api.window_bases import no_timestamp
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.graph.operators import WindowOp
from millstream.runtime.base.failpoints import reached
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import ATOMIC, DELETED, Table, isolate
from millstream.runtime.windows.change import Former
from millstream.runtime.windows.kept import KeptWindows
from millstream.runtime.windows.simple import Apply, SimpleWindows

__all__ = ["SessionWindows"]

Session = list[Any]
# After every end.
_NEVER = 1 << 100


class SessionWindows(SimpleWindows):
    """One subtask's sessions."""

    def __init__(
        self,
        op: WindowOp,
        keys: KeyContext,
        table: Table,
        former: Former,
        kept: KeptWindows,
        emit: Callable[[Any, int], None],
        emit_late: Callable[[Any, int], None] | None,
        apply: Apply | None,
        enter: Callable[[Any], None],
    ) -> None:
        super().__init__(op, keys, former, kept, emit, emit_late, apply, enter)
        assigner = op.assigner
        self.gap: int | None = assigner.gap if type(assigner) is EventTimeSessionWindows else None
        self._table = table
        self._changes = table.changes
        self._changed = table.changes.get
        self._read = table.read
        # Sessions that end at or before this have fired.
        self.over = NO_TIME
        # By time, the keys whose sessions are to be looked at then: never too few, sometimes too many.
        self._at: dict[int, dict[Any, None]] = {}
        self._heap: list[int] = []
        self.valid = False
        table.index = self

    @property
    def watermark(self) -> int:
        """How far event time has come."""
        return self._watermark

    @watermark.setter
    def watermark(self, watermark: int) -> None:
        self._watermark = watermark
        # When time is over, so is every session, also one whose end lies beyond.
        self.over = watermark + 1 if watermark < MAX_TIME else _NEVER

    # -- the calendar, as the index of the table ------------------------------------------------------------

    def _look(self, at: int, key: Any) -> None:
        if at > MAX_TIME:
            at = MAX_TIME
        keys = self._at.get(at)
        if keys is None:
            self._at[at] = {key: None}
            heappush(self._heap, at)
        else:
            keys[key] = None

    def applied(self, kind: str, entries: list[Any]) -> None:
        """Entries of a file were put into the table."""
        if kind == "P" and self.valid:
            for key, sessions in entries:
                for session in sessions:
                    self._look(session[1] - 1, key)

    def clear(self) -> None:
        """The table is empty."""
        self._at.clear()
        self._heap.clear()

    def put_back(self, key: Any, *, there: bool) -> None:
        """A record only adds to the calendar, and what it has added too much is looked at in vain."""

    def _refresh(self) -> None:
        if self.valid:
            return
        self.clear()
        for key in self._table.keys():  # noqa: SIM118 - a table is no dictionary
            for session in self._find(key):
                self._at.setdefault(min(session[1] - 1, MAX_TIME), {})[key] = None
        self._heap = list(self._at)
        heapify(self._heap)
        self.valid = True

    # -- records --------------------------------------------------------------------------------------------

    def _find(self, key: Any) -> list[Session]:
        """A key's sessions, not to be changed."""
        sessions = self._changed(key)
        if sessions is None:
            sessions = self._read(key, None)
        return [] if sessions is None or sessions is DELETED else sessions

    def process(self, value: Any, timestamp: int, key: Any) -> None:
        """Add a record to the session it belongs to, which may join others (rules 23 to 25)."""
        if timestamp == NO_TIME:
            raise no_timestamp(self._assigner)
        if self.gap is not None:
            end = timestamp + self.gap
        else:
            end = self._assigner.assign_windows(value, timestamp, None)[0].end
        if self._watermark == MAX_TIME:
            self.late(value, timestamp)
            return
        sessions = self._changed(key)
        if sessions is None:
            sessions = self._own(key)
        elif sessions is DELETED:
            sessions = []
        if len(sessions) == 1:
            # Nearly always: the one session of the key goes on.
            session = sessions[0]
            if session[0] <= end and timestamp <= session[1]:
                session[2] = self.add(value, session[2])
                if timestamp < session[0]:
                    session[0] = timestamp
                if end > session[1]:
                    if session[1] - 1 <= self.watermark:
                        # It has fired, so the calendar knows only when to forget it.
                        self._look(end - 1, key)
                    session[1] = end
                self._changes[key] = sessions
                if session[1] - 1 <= self.watermark:
                    self._fire(key, session)
                return
        self._add_slowly(value, timestamp, end, key, sessions)

    def _own(self, key: Any) -> list[Session]:
        """A key's sessions as the epoch found them, to be changed."""
        sessions = self._read(key, None)
        if sessions is None:
            return []
        return [
            [start, end, so_far if type(so_far) in ATOMIC else isolate(so_far)]
            for start, end, so_far in sessions
        ]

    def _add_slowly(
        self, value: Any, timestamp: int, end: int, key: Any, sessions: list[Session]
    ) -> None:
        touching = [s for s in sessions if s[0] <= end and timestamp <= s[1]] if sessions else ()
        if not touching:
            if end - 1 + self._lateness <= self.watermark:
                self.late(value, timestamp)
                return
            session = [timestamp, end, self._first(value)]
            sessions.insert(sum(other[0] < timestamp for other in sessions), session)
            self._look(end - 1, key)
        else:
            session = touching[0]
            for other in touching[1:]:
                session[2] = self._merge(session[2], other[2])
                session[1] = max(session[1], other[1])
                sessions.remove(other)
            session[2] = self.add(value, session[2])
            session[0], session[1] = min(session[0], timestamp), max(session[1], end)
            self._look(session[1] - 1, key)
        self._changes[key] = sessions
        if session[1] - 1 <= self.watermark:
            self._fire(key, session)

    # -- watermarks -----------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """Fire sessions that are over, in the order of their ends; forget those that nothing can come to any more."""
        before, self.watermark = self.watermark, watermark
        self._refresh()
        heap, kept = self._heap, self._kept
        ends = kept.over(before, watermark) if kept else []
        while heap and heap[0] <= watermark:
            at = heappop(heap)
            while ends and ends[0] - 1 <= at:
                self._fire_kept(ends.pop(0))
            for key in self._at.pop(at):
                self._due(key, at, before)
        for end in ends:
            self._fire_kept(end)
        if kept:
            kept.expire(watermark, self._lateness)
        self._keys.leave()

    def _due(self, key: Any, at: int, before: int) -> None:
        sessions = self._find(key)
        lateness = self._lateness
        if len(sessions) == 1 and not lateness:
            (session,) = sessions
            last = session[1] - 1
            if last > at < MAX_TIME:
                self._look(last, key)
            else:
                reached("timer firing")
                self._fire(key, session)
                self._forget(key)
            return
        over: list[Session] = []
        for session in sessions:
            last = session[1] - 1
            if last > MAX_TIME:
                last = MAX_TIME
            if last == at and last > before:
                reached("timer firing")
                self._fire(key, session)
            if last + lateness <= at or at == MAX_TIME:
                over.append(session)
            else:
                # Grown since, or fired and waiting for late records.
                self._look(last if last > at else last + lateness, key)
        if not over:
            return
        left = [session for session in sessions if session not in over]
        if left:
            self._changes[key] = self._own(key) if self._changed(key) is None else sessions
            kept = self._changes[key]
            kept[:] = [session for session in kept if session[1] - 1 + lateness > at]
        else:
            self._forget(key)

    # -- windows of a former program --------------------------------------------------------------------------

    def adopt(self, states: Mapping[str, Any]) -> None:
        """Go on with the windows that are open, whoever has kept them (`windows/change.py`)."""
        for window in self._open_windows(states):
            if window.merges:
                sessions = self._changed(window.key)
                if sessions is None or sessions is DELETED:
                    sessions = self._changes[window.key] = []
                place = sum(other[0] < window.start for other in sessions)
                sessions.insert(place, [window.start, window.end, window.value])
            else:
                self._kept.put(window.key, window.start, window.end, window.value)
        self.valid = False

    def _forget(self, key: Any) -> None:
        if self._read(key, None) is None:
            self._changes.pop(key, None)
        else:
            self._changes[key] = DELETED

    def _fire(self, key: Any, session: Session) -> None:
        start, end, accumulator = session
        value = self._result(accumulator if type(accumulator) in ATOMIC else isolate(accumulator))
        if self._apply is None:
            self._emit(value, end - 1 if end <= MAX_TIME else MAX_TIME)
            return
        self._call(start, end, key, value)
