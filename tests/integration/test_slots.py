"""One process per subtask, on a real Spark: a new version of it that begins tasks otherwise fails here."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor
from tests.integration.processes import MILLSTREAM, Program
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PARALLELISM, KEYS = 4, 40
ROOT = str(Path(__file__).parents[2])


class Opened(MapFunction):
    """Writes down where it is opened."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: Any) -> None:
        subtask = runtime_context.get_index_of_this_subtask()
        with Path(self.folder, f"map-{subtask}").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def map(self, value: int) -> tuple[int, int]:
        return value % KEYS, value


class Count(KeyedProcessFunction):
    """Counts its key, and says where; kills its process at one record, once."""

    def __init__(self, folder: str, deadly: int = -1) -> None:
        self.folder, self.deadly = folder, deadly

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.here = runtime_context.get_index_of_this_subtask(), os.getpid()
        with Path(self.folder, f"count-{self.here[0]}").open("a") as file:
            file.write(f"{os.getpid()}\n")

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Any]:
        killed = Path(self.folder, "killed")
        if value[1] == self.deadly and not killed.exists():
            killed.write_text(f"{self.here[0]} {os.getpid()}")
            os.kill(os.getpid(), signal.SIGKILL)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (value[0], count, *self.here)


def start(folder: Path, epochs: int, deadly: int = -1) -> Any:
    """The results of a job of so many epochs, each with one record of every key."""
    folder.mkdir(exist_ok=True)
    options = {"millstream.epoch.records": str(KEYS), "execution.checkpointing.interval": "1 ms"}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    env.set_parallelism(PARALLELISM)
    source = DataGeneratorSource(lambda n: n, KEYS * epochs, splits=PARALLELISM)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.map(Opened(str(folder))).key_by(lambda pair: pair[0])
    return counted.process(Count(str(folder), deadly)).execute_and_collect()


def pids(folder: Path) -> dict[str, list[int]]:
    """By operator and subtask, the processes in which it was opened."""
    return {
        path.name: list(map(int, path.read_text().split()))
        for path in folder.glob("[mc]*-*")
        if path.name != "killed"
    }


def exact(results: Any, epochs: int) -> dict[int, set[int]]:
    """Every count of every key came once; the processes of each subtask."""
    counts: dict[int, list[int]] = defaultdict(list)
    where: dict[int, set[int]] = defaultdict(set)
    for key, count, subtask, pid in results:
        counts[key].append(count)
        where[subtask].add(pid)
    assert dict(counts) == {key: list(range(1, epochs + 1)) for key in range(KEYS)}
    return where


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def one_process_and_one_opening(folder: Path) -> None:
    results = start(folder, 20)
    where = exact(results, 20)
    assert {subtask: len(found) for subtask, found in where.items()} == dict.fromkeys(range(4), 1)
    opened = pids(folder)
    assert set(opened) == {f"{name}-{n}" for name in ("map", "count") for n in range(4)}
    assert {name: len(found) for name, found in opened.items()} == dict.fromkeys(opened, 1)
    # Subtask n of both levels shares a slot, and no two subtasks do.
    assert all(opened[f"map-{n}"] == opened[f"count-{n}"] for n in range(4))
    assert len({opened[f"map-{n}"][0] for n in range(4)}) == 4
    # Nobody had to read what somebody else had written.
    assert sum(results._run.metrics.state_loads.values()) == 0
    # With the job its processes go.
    until(lambda: not any(is_there(pid) for found in opened.values() for pid in found), 60)


def a_killed_process_costs_its_own_subtask_only(folder: Path) -> None:
    where = exact(start(folder, 10, deadly=KEYS * 5 + 5), 10)
    subtask, pid = map(int, (folder / "killed").read_text().split())
    moved = {number for number, found in where.items() if len(found) > 1}
    assert moved <= {subtask}
    assert pid not in set().union(*(found for n, found in where.items() if n != subtask))


def jobs_and_functions_share_a_session(folder: Path) -> None:
    folder.mkdir()
    first, second = (start(folder / name, 8) for name in "ab")

    def here(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()] * batch.num_rows})

    until(lambda: len(pids(folder / "a")) == len(pids(folder / "b")) == 8, 60)
    frame = SparkSession.active().range(0, 8, 1, 4)
    ordinary = {row.pid for row in frame.mapInArrow(here, "pid long").collect()}
    exact(first, 8)
    exact(second, 8)
    used = [{pid for found in pids(folder / name).values() for pid in found} for name in "ab"]
    assert not used[0] & used[1]
    assert not ordinary & (used[0] | used[1])


CASES = [
    one_process_and_one_opening,
    a_killed_process_costs_its_own_subtask_only,
    jobs_and_functions_share_a_session,
]


def without_slots_results_are_the_same(folder: Path) -> None:
    exact(start(folder, 10, deadly=KEYS * 5 + 5), 10)
    daemon = SparkSession.active().sparkContext.getConf().get("spark.python.daemon.module")
    assert daemon == "pyspark.daemon"


@pytest.mark.parametrize(
    ("setting", "cases"), [("auto", CASES), ("false", [without_slots_results_are_the_same])]
)
def test_slots(tmp_path: Path, setting: str, cases: list[Any]) -> None:
    """A session keeps the daemon that it began with, so these are in processes of their own."""
    script = tmp_path / "job.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.integration import test_slots\n"
        f"for name in {[case.__name__ for case in cases]}:\n"
        f"    getattr(test_slots, name)(Path({str(tmp_path)!r}, name))\n"
        "    print(name, flush=True)\n"
    )
    command = [*MILLSTREAM, "run", f"-Dmillstream.slots.enabled={setting}", str(script)]
    with Program(command, tmp_path, PYTHONPATH=ROOT) as program:
        assert program.end(280) == 0, program.errors
        assert program.lines == [case.__name__ for case in cases]
