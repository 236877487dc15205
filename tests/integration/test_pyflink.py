"""PyFlink's programs run unchanged and print what PyFlink printed (`make parity` writes down what that is)."""

from __future__ import annotations

import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.pyflink import install, uninstall
from tests.integration.processes import Program

ROOT = Path(__file__).parents[2]
PROGRAMS = {path.stem: path for path in (ROOT / "examples" / "pyflink").glob("*.py")}
PARITY = runpy.run_path(str(ROOT / "scripts" / "parity.py"))

pytestmark = pytest.mark.spark


@pytest.fixture
def served() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program(name: str, spark: Any, served: None, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    capfd.readouterr()
    runpy.run_path(str(PROGRAMS[name]), run_name="__main__")
    lines = PARITY["normal"](capfd.readouterr().out)
    expected = (PARITY["EXPECTED"] / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    verdict, details = PARITY["compare"](name, expected, lines)
    assert verdict != "DIFFERENT", details


HELPER = """
from pyflink.common import Row


def as_row(word):
    return Row(word, len(word))
"""

JOB = """
import sys

import pyflink.common as common
from helper import as_row
from pyflink.datastream import StreamExecutionEnvironment


def grow(row):
    from pyflink.common.types import Row

    return Row(row[0], row[1] + 1)


def shout(row):
    return common.Row(row[0].upper(), row[1])


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection(sys.argv[1:]).map(as_row).map(grow).map(shout).print()
env.execute("imports in workers")
"""


@pytest.mark.timeout(180)
def test_workers_import_pyflink_too(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "millstream.pyflink", str(tmp_path / "job.py"), "mill", "race"]
    with Program(command, tmp_path) as program:
        assert program.end(170) == 0, (program.lines, program.errors)
        assert Counter(program.lines) == Counter(["<Row('MILL', 5)>", "<Row('RACE', 5)>"])
