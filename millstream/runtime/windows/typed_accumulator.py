"""Accumulators of windows with a declared type: fitted whenever the user's function gives one, so that whichever window
operator keeps them, they are the same before and after a restore."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from millstream.api.functions import AggregateFunction
from millstream.checkpoint.statefile import table_name
from millstream.graph.operators import WindowOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import never_returns
from millstream.runtime.state.codec import codec_for
from millstream.runtime.state.storing import Storing

__all__ = ["FittedAggregate", "with_fitted_accumulators"]

Op = TypeVar("Op", bound=WindowOp)


def with_fitted_accumulators(op: Op, node: StreamNode) -> Op:
    """The operator; if its accumulators have a declared type that values must be fitted to, with a function around the
    user's that does so."""
    codec = codec_for(op.accumulator_type)
    if op.kind != "aggregate" or codec.fit is None:
        return op
    storing = Storing(table_name(node.uid, "accumulator"), codec, "accumulator")
    return replace(op, incremental=FittedAggregate(op.incremental, storing))


class FittedAggregate(AggregateFunction[Any, Any, Any]):
    """The user's function with accumulators that fit."""

    def __init__(self, inner: AggregateFunction[Any, Any, Any], storing: Storing) -> None:
        self.inner = inner
        self._fit = storing.fit
        self._add = inner.add
        self.get_result = inner.get_result  # type: ignore[method-assign]
        if never_returns(inner.merge):
            # Whoever looks whether it can be called must see the user's.
            self.merge = inner.merge  # type: ignore[method-assign]

    def open(self, runtime_context: Any) -> None:
        self.inner.open(runtime_context)

    def close(self) -> None:
        self.inner.close()

    def create_accumulator(self) -> Any:
        return self._fit(self.inner.create_accumulator())

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._fit(self._add(value, accumulator))

    def get_result(self, accumulator: Any) -> Any:
        return self.inner.get_result(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return self._fit(self.inner.merge(acc_a, acc_b))
