"""Runs a program up to one of its streams and gives what that stream holds."""

from __future__ import annotations

from typing import Any

from millstream.api.functions import ProcessFunction
from millstream.datastream.data_stream import DataStream
from millstream.graph.transformations import OperatorTransformation

__all__ = ["collect", "collect_with_timestamps"]


def collect(stream: DataStream, job_name: str | None = None) -> list[Any]:
    """Run the program to its end; the stream's records.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> collect(env.from_collection([1, 2]).map(lambda n: n + 1))
    [2, 3]
    """
    with stream.execute_and_collect(job_name) as results:
        return list(results)


def collect_with_timestamps(
    stream: DataStream, job_name: str | None = None
) -> list[tuple[Any, int | None]]:
    """Run the program to its end; the stream's records, each with its timestamp, or None where there is none.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> collect_with_timestamps(env.from_collection(["a"]))
    [('a', None)]
    """
    values = stream._values()
    stamped = values.process(_Stamp())
    above, own = values._transformation, stamped._transformation
    if isinstance(above, OperatorTransformation) and isinstance(own, OperatorTransformation):
        # In as many subtasks, or the order would not be the stream's.
        own.parallelism, own.most_parallelism = above.parallelism, above.most_parallelism
    return collect(stamped, job_name)


class _Stamp(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return [(value, ctx.timestamp())]
