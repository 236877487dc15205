"""What `millstream doctor --pipelined` does: runs a small job in pipelined mode and looks at its records' times."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from millstream.cli.checks import Finding, check_pipelined
from millstream.common.configuration import Configuration
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import (
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.errors import MillstreamError

__all__ = ["examine_pipelined"]

_RECORDS = 400
# The first ones find processes that have just been started.
_WARM_UP = 100
_RATE = 200


def _stamp(number: int) -> tuple[int, float]:
    return number, time.time()


class _Since(KeyedProcessFunction):
    """How long a record took, in milliseconds."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[0], (time.time() - value[1]) * 1000


def examine_pipelined(settings: Mapping[str, str]) -> Finding:
    """Run the job; how it went."""
    configuration = Configuration.from_dict({**settings, "execution.mode": "pipelined"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    # Its rate counts from when the job reads, not from when Spark begins to start.
    stamps = DataGeneratorSource(_stamp, _RECORDS, _RATE)
    source = env.from_source(stamps, WatermarkStrategy.no_watermarks(), "stamps")
    stream = source.key_by(lambda value: value[0] % 8).process(_Since())
    try:
        with stream.execute_and_collect("millstream doctor") as results:
            latencies = [latency for number, latency in results if number >= _WARM_UP]
    except MillstreamError as error:
        return check_pipelined([], str(error).splitlines()[0])
    return check_pipelined(latencies)
