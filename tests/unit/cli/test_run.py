"""`millstream run`: Flink's flags, the program's surroundings, and how failures look."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from millstream.cli import main
from tests.unit.cli.conftest import FakeOverrides

# Writes what it sees of the world to the file seen.json beside it.
REPORT = """
import json, sys
from pathlib import Path
from millstream.datastream import overrides
Path(__file__).with_name("seen.json").write_text(json.dumps({
    "name": __name__, "argv": sys.argv, "path": sys.path[:3], "overrides": overrides.in_force,
}))
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["run", *words])


@pytest.fixture
def job(tmp_path: Path, overrides: FakeOverrides) -> Path:
    path = tmp_path / "jobs" / "job.py"
    path.parent.mkdir()
    path.write_text(REPORT)
    return path


def seen(job: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(job.with_name("seen.json").read_text())
    return found


def test_the_script_runs_as_main_with_its_arguments_and_folder(job: Path) -> None:
    argv, path = list(sys.argv), list(sys.path)
    result = run(str(job), "--input", "x", "-p", "9")
    assert result.exit_code == 0, result.output
    found = seen(job)
    assert found["name"] == "__main__"
    assert found["argv"] == [str(job), "--input", "x", "-p", "9"]
    assert found["path"][0] == str(job.parent)
    assert found["overrides"] == {}
    assert (sys.argv, sys.path) == (argv, path)


@pytest.mark.parametrize(
    "words",
    [
        ["-Dpipeline.name=a=b", "-p", "2", "-py", "JOB", "--input", "x"],
        ["-p2", "-D", "pipeline.name=a=b", "-py", "JOB", "--input", "x"],
        ["--parallelism=2", "--python=JOB", "-Dpipeline.name=a=b", "--", "--input", "x"],
        ["-p", "2", "-Dpipeline.name=a=b", "JOB", "--input", "x"],
    ],
)
def test_flags_together_in_any_spelling(job: Path, words: list[str]) -> None:
    result = run(*(word.replace("JOB", str(job)) for word in words))
    assert result.exit_code == 0, result.output
    found = seen(job)
    assert found["overrides"] == {"pipeline.name": "a=b", "parallelism.default": "2"}
    assert found["argv"] == [str(job), "--input", "x"]


def test_overrides_end_with_the_program(job: Path, overrides: FakeOverrides) -> None:
    run("-p", "2", str(job))
    assert overrides.history == [{"parallelism.default": "2"}, {}]


def test_a_module_runs_with_pym_and_pyfs(job: Path, tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.touch()
    job.rename(job.with_name("counting_job.py"))
    result = run("-pyfs", f"{job.parent},{helper}", "-pym", "counting_job", "now")
    assert result.exit_code == 0, result.output
    found = seen(job)
    assert found["argv"][1:] == ["now"]
    assert found["path"][1:] == [str(job.parent), str(tmp_path)]
    assert found["overrides"] == {"python.files": f"{job.parent},{helper}"}


def test_what_functions_need_is_named_by_the_flags_of_flink(job: Path) -> None:
    flags = ["-pyreq", "r.txt#packages", "-pyarch", "a.zip,b.zip#b", "-pyexec", "a.zip/bin/python"]
    result = run(*flags, str(job))
    assert result.exit_code == 0, result.output
    assert seen(job)["overrides"] == {
        "python.requirements": "r.txt#packages",
        "python.archives": "a.zip,b.zip#b",
        "python.executable": "a.zip/bin/python",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no program"),
        (["gone.py"], "no such program: gone.py"),
        (["-s", "savepoint-1", "/", "job.py"], "this is a folder and no program: /"),
        (["-py", "a.py", "-pym", "a"], "give one of them"),
        (["-p", "0", "job.py"], "0 is not in the range"),
        (["-p"], "requires an argument"),
        (["--paralelism", "2", "job.py"], "--parallelism"),
        (["-pyfs", "/gone/lib", "-pym", "json"], "no such file or folder: /gone/lib"),
    ],
)
def test_wrong_usage_is_exit_2(overrides: FakeOverrides, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("flag", ["-d", "--detached"])
def test_without_a_session_nothing_is_detached(
    job: Path, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_SESSIONS_DIR", str(tmp_path))
    result = run(flag, str(job))
    assert result.exit_code == 1
    assert "[SESSION_FAILED] there is no session 'default'" in result.stderr
    assert "millstream session start -d" in result.stderr
    assert not job.with_name("seen.json").exists()


def test_a_setting_without_a_value_is_explained(job: Path) -> None:
    result = run("-Dnonsense", str(job))
    assert result.exit_code == 1
    assert "[CONFIGURATION_INVALID] -Dnonsense sets nothing" in result.stderr


FAILING = """
from millstream.errors import SourceNotFound
raise SourceNotFound("no such file", path="/data/in", hint="look elsewhere")
"""


def test_a_millstream_error_is_its_text_in_red_and_no_traceback(job: Path) -> None:
    job.write_text(FAILING)
    result = CliRunner().invoke(main, ["run", str(job)], color=True)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("\x1b[31m[SOURCE_NOT_FOUND] no such file")
    assert "what to do: look elsewhere" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_traceback_is_there_when_asked_for(job: Path) -> None:
    job.write_text(FAILING)
    result = run("--traceback", str(job))
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "[SOURCE_NOT_FOUND]" in result.stderr


def test_an_error_of_building_names_the_programs_line(job: Path) -> None:
    job.write_text(
        "from millstream.common import Configuration\n\n\n"
        "def build():\n    Configuration().setString('a', 'b')\n\n\nbuild()\n"
    )
    result = run(str(job))
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "[NAME_NOT_FOUND] Configuration has no 'setString'; did you mean 'set_string'?",
        f"  line: {job}:5: Configuration().setString('a', 'b')",
    ]


def test_the_programs_own_failure_shows_its_own_lines_only(job: Path) -> None:
    job.write_text("def inner():\n    return 1 / 0\n\ninner()\n")
    result = run(str(job))
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stderr
    assert f'File "{job}", line 4' in result.stderr
    assert "runpy" not in result.stderr
    assert "program.py" not in result.stderr


def test_a_syntax_error_names_the_line(job: Path) -> None:
    job.write_text("x = = 1\n")
    result = run(str(job))
    assert result.exit_code == 1
    assert "SyntaxError" in result.stderr
    assert "runpy" not in result.stderr


def test_ctrl_c_is_exit_130(job: Path) -> None:
    job.write_text("raise KeyboardInterrupt\n")
    assert run(str(job)).exit_code == 130


def test_the_programs_exit_code_is_kept(job: Path) -> None:
    job.write_text("import sys\nsys.exit(7)\n")
    assert run(str(job)).exit_code == 7
