"""On a cluster a subtask stays on its host, and only what a lost host held is loaded again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from millstream.common import WatermarkStrategy
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.spark.anchor import Anchors, partition_of, row_ids
from millstream.spark.session import job_session
from tests.integration.clusters import standalone_cluster
from tests.integration.conftest import MakeEnv
from tests.integration.processes import (
    MARK,
    MILLSTREAM,
    QUICK_JAVA,
    Program,
    marked,
    quick_environment,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PARALLELISM, KEYS, EPOCHS = 3, 30, 42
# From here on every executor has joined; in the middle of the last of these epochs a host is lost.
STEADY, LOSS = 10, 30
# An epoch has one record of each key.
RECORDS = KEYS * EPOCHS

JOB = f"""
import os
import sys
import time
from pathlib import Path

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor

LOSS = Path(sys.argv[1])


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        # A worker's parent is the daemon of its executor.
        self.here = context.get_index_of_this_subtask(), os.getppid(), os.getpid()

    def process_element(self, value, ctx):
        key, number = value
        if number == {LOSS * KEYS + KEYS // 2} and not LOSS.exists():
            LOSS.with_suffix(".new").write_text(str(os.getppid()))
            LOSS.with_suffix(".new").rename(LOSS)
            time.sleep(60)
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (key, count, *self.here)


class Where(MapFunction):
    def open(self, context):
        self.here = context.get_index_of_this_subtask(), os.getppid(), os.getpid()

    def map(self, value):
        return " ".join(map(str, ("sum", *value, *self.here)))


config = Configuration.from_dict({{
    "millstream.epoch.records": "{KEYS}",
    "execution.checkpointing.dir": sys.argv[2],
    "state.backend.type": "hashmap",
}})
env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism({PARALLELISM})
numbers = DataGeneratorSource(lambda n: (n % {KEYS}, n), {RECORDS})
stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
counts = stream.key_by(lambda record: record[0]).process(Count())
counts.map(lambda record: " ".join(map(str, ("count", *record)))).print()
counts.map(lambda record: (record[0], 1)).key_by(lambda record: record[0]).sum(1).map(Where()).print()

client = env.execute_async("staying")
result = client.get_job_execution_result()
# Not printed: the job prints too, from a thread of its own.
with open(sys.argv[3], "w") as file:
    while True:
        done = result.done()
        metrics = client.get_metrics()
        if metrics is not None:
            for (level, subtask), count in metrics.state_loads.items():
                print("loads", metrics.epoch, level, subtask, count, file=file)
        if done:
            break
        time.sleep(0.02)
result.result()
"""

Places = dict[tuple[str, int], dict[int, int]]
Loads = dict[tuple[str, int], dict[int, int]]


def test_ids_are_hashed_as_spark_does(spark: SparkSession) -> None:
    widths = [*range(1, 41), 64, 100, 127, 128, 200, 1000]
    numbers = random.Random(1)
    ids = {0, 2**31 - 1, *(numbers.randrange(2**31) for _ in range(500))}
    ids |= {one for width in widths for one in row_ids(width)}
    text = ", ".join(map(str, ids))
    hashed = spark.sql(f"select id, hash(id) as code from (select explode(array({text})) as id)")
    codes = {row.id: row.code for row in hashed.collect()}
    assert set(codes) == ids
    for width in widths:
        assert all(partition_of(one, width) == code % width for one, code in codes.items())
        assert [codes[one] % width for one in row_ids(width)] == list(range(width))


def test_one_exchange_per_level(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    session = job_session({})
    spec: Any = SimpleNamespace(
        run_id="plan", levels=[SimpleNamespace(parallelism=width) for width in (1, 3)]
    )
    rows = session.range(30).selectExpr(
        "cast(id as int) target", "0 channel", "id sequence", "0 edge", "binary('') payload"
    )
    anchors = Anchors(session, spec)
    sent = anchors.exchange(rows, 3)
    sent.explain()
    plan, _, cached = capsys.readouterr().out.partition("InMemoryRelation")
    assert cached
    assert plan.count("Exchange") == 1
    assert "ShuffledHashJoin" in plan
    assert "Sort" not in plan
    found = sent.select("target", sf.spark_partition_id().alias("partition")).collect()
    assert sorted(found) == [(target, target % 3) for target in range(30)]
    anchors.release()


def test_levels_of_any_width(make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    # Anchors make no difference in one process, but they work there too.
    monkeypatch.setattr("millstream.spark.run.has_executors", lambda session: True)
    env = make_env(options={"millstream.epoch.records": "40"})
    source = DataGeneratorSource(lambda n: (n % 7, 1), 120)
    ones = env.from_source(source, WatermarkStrategy.no_watermarks(), "ones")
    counts = ones.key_by(lambda pair: pair[0]).sum(1).set_parallelism(3)
    again = counts.key_by(lambda pair: pair[1]).map(lambda pair: (pair[0], 1)).set_parallelism(1)
    # The source's records pass two narrower levels on their way here.
    both = ones.union(again).key_by(lambda pair: pair[0]).sum(1).set_parallelism(5)
    with both.execute_and_collect() as results:
        found: dict[int, list[int]] = defaultdict(list)
        for key, count in results:
            found[key].append(count)
    sizes = Counter(n % 7 for n in range(120))
    assert found == {key: list(range(1, 2 * size + 1)) for key, size in sizes.items()}


def parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                # The command's name may hold anything but ends with the last parenthesis.
                found[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
    return found


def kill_host(daemon: int) -> None:
    """Kill the Spark worker that has started the executor of this Python daemon, and all that is below it."""
    parent = parents()
    lost = {parent[parent[daemon]]}
    while more := {pid for pid, of in parent.items() if of in lost} - lost:
        lost |= more
    for pid in sorted(lost):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the job prints; one of its hosts is lost on the way."""
    folder = tmp_path_factory.mktemp("locality")
    job, loss, loads = folder / "job.py", folder / "loss", folder / "loads"
    job.write_text(JOB)
    mark = uuid.uuid4().hex
    with standalone_cluster(folder, quick_environment(**{MARK: mark}), workers=3) as cluster:
        options = {
            "spark.master": cluster.url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK_JAVA,
        }
        command = [*MILLSTREAM, "run", *(f"-D{key}={value}" for key, value in options.items())]
        arguments = [job, loss, folder / "checkpoints", loads]
        with Program([*command, *map(str, arguments)], folder) as driver:
            gone = driver.process.poll
            eventually(lambda: loss.exists() or gone() is not None, 150)
            assert loss.exists(), driver.errors
            kill_host(int(loss.read_text()))
            assert driver.end(150) == 0, driver.errors
            driver.assert_gone()
            lines = [*driver.lines, *loads.read_text().splitlines(), f"lost {loss.read_text()}"]
    assert eventually(lambda: not marked(mark), 30), marked(mark)
    return lines


def records(printed: list[str], kind: str) -> list[list[int]]:
    """The numbers of all lines of a kind."""
    found = []
    for line in printed:
        name, *numbers = line.rpartition("> ")[2].split()
        if name == kind:
            found.append([int(number) for number in numbers])
    return found


def places(printed: list[str], *, process: bool = False) -> Places:
    """For each operator and subtask, the executor of each epoch, or the process there."""
    found: Places = defaultdict(dict)
    for kind in ("count", "sum"):
        for _, count, subtask, *where in records(printed, kind):
            here = where[1 if process else 0]
            assert found[kind, subtask].setdefault(count - 1, here) == here
    return found


def loads(printed: list[str]) -> Loads:
    """By operator and subtask, the state files that had been loaded at the end of each epoch that was seen."""
    found: Loads = defaultdict(dict)
    for epoch, level, subtask, count in records(printed, "loads"):
        if level > 0:
            found["count" if level == 1 else "sum", subtask][epoch] = count
    return found


@pytest.mark.parametrize("kind", ["count", "sum"])
def test_results_are_exact(printed: list[str], kind: str) -> None:
    counts: dict[int, list[int]] = defaultdict(list)
    for key, count, *_ in records(printed, kind):
        counts[key].append(count)
    assert counts == {key: list(range(1, EPOCHS + 1)) for key in range(KEYS)}


def test_a_subtask_stays_on_its_host(printed: list[str]) -> None:
    by_subtask: dict[int, set[int]] = defaultdict(set)
    for (_, subtask), executors in places(printed).items():
        # Both operators of a subtask are on the same host.
        by_subtask[subtask] |= {executors[epoch] for epoch in range(STEADY, LOSS)}
    assert sorted(map(len, by_subtask.values())) == [1] * PARALLELISM, by_subtask
    # And no two subtasks share one.
    assert len(set.union(*by_subtask.values())) == PARALLELISM, by_subtask


def test_nothing_is_loaded_again_in_steady_state(printed: list[str]) -> None:
    loaded = loads(printed)
    assert len(loaded) == 2 * PARALLELISM
    for of, seen in loaded.items():
        steady = [count for epoch, count in seen.items() if STEADY <= epoch < LOSS]
        assert len(steady) > (LOSS - STEADY) // 2
        assert len(set(steady)) == 1, (of, seen)


def test_only_what_a_lost_host_held_is_loaded_again(printed: list[str]) -> None:
    [[lost]] = records(printed, "lost")
    loaded, processes = loads(printed), places(printed, process=True)
    for of, executors in places(printed).items():
        before = executors[LOSS - 1]
        # Where an epoch is run twice, a subtask may have its first try elsewhere; after that all is quiet.
        after = {executors[epoch] for epoch in range(LOSS + 4, EPOCHS)}
        assert len(after) == 1, (of, after)
        assert (after == {before}) == (before != lost), (of, before, after, lost)
        seen = loaded[of]
        [held] = {count for epoch, count in seen.items() if STEADY <= epoch < LOSS}
        [settled] = {count for epoch, count in seen.items() if epoch >= LOSS + 4}
        # After a loss Spark may end a process whose task it gives up, on any host: only what that held is gone.
        gone = len({processes[of][epoch] for epoch in range(LOSS - 1, EPOCHS)}) > 1
        assert gone or before != lost, (of, processes[of])
        assert (settled > held) == gone, (of, seen, processes[of])
