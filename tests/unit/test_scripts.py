"""The scripts that CI trusts: their examples, and which Pythons are found."""

import doctest
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["coverage_floor", "test_pythons"])
def test_examples_in_scripts(name):
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
