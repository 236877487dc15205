"""The checker job: every record it writes says what the job's state must have been when it was written.

```
ids ──> stamp ──> key_by ──> count ──> key_by ──> rolling sum ──> out/
        operator             value, list, map,    reduce          every id, with all that state says
        state                reducing state
                               └──> side/   every 7th id
```

The source gives ids for as long as nobody asks it to stop: then each split ends where it is, once and for all. So the
job can be killed and started again as often as one likes, and ends when one likes. `tests.chaos.oracle` knows from the
files alone whether an id was lost or came twice, and whether any state ever went back or was counted twice.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import uuid
from collections.abc import Callable
from pathlib import Path

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.common.serialization import Encoder
from millstream.datastream import (
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.base import (
    Boundedness,
    Sink,
    Source,
    SourceReader,
    SplitEnumerator,
)
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink

JOB = "checker"
SPLITS = ("0", "1", "2")
PER_SPLIT = 10_000_000  # id = split * PER_SPLIT + position
PER_EPOCH = 40  # of each split
IDLE = 0.3  # how often a split has nothing new
KEYS = 23
GROUPS = 5
SIDE_EVERY = 7
KEPT = 3

SIDE = OutputTag("side", Types.STRING())


def key_of(number: int) -> int:
    return number % KEYS


def group_of(key: int) -> int:
    return key % GROUPS


class Ids(Source):
    def __init__(
        self, folder: str, splits: tuple[str, ...] = SPLITS, per_epoch: int = PER_EPOCH
    ) -> None:
        self._folder = folder
        self._splits = splits
        self._per_epoch = per_epoch

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return IdSplits(Path(self._folder), self._splits, self._per_epoch)

    def create_reader(self) -> SourceReader:
        return IdReader()


class IdSplits(SplitEnumerator):
    def __init__(self, folder: Path, splits: tuple[str, ...], per_epoch: int) -> None:
        self._folder = folder
        self._splits = splits
        self._per_epoch = per_epoch
        self._ends: dict[str, int] = {}

    def discover(self) -> list[str]:
        return list(self._splits)

    def available(self, split: str, position: int) -> int:
        end = self._end(split, position)
        if end is None and random.random() < IDLE:
            return position
        most = position + self._per_epoch
        return most if end is None else min(end, most)

    def finished(self, split: str, position: int) -> bool:
        end = self._end(split, position)
        return end is not None and position >= end

    def _end(self, split: str, position: int) -> int | None:
        if split not in self._ends and (self._folder / "stop").exists():
            file = self._folder / f"end-{split}"
            hidden = self._folder / f".end-{split}-{uuid.uuid4().hex}"
            hidden.write_text(str(position))
            # Of all the drivers that see the request, the first decides.
            with contextlib.suppress(FileExistsError):
                os.link(hidden, file)
            hidden.unlink()
            self._ends[split] = int(file.read_text())
        return self._ends.get(split)


class IdReader(SourceReader):
    def read(self, split: str, start: int, end: int) -> range:
        first = int(split) * PER_SPLIT
        return range(first + start, first + end)


class Stamp(MapFunction, CheckpointedFunction):
    """Numbers the records with counters that move between subtasks when the parallelism changes: what a counter has
    counted, over all its owners, must be 1, 2, 3 and so on."""

    def initialize_state(self, context):
        self._state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("counters")
        )
        self._counters = [list(one) for one in self._state.get()]

    def snapshot_state(self, context):
        self._state.update([tuple(one) for one in self._counters])

    def map(self, value):
        if not self._counters:
            self._counters.append([uuid.uuid4().hex[:12], 0])
        counter = self._counters[0]
        counter[1] += 1
        return value, key_of(value), counter[0], counter[1]


class Count(KeyedProcessFunction):
    """All kinds of keyed state; what comes out is what they hold."""

    def open(self, context):
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._last = context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self._splits = context.get_map_state(
            MapStateDescriptor("splits", Types.STRING(), Types.LONG())
        )
        self._largest = context.get_reducing_state(
            ReducingStateDescriptor("largest", max, Types.LONG())
        )

    def process_element(self, value, ctx):
        number, key, counter, stamp = value
        sequence = (self._count.value() or 0) + 1
        self._count.update(sequence)
        last = [*self._last.get(), number][-KEPT:]
        self._last.update(last)
        split = str(number // PER_SPLIT)
        self._splits.put(split, (self._splits.get(split) or 0) + 1)
        self._largest.add(number)
        if number % SIDE_EVERY == 0:
            yield SIDE, f"{number} {key} {sequence}"
        counts = ",".join(str(self._splits.get(one) or 0) for one in SPLITS)
        text = f"{counter} {stamp} {sequence} {','.join(map(str, last))} {counts} {self._largest.get()}"
        yield number, key, text, 1, number


def rolling(before, record):
    """Of the group so far: how many ids, and their sum."""
    return (*record[:3], before[3] + record[3], before[4] + record[4])


def line(record):
    number, key, text, count, total = record
    return f"{number} {key} {text} {count} {total}"


def file_sink(folder: Path) -> FileSink:
    return (
        FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )


def build(env: StreamExecutionEnvironment, folder: Path, out: Sink | None = None) -> None:
    """The job; `out` is where its lines go instead of files in the folder."""
    ids = env.from_source(Ids(str(folder)), WatermarkStrategy.no_watermarks(), "ids").uid("ids")
    counted = (
        ids.map(Stamp()).uid("stamp").key_by(lambda r: r[1], Types.LONG()).process(Count())
    ).uid("count")
    summed = counted.key_by(lambda r: group_of(r[1]), Types.LONG()).reduce(rolling).uid("sum")
    summed.map(line).uid("line").sink_to(out or file_sink(folder / "out")).uid("out")
    counted.get_side_output(SIDE).sink_to(file_sink(folder / "side")).uid("side")


def main(build: Callable[[StreamExecutionEnvironment, Path], None]) -> None:
    """Run a job, which `build` puts together, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--interval", type=int, default=100, help="milliseconds")
    parser.add_argument("--backend", default="hashmap", help="of state")
    parser.add_argument("-s", "--savepoint")
    parser.add_argument("-D", dest="more", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    options = {
        "spark.master": "local[2,3]",
        "spark.driver.memory": "512m",
        "execution.checkpointing.dir": str(given.folder / "checkpoints"),
        "state.backend.type": given.backend,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "0 s",
    }
    options.update(pair.split("=", 1) for pair in given.more)
    if given.savepoint is not None:
        options["execution.state-recovery.path"] = given.savepoint
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.set_parallelism(given.parallelism).set_max_parallelism(12)
    env.enable_checkpointing(given.interval)
    build(env, given.folder)
    env.execute(JOB)


if __name__ == "__main__":
    main(build)
