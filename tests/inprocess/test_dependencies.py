"""Files, archives and packages that a program declares are there where its functions run."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.api.functions import MapFunction, RuntimeContext
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, DependencyError, InvalidArgument
from millstream.runtime.task import dependencies as runtime
from tests.packages import make_wheel
from tests.support import collect, environment


@pytest.fixture
def env(tmp_path: Path) -> Iterator[StreamExecutionEnvironment]:
    """An environment whose dependencies go to a folder of the test's own."""
    path, cwd = list(sys.path), os.getcwd()
    yield environment(millstream__state__dir=tmp_path / "local")
    assert os.getcwd() == cwd, "the program's own working folder has changed"
    sys.path[:] = path


@pytest.fixture
def module() -> Iterator[str]:
    """The name of a module that nobody has yet."""
    name = f"only_here_{uuid.uuid4().hex[:8]}"
    yield name
    sys.modules.pop(name, None)


def value_of(module: str):
    """A function that imports a module when it runs."""
    return lambda _: importlib.import_module(module).VALUE


def test_a_python_file(env, module, tmp_path):
    (tmp_path / f"{module}.py").write_text("VALUE = 'file'")
    env.add_python_file(str(tmp_path / f"{module}.py"))
    assert collect(env.from_collection([1]).map(value_of(module))) == ["file"]


@pytest.mark.parametrize("inside", ["", "package"])
def test_a_folder(env, module, tmp_path, inside):
    if inside:
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text("VALUE = 'folder'")
        env.add_python_file(str(tmp_path / module))
    else:
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / f"{module}.py").write_text("VALUE = 'folder'")
        env.add_python_file(str(tmp_path / "code"))
    assert collect(env.from_collection([1]).map(value_of(module))) == ["folder"]


def test_a_zip_file(env, module, tmp_path):
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr(f"{module}.py", "VALUE = 'zip'")
    env.add_python_file(str(tmp_path / "code.zip"))
    assert collect(env.from_collection([1]).map(value_of(module))) == ["zip"]


def test_the_file_that_was_added_last_is_found_first(env, module, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{module}.py").write_text(f"VALUE = {name!r}")
        env.add_python_file(str(tmp_path / name))
    assert collect(env.from_collection([1]).map(value_of(module))) == ["second"]


def test_a_relative_path_is_that_of_the_call(env, module, tmp_path, monkeypatch):
    (tmp_path / f"{module}.py").write_text("VALUE = 1")
    monkeypatch.chdir(tmp_path)
    env.add_python_file(f"{module}.py")
    monkeypatch.undo()
    assert collect(env.from_collection([1]).map(value_of(module))) == [1]


def test_requirements_from_a_folder_of_packages(env, module, tmp_path):
    make_wheel(tmp_path / "packages", module, "1.0", "VALUE = 'package'")
    (tmp_path / "requirements.txt").write_text(f"{module}==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "packages"))
    assert collect(env.from_collection([1]).map(value_of(module))) == ["package"]


def test_requirements_without_a_folder(env, module, tmp_path):
    # What pip is told in the file itself: here a wheel by its path, elsewhere a name in an index.
    wheel = make_wheel(tmp_path / "packages", module, "1.0", "VALUE = 'wheel'")
    (tmp_path / "requirements.txt").write_text(f"{wheel}\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"))
    assert collect(env.from_collection([1]).map(value_of(module))) == ["wheel"]


def test_packages_are_installed_once(env, module, tmp_path, monkeypatch):
    """By whoever is first of all processes of a machine."""
    make_wheel(tmp_path / "packages", module, "1.0", "VALUE = 'package'")
    (tmp_path / "requirements.txt").write_text(f"{module}\n")
    declared = runtime.Declared(
        requirements=str(tmp_path / "requirements.txt"), package_folder=str(tmp_path / "packages")
    )
    staged = runtime.stage(declared, str(tmp_path / "local"))
    log = tmp_path / "pip.log"
    shipped = pickle.dumps((staged, {part: runtime.staged_path(part) for part in staged.parts}))
    program = f"""
import pickle
from millstream.runtime.task import dependencies as d

run = d._run_pip
def logged(command, name):
    open({str(log)!r}, "a").write("pip\\n")
    run(command, name)
d._run_pip = logged
staged, places = pickle.loads({shipped!r})
d.prepare(staged, places.__getitem__)
import {module}
print({module}.VALUE)
"""
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [process.communicate()[0] for process in started] == ["package\n"] * 4
    assert log.read_text() == "pip\n"


def test_what_pip_says_is_shown(env, module, tmp_path):
    (tmp_path / "packages").mkdir()
    (tmp_path / "requirements.txt").write_text(f"{module}==7.7\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "packages"))
    with pytest.raises(DependencyError, match="No matching distribution") as raised:
        collect(env.from_collection([1]))
    assert raised.value.code == "DEPENDENCY_FAILED"
    assert "requirements.txt" in str(raised.value)
    # A failed installation is not taken for a finished one.
    with pytest.raises(DependencyError):
        collect(env.from_collection([1]))


def pack(archive: Path, files: dict[str, str]) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(name, text)
        return archive
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            one = archive.parent / f"one-{uuid.uuid4().hex}"
            one.write_text(text)
            tar.add(one, name)
    return archive


@pytest.mark.parametrize("kind", ["data.zip", "data.tar.gz"])
@pytest.mark.parametrize("target", [None, "named", "deep/named"])
def test_an_archive_is_found_by_a_relative_path(env, tmp_path, kind, target):
    archive = pack(tmp_path / kind, {"inside/words.txt": kind})
    env.add_python_archive(str(archive), target)
    path = f"{target or kind}/inside/words.txt"
    assert collect(env.from_collection([1]).map(lambda _: Path(path).read_text())) == [kind]


def test_two_jobs_with_other_archives_of_one_name(env, tmp_path):
    read = lambda _: Path("data/it").read_text()  # noqa: E731
    for content in ("one", "two"):
        env.get_configuration().remove_config("python.archives")
        env.add_python_archive(str(pack(tmp_path / "a.zip", {"it": content})), "data")
        assert collect(env.from_collection([1]).map(read)) == [content]


class ReadCached(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.cache = runtime_context.get_distributed_cache()

    def map(self, value):
        file = self.cache.get_file(value)
        if file.is_dir():
            return sorted(path.name for path in file.iterdir())
        return file.read_text(), os.access(file, os.X_OK)


def test_cached_files(env, tmp_path):
    (tmp_path / "plain, with 'odd' name;").write_text("text")
    (tmp_path / "tool").write_text("#!/bin/sh")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("")
    (tmp_path / "folder" / "b").write_text("")
    env.register_cached_file(str(tmp_path / "plain, with 'odd' name;"), "plain")
    env.register_cached_file((tmp_path / "tool").as_uri(), "tool", executable=True)
    env.register_cached_file(str(tmp_path / "folder"), "folder")
    found = collect(env.from_collection(["plain", "tool", "folder"]).map(ReadCached()))
    assert found == [("text", False), ("#!/bin/sh", True), ["a", "b"]]


def test_an_unknown_cached_file(env, tmp_path):
    with pytest.raises(Exception, match="no file is registered under the name 'nothing'"):
        collect(env.from_collection(["nothing"]).map(ReadCached()))


@pytest.mark.parametrize(
    "declare",
    [
        lambda env: env.add_python_file("/not/there.py"),
        lambda env: env.add_python_archive("/not/there.zip"),
        lambda env: env.set_python_requirements("/not/there.txt"),
        lambda env: env.set_python_requirements(__file__, "/not/there"),
        lambda env: env.register_cached_file("/not/there", "it"),
    ],
)
def test_what_is_missing_is_an_error_of_execute(env, declare):
    declare(env)
    with pytest.raises(DependencyError, match="not there") as raised:
        collect(env.from_collection([1]))
    assert "/not/there" in str(raised.value)


def test_what_is_no_archive(env, tmp_path):
    (tmp_path / "x.zip").write_text("no")
    env.add_python_archive(str(tmp_path / "x.zip"))
    with pytest.raises(DependencyError, match="not an archive"):
        collect(env.from_collection([1]))


def test_a_target_outside_the_working_folder(env, tmp_path):
    env.add_python_archive(str(tmp_path / "x.zip"), "../up")
    with pytest.raises(ConfigurationError, match="below"):
        collect(env.from_collection([1]))


@pytest.mark.parametrize("path", [None, 5, b"x", "", ["x"]])
def test_what_is_no_path_is_refused(env, path):
    for declare in (env.set_python_requirements, env.add_python_archive, env.add_python_file):
        with pytest.raises(InvalidArgument, match="a path must be a text"):
            declare(path)


def test_bad_arguments(env):
    with pytest.raises(InvalidArgument):
        env.register_cached_file("/a", "")
    with pytest.raises(InvalidArgument):
        env.set_python_executable("")
    env.get_configuration().set_string("pipeline.cached-files", "nonsense")
    with pytest.raises(ConfigurationError, match="cached-files"):
        collect(env.from_collection([1]))


def test_a_folder_that_others_may_write_to_is_refused(env, module, tmp_path):
    place = tmp_path / "local" / f"millstream-dependencies-{os.getuid()}"
    place.mkdir(parents=True)
    place.chmod(0o777)
    (tmp_path / f"{module}.py").write_text("VALUE = 1")
    env.add_python_file(str(tmp_path / f"{module}.py"))
    with pytest.raises(DependencyError, match="others may write"):
        collect(env.from_collection([1]))


def test_what_nobody_has_used_for_long_is_removed(env, module, tmp_path):
    place = tmp_path / "local" / f"millstream-dependencies-{os.getuid()}"
    place.mkdir(parents=True, mode=0o700)
    for name in ("old", "new"):
        (place / name).mkdir()
        (place / f"{name}.lock").touch()
    os.utime(place / "old.lock", (0, 0))
    (tmp_path / f"{module}.py").write_text("VALUE = 1")
    env.add_python_file(str(tmp_path / f"{module}.py"))
    collect(env.from_collection([1]).map(value_of(module)))
    assert not (place / "old").exists()
    assert (place / "new").exists()


def test_jars_reach_spark() -> None:
    from millstream.datastream.settings import job_settings

    env = environment()
    env.get_configuration().set_string("spark.jars", "/own.jar")
    env.add_jars("file:///a.jar", "file:///b.jar")
    env.add_classpaths("file:///everywhere.jar")
    found = job_settings(env.get_configuration(), None).spark["spark.jars"]
    assert found == "/own.jar,file:///a.jar,file:///b.jar,local:/everywhere.jar"
