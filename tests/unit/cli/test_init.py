"""`millstream init`: what it writes runs, and what is there stays as it is."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millstream.cli import main
from millstream.cli.init import project_files
from millstream.cli.origin import requirement
from millstream.datastream import overrides
from millstream.errors import InvalidArgument

FILES = [".gitignore", "README.md", "job.py", "requirements.txt", "test_job.py"]


def begin(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_says_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "clicks"
    result = begin(str(folder))
    assert result.exit_code == 0, result.output
    assert names(folder) == FILES
    assert [line.split()[0] for line in result.output.splitlines()] == ["wrote"] * 5 + ["next:"]
    assert f"cd {folder} && " in result.output.splitlines()[-1]


def test_without_a_path_it_is_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = begin("--name", "web clicks")
    assert names(tmp_path) == FILES
    assert result.output.splitlines()[-1] == "next: python -m pytest && python job.py"
    assert 'NAME = "web clicks"' in (tmp_path / "job.py").read_text()
    assert (tmp_path / "README.md").read_text().startswith("# web clicks\n")


def test_the_name_is_the_folders(tmp_path: Path) -> None:
    begin(str(tmp_path / "orders"))
    assert 'NAME = "orders"' in (tmp_path / "orders" / "job.py").read_text()


@pytest.mark.parametrize("file", FILES)
def test_nothing_is_overwritten(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("mine")
    result = begin(str(tmp_path), "--name", "clicks")
    assert result.exit_code == 1
    assert f"files: {file}" in result.stderr
    assert names(tmp_path) == [file]
    assert (tmp_path / file).read_text() == "mine"


def test_other_files_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2")
    assert begin(str(tmp_path), "--name", "clicks").exit_code == 0


@pytest.mark.parametrize("name", ["", " a", 'a"b', "a\nb", "a\\", "$name", "../x", "`ls`"])
def test_a_name_that_would_break_something(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        project_files(name)
    result = begin(str(tmp_path / "new"), "--name", name)
    assert result.exit_code == 1
    assert "--name" in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = begin(str(tmp_path / "taken"), "--name", "clicks")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_nothing_is_left_to_fill_in() -> None:
    for text in project_files("clicks").values():
        assert "$" not in text


def test_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(str(tmp_path), "--name", "clicks")
    monkeypatch.setattr(sys, "argv", ["job.py", "--clicks", "400", "--rate", "100000"])
    overrides.set_overrides({"execution.target": "in-process"})
    try:
        runpy.run_path(str(tmp_path / "job.py"), run_name="__main__")
    finally:
        overrides.set_overrides({})
    lines = capsys.readouterr().out.splitlines()
    assert sum(int(line.split()[-2]) for line in lines) == 400
    assert (tmp_path / "checkpoints").is_dir()


def test_its_tests_pass_and_its_style_is_clean(tmp_path: Path) -> None:
    begin(str(tmp_path), "--name", "clicks")
    for command in (
        ["pytest", "-q", "-p", "no:cacheprovider"],
        ["ruff", "check", "--isolated", "--no-cache", "."],
        ["ruff", "format", "--isolated", "--no-cache", "--line-length=100", "--check", "."],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_requirements_name_the_millstream_that_is_here(tmp_path: Path) -> None:
    """No index has it, perhaps; where it was installed from, it can be installed from again."""
    begin(str(tmp_path / "clicks"))
    assert (tmp_path / "clicks" / "requirements.txt").read_text().startswith(requirement())
