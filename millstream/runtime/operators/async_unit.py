"""Asynchronous I/O in generated code ([`async_io.py`](async_io.py))."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.api.output_tag import OutputTag
from millstream.graph.operators import AsyncOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.bad_records import BadRecords
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.unit import TimedUnit
from millstream.runtime.operators.async_calls import holder_of
from millstream.runtime.operators.async_io import AsyncIO
from millstream.runtime.operators.one_by_one import comes_one_by_one
from millstream.runtime.state.copying import own

__all__ = ["AsyncUnit"]


class AsyncUnit(TimedUnit[AsyncOp]):
    """Something outside is asked about each record.

    An error policy is the operator's own business: the request that fails is not that of the record at hand.
    """

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self._results = Outlet()
        self._letters: Outlet | None = None
        policy = node.error_policy
        if policy is not None and policy.kind != "fail":
            self.bad = BadRecords(node, builder.cursor)
            self._letters = None if policy.tag is None else Outlet()
        holder = holder_of(self.op.function)
        self._io = AsyncIO(
            self.op,
            node.name,
            holder,
            self._results,
            builder.cursor if comes_one_by_one(builder, node) else None,
            self.bad,
            self._letters,
            None if self.bad is None else _fitting(builder, node),
            reuse=builder.settings.object_reuse,
        )
        self.opens(holder)
        self.follows_time(self._io)

    def lines(self, record: str, index: int) -> None:
        """One call, which begins the record's request."""
        ask = self.code.bind(self._io.process, "ask")
        self.code.line(f"{ask}({record}, {self.builder.stamp()})")

    def write_entries(self) -> None:
        """For results, and for letters about what failed."""
        self.write_result_entry(self._results)
        if self._letters is not None:
            self.write_side_entry("letter", self._letters, self.node.error_policy.tag.tag_id)

    def poll(self, watermark: int) -> None:
        """One turn of the loop."""
        self._io.poll(watermark)

    def settle(self, watermark: int) -> None:
        """Wait for all requests."""
        self._io.settle(watermark)


def _fitting(b: ChainBuilder, node: StreamNode) -> Callable[[Any], Any]:
    """What makes a result fit its declared type, and one that nobody else has, while it is still known whose it is."""
    types: dict[str | None, Any] = {
        tag: b.tree.declared_type(node, tag) for tag in b.tree.tags_of(node)
    }
    types[None] = node.output_type
    copies = not b.settings.object_reuse

    def fit(result: Any) -> Any:
        side = type(result) is tuple and len(result) == 2 and type(result[0]) is OutputTag
        tag, value = (result[0].tag_id, result[1]) if side else (None, result)
        declared = types.get(tag)
        if declared is not None:
            value = declared.convert(value)
        if copies:
            value = own(value)
        return (result[0], value) if side else value

    return fit
