"""`--pyflink` on the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.pyflink import uninstall

JOB = """
import sys

from pyflink.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(sys.argv[1:]).map(str.upper).print()
env.execute("shout")
"""


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    uninstall()


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return str(path)


def test_run(job: str) -> None:
    arguments = ["run", "--pyflink", "-Dexecution.target=in-process", job, "mill", "--race"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "MILL" in result.output


def test_info(job: str) -> None:
    result = CliRunner().invoke(main, ["info", "--pyflink", "--json", job, "a"])
    assert result.exit_code == 0, result.output
    assert "Map" in json.dumps(json.loads(result.stdout))


def test_without_the_flag_there_is_no_pyflink(job: str) -> None:
    result = CliRunner().invoke(main, ["run", job])
    assert result.exit_code == 1
    assert "millstream run --pyflink" in result.output


def test_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("from pyflink.table import StreamTableEnvironment\n")
    result = CliRunner().invoke(main, ["run", "--pyflink", str(path)])
    assert result.exit_code == 1
    assert "MODULE_NOT_AVAILABLE" in result.output
    assert "from_dataframe" in result.output
