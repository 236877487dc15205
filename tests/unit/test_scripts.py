"""The scripts that CI trusts: their examples, and which Pythons are found."""

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import millstream.common
import millstream.datastream
import millstream.state
import millstream.testing

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["api_reference", "coverage_floor", "site_hooks", "test_pythons"])
def test_examples_in_scripts(name, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    failed, attempted = doctest.testmod(script(name))
    assert attempted > 0
    assert failed == 0


def test_every_python_that_pyproject_names_is_looked_for():
    pyproject = (SCRIPTS.parent / "pyproject.toml").read_text()
    named = script("test_pythons").named_versions(pyproject)
    assert named[0] == "3.11"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in named


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Makes the home of a Python that says something and ends with a code."""
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "none"))
    homes: list[str] = []

    def make(name, says, code=0):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "python").write_text(f"#!/bin/sh\necho {says}\nexit {code}\n")
        (folder / "python").chmod(0o755)
        homes.append(str(tmp_path / name))
        monkeypatch.setenv("PYTHONS_PATH", os.pathsep.join(homes))
        return folder / "python"

    return make


def test_a_python_is_found_if_it_runs_and_is_of_the_version(home):
    home("off", "3.99", code=1)
    home("older", "3.98")
    right = home("right", "3.99")
    assert script("test_pythons").find_python("3.99") == right


def test_a_python_that_is_not_there_is_not_found(home):
    home("off", "3.99", code=1)
    assert script("test_pythons").find_python("3.99") is None


@pytest.mark.parametrize(
    ("first", "failed", "second", "code", "runs"),
    [
        pytest.param(0, [], 0, 0, 1, id="all pass"),
        pytest.param(1, ["a", "b"], 0, 0, 2, id="passes the second time"),
        pytest.param(1, ["a"], 1, 1, 2, id="fails twice"),
        pytest.param(1, ["a", "b", "c", "d"], 0, 1, 1, id="more than bad luck"),
        pytest.param(1, [], 0, 1, 1, id="ended without a word"),
        pytest.param(2, ["a"], 0, 2, 1, id="interrupted"),
        pytest.param(5, [], 0, 5, 1, id="no tests"),
    ],
)
def test_what_fails_is_run_once_more(capsys, first, failed, second, code, runs):
    commands = []

    def run(command):
        cache = Path(command[command.index("-o") + 1].removeprefix("cache_dir="))
        if not commands:
            (cache / "v/cache").mkdir(parents=True)
            (cache / "v/cache/lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
        commands.append(command)
        return first if len(commands) == 1 else second

    arguments = ["--coverage", "--", "-m", "not spark", "tests", "-n", "auto", "--dist", "loadfile"]
    assert script("run_tests").main(arguments, run) == code
    assert len(commands) == runs
    assert commands[0][2:5] == ["coverage", "run", "-m"]
    assert commands[0][-7:] == arguments[2:]
    if runs == 2:
        assert "coverage" not in commands[1]
        assert commands[1][-4:] == ["--last-failed", "-m", "not spark", "tests"]
        said = capsys.readouterr().out
        assert all(f"    {name}\n" in said for name in failed)
        assert ("UNSTEADY" in said) == (second == 0)


def test_a_test_that_fails_once_is_found_again_by_pytest(tmp_path, capfd):
    (tmp_path / "test_once.py").write_text(
        "from pathlib import Path\n"
        "def test_steady(): assert not Path('second').exists()\n"
        "def test_unsteady():\n"
        "    first = not Path('first').exists()\n"
        "    Path('first').touch()\n"
        "    assert not first\n"
        "    Path('second').touch()\n"
        "def test_broken(): assert not Path('broken').exists()\n"
    )
    run_tests = script("run_tests").main

    def inside(command):
        return subprocess.call(command, cwd=tmp_path)

    assert run_tests(["--", "-q", "test_once.py"], inside) == 0
    assert "test_once.py::test_unsteady" in capfd.readouterr().out
    (tmp_path / "broken").touch()
    (tmp_path / "second").unlink()
    assert run_tests(["--", "-q", "test_once.py"], inside) == 1


# What the reference of the API has to hold beside PyFlink's names.
OWN = """
    StreamExecutionEnvironment.from_dataframe StreamExecutionEnvironment.socket_text_stream DataStream.to_dataframe
    DataStream.on_error SparkSink PostgresSink DataGeneratorSource ErrorPolicy ErrorPolicy.dead_letter DeadLetter
    SavepointReader SavepointEditor edit open_savepoint read read_pandas OperatorHarness ScriptedSource collect
""".split()


def test_the_reference_holds_what_programs_import():
    written = script("api_reference").pages()
    entries = re.findall(r"^##+ .* \{ #(\S+) \}$", "\n".join(written.values()), re.MULTILINE)
    assert set(OWN) <= set(entries)
    modules = [millstream.datastream, millstream.common, millstream.state, millstream.testing]
    names = {name for module in modules for name in module.__all__}
    assert names <= set(entries)
    assert "## millstream run" in written["commands.md"]
