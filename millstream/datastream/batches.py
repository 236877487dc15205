"""Checks of what `map_batches` and the others of its kind are given."""

from __future__ import annotations

from typing import Any, Literal

from millstream.api.batch_functions import (
    BATCH_FORMATS,
    FilterBatchesFunction,
    FlatMapBatchesFunction,
    MapBatchesFunction,
)
from millstream.api.functions import Function
from millstream.datastream.program import as_function
from millstream.errors import InvalidArgument
from millstream.graph.operators import BatchesOp

__all__ = ["batches_op"]

_WANTED: dict[str, type[Function]] = {
    "map": MapBatchesFunction,
    "filter": FilterBatchesFunction,
    "flat_map": FlatMapBatchesFunction,
}


def batches_op(
    kind: Literal["map", "filter", "flat_map"], function: Any, batch_size: int, batch_format: str
) -> BatchesOp:
    """The operator, if everything fits."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        msg = "batch_size is the most records that the function is given at once, 1 or more"
        raise InvalidArgument(msg, got=repr(batch_size))
    if batch_format not in BATCH_FORMATS:
        msg = "a batch comes as one of these formats: " + ", ".join(BATCH_FORMATS)
        raise InvalidArgument(msg, got=repr(batch_format), hint='for example batch_format="numpy"')
    function = as_function(f"{kind}_batches", function, _WANTED[kind])
    return BatchesOp(function, kind, batch_size, batch_format)
