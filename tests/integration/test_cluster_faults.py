"""A job on a cluster of three hosts that loses executors, a host, its master and its shared folder: exact results."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.clusters import Standalone, standalone_cluster
from tests.integration.processes import MARK, MILLSTREAM, Program, quick_environment
from tests.integration.test_clusters import EXECUTORS, with_settings
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

# Without end, until it is stopped; about as many records in an epoch as in any other.
JOB = """
import sys

from millstream.common import Configuration, Encoder, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
numbers = DataGeneratorSource(lambda n: n, 1 << 60)
stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
counted = stream.map(lambda n: (n % 10, 1, n)).key_by(lambda row: row[0])
counted = counted.reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))
sink = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build()
counted.map(lambda row: " ".join(map(str, row))).sink_to(sink)
env.execute("faults")
"""


class Running:
    """The job, and what it has committed."""

    def __init__(self, folder: Path, driver: Program) -> None:
        self.shared = folder / "shared"
        self._out = folder / "out"
        self._saved = folder / "savepoints"
        self._driver = driver

    def rows(self) -> list[tuple[int, int, int]]:
        files = [path for path in self._out.rglob("*") if path.is_file()]
        return [
            (key, count, number)
            for file in files
            if not file.name.startswith(".")
            for key, count, number in (
                map(int, line.split()) for line in file.read_text().splitlines()
            )
        ]

    def goes_on(self) -> None:
        """Wait for output of some more epochs."""
        before = len(self.rows())
        until(
            lambda: self._driver.process.poll() is not None or len(self.rows()) > before + 120,
            250,
            lambda: self._driver.errors,
        )
        assert self._driver.process.poll() is None, self._driver.errors

    @property
    def errors(self) -> str:
        return self._driver.errors

    def stop(self) -> None:
        command = [*MILLSTREAM, "stop", "--dir", str(self.shared), "-p", str(self._saved), "faults"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr + self._driver.errors
        assert self._driver.end(250) == 0, self._driver.errors

    def assert_exact(self) -> None:
        """Every number once, and of every key each count once. Which number came first is the exchange's business."""
        rows = self.rows()
        assert sorted(number for _, _, number in rows) == list(range(len(rows)))
        numbers = range(len(rows))
        wanted = {(n % 10, n // 10 + 1) for n in numbers}
        assert {(key, count) for key, count, _ in rows} == wanted
        assert all(key == number % 10 for key, _, number in rows)


@contextmanager
def running(cluster: Standalone, folder: Path) -> Iterator[Running]:
    script = folder / "job.py"
    script.write_text(JOB)
    settings = {
        "spark.master": cluster.url,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        "execution.checkpointing.dir": str(folder / "shared"),
        "execution.checkpointing.interval": "200 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "300 ms",
        "millstream.epoch.records": "60",
        **EXECUTORS,
    }
    with Program([*with_settings(settings), str(script), str(folder / "out")], folder) as driver:
        yield Running(folder, driver)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("faults")
    with standalone_cluster(folder, quick_environment(**{MARK: uuid.uuid4().hex})) as cluster:
        yield cluster


def lose_executor(cluster: Standalone, job: Running) -> None:
    cluster.tell("kill", "executor", 0)


def lose_host(cluster: Standalone, job: Running) -> None:
    cluster.tell("kill", "worker", 1)
    job.goes_on()
    cluster.tell("start", "worker", 1)


def lose_master(cluster: Standalone, job: Running) -> None:
    cluster.tell("kill", "master")
    # What runs needs no master.
    job.goes_on()
    cluster.tell("start", "master")
    # New executors do: the application is known to the new one.
    cluster.tell("kill", "executor", 2)


def lose_folder(cluster: Standalone, job: Running) -> None:
    away = job.shared.with_name("away")
    said = "starts again in 0.3 s: [STORAGE_AWAY]"
    before = job.errors.count(said)
    job.shared.rename(away)
    until(lambda: job.errors.count(said) > before + 1, 250, lambda: job.errors)
    assert not job.shared.exists()
    away.rename(job.shared)


FAULTS = [lose_executor, lose_host, lose_master, lose_folder]


def test_every_kind_of_loss_in_the_life_of_one_job(cluster: Standalone, tmp_path: Path) -> None:
    with running(cluster, tmp_path) as job:
        job.goes_on()
        for lose in FAULTS:
            lose(cluster, job)
            job.goes_on()
        job.stop()
    job.assert_exact()


@pytest.mark.nightly
@pytest.mark.parametrize("lose", FAULTS)
def test_each_loss_again_and_again(cluster: Standalone, tmp_path: Path, lose) -> None:
    with running(cluster, tmp_path) as job:
        job.goes_on()
        for _ in range(5):
            lose(cluster, job)
            job.goes_on()
        job.stop()
    job.assert_exact()
