"""Counters of functions on Spark: over many epochs and workers, and through a failure, they add up exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millstream.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from millstream.reporters.moment import user_totals

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COUNT, PER_EPOCH = 1500, 50


class Count(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.values = group.add_group("of", "input").distribution("values")

    def map(self, value: int) -> int:
        self.seen.inc()
        self.values.update(value)
        return value


class FailsOnce(KeyedProcessFunction):
    """Fails in the middle of an epoch, once in all processes."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Any:
        self.seen.inc()
        if value == COUNT // 2 and not Path(self.flag).exists():
            Path(self.flag).touch()
            raise ValueError("once")
        yield value


def test_counters_add_up_exactly(make_env: Any, tmp_path: Path) -> None:
    env = make_env(
        parallelism=3,
        options={
            "millstream.epoch.records": str(PER_EPOCH),
            "execution.checkpointing.interval": "1 ms",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "2",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    numbers = env.from_collection(list(range(COUNT))).map(Count()).name("Count").uid("count")
    keyed = numbers.key_by(lambda n: n % 11).process(FailsOnce(str(tmp_path / "failed")))
    keyed.name("Keyed").uid("keyed").print()
    client = env.execute_async("count")
    client.get_job_execution_result().result(240)
    metrics = client.get_metrics()
    assert metrics.restarts == 1
    assert metrics.epoch >= COUNT // PER_EPOCH - 1
    parts = {
        uid: of for vertex in metrics.vertices.values() for uid, of in vertex.operators.items()
    }
    counted, keyed_counted = user_totals(parts["count"]), user_totals(parts["keyed"])
    assert counted[(), "seen"].count == COUNT
    values = counted[(("of", "input"),), "values"]
    assert (values.count, values.value) == (COUNT, sum(range(COUNT)))
    assert (values.least, values.largest) == (0, COUNT - 1)
    assert keyed_counted[(), "seen"].count == COUNT
    assert sum((((), "seen") in part.user) for part in parts["keyed"]) == 3
