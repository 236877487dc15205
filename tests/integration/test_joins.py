"""Joins on Spark, against all pairs that there are: as they are, and through killed workers and drivers."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, TimestampAssigner, WatermarkStrategy
from millstream.common.serialization import Encoder
from millstream.datastream import JoinFunction, ProcessJoinFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.window import TumblingEventTimeWindows
from tests.integration.processes import Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

DISORDER = 20


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right


def records(side: str, count: int = 400) -> list[tuple[str, int, str]]:
    chance = random.Random(side)
    return [
        (chance.choice("abcdefgh"), 3 * number - chance.randint(0, DISORDER), f"{side}{number}")
        for number in range(count)
    ]


def all_pairs(left: list[Any], right: list[Any]) -> Counter[Any]:
    """What both joins have to find."""
    same_key = [(a, b) for a, b in itertools.product(left, right) if a[0] == b[0]]
    expected = Counter(("interval", a, b) for a, b in same_key if -5 <= b[1] - a[1] <= 30)
    expected += Counter(("window", a, b) for a, b in same_key if a[1] // 25 == b[1] // 25)
    return expected


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
    assert Counter(both.execute_and_collect()) == all_pairs(left, right)


# -- kills -------------------------------------------------------------------------------------------------------------

COUNT = 80


class Deadly:
    """Pairs at which the process of a function is killed, once each; a note of it says which checkpoint there was."""

    def __init__(self, folder, kind, pairs):
        self.folder, self.kind, self.pairs = folder, kind, pairs

    def meet(self, left, right):
        if (left[2], right[2]) in self.pairs:
            note = Path(self.folder, "notes", f"{self.kind} {left[2]} {right[2]}")
            if not note.exists():
                found = Path(self.folder, "chk").glob("*/chk-*/_metadata")
                numbers = [int(manifest.parent.name[4:]) for manifest in found]
                note.write_text(str(max(numbers, default=-1)))
                os.kill(os.getpid(), signal.SIGKILL)


class IntervalPair(ProcessJoinFunction):
    def __init__(self, deadly):
        self.deadly = deadly

    def process_element(self, left, right, ctx):
        self.deadly.meet(left, right)
        yield json.dumps(["interval", left, right])


class WindowPair(JoinFunction):
    def __init__(self, deadly):
        self.deadly = deadly

    def join(self, first, second):
        self.deadly.meet(first, second)
        return json.dumps(["window", first, second])


def deadly_pairs(kind, kills):
    """So many pairs of a join, evenly from the first to the last, and in turn with those of the other join."""
    every = all_pairs(records("l", COUNT), records("r", COUNT))
    pairs = [(left, right) for found, left, right in every if found == kind]
    pairs.sort(key=lambda pair: max(pair[0][1], pair[1][1]))
    first = 1 if kind == "interval" else 2
    places = [len(pairs) * (2 * n + first) // (2 * kills + 1) for n in range(kills)]
    return {(pairs[place][0][2], pairs[place][1][2]) for place in places}


def program(folder, parallelism, epoch, kills, **more):
    """Both joins, into files; each of them kills its process so many times."""
    config = Configuration.from_dict(
        {
            "execution.checkpointing.dir": f"{folder}/chk",
            "millstream.epoch.records": str(epoch),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "20",
            "restart-strategy.fixed-delay.delay": "10 ms",
            **more,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    env.enable_checkpointing(50)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(DISORDER + 3)
    strategy = strategy.with_timestamp_assigner(Second())
    one, two = (
        env.from_collection(records(side, COUNT))
        .uid(side)
        .assign_timestamps_and_watermarks(strategy)
        .uid(f"{side} times")
        for side in "lr"
    )
    interval, window = (
        Deadly(folder, kind, deadly_pairs(kind, kills)) for kind in ("interval", "window")
    )
    by_interval = one.key_by(0).interval_join(two.key_by(0)).between("-5 ms", "30 ms")
    by_window = one.join(two).where(0).equal_to(0).window(TumblingEventTimeWindows.of("25 ms"))
    both = (
        by_interval.process(IntervalPair(interval))
        .uid("interval")
        .union(by_window.apply(WindowPair(window)).uid("window"))
    )
    sink = FileSink.for_row_format(f"{folder}/out", Encoder.simple_string_encoder())
    sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    both.sink_to(sink).uid("out")
    env.execute("joins")


def written(folder):
    found = Counter()
    for part in (folder / "out").glob("part-*"):
        for line in part.read_text().splitlines():
            kind, left, right = json.loads(line)
            found[kind, tuple(left), tuple(right)] += 1
    return found


def check(folder, kills):
    """No result is missing, none is there twice, and all kills have come, in the middle of the job."""
    assert written(folder) == all_pairs(records("l", COUNT), records("r", COUNT))
    notes = {note.name: int(note.read_text()) for note in (folder / "notes").iterdir()}
    assert len(notes) == 2 * kills
    assert all(checkpoint >= 0 for checkpoint in notes.values()), notes


@pytest.mark.parametrize(("parallelism", "epoch", "kills"), [(2, 10, 1), (3, 15, 2)])
def test_killed_workers(
    spark: Any, tmp_path: Path, parallelism: int, epoch: int, kills: int
) -> None:
    (tmp_path / "notes").mkdir()
    program(tmp_path, parallelism, epoch, kills)
    check(tmp_path, kills)


@pytest.mark.nightly
def test_killed_drivers_and_workers(tmp_path: Path) -> None:
    """A driver is killed at a named place, and so is the next; each goes on from what the one before it has left."""
    (tmp_path / "notes").mkdir()
    command = [sys.executable, "-m", "tests.integration.test_joins", str(tmp_path)]
    for number, place in enumerate(["before manifest:4", "after manifest:3", None]):
        struck = tmp_path / f"struck-{number}"
        more = {"PYTHONPATH": os.pathsep.join(sys.path)}
        if place is not None:
            more["MILLSTREAM_FAILPOINT"] = place
            more["MILLSTREAM_FAILPOINT_ONCE"] = str(struck)
            more["MILLSTREAM_FAILPOINT_ROLE"] = "driver"
        with Program(command, tmp_path, **more) as driver:
            code, errors = driver.end(), driver.errors
        if place is None:
            assert code == 0, errors
        else:
            assert code == -signal.SIGKILL, errors
            assert struck.exists(), errors
            assert written(tmp_path) < all_pairs(records("l", COUNT), records("r", COUNT))
    check(tmp_path, 1)


if __name__ == "__main__":
    # Parallelism 2, epochs of 10 records, and each join kills its worker once.
    program(sys.argv[1], 2, 10, 1, **{"spark.ui.enabled": "false", "spark.master": "local[2]"})
