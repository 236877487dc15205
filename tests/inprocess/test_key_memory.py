"""Ever-new keys: what a worker remembers of them has a bound."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from millstream.api.functions import SinkFunction
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction
from millstream.runtime.codegen import exchange
from tests.support import environment

COUNT = 24_000
MAKE = {
    "text": lambda n: (f"key {n}", n),
    "number": lambda n: (n + 10**9, n),
    "tuple": lambda n: (("key", n), n),
}
traced: list[int] = []


class Pass(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service()
        yield value


class Measure(SinkFunction):
    def invoke(self, value, context):
        if value[1] % (COUNT // 6) == 0:
            gc.collect()
            traced.append(tracemalloc.get_traced_memory()[0])


RECOGNIZED, CALLED = lambda pair: pair[0], lambda pair: next(iter(pair))


@pytest.mark.parametrize(
    ("kind", "select"),
    [
        ("text", RECOGNIZED),
        ("tuple", CALLED),
        pytest.param("number", RECOGNIZED, marks=pytest.mark.nightly),
        pytest.param("tuple", RECOGNIZED, marks=pytest.mark.nightly),
        pytest.param("text", CALLED, marks=pytest.mark.nightly),
        pytest.param("number", CALLED, marks=pytest.mark.nightly),
    ],
)
def test_memory_does_not_grow_with_the_keys(kind, select, monkeypatch):
    monkeypatch.setattr(exchange, "_ROUTE_CACHE", 1000)
    env = environment(1, 2000)
    source = DataGeneratorSource(MAKE[kind], COUNT)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    records.key_by(select).process(Pass()).add_sink(Measure())
    traced.clear()
    tracemalloc.start()
    try:
        env.execute()
    finally:
        tracemalloc.stop()
    # After the first sixth nothing is new. 40 bytes for each of the keys since then would be 640 kB.
    assert traced[-1] - traced[1] < 200_000, traced


def test_routes_of_so_many_keys_are_remembered_and_not_more(monkeypatch):
    class Hashed:
        target_parallelism, target_max_parallelism = 4, 128

    monkeypatch.setattr(exchange, "_ROUTE_CACHE", 1000)
    routes: dict[object, int] = {}
    find = exchange._key_router(Hashed(), routes, list(range(4)), by_group=False)
    most = 0
    for n in range(25_000):
        assert find(f"key {n}") == find(f"key {n}")
        most = max(most, len(routes))
    assert 900 < most <= 1000
