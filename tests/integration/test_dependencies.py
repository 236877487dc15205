"""Files, archives, packages and the Python of a program reach the workers of Spark, here and on a cluster."""

from __future__ import annotations

import importlib
import os
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from millstream.api.functions import MapFunction, RuntimeContext
from tests.integration.clusters import standalone
from tests.integration.conftest import MakeEnv
from tests.integration.processes import MARK, Program, quick_environment
from tests.integration.test_clusters import EXECUTORS, with_settings
from tests.packages import make_wheel

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# Prints what its functions find, and where.
PROGRAM = """
import importlib
import os
import sys
from pathlib import Path

from millstream.datastream import MapFunction, StreamExecutionEnvironment


class Look(MapFunction):
    def open(self, runtime_context):
        self.cache = runtime_context.get_distributed_cache()

    def map(self, kind):
        if kind == "cached":
            path = self.cache.get_file("model")
            return kind, path.read_text(), str(path), ""
        if kind == "archive":
            path = Path("data/inside.txt")
            return kind, path.read_text(), str(path.resolve()), ""
        if kind == "python":
            return kind, os.environ.get("WRAPPED", ""), sys.executable, ""
        module = importlib.import_module(f"only_in_{kind}")
        return kind, module.VALUE, module.__file__, ""


folder = Path(sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
env.add_python_file(str(folder / "only_in_file.py"))
env.add_python_file(str(folder / "code"))
env.set_python_requirements(str(folder / "requirements.txt"), str(folder / "packages"))
env.add_python_archive(str(folder / "data.zip"), "data")
env.add_python_archive(str(folder / "env.zip"))
env.set_python_executable("env.zip/bin/python")
env.register_cached_file(str(folder / "model.bin"), "model")
kinds = ["file", "folder", "package", "archive", "cached", "python"]
env.from_collection(kinds).rebalance().map(Look()).print()
env.execute("look")
"""


def make_all(folder: Path) -> None:
    """What the program depends on."""
    (folder / "only_in_file.py").write_text("VALUE = 'of the file'")
    (folder / "code").mkdir()
    (folder / "code" / "only_in_folder.py").write_text("VALUE = 'of the folder'")
    make_wheel(folder / "packages", "only_in_package", "1.0", "VALUE = 'of the package'")
    (folder / "requirements.txt").write_text("only_in_package\n")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("inside.txt", "of the archive")
    with zipfile.ZipFile(folder / "env.zip", "w") as archive:
        # Stands for a whole environment: it must be unpacked, and may be run.
        info = zipfile.ZipInfo("bin/python")
        info.external_attr = 0o755 << 16
        archive.writestr(info, f'#!/bin/sh\nWRAPPED=yes exec {sys.executable} "$@"\n')
    (folder / "model.bin").write_text("of the model")
    (folder / "job.py").write_text(PROGRAM)


def look(command: list[str], folder: Path, **environment: str) -> dict[str, tuple[str, str]]:
    """Run the program; by kind what was found and where."""
    with Program([*command, str(folder / "job.py"), str(folder)], folder, **environment) as driver:
        assert driver.end(280) == 0, driver.errors
        found = [eval(line.partition("> ")[2] or line) for line in driver.lines]
    return {kind: (text, place) for kind, text, place, _ in found}


VALUES = {
    "file": "of the file",
    "folder": "of the folder",
    "package": "of the package",
    "archive": "of the archive",
    "cached": "of the model",
    "python": "yes",
}


def test_local(tmp_path: Path) -> None:
    make_all(tmp_path)
    found = look(with_settings({}), tmp_path)
    assert {kind: text for kind, (text, _) in found.items()} == VALUES


def test_standalone_cluster(tmp_path: Path) -> None:
    make_all(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with standalone(tmp_path, quick_environment(**{MARK: uuid.uuid4().hex})) as url:
        settings = {
            "spark.master": url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # As on another machine: workers find nothing that the driver has put in place.
            "spark.executorEnv.TMPDIR": str(elsewhere),
            **EXECUTORS,
        }
        found = look(with_settings(settings), tmp_path)
    assert {kind: text for kind, (text, _) in found.items()} == VALUES
    for kind in VALUES.keys() - {"python"}:
        assert found[kind][1].startswith(str(elsewhere)), kind


class Where(MapFunction):
    """Says what a worker has."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.cache = runtime_context.get_distributed_cache()

    def map(self, value: str) -> object:
        return Path.cwd().joinpath(value).read_text() if value else os.getcwd()


def test_jobs_of_one_session_do_not_disturb_each_other(make_env: MakeEnv, tmp_path: Path) -> None:
    """Workers serve one job after the other; each finds its own archive, and one without archives none."""
    for content in ("one", "two"):
        with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
            archive.writestr("it", content)
        env = make_env()
        env.add_python_archive(str(tmp_path / "data.zip"), "data")
        stream = env.from_collection(["data/it"] * 4).rebalance().map(Where())
        assert list(stream.execute_and_collect()) == [content] * 4
    env = make_env()
    stream = env.from_collection([""] * 4).rebalance().map(Where())
    assert set(stream.execute_and_collect()) == {os.getcwd()}


def test_a_record_of_a_shipped_class_comes_back_to_the_driver(
    make_env: MakeEnv, tmp_path: Path
) -> None:
    name = f"only_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text("class Thing:\n    def __init__(self, n): self.n = n\n")
    env = make_env()
    env.add_python_file(str(tmp_path / f"{name}.py"))
    stream = env.from_collection([1, 2]).map(lambda n: importlib.import_module(name).Thing(n))
    assert sorted(thing.n for thing in stream.execute_and_collect()) == [1, 2]


def test_jars_of_a_session_that_is_already_there(make_env: MakeEnv, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.jar", "w") as jar:
        jar.writestr("only/in/jar.txt", "found")
    env = make_env()
    env.add_jars((tmp_path / "lib.jar").as_uri())
    list(env.from_collection([1]).execute_and_collect())
    from pyspark.sql import SparkSession

    jars = SparkSession.active().sparkContext._jsc.sc().listJars()
    assert "lib.jar" in jars.mkString(",")
