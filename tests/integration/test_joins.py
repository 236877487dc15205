"""Joins on Spark, against all pairs that there are."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import ProcessJoinFunction
from millstream.datastream.window import TumblingEventTimeWindows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DISORDER = 20


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right


def records(side: str) -> list[tuple[str, int, str]]:
    chance = random.Random(side)
    return [
        (chance.choice("abcdefgh"), 3 * number - chance.randint(0, DISORDER), f"{side}{number}")
        for number in range(400)
    ]


@pytest.mark.parametrize("epoch", [None, 150])
def test_joins(make_env: Any, epoch: int | None) -> None:
    options = {} if epoch is None else {"millstream.epoch.records": str(epoch)}
    env = make_env(parallelism=2, options=options)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(DISORDER + 3)
    strategy = strategy.with_timestamp_assigner(Second())
    left, right = records("l"), records("r")
    one, two = (
        env.from_collection(side).assign_timestamps_and_watermarks(strategy)
        for side in (left, right)
    )
    by_interval = one.key_by(0).interval_join(two.key_by(0)).between("-5 ms", "30 ms")
    windows = one.join(two).where(0).equal_to(0).window(TumblingEventTimeWindows.of("25 ms"))
    both = (
        by_interval.process(Pair())
        .map(lambda pair: ("interval", *pair))
        .union(windows.apply(lambda a, b: ("window", a, b)))
    )
    same_key = [(a, b) for a, b in itertools.product(left, right) if a[0] == b[0]]
    expected = Counter(("interval", a, b) for a, b in same_key if -5 <= b[1] - a[1] <= 30)
    expected += Counter(("window", a, b) for a, b in same_key if a[1] // 25 == b[1] // 25)
    assert Counter(both.execute_and_collect()) == expected
