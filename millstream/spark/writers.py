"""What the driver does with the rows of the last level: most are messages, some belong to Spark writers.

A job without Spark writers collects its rows. With them, the rows are cached first, so that the levels run once, and
each writer gets a frame of its own records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from millstream.errors import InvalidArgument, SinkError, decode, told
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.outputs import EpochRow
from millstream.runtime.wire.rows import client_edge
from millstream.spark.worker import decode_client_rows

__all__ = ["SparkWriters", "as_frame", "collect_rows"]


def as_frame(rows: DataFrame, node: int, ddl: str) -> DataFrame:
    """The records that an operator sent to the driver, as a frame with a schema."""
    try:
        columns = StructType.fromDDL(ddl)
        assert isinstance(columns, StructType)
        schema = to_arrow_schema(columns, timezone="UTC")
    except PySparkException as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        raise InvalidArgument(
            "Spark cannot make a frame with this schema", schema=ddl, cause=first
        ) from error
    names = [column.casefold() for column in columns.names]
    if len({*names}) < len(names):
        raise InvalidArgument("a schema needs columns of different names", schema=ddl)
    return rows.where(sf.col("edge") == client_edge(node)).mapInArrow(
        decode_client_rows(node, schema), ddl
    )


class SparkWriters:
    """The Spark writers of a job, by the node whose records they write."""

    def __init__(self, job: Job) -> None:
        self._writers = {
            node.id: (node.name, node.operator)
            for node in job.graph.nodes.values()
            if isinstance(node.operator, CollectOp) and node.operator.schema is not None
        }
        self._edges = [client_edge(node) for node in self._writers]

    def collect(self, rows: DataFrame, epoch: int) -> Iterable[EpochRow]:
        """Run the epoch; the rows that are for the driver."""
        if not self._writers:
            return collect_rows(rows)
        kept = rows.persist()
        try:
            messages = kept.where(~sf.col("edge").isin(self._edges))
            collected = list(collect_rows(messages))
            for node, (name, operator) in self._writers.items():
                assert operator.schema is not None
                frame = as_frame(kept, node, operator.schema)
                try:
                    operator.consumer(frame, epoch)
                except Exception as error:
                    refused = decode(str(error))
                    if refused is not None:
                        # A record that does not fit the frame; the writer has only asked for its rows.
                        refused.evidence.setdefault("operator", name)
                        raise refused from error
                    msg = f"the Spark writer of '{name}' failed: {told(error)}"
                    raise SinkError(msg, operator=name, epoch=epoch) from error
            return collected
        finally:
            kept.unpersist()


def collect_rows(rows: DataFrame) -> Iterable[EpochRow]:
    """The rows of the last level."""
    table: pa.Table = rows.toArrow()
    columns: list[list[Any]] = [table.column(i).to_pylist() for i in (3, 2, 1, 4)]
    return [EpochRow(*row) for row in zip(*columns, strict=True)]
