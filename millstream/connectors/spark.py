"""`SparkSink`: a stream written by any Spark writer, one frame per epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import InvalidArgument
from millstream.graph.operators import CollectOp

__all__ = ["SparkSink"]


class SparkSink:
    """Calls `writer(df, epoch)` on the driver for every epoch, with the epoch's records as a Spark frame.

    The call comes before the epoch is complete, so after a failure it may come again with the same epoch: write
    idempotently by epoch to be exactly-once, else it is at-least-once.

    >>> sink = SparkSink(
    ...     lambda df, epoch: df.write.mode("append").parquet("out"), "word string, n long"
    ... )
    """

    def __init__(self, writer: Callable[[Any, int], None], schema: str) -> None:
        if not callable(writer):
            raise InvalidArgument("SparkSink needs a function of (df, epoch)", got=repr(writer))
        self._writer = writer
        self._schema = schema

    def to_operator(self) -> CollectOp:
        """The operator that hands the records to the driver's Spark session."""
        return CollectOp(self._writer, self._schema)
