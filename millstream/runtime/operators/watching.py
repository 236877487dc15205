"""Looks on while a chain runs: what every operator gets and gives is counted, and of some of them kept as text.

The chain's code gets one call more wherever an operator takes a record or gives a result. What is kept is text, made at
once: a function may change a record later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from millstream.runtime.base.text import shorten
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.unit import OperatorUnit

__all__ = ["Seen", "Watcher"]


class Seen:
    """What one operator got or gave: how many records, and the first of them as text if anybody wants them."""

    def __init__(self, limit: int | None, tell: Callable[[Any], str]) -> None:
        self.count = 0
        self.records: list[str] = []
        self._limit = limit
        self._tell = tell

    def take(self, record: Any) -> None:
        """One more."""
        self.count += 1
        if self._limit is None or self.count <= self._limit:
            self.records.append(self._tell(record))

    def take_tagged(self, tag: str) -> Callable[[Any], None]:
        """One more, for a side output."""

        def take(record: Any) -> None:
            self.count += 1
            if self._limit is None or self.count <= self._limit:
                self.records.append(f"{tag}: {self._tell(record)}")

        return take


class Watcher:
    """Watches all chains of a job. `kept` are the uids of operators whose records are kept, up to `limit` of each; None
    is no limit."""

    def __init__(
        self,
        kept: Collection[str] = (),
        limit: int | None = 1000,
        tell: Callable[[Any], str] = shorten,
    ) -> None:
        self._kept = kept
        self._limit = limit
        self._tell = tell
        # By uid.
        self.taken: dict[str, Seen] = {}
        self.given: dict[str, Seen] = {}

    def _seen(self, place: dict[str, Seen], uid: str) -> Seen:
        if uid not in place:
            place[uid] = Seen(self._limit if uid in self._kept else 0, self._tell)
        return place[uid]

    def __call__(self, builder: ChainBuilder, units: dict[int, OperatorUnit[Any]]) -> None:
        """Have the units of a chain write what is watched."""
        for unit in units.values():
            self._watch_input(builder, unit)
        write_results, seen = builder.emit, self._seen

        def emit(node: Any, variable: str, tag: str | None = None, **facts: Any) -> None:
            captured = builder._captured
            # What an error policy holds back is emitted again once its record is known to be good.
            if captured is None or captured.node != node.id:
                given = seen(self.given, node.uid)
                take = given.take if tag is None else given.take_tagged(tag)
                builder.code.line(f"{builder.code.bind(take, 'gives')}({variable})")
            write_results(node, variable, tag, **facts)

        builder.emit = emit  # type: ignore[method-assign]

    def _watch_input(self, builder: ChainBuilder, unit: OperatorUnit[Any]) -> None:
        taken, write = self._seen(self.taken, unit.node.uid), unit.write

        def write_watched(record: str, index: int) -> None:
            builder.at(unit.node, record, "read")
            builder.code.line(f"{builder.code.bind(taken.take, 'takes')}({record})")
            write(record, index)

        unit.write = write_watched  # type: ignore[method-assign]
