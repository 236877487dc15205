"""The examples, and a job with state, on clusters: executors are processes of their own, some with other addresses."""

from __future__ import annotations

import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import spark_home, standalone
from tests.integration.processes import (
    MARK,
    MILLSTREAM,
    QUICK_JAVA,
    ROOT,
    Program,
    marked,
    quick_environment,
)
from tests.integration.test_examples import EXPECTED
from tests.waiting import eventually

# Starting a cluster and a driver takes a while on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NAMES = ["word_count.py", "side_outputs.py", "connected_streams.py", "custom_source.py"]
EXECUTORS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}

# One driver runs all scripts it is given: starting it takes longer than running them.
ALL = """
import runpy
import sys

from pyspark.sql import SparkSession

for script in sys.argv[1:]:
    print("==", script, flush=True)
    runpy.run_path(script, run_name="__main__")
print("== session", flush=True)
print(SparkSession.active().sparkContext.master)
"""

EPOCHS, RECORDS, KEYS = 30, 3000, 10

MOVING = f"""
import os

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import MapFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource


class Where(MapFunction):
    def open(self, runtime_context):
        # A worker's parent is the daemon of its executor.
        self.here = runtime_context.get_index_of_this_subtask(), os.getppid()

    def map(self, value):
        return " ".join(map(str, (*value, *self.here)))


config = Configuration.from_dict({{"millstream.epoch.records": "{RECORDS // EPOCHS}"}})
env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
numbers = DataGeneratorSource(lambda n: (n % {KEYS}, 1), {RECORDS})
stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
stream.key_by(0).sum(1).map(Where()).print()
client = env.execute_async("moving")
client.get_job_execution_result().result()
print("epochs:", client.get_metrics().epoch + 1)
"""


def run_all(
    command: list[str], folder: Path, scripts: list[Path], **environment: str
) -> dict[str, list[str]]:
    """Run scripts in one driver; what each of them printed."""
    program = folder / "all.py"
    program.write_text(ALL)
    printed: dict[str, list[str]] = defaultdict(list)
    section = ""
    with Program([*command, str(program), *map(str, scripts)], folder, **environment) as driver:
        code = driver.end(280)
        assert code == 0, driver.errors
        driver.assert_gone()
        for line in driver.lines:
            if line.startswith("== "):
                section = Path(line.removeprefix("== ")).name
            else:
                printed[section].append(line)
    return printed


def examples() -> list[Path]:
    return [ROOT / "examples" / name for name in NAMES]


def with_settings(settings: dict[str, str]) -> list[str]:
    return [*MILLSTREAM, "run", *(f"-D{key}={value}" for key, value in settings.items())]


def test_spark_submit(tmp_path: Path) -> None:
    submit = [sys.executable.replace("python", "spark-submit"), "--master", "local[2]"]
    environment = {"PYSPARK_PYTHON": sys.executable}
    printed = run_all(submit, tmp_path, examples()[:1], **environment)
    assert Counter(printed["word_count.py"]) == Counter(EXPECTED["word_count.py"])
    # What spark-submit was told counts more than our defaults.
    assert printed["session"] == ["local[2]"]


def test_local_cluster(tmp_path: Path) -> None:
    home = spark_home(tmp_path)
    command = with_settings({"spark.master": "local-cluster[2,1,1024]", **EXECUTORS})
    printed = run_all(command, tmp_path, examples(), SPARK_HOME=str(home))
    for name in NAMES:
        assert Counter(printed[name]) == Counter(EXPECTED[name]), name
    # As many executors as there should be: none has failed, and none was replaced while the driver went away.
    assert sorted(path.name for path in home.glob("work/app-*/*")) == ["0", "1"]


@pytest.fixture(scope="module")
def on_standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """What scripts print on a standalone cluster."""
    folder = tmp_path_factory.mktemp("standalone")
    moving = folder / "moving.py"
    moving.write_text(MOVING)
    mark = uuid.uuid4().hex
    with standalone(folder, quick_environment(**{MARK: mark})) as url:
        settings = {
            "spark.master": url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            **EXECUTORS,
        }
        printed = run_all(with_settings(settings), folder, [*examples(), moving])
        assert printed["session"] == [url]
        printed["submitted"] = run_submitted(url, folder)

        def executors() -> list[str]:
            return [
                c for c in marked(mark).values() if ".daemon pyspark.worker" in c or "Backend" in c
            ]

        assert eventually(lambda: not executors(), 30), executors()
        yield printed
    assert eventually(lambda: not marked(mark), 30), marked(mark)


def run_submitted(url: str, folder: Path) -> list[str]:
    """What an example prints that `spark-submit` starts, as a client outside of the cluster."""
    conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **EXECUTORS}
    command = [sys.executable.replace("python", "spark-submit"), "--master", url]
    command += [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    script, environment = str(examples()[0]), {"PYSPARK_PYTHON": sys.executable}
    with Program([*command, "--deploy-mode", "cluster", script], folder, **environment) as refused:
        # Then there would be nobody to talk to; Spark says so itself.
        assert refused.end(100) != 0
        assert "not supported for python applications on standalone clusters" in refused.errors
    return run_all([*command, "--deploy-mode", "client"], folder, examples()[:1], **environment)[
        "word_count.py"
    ]


def test_spark_submit_to_a_standalone_cluster(on_standalone: dict[str, list[str]]) -> None:
    assert Counter(on_standalone["submitted"]) == Counter(EXPECTED["word_count.py"])


@pytest.mark.parametrize("name", NAMES)
def test_standalone_cluster(on_standalone: dict[str, list[str]], name: str) -> None:
    assert Counter(on_standalone[name]) == Counter(EXPECTED[name])


def test_state_stays_on_its_executor(on_standalone: dict[str, list[str]]) -> None:
    *lines, last = on_standalone["moving.py"]
    assert last == f"epochs: {EPOCHS}"
    counts: dict[int, list[int]] = defaultdict(list)
    executors: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        key, count, subtask, executor = map(int, line.partition("> ")[2].split())
        counts[key].append(count)
        if count > RECORDS // KEYS // 2:
            # At the start subtasks may move once, when the second executor has come.
            executors[subtask].add(executor)
    assert dict(counts) == {key: list(range(1, RECORDS // KEYS + 1)) for key in range(KEYS)}
    assert {subtask: len(seen) for subtask, seen in executors.items()} == {0: 1, 1: 1}
