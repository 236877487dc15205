"""An editor can follow the types of records through a program: what mypy says of one, line by line."""

import re

import pytest
from mypy import api

PROGRAM = """
from collections.abc import Iterable
from typing import Any

from millstream.common import WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import (
    ProcessWindowFunction,
    TimeWindow,
    TumblingEventTimeWindows,
)


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Untyped(MapFunction):
    def map(self, value):
        return value


class Mean(AggregateFunction[tuple[str, int], tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: tuple[str, int], accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Show(ProcessWindowFunction[float, str, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[float]
    ) -> Iterable[str]:
        yield key


class Count(KeyedProcessFunction[tuple[str, int], bytes]):
    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterable[bytes]:
        yield b""


env = StreamExecutionEnvironment.get_execution_environment("in-process")
words = env.from_collection(["a", "b"])
reveal_type(words)  # DataStream[str]
pairs = words.map(lambda word: (word, 1))
reveal_type(pairs)  # DataStream[tuple[str, int]]
reveal_type(words.map(Length()))  # DataStream[int]
reveal_type(words.map(Untyped()))  # DataStream[Any]
reveal_type(words.flat_map(lambda word: word.split()))  # DataStream[str]
reveal_type(pairs.filter(lambda pair: pair[1] > 0))  # DataStream[tuple[str, int]]
keyed = pairs.key_by(lambda pair: pair[0])
reveal_type(keyed)  # KeyedStream[str, tuple[str, int]]
reveal_type(pairs.key_by(0))  # KeyedStream[Any, tuple[str, int]]
reveal_type(keyed.sum(1))  # DataStream[tuple[str, int]]
reveal_type(keyed.reduce(lambda a, b: (a[0], a[1] + b[1])))  # DataStream[tuple[str, int]]
reveal_type(keyed.process(Count()))  # DataStream[bytes]
windows = keyed.window(TumblingEventTimeWindows.of("10 s"))
reveal_type(windows)  # WindowedStream[str, tuple[str, int], TimeWindow]
reveal_type(windows.aggregate(Mean()))  # DataStream[float]
reveal_type(windows.aggregate(Mean(), Show()))  # DataStream[str]
reveal_type(windows.reduce(lambda a, b: a))  # DataStream[tuple[str, int]]
timed = pairs.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
reveal_type(timed)  # DataStream[tuple[str, int]]
for pair in pairs.execute_and_collect():
    reveal_type(pair)  # tuple[str, int]
reveal_type(words.execute_and_collect(limit=1))  # list[str]
"""


@pytest.mark.timeout(300)
def test_types_are_followed_through_a_program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    said, trouble, _ = api.run([str(path), "--strict", "--allow-untyped-defs", "--no-incremental"])
    assert trouble == ""
    revealed = {}
    for line in said.splitlines():
        if "program.py:" not in line:
            continue
        number, kind, text = re.fullmatch(r"[^:]+:(\d+): (\w+): (.*)", line).groups()
        assert kind == "note", line
        name = text.removeprefix('Revealed type is "').removesuffix('"')
        revealed[int(number)] = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", name)
    wanted = {
        number: line.rpartition("# ")[2]
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "reveal_type(" in line
    }
    assert revealed == wanted
