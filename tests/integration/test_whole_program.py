"""One program with everything: three sources, union, connect, side outputs, a diamond, four sinks."""

from __future__ import annotations

import collections
import os
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, WatermarkStrategy
from millstream.datastream import (
    CoProcessFunction,
    OutputTag,
    ProcessFunction,
    SinkFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
)
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BIG, ODD = OutputTag("big"), OutputTag("odd")
SIZE = 300


class Numbers(Source):
    """Numbers in two splits; every read of a range is noted in a file."""

    def __init__(self, first: int, notes: str) -> None:
        self.first, self.notes = first, notes

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _Splits()

    def create_reader(self) -> SourceReader:
        return _Reader(self.first, self.notes)


class _Splits(SplitEnumerator):
    def discover(self) -> list[str]:
        return ["0", "1"]

    def available(self, split: str, position: int) -> int:
        return SIZE

    def finished(self, split: str, position: int) -> bool:
        return position == SIZE


class _Reader(SourceReader):
    def __init__(self, first: int, notes: str) -> None:
        self.first, self.notes = first, notes

    def read(self, split: str, start: int, end: int) -> list[int]:
        with open(self.notes, "a") as file:
            file.write(f"{self.first} {split} {start} {end}\n")
        return [self.first + 2 * n + int(split) for n in range(start, end)]


class Sort(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        if value >= 2000:
            yield BIG, value
        if value % 2:
            yield ODD, value
        yield value


class Meet(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield "left", value

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return [("right", value)]


class ToFile(SinkFunction):
    """Appends lines to a file of its own; at-least-once, but nothing fails here."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: Any) -> None:
        name = f"{runtime_context.get_index_of_this_subtask()}-{os.getpid()}"
        self.file = open(f"{self.folder}/{name}", "a", buffering=1)  # noqa: SIM115

    def invoke(self, value: Any, context: Any) -> None:
        self.file.write(f"{value}\n")

    def close(self) -> None:
        self.file.close()


def build(env: StreamExecutionEnvironment, folder: Path) -> dict[str, Path]:
    """The program; where each file sink writes."""
    notes = str(folder / "notes")
    outs = {name: folder / name for name in ("sums", "big", "odd")}
    for path in outs.values():
        path.mkdir()
    none = WatermarkStrategy.no_watermarks()
    a, b, c = (
        env.from_source(Numbers(first, notes), none, f"numbers {first}")
        for first in (0, 1000, 2000)
    )
    sorted_ = a.union(b, c).process(Sort())
    # The diamond: one stream takes two ways and meets itself again.
    left = sorted_.map(lambda n: (n % 7, n)).key_by(0).sum(1)
    right = sorted_.filter(lambda n: n % 3 == 0).rebalance().map(lambda n: (n % 5, n))
    met = left.connect(right).process(Meet())
    sums = met.map(lambda pair: (pair[0], 1)).key_by(lambda pair: pair[0]).sum(1)
    sums.sink_to(_text_sink(outs["sums"]))
    sorted_.get_side_output(BIG).add_sink(ToFile(str(outs["big"])))
    sorted_.get_side_output(ODD).map(lambda n: n // 100).sink_to(_text_sink(outs["odd"]))
    met.filter(lambda pair: pair[0] == "right").print("right")
    return outs


def _text_sink(path: Path) -> FileSink:
    return (
        FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )


def expected() -> dict[str, collections.Counter[str]]:
    numbers = [first + n for first in (0, 1000, 2000) for n in range(2 * SIZE)]
    thirds = [n for n in numbers if n % 3 == 0]
    sums = [f"('left', {n})" for n in range(1, len(numbers) + 1)]
    sums += [f"('right', {n})" for n in range(1, len(thirds) + 1)]
    return {
        "sums": collections.Counter(sums),
        "big": collections.Counter(str(n) for n in numbers if n >= 2000),
        "odd": collections.Counter(str(n // 100) for n in numbers if n % 2),
    }


def printed(text: str) -> collections.Counter[str]:
    return collections.Counter(line.partition("> ")[2] for line in text.splitlines())


@pytest.mark.parametrize("records", ["", "250"], ids=["one epoch", "many epochs"])
@pytest.mark.parametrize(
    ("target", "parallelism"), [("in-process", 2), ("spark", 1), ("spark", 2), ("spark", 4)]
)
def test_same_result_everywhere(
    make_env: Any, tmp_path: Path, capsys: Any, target: str, parallelism: int, records: str
) -> None:
    options = {"millstream.epoch.records": records} if records else {}
    env = make_env(target, parallelism, options)
    outs = build(env, tmp_path)
    env.execute("everything")

    for name, want in expected().items():
        got: collections.Counter[str] = collections.Counter()
        for part in outs[name].iterdir():
            assert not part.name.startswith("."), "a part file is still hidden"
            got.update(part.read_text().splitlines())
        assert got == want, name
    numbers = [first + n for first in (0, 1000, 2000) for n in range(2 * SIZE)]
    rights = [str(("right", (n % 5, n))) for n in numbers if n % 3 == 0]
    assert printed(capsys.readouterr().out) == collections.Counter(rights)

    # Each source is read once per epoch, although four sinks hang on it: the ranges noted are disjoint
    # and cover everything.
    reads = collections.defaultdict(list)
    for line in (tmp_path / "notes").read_text().splitlines():
        first, split, start, end = map(int, line.split())
        reads[first, split].append((start, end))
    assert len(reads) == 6
    for ranges in reads.values():
        places = [n for start, end in sorted(ranges) for n in range(start, end)]
        assert places == list(range(SIZE))
    if records:
        assert all(len(ranges) > 1 for ranges in reads.values())
