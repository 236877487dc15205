"""A cluster whose hosts have a bare Python: what is said of it, and a job with requirements that is shipped there."""

from __future__ import annotations

import json
import os
import re
import uuid
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import Standalone, standalone_cluster
from tests.integration.processes import MARK, MILLSTREAM, QUICK_JAVA, Program
from tests.integration.test_clusters import EXECUTORS, with_settings
from tests.packages import make_wheel
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Counts words; `shouting` is a requirement, `beside` a module beside the program.
PROGRAM = """
import os
import sys

import beside

from millstream.datastream import MapFunction, StreamExecutionEnvironment


def shout(word):
    import shouting
    return shouting.shout(word)


class Where(MapFunction):
    def map(self, value):
        import millstream, pyarrow, shouting
        places = (millstream, pyarrow, beside, shouting)
        return "|".join((sys.prefix, *(os.path.realpath(m.__file__) for m in places)))


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3)
words = env.from_collection(["to be", "or not", "to be"] * 20).flat_map(str.split)
words.map(shout).map(beside.pair).key_by(0).sum(1).print()
env.from_collection(list(range(12))).rebalance().map(Where()).print()
env.execute("bare")
"""

JOB = """
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(lambda n: n).print()
env.execute("job")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "python", with_pip=False, symlinks=True)
    make_wheel(
        folder / "packages", "shouting", "1.0", "def shout(word):\n    return word.upper()\n"
    )
    (folder / "requirements.txt").write_text("shouting\n")
    program = folder / "program"
    program.mkdir()
    (program / "beside.py").write_text("def pair(word):\n    return word, 1\n")
    (program / "job.py").write_text(PROGRAM)
    (program / ".env").write_text("PASSWORD=x\n")
    (folder / "job.py").write_text(JOB)
    return folder


def bare_environment(folder: Path) -> dict[str, str]:
    """What a host has: Java, and a Python without packages. Nothing of this process's own."""
    keep = ("JAVA_HOME", "HOME", "LANG", "TMPDIR")
    own = {key: os.environ[key] for key in keep if key in os.environ}
    path = f"{folder / 'python' / 'bin'}:/usr/bin:/bin"
    return {**own, "PATH": path, "SPARK_SUBMIT_OPTS": QUICK_JAVA, MARK: uuid.uuid4().hex}


@pytest.fixture(scope="module")
def bare(folder: Path) -> Iterator[Standalone]:
    with standalone_cluster(folder, bare_environment(folder), workers=2) as cluster:
        yield cluster


def settings(cluster: Standalone, elsewhere: Path) -> dict[str, str]:
    elsewhere.mkdir(exist_ok=True)
    return {
        "spark.master": cluster.url,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # As on another machine: workers find nothing that the driver has put in place.
        "spark.executorEnv.TMPDIR": str(elsewhere),
        **EXECUTORS,
    }


def test_a_job_with_requirements_runs_from_one_command(bare: Standalone, folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    command = with_settings(settings(bare, elsewhere))
    command += ["--ship-environment", "-pyreq", f"{folder}/requirements.txt#{folder}/packages"]
    with Program([*command, "program/job.py"], folder) as driver:
        assert driver.end(550) == 0, driver.errors
        assert "MB is packed in" in driver.errors
        lines = [line.partition("> ")[2] for line in driver.lines]
    counts = Counter(line for line in lines if line.startswith("("))
    wanted = {"TO": 40, "BE": 40, "OR": 20, "NOT": 20}
    assert counts == {
        str((word, n)): 1 for word, count in wanted.items() for n in range(1, count + 1)
    }
    places = {line for line in lines if "|" in line}
    assert places
    for prefix, millstream, pyarrow, beside, shouting in (place.split("|") for place in places):
        assert prefix == str(folder / "python")
        assert Path(millstream).is_relative_to(folder)
        assert Path(pyarrow).is_relative_to(folder)
        assert Path(beside).is_relative_to(elsewhere)
        assert Path(shouting).is_relative_to(elsewhere)


@pytest.mark.nightly
def test_what_is_missing_is_said(bare: Standalone, folder: Path) -> None:
    command = with_settings(settings(bare, folder / "elsewhere"))
    with Program([*command, "job.py"], folder) as driver:
        assert driver.end(200) == 1
        said = driver.errors
    assert "[EXECUTOR_UNUSABLE] the Python of an executor does not have what a job needs" in said
    python = folder / "python" / "bin" / "python3"
    assert re.search(
        rf"127\.0\.0\.[23] \(executor \d\): {python}, Python 3\.\d+\.\d+, without ", said
    )
    assert "without pyarrow, pandas, cloudpickle, msgspec, millstream" in said
    assert "millstream run --ship-environment" in said
    assert len(said.splitlines()) < 20


@pytest.mark.nightly
def test_an_executor_that_does_not_come_is_said(bare: Standalone, folder: Path) -> None:
    more = {**settings(bare, folder / "elsewhere"), "spark.executor.memory": "64g"}
    with Program([*with_settings(more), "job.py"], folder) as driver:
        until(lambda: "no executor has come" in driver.errors, 250, lambda: driver.errors)
        assert f"{bare.url} was asked for spark.executor.memory=64g" in driver.errors


def test_doctor_says_what_a_cluster_lacks(bare: Standalone, folder: Path) -> None:
    named = {
        **settings(bare, folder / "elsewhere"),
        "execution.checkpointing.dir": f"{folder}/shared",
    }
    words = [*MILLSTREAM, "doctor", "--json", *(f"-D{key}={value}" for key, value in named.items())]
    with Program(words, folder) as doctor:
        assert doctor.end(200) == 1, doctor.errors
        report = json.loads("\n".join(doctor.lines))
    found = {finding["name"]: finding for finding in report["findings"]}
    lacking = {name for name, finding in found.items() if finding["status"] == "fail"}
    assert lacking == {"packages there"}, found
    assert (
        "has no pyarrow, pandas, cloudpickle, msgspec, millstream"
        in found["packages there"]["found"]
    )
    assert str(folder / "python") in found["Python there"]["found"]
    assert found["executors"]["found"].startswith("2 executors with 2 slots on 2 hosts")
    assert found["checkpoint folder"]["found"].endswith("is seen by the driver and 2 executors")
    assert found["clocks"]["status"] == "ok"
    assert "spark.authenticate" in found["security"]["fix"]
    assert not (folder / "shared").exists()
