"""BATCH mode on Spark: files, windows, larger key groups than memory, and the results of STREAMING."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, RuntimeExecutionMode, TimestampAssigner, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import ListStateDescriptor
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from tests.integration.conftest import MakeEnv

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
PARALLELISM = pytest.mark.parametrize("p", [1, 2, 3])
NO_WATERMARKS = WatermarkStrategy.no_watermarks()


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def first(value: Any) -> Any:
    return value[0]


def text(folder: Path) -> Counter[str]:
    """Some files; the words in them."""
    counts: Counter[str] = Counter()
    for number in range(3):
        words = [f"word{(n * n + number) % 97}" for n in range(2000)]
        counts.update(words)
        lines = [" ".join(words[n : n + 10]) for n in range(0, len(words), 10)]
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return counts


@PARALLELISM
@pytest.mark.parametrize("combined", [True, False])
def test_word_count_over_files(make_env: MakeEnv, tmp_path: Path, p: int, combined: bool) -> None:
    folder, out = tmp_path / "text", tmp_path / "counts"
    folder.mkdir()
    expected = text(folder)
    env = make_env(parallelism=p).set_runtime_mode(BATCH)
    lines = StreamFormat.text_line_format()
    source = FileSource.for_record_stream_format(lines, str(folder)).set_block_size(4000).build()
    words = env.from_source(source, NO_WATERMARKS, "text").flat_map(str.split)
    pairs = words.map(lambda word: (word, 1)).key_by(first)
    counts = pairs.sum(1) if combined else pairs.reduce(lambda a, b: (a[0], a[1] + max(b[1], 0)))
    sink = FileSink.for_row_format(str(out), Encoder.simple_string_encoder()).build()
    counts.map(lambda v: f"{v[0]} {v[1]}").sink_to(sink)
    env.execute("word count")
    parts = [file for file in out.rglob("*") if file.is_file() and file.name[0] not in "._"]
    found = [line for file in parts for line in file.read_text().splitlines()]
    assert sorted(found) == sorted(f"{word} {count}" for word, count in expected.items())


def windows(env: Any) -> Any:
    records = [(f"user{n % 7}", (n * 37) % 5000, n) for n in range(3000)]
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5000)
    timed = env.from_collection(records).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(Second())
    )
    keyed = timed.rebalance().map(lambda v: (v[0], v[1], 1)).key_by(first)
    add = lambda a, b: (a[0], min(a[1], b[1]), a[2] + b[2])  # noqa: E731
    tumbling = keyed.window(TumblingEventTimeWindows.of("100 ms")).reduce(add)
    sessions = keyed.window(EventTimeSessionWindows.with_gap("3 ms")).reduce(add)
    return tumbling.union(sessions)


@PARALLELISM
def test_windows_as_in_streaming(make_env: MakeEnv, p: int) -> None:
    results = [
        Counter(windows(make_env(parallelism=p).set_runtime_mode(mode)).execute_and_collect())
        for mode in (BATCH, STREAMING)
    ]
    assert results[0] == results[1]
    assert sum(results[0].values()) > 350


class InOrder(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.all.add(value[1])
        ctx.timer_service().register_event_time_timer(0)
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), list(self.all.get())


@pytest.mark.parametrize("memory", ["64 mb", "1 kb"])
def test_one_key_at_a_time_by_time(make_env: MakeEnv, memory: str) -> None:
    env = make_env(options={"millstream.sort.memory": memory}).set_runtime_mode(BATCH)
    records = [(f"key {k}", 500 - n) for n in range(500) for k in range(20)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    timed = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    results = dict(timed.key_by(first).process(InOrder()).execute_and_collect())
    assert results == {f"key {k}": list(range(1, 501)) for k in range(20)}


@pytest.mark.parametrize("mode", [BATCH, STREAMING])
def test_one_source_after_the_other(make_env: MakeEnv, mode: RuntimeExecutionMode) -> None:
    first_, second = NumberSequenceSource(1, 1000), NumberSequenceSource(2001, 2100)
    source = HybridSource.builder(first_).add_source(second).build()
    env = make_env().set_runtime_mode(mode)
    numbers = list(env.from_source(source, NO_WATERMARKS, "numbers").execute_and_collect())
    assert sorted(numbers) == [*range(1, 1001), *range(2001, 2101)]
    if mode is STREAMING:
        assert [n > 2000 for n in numbers] == [False] * 1000 + [True] * 100
